package keys

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"example.org/lockstep/lockstep/internal/files"
)

// Validity of certificates, and the maximum that a host's wall clock may be behind.
const (
	authorityHolds = 10 * 365 * 24 * time.Hour
	serverHolds    = 2 * 365 * 24 * time.Hour
	calendarsApart = time.Hour
)

// makeServer writes the certificate of all servers of the control plane, for all their names.
func makeServer(dir string, hosts []string) error {
	authority, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"))
	if err != nil {
		return fmt.Errorf("read the authority (ca.crt and ca.key): %w", err)
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "Lockstep control plane server"},
		KeyUsage: x509.KeyUsageDigitalSignature,
		// servers of a cluster also connect to each other
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return makeCertificate(dir, "server", serverHolds, &authority, template)
}

// makeCertificate writes name.crt and name.key from a template without validity. An authority signs it; nil: itself.
func makeCertificate(dir, name string, holds time.Duration, by *tls.Certificate, template *x509.Certificate) error {
	template.NotBefore, template.NotAfter = time.Now().Add(-calendarsApart), time.Now().Add(holds)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("create certificate %s: %w", name, err)
	}
	by = cmp.Or(by, &tls.Certificate{Leaf: template, PrivateKey: key})
	der, err := x509.CreateCertificate(rand.Reader, template, by.Leaf, &key.PublicKey, by.PrivateKey)
	if err != nil {
		return fmt.Errorf("create certificate %s: %w", name, err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("create certificate %s: %w", name, err)
	}
	if err := files.WriteSecret(filepath.Join(dir, name+".key"),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})); err != nil {
		return err
	}
	return files.WriteSecret(filepath.Join(dir, name+".crt"),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
