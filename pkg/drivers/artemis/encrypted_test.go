package artemis

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/labtest"
)

// certificate returns a self-signed certificate for 127.0.0.1, and the path of its PEM file.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// secured returns the URL of a TLS server that forwards to the broker.
func secured(t *testing.T, own tls.Certificate) string {
	t.Helper()
	broker := strings.TrimPrefix(lab.Variable(t, "LOCKSTEP_ARTEMIS_URL"), "amqp://")
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{own}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				relayTLS(conn, broker)
			}()
		}
	}()
	return "amqps://somebody:secret@" + l.Addr().String()
}

func TestTLS(t *testing.T) {
	own, ca := certificate(t)
	url := secured(t, own)
	for _, options := range []string{fmt.Sprintf(`{"ca": %q}`, ca), `{"insecure": true}`} {
		r := newRig(t, json.RawMessage(fmt.Sprintf(`{"url": %q, "tls": %s}`, url, options)))
		p, n := r.publisher(drivers.ConfirmEach)
		if err := p.Publish(r.context(), drivers.Message{Body: make([]byte, 100_000)}); err != nil {
			t.Fatal(err)
		}
		if n.confirmed != 1 {
			t.Errorf("not confirmed over TLS: %v", n.errors)
		}
	}
	_, err := driver{}.Open(labtest.Context(t), json.RawMessage(fmt.Sprintf(`{"url": %q}`, url)),
		drivers.Env{Dial: new(net.Dialer).DialContext})
	if err == nil || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "secret") {
		t.Errorf("a broker with a certificate that nobody knows: %v", err)
	}
}

// relayTLS terminates TLS in front of a broker without it.
func relayTLS(conn net.Conn, to string) {
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	go func() {
		_, _ = io.Copy(far, conn)
		_ = far.Close()
	}()
	_, _ = io.Copy(conn, far)
}
