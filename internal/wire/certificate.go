package wire

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// How long certificates hold, and how far a host's calendar may be behind.
const (
	authorityHolds = 10 * 365 * 24 * time.Hour
	serverHolds    = 2 * 365 * 24 * time.Hour
	calendarsApart = time.Hour
)

// makeAuthority writes the certificate that signs the servers', and its key.
func makeAuthority(dir string) error {
	template, err := certificate("Lockstep control plane", authorityHolds)
	if err != nil {
		return err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	template.MaxPathLenZero = true
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	return sign(dir, "ca", template, template, key, key)
}

// makeServer writes the certificate that every server of the control plane shows, for all names it is reached by.
func makeServer(dir string, hosts []string) error {
	pair, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err != nil {
		return fmt.Errorf("read the authority's key: %w", err)
	}
	block, _ := pem.Decode(pair)
	if block == nil {
		return errors.New("read the authority's key: ca.key is no PEM file")
	}
	authorityKey, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return fmt.Errorf("read the authority's key: %w", err)
	}
	authority, err := readCertificate(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return err
	}
	template, err := certificate("Lockstep control plane server", serverHolds)
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} // servers of a cluster dial each other
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	return sign(dir, "server", template, authority, key, authorityKey)
}

func certificate(name string, holds time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-calendarsApart), NotAfter: now.Add(holds)}, nil
}

// sign writes name.crt and name.key.
func sign(dir, name string, template, by *x509.Certificate, key, byKey *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, template, by, &key.PublicKey, byKey)
	if err != nil {
		return fmt.Errorf("make certificate %s: %w", name, err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("make certificate %s: %w", name, err)
	}
	if err := replace(filepath.Join(dir, name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})); err != nil {
		return err
	}
	return replace(filepath.Join(dir, name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func readCertificate(path string) (*x509.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("read certificate %s: it is no PEM file", path)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read certificate %s: %w", path, err)
	}
	return c, nil
}

// replace writes a file that only its owner may read, whole or not at all.
func replace(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is the one to tell
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
