package web

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate creates a self-signed certificate for 127.0.0.1.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(os.WriteFile(cert, public, 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600)); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(public)
	return cert, key, pool
}

// TestPagesOverTLS proves that with a certificate neither plain text nor old protocols are accepted, and that an
// unreadable certificate is reported at the start.
func TestPagesOverTLS(t *testing.T) {
	t.Parallel()
	cert, key, pool := certificate(t)
	l := Listener{Listen: "127.0.0.1:0", Cert: cert, Key: key, Log: slog.New(slog.DiscardHandler)}
	at, stop, err := l.Serve(func(*Access) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a page") })
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	asked := func(scheme string, highest uint16) (string, error) {
		c := http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool,
			MinVersion: tls.VersionTLS10, MaxVersion: highest}}}
		answer, err := c.Get(scheme + "://" + at.String())
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return string(text), err
	}
	if text, err := asked("https", 0); err != nil || text != "a page" {
		t.Errorf("over TLS: %q, %v", text, err)
	}
	if text, err := asked("https", tls.VersionTLS11); err == nil {
		t.Errorf("over TLS 1.1: %q, want none", text)
	}
	if text, err := asked("http", 0); err == nil && strings.Contains(text, "a page") {
		t.Errorf("in the clear: %q, want none", text)
	}
	l.Cert = key
	if _, _, err := l.Serve(nil); err == nil || !strings.Contains(err.Error(), "read TLS certificate") {
		t.Errorf("a key as a certificate: %v", err)
	}
}
