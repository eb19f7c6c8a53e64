package mongodb

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/labtest"
)

// TestCertificatesOfOptions proves that connections use the authorities and the client certificate of the option tls,
// also if the URL does not mention TLS.
func TestCertificatesOfOptions(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"broker"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: der},
		"key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(labtest.Context(t))
	defer cancel()
	shaken := make(chan error, 16)
	env := labtest.Env(nil)
	env.Dial = func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			server := tls.Server(far, &tls.Config{ClientAuth: tls.RequireAnyClientCert,
				Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
			err := server.Handshake()
			if err == nil {
				if got := server.ConnectionState().PeerCertificates; len(got) != 1 ||
					string(got[0].Raw) != string(der) {
					err = fmt.Errorf("the client has certificates %v", got)
				}
			}
			select {
			case shaken <- err:
			default:
			}
			cancel() // no MongoDB server is running
		}()
		return near, nil
	}
	if env.Access, err = drivers.LimitedAccess([]string{dir}, nil, false); err != nil {
		t.Fatal(err)
	}
	options := json.RawMessage(fmt.Sprintf(`{"url": "mongodb://broker:1/", "tls": {"ca": "%[1]s/cert", "cert": "%[1]s/cert", "key": "%[1]s/key"}}`, dir))
	if s, err := (driver{}).Open(ctx, options, env); err == nil {
		_ = s.Close()
		t.Error("a session opens where no broker is")
	}
	if err := <-shaken; err != nil {
		t.Errorf("handshake: %v", err)
	}
}
