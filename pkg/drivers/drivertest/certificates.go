package drivertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates is a folder with the certificates of a broker under test, as PEM files. They are valid for a day.
type Certificates string

// NewCertificates creates certificates for a test.
func NewCertificates(t testing.TB) Certificates {
	t.Helper()
	c := Certificates(t.TempDir())
	if err := c.Write(); err != nil {
		t.Fatal(err)
	}
	return c
}

// CA is the file of the authority that signed the certificates of the broker and its client.
func (c Certificates) CA() string { return filepath.Join(string(c), "ca.pem") }

// OtherCA is the file of an authority that signed nothing.
func (c Certificates) OtherCA() string { return filepath.Join(string(c), "other.pem") }

// Broker is a file with the broker's certificate, which is valid for localhost only, and its key.
func (c Certificates) Broker() string { return filepath.Join(string(c), "broker.pem") }

// Client is a file with the certificate of a client, and its key.
func (c Certificates) Client() string { return filepath.Join(string(c), "client.pem") }

// ServerConfig returns the configuration of a listener that requires the client's certificate.
func (c Certificates) ServerConfig(t testing.TB) *tls.Config {
	t.Helper()
	own, err := tls.LoadX509KeyPair(c.Broker(), c.Broker())
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(c.CA())
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca)
	return &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: clients,
		ClientAuth: tls.RequireAndVerifyClientCert}
}

// Write creates the folder and its files.
func (c Certificates) Write() error {
	if err := os.MkdirAll(string(c), 0o700); err != nil {
		return err
	}
	authority := x509.Certificate{Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	ca, caKey, err := writeCertificate(c.CA(), authority, nil, nil)
	if err != nil {
		return err
	}
	if _, _, err := writeCertificate(c.OtherCA(), authority, nil, nil); err != nil {
		return err
	}
	for file, template := range map[string]x509.Certificate{
		c.Broker(): {Subject: pkix.Name{CommonName: "broker"}, DNSNames: []string{"localhost"},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		c.Client(): {Subject: pkix.Name{CommonName: "client"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	} {
		template.KeyUsage = x509.KeyUsageDigitalSignature
		if _, _, err := writeCertificate(file, template, ca, caKey); err != nil {
			return err
		}
	}
	return nil
}

// writeCertificate writes a certificate, and its key unless it is an authority. A nil ca makes it self-signed.
func writeCertificate(file string, c x509.Certificate, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (
	*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if ca == nil {
		ca, caKey = &c, key
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, &c, ca, &key.PublicKey, caKey)
	if err != nil {
		return nil, nil, fmt.Errorf("create certificate %s: %w", file, err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if !c.IsCA {
		secret, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, nil, err
		}
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, nil, err
	}
	signed, err := x509.ParseCertificate(der)
	return signed, key, err
}
