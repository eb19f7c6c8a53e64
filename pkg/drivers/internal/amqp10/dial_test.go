package amqp10

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/drivers"
)

// listen answers every connection with serve, until the end of the test.
func listen(t *testing.T, serve func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
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
				serve(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// silent is a broker that takes connections and says nothing, as a passive one may.
func silent(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func open(t *testing.T, limit time.Duration, o Options) (time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	start := time.Now()
	_, err := Open(ctx, "Broker", o, drivers.Env{Dial: new(net.Dialer).DialContext})
	if err == nil {
		t.Fatal("a session opens where no broker is")
	}
	return time.Since(start), err
}

// Each address gets its own time, so that all are tried before the caller's ends.
func TestSilentBrokersShareTheTime(t *testing.T) {
	a, b := listen(t, silent), listen(t, silent)
	took, err := open(t, time.Second, Options{URLs: []string{"amqp://" + a, "amqp://" + b}})
	if took > 3*time.Second || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after %v: %v", took, err)
	}
	for _, want := range []string{a, b, "says nothing"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	took, err = open(t, 20*time.Second, Options{URLs: []string{"amqp://" + a, "amqp://" + b}, ConnectTimeout: "200ms"})
	if took > 5*time.Second || !strings.Contains(err.Error(), b) {
		t.Errorf("connectTimeout of 200 ms for two brokers: after %v: %v", took, err)
	}
}

// refuse speaks as much of SASL as it takes to say that the password is wrong.
func refuse(conn net.Conn) {
	header := make([]byte, 8)
	if _, err := io.ReadFull(conn, header); err != nil {
		return
	}
	mechanisms, _ := hex.DecodeString("414d515003010000" + // the protocol header
		"0000001802010000" + "005340c00b01e00801a305504c41494e") // sasl-mechanisms: an array of the symbol PLAIN
	if _, err := conn.Write(mechanisms); err != nil {
		return
	}
	if _, err := conn.Read(make([]byte, 512)); err != nil { // sasl-init
		return
	}
	outcome, _ := hex.DecodeString("0000001002010000" + "005344c003015001") // sasl-outcome: code 1, auth
	_, _ = conn.Write(outcome)
	silent(conn)
}

func TestWrongPassword(t *testing.T) {
	at := listen(t, refuse)
	took, err := open(t, 10*time.Second, Options{URL: "amqp://somebody:hidden@" + at})
	if took > 2*time.Second {
		t.Errorf("the refusal took %v", took)
	}
	if !strings.Contains(err.Error(), at) || !strings.Contains(err.Error(), "check user and password") {
		t.Errorf("the error says neither where nor why: %v", err)
	}
	if strings.Contains(err.Error(), "hidden") {
		t.Errorf("the error shows the password: %v", err)
	}
}

func TestCertificates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{file: "no PEM certificate", file + "x": "no such file"} {
		if _, err := open(t, time.Second, Options{URL: "amqps://127.0.0.1:1", TLS: TLSOptions{CA: path}}); !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
}
