package kit_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

func TestOptionsThatDoNotFit(t *testing.T) {
	for _, c := range []struct {
		tls       *kit.TLS
		encrypted bool
		want      string // "": no error
	}{
		{nil, false, ""},
		{&kit.TLS{}, true, ""},
		{&kit.TLS{Cert: "c", Key: "k"}, true, ""},
		{&kit.TLS{}, false, "no url uses TLS"},
		{&kit.TLS{Cert: "c"}, true, "give both"},
		{&kit.TLS{Key: "k"}, true, "give both"},
	} {
		if err := c.tls.Check(c.encrypted); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v, encrypted %t: %v, want %q", c.tls, c.encrypted, err, c.want)
		}
	}
}

func TestFilesThatDoNotFit(t *testing.T) {
	files := drivertest.NewCertificates(t)
	empty, access := filepath.Join(string(files), "empty"), drivers.FullAccess()
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tls    kit.TLS
		access drivers.Access
		want   string
	}{
		{kit.TLS{CA: empty}, access, "no PEM certificate"},
		{kit.TLS{CA: empty + "x"}, access, "no such file"},
		{kit.TLS{Cert: files.Client(), Key: files.Broker()}, access, "does not match"},
		{kit.TLS{CA: files.CA()}, drivers.Access{}, "--files"},
		{kit.TLS{Cert: files.Client(), Key: files.Client()}, drivers.Access{}, "--files"},
	} {
		if _, err := c.tls.Config(c.access); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.tls, err, c.want)
		}
	}
}

// counted counts the open connections of a dial function.
func counted(open *atomic.Int64) kit.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		open.Add(1)
		return &closing{Conn: conn, open: open}, nil
	}
}

type closing struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *closing) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}

// Every error of a handshake has one fix, also if it is explained twice, and leaves no connection open.
func TestErrorsOfHandshakes(t *testing.T) {
	files := drivertest.NewCertificates(t)
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	at := plain.Listener.Addr().String()
	encrypted := drivertest.TLSProxy(t, files, at)
	_, port, _ := net.SplitHostPort(encrypted)
	old := httptest.NewUnstartedServer(http.NotFoundHandler())
	old.Config.ErrorLog = log.New(io.Discard, "", 0)
	old.TLS = files.ServerConfig(t)
	old.TLS.MaxVersion = tls.VersionTLS12 // a client is rejected in the handshake, not after it
	old.StartTLS()
	defer old.Close()
	for _, c := range []struct {
		address string
		tls     *kit.TLS
		want    string
	}{
		{encrypted, nil, "set tls.ca to the CA that signed the broker's certificate"},
		{encrypted, &kit.TLS{CA: files.OtherCA()}, "set tls.ca to the CA that signed the broker's certificate"},
		{"127.0.0.1:" + port, &kit.TLS{CA: files.CA()}, "set tls.serverName"},
		{encrypted, &kit.TLS{CA: files.CA(), ServerName: "other"}, "set tls.serverName"},
		{at, &kit.TLS{Insecure: true}, "connect without TLS"},
		{old.Listener.Addr().String(), &kit.TLS{Insecure: true}, "set tls.cert and tls.key"},
	} {
		config, err := c.tls.Config(drivers.FullAccess())
		if err != nil {
			t.Fatal(err)
		}
		var open atomic.Int64
		_, err = kit.Dial(counted(&open), config)(t.Context(), "tcp", c.address)
		if err == nil || strings.Count(kit.Explain(fmt.Errorf("open: %w", err)).Error(), c.want) != 1 {
			t.Errorf("%s with %+v: %v, want %q once", c.address, c.tls, err, c.want)
		}
		if n := open.Load(); n != 0 {
			t.Errorf("%s with %+v: %d connections are open after the error", c.address, c.tls, n)
		}
	}
	if err := errors.New("other"); kit.Explain(err) != err || kit.Explain(nil) != nil {
		t.Error("another error is changed")
	}
}

// TestHTTP proves that a client connects only by the given function, with and without TLS.
func TestHTTP(t *testing.T) {
	files := drivertest.NewCertificates(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "answer")
	}))
	defer server.Close()
	plain := server.Listener.Addr().String()
	config, err := (&kit.TLS{CA: files.CA(), Cert: files.Client(), Key: files.Client()}).Config(drivers.FullAccess())
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"http://" + plain, "https://" + drivertest.TLSProxy(t, files, plain)} {
		var open atomic.Int64
		client := kit.HTTP(counted(&open), config)
		response, err := client.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if string(text) != "answer" || err != nil || open.Load() != 1 {
			t.Errorf("%s: %q, %v, with %d connections", address, text, err, open.Load())
		}
		client.CloseIdleConnections()
	}
}
