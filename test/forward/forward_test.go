package forward

import (
	"io"
	"net"
	"testing"

	"go.uber.org/goleak"
)

// echo starts a server that returns a client's bytes after the client has closed its side.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			text, _ := io.ReadAll(conn)
			_, _ = conn.Write(text)
			conn.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-ended })
	return listener.Addr().String()
}

func started(t *testing.T, target string) *Forwarder {
	t.Helper()
	f, err := Start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func dial(t *testing.T, f *Forwarder) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", f.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Bytes, and the end of each side, are forwarded in both directions.
func TestBytesAndEndsArePassedOn(t *testing.T) {
	f := started(t, echo(t))
	for n := range 3 {
		conn := dial(t, f)
		if _, err := conn.Write([]byte("there and back")); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(conn); err != nil || string(text) != "there and back" {
			t.Errorf("%q came back (%v)", text, err)
		}
		if got := f.Accepted(); got != int64(n+1) {
			t.Errorf("%d connections are counted, want %d", got, n+1)
		}
	}
}

// A client is disconnected if the server does not exist. Close ends active connections.
func TestNoConnectionOutlivesItsServerOrTheForwarder(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	// Port 1 is never given to a listener of port 0. A port that was just freed may become the forwarder's own.
	f := started(t, "127.0.0.1:1")
	if text, err := io.ReadAll(dial(t, f)); len(text) > 0 {
		t.Errorf("%q came from a server that is not there (%v)", text, err)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	f = started(t, listener.Addr().String())
	client := dial(t, f)
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	f.Close()
	for _, conn := range []net.Conn{client, server} {
		if text, err := io.ReadAll(conn); len(text) > 0 {
			t.Errorf("%q came of a closed forwarder (%v)", text, err)
		}
	}
}
