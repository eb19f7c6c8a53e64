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
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// silent is a broker that accepts connections and never responds, as a passive broker may.
func silent(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// options returns options with a connectTimeout and URLs.
func options(timeout string, urls ...string) Options {
	o := Options{Addresses: kit.Addresses{URLs: urls}, IdleTimeout: kit.Duration(time.Minute)}
	_ = o.ConnectTimeout.UnmarshalText([]byte(timeout))
	return o
}

// open fails to open a session with brokers whose connections serve handles. The returned duration is virtual.
func open(t *testing.T, limit time.Duration, o Options, serve func(net.Conn)) (took time.Duration, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		dial := func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				serve(far)
			}()
			return near, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		start := time.Now()
		_, err = Open(ctx, "Broker", o, Addresses{}, drivers.Env{Dial: dial, Access: drivers.FullAccess()})
		took = time.Since(start)
		if err == nil {
			t.Fatal("a session opens where no broker is")
		}
	})
	return took, err
}

// Each address gets a share of the time, so that all are tried before the caller's time ends.
func TestSilentBrokersShareTheTime(t *testing.T) {
	const a, b = "first:5672", "second:5672"
	took, err := open(t, time.Second, options("3s", "amqp://"+a, "amqp://"+b), silent)
	if took != time.Second || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after %v, want 1 s: %v", took, err)
	}
	for _, want := range []string{a, b, "does not answer"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	took, err = open(t, 20*time.Second, options("200ms", "amqp://"+a, "amqp://"+b), silent)
	if took != 400*time.Millisecond || !strings.Contains(err.Error(), b) {
		t.Errorf("connectTimeout of 200 ms for two brokers: after %v, want 400 ms: %v", took, err)
	}
	took, err = open(t, 5*time.Second, options("200ms", "amqp://"+a), silent)
	if took != 5*time.Second {
		t.Errorf("connectTimeout of 200 ms for one broker: after %v, want the 5 s of the caller: %v", took, err)
	}
}

// refuse implements as much of SASL as is necessary to reject the password.
func refuse(conn net.Conn) {
	header := make([]byte, 8)
	if _, err := io.ReadFull(conn, header); err != nil {
		return
	}
	mechanisms, _ := hex.DecodeString("414d515003010000" + // protocol header
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
	const at = "guarded:5672"
	took, err := open(t, 10*time.Second, options("3s", "amqp://somebody:hidden@"+at), refuse)
	if took != 0 {
		t.Errorf("the driver waits %v after the refusal", took)
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
		o := options("3s", "amqps://127.0.0.1:1")
		o.TLS = &kit.TLS{CA: path}
		if _, err := open(t, time.Second, o, silent); !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
}
