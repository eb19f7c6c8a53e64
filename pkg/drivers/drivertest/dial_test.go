package drivertest

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// A read whose deadline passes while the connection is stalled loses no bytes: a later read returns them.
func TestStalledReadKeepsBytes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := newDialer()
	defer d.close()
	c, err := d.dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	broker, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	d.stall(true)
	if _, err := broker.Write([]byte("confirm")); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 16)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read of a stalled connection: got %d bytes, %v, want none and the deadline", n, err)
	}
	d.stall(false)
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := broker.Write([]byte("!")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	if _, err := io.ReadFull(c, got[:4]); err != nil { // less than was kept
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got[4:]); err != nil || string(got) != "confirm!" {
		t.Errorf("reads after the stall: got %q, %v, want confirm!", got, err)
	}
}
