package drivertest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"testing"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// shaking is a driver that makes a TLS handshake when it opens a session, and then is loopback.
type shaking struct {
	faulty
	fault func(*tls.Config) // changes the configuration of the handshake; nil: no fault
}

func (s shaking) Info() drivers.Info {
	info := s.faulty.Info()
	declare := info.Declare
	info.Declare = func(_ json.RawMessage, u drivers.Use) drivers.Declaration {
		return declare(json.RawMessage(`{"name": "shaking"}`), u)
	}
	return info
}

func (s shaking) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	var o struct {
		Address string
		TLS     *kit.TLS
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	config, err := o.TLS.Config(env.Access)
	if err != nil {
		return nil, err
	}
	if s.fault != nil {
		s.fault(config)
	}
	conn, err := kit.Dial(env.Dial, config)(ctx, "tcp", o.Address)
	if err == nil {
		_, err = conn.Read(make([]byte, 1)) // the server may reject the client after the handshake
		_ = conn.Close()
	}
	if err != nil {
		return nil, kit.Explain(err)
	}
	return s.faulty.Open(ctx, schematest.FillNamed("loopback", json.RawMessage(`{"name": "shaking"}`)), env)
}

// TestSuiteFindsFaultsOfTLS is TestSuiteFindsFaults for the checks of TLS, which need a real network.
func TestSuiteFindsFaultsOfTLS(t *testing.T) {
	files := NewCertificates(t)
	listen := func(clients tls.ClientAuthType) *TLS {
		config := files.ServerConfig(t)
		config.ClientAuth = clients
		l, err := tls.Listen("tcp", "127.0.0.1:0", config)
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
					_, _ = conn.Write([]byte("x")) // after the handshake
					_, _ = conn.Read(make([]byte, 1))
					_ = conn.Close()
				}()
			}
		}()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		return &TLS{Options: json.RawMessage(`{"address": "localhost:` + port + `"}`), Certificates: files}
	}
	strict := listen(tls.RequireAndVerifyClientCert)
	run := func(d drivers.Driver, l *TLS, name string) result {
		return prove(t, Harness{Driver: d, TLS: l}, find(t, name))
	}
	for _, n := range checks() {
		if len(n.name) > 4 && n.name[:4] == "tls/" {
			if r := run(shaking{}, strict, n.name); len(r.failures) > 0 || r.inapplicable != "" {
				t.Errorf("%s does not pass without a fault: %v %s", n.name, r.failures, r.inapplicable)
			}
		}
	}
	for _, f := range []struct {
		name     string
		fault    func(*tls.Config)
		listener *TLS
		found    []string
	}{
		{"trusts every broker", func(c *tls.Config) { c.InsecureSkipVerify = true }, strict,
			[]string{"tls/host", "tls/authority"}},
		{"ignores ca", func(c *tls.Config) { c.RootCAs = nil }, strict, []string{"tls/connects"}},
		{"sends no certificate", func(c *tls.Config) { c.Certificates = nil }, strict,
			[]string{"tls/connects", "tls/server-name", "tls/insecure"}},
		{"ignores serverName", func(c *tls.Config) { c.ServerName = "" }, strict, []string{"tls/server-name"}},
		{"ignores insecure", func(c *tls.Config) { c.InsecureSkipVerify = false }, strict, []string{"tls/insecure"}},
		{"is tested with a listener that requires no certificate", nil, listen(tls.NoClientCert), []string{"tls/client"}},
	} {
		for _, name := range f.found {
			if r := run(shaking{fault: f.fault}, f.listener, name); len(r.failures) == 0 {
				t.Errorf("%s does not find that the driver %s (not applicable: %q)", name, f.name, r.inapplicable)
			}
		}
	}
}
