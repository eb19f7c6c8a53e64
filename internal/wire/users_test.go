package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// serial returns the serial number of the certificate that a server shows.
func serial(t *testing.T, g *guardedPlane) string {
	t.Helper()
	var shown *x509.Certificate
	// the server greets before the handshake, so the library makes the connection
	c, err := nats.Connect(g.url, nats.Secure(&tls.Config{InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error { shown = s.PeerCertificates[0]; return errors.New("seen") }}))
	if err == nil {
		c.Close()
	}
	if shown == nil {
		t.Fatalf("the server showed no certificate: %v", err)
	}
	return shown.SerialNumber.String()
}

// TestReloadDisconnectsOnlyChangedUsers proves that users with new permissions connect again, that others stay, and
// that the new certificate is shown.
func TestReloadDisconnectsOnlyChangedUsers(t *testing.T) {
	g := guardPlane(t)
	path := filepath.Join(g.dir, "nats.conf")
	changed, other := g.dial(t, "a1"), g.dial(t, "a2.zone b")
	before := serial(t, g)
	if err := g.creds.Renew(); err != nil {
		t.Fatal(err)
	}
	conf, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	key := userOf(g.creds, "a1").Key
	with := strings.Replace(string(conf), `{nkey: "`+key+`", permissions: {`+"\n        publish: {allow: [", `{nkey: "`+key+
		`", permissions: {`+"\n        publish: {allow: [\"new.subject\", ", 1)
	if with == string(conf) {
		t.Fatalf("the user of a1 is not in the configuration:\n%s", conf)
	}
	if err := os.WriteFile(path, []byte(with), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.server.Reload(); err != nil {
		t.Fatal(err)
	}
	<-changed.Relinked()
	if err := changed.nc.Publish("new.subject", nil); err != nil {
		t.Error(err)
	}
	if err := errors.Join(changed.nc.Flush(), changed.nc.LastError()); err != nil {
		t.Errorf("a subject that is allowed since the reload: %v", err)
	}
	if err := other.nc.Flush(); err != nil || other.nc.Stats().Reconnects > 0 {
		t.Errorf("a user that did not change: %v, connected again %d times", err, other.nc.Stats().Reconnects)
	}
	if serial(t, g) == before {
		t.Error("the server shows its former certificate")
	}

	// Invalid files change nothing.
	for what, text := range map[string]string{
		"it is no configuration": "accounts {",
		"a password":             strings.Replace(with, "{nkey:", `{user: "u", password: "p"}`+"\n      {nkey:", 1),
		"a new account":          strings.Replace(with, "accounts {", `accounts { NEW: {users: [{nkey: "`+newKey(t)+`"}]}`, 1),
		"no users":               with[:strings.Index(with, "accounts {")],
		"connection types":       strings.Replace(with, "{nkey:", `{nkey: "`+newKey(t)+`", allowed_connection_types: ["STANDARD"]}`+"\n      {nkey:", 1),
		"no TLS":                 with[:strings.Index(with, "tls {")] + with[strings.Index(with, "accounts {"):],
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := g.server.Reload(); err == nil {
			t.Errorf("%s: reloaded", what)
		}
		if err := g.dial(t, "a1").nc.Flush(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func newKey(t *testing.T) string {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestAPublicKeyAloneIsRefused proves that a client must sign the nonce of its connection.
func TestAPublicKeyAloneIsRefused(t *testing.T) {
	g := guardPlane(t)
	seed, err := os.ReadFile(g.auth("a1").Creds)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := nkeys.ParseDecoratedUserNKey(seed)
	if err != nil {
		t.Fatal(err)
	}
	other, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	key := userOf(g.creds, "a1").Key
	for what, x := range map[string]struct {
		sign func(nonce []byte) ([]byte, error)
		want bool
	}{
		"its signature":              {pair.Sign, true},
		"no signature":               {func([]byte) ([]byte, error) { return nil, nil }, false},
		"the signature of another":   {other.Sign, false},
		"the signature of one nonce": {func([]byte) ([]byte, error) { return pair.Sign([]byte("nonce")) }, false},
	} {
		c, err := nats.Connect(g.url, nats.RootCAs(filepath.Join(g.dir, "ca.crt")), nats.Nkey(key, x.sign))
		if err == nil {
			c.Close()
		}
		if (err == nil) != x.want || !x.want && !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v, want accepted %v", what, err, x.want)
		}
	}
	for what, option := range map[string]nats.Option{"nothing": nil, "a password": nats.UserInfo(key, ""),
		"a token": nats.Token(key)} {
		options := []nats.Option{nats.RootCAs(filepath.Join(g.dir, "ca.crt"))}
		if option != nil {
			options = append(options, option)
		}
		if c, err := nats.Connect(g.url, options...); err == nil {
			c.Close()
			t.Errorf("a connection with %s was accepted", what)
		}
	}
}
