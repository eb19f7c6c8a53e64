package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/netsim"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// listening accepts one connection and sends it to accepted.
func listening(t testing.TB) (address string, accepted <-chan net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	all := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			all <- c
		}
	}()
	return l.Addr().String(), all
}

// TestBlockedWritesCount proves that the time counts in which a write waits for a peer that does not read, and that all
// bytes arrive. Writes that do not block count nothing.
func TestBlockedWritesCount(t *testing.T) {
	address, accepted := listening(t)
	var w drivers.Waiting
	conn, err := countingWrites((&net.Dialer{}).DialContext)(drivers.WithWaiting(t.Context(), &w), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	peer := <-accepted
	defer peer.Close()
	for range 100 {
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if w.Nanos() != 0 && runtime.GOOS != "windows" { // on Windows, a slow write counts as blocked
		t.Errorf("100 writes of a byte waited for %v", time.Duration(w.Nanos()))
	}
	body := bytes.Repeat([]byte("0123456789abcdef"), 4<<20)
	written, began := make(chan error, 1), time.Now()
	go func() {
		n, err := conn.Write(body)
		if err == nil && n != len(body) {
			err = io.ErrShortWrite
		}
		written <- err
	}()
	for w.Nanos() < int64(50*time.Millisecond) { // it increases during the write
		if time.Since(began) > hang {
			t.Fatal("a write that is blocked does not count")
		}
		time.Sleep(time.Millisecond)
	}
	got := make([]byte, 100+len(body))
	if _, err := io.ReadFull(peer, got); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil || !bytes.Equal(got[100:], body) {
		t.Errorf("%v; what arrived differs: %v", err, !bytes.Equal(got[100:], body))
	}
	if took := time.Since(began); w.Nanos() > int64(took) {
		t.Errorf("waited for %v in %v", time.Duration(w.Nanos()), took)
	}
}

// TestShortBlockedWritesCount proves that 1,000 writes to a simulated network count, each of which waits 75 µs for
// space in the buffer.
func TestShortBlockedWritesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := netsim.Dialer(func(context.Context, string, string) (net.Conn, error) {
			conn, peer := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, peer) }()
			return conn, nil
		}, netsim.Conditions{Bandwidth: 20_000_000, Buffer: 1500})
		var w drivers.Waiting
		conn, err := countingWrites(dial)(drivers.WithWaiting(t.Context(), &w), "tcp", "broker:1")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range 1000 {
			if _, err := conn.Write(make([]byte, 1500)); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 70*time.Millisecond || w.Nanos() != int64(took) {
			t.Errorf("waited for %v in %v, in which nothing else took time", time.Duration(w.Nanos()), took)
		}
		_ = conn.Close()
		time.Sleep(time.Second) // until the written bytes have arrived
	})
}

// TestCountedConnectionsFailAlike proves that a counted connection returns the same errors as a plain one.
func TestCountedConnectionsFailAlike(t *testing.T) {
	open := func(ctx context.Context) (conn, peer net.Conn) {
		address, accepted := listening(t)
		conn, err := countingWrites((&net.Dialer{}).DialContext)(ctx, "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn, <-accepted
	}
	for name, ctx := range map[string]context.Context{"bare": t.Context(),
		"counted": drivers.WithWaiting(t.Context(), &drivers.Waiting{})} {
		t.Run(name, func(t *testing.T) {
			write := func(conn net.Conn) (err error) {
				for err == nil {
					_, err = conn.Write(make([]byte, 1<<20))
				}
				return err
			}
			closed, _ := open(ctx)
			_ = closed.Close()
			if err := write(closed); !errors.Is(err, net.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
			late, _ := open(ctx)
			_ = late.SetWriteDeadline(time.Now().Add(-time.Second))
			if err := write(late); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("deadline: %v", err)
			}
			reset, peer := open(ctx)
			_ = peer.(*net.TCPConn).SetLinger(0)
			_ = peer.Close()
			err := write(reset)
			var op *net.OpError
			if !errors.As(err, &op) || op.Op != "write" || !errors.Is(err, syscall.EPIPE) &&
				!errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("reset: %v", err)
			}
		})
	}
}

func BenchmarkWrites(b *testing.B) {
	for name, ctx := range map[string]context.Context{"bare": b.Context(),
		"counted": drivers.WithWaiting(b.Context(), &drivers.Waiting{})} {
		b.Run(name, func(b *testing.B) {
			address, accepted := listening(b)
			conn, err := countingWrites((&net.Dialer{}).DialContext)(ctx, "tcp", address)
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			go func() { _, _ = io.Copy(io.Discard, <-accepted) }()
			body := make([]byte, 1000)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conn.Write(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
