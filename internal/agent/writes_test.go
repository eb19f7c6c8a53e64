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

// listenOnce accepts one connection and sends it to accepted.
func listenOnce(t testing.TB) (address string, accepted <-chan net.Conn) {
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

// TestBlockedWritesCount proves that the time is counted in which a write waits for a peer that does not read, and that
// all bytes arrive. For writes that do not block, no time is counted.
func TestBlockedWritesCount(t *testing.T) {
	address, accepted := listenOnce(t)
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
		t.Errorf("counted time of 100 writes of a byte: got %v, want 0", time.Duration(w.Nanos()))
	}
	body := bytes.Repeat([]byte("0123456789abcdef"), 4<<20)
	written, begin := make(chan error, 1), time.Now()
	go func() {
		n, err := conn.Write(body)
		if err == nil && n != len(body) {
			err = io.ErrShortWrite
		}
		written <- err
	}()
	for w.Nanos() < int64(50*time.Millisecond) { // it increases during the write
		if time.Since(begin) > waitLimit {
			t.Fatal("the time of a blocked write was not counted")
		}
		time.Sleep(time.Millisecond)
	}
	got := make([]byte, 100+len(body))
	if _, err := io.ReadFull(peer, got); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil || !bytes.Equal(got[100:], body) {
		t.Errorf("got error %v, equal bytes: %v, want nil, true", err, bytes.Equal(got[100:], body))
	}
	if elapsed := time.Since(begin); w.Nanos() > int64(elapsed) {
		t.Errorf("counted time: got %v, want at most the elapsed %v", time.Duration(w.Nanos()), elapsed)
	}
}

// TestShortBlockedWritesCount proves that short waits are counted: 1,000 writes to a simulated network, each of which
// waits 75 µs for space in the buffer.
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
		begin := time.Now()
		for range 1000 {
			if _, err := conn.Write(make([]byte, 1500)); err != nil {
				t.Fatal(err)
			}
		}
		if elapsed := time.Since(begin); elapsed < 70*time.Millisecond || w.Nanos() != int64(elapsed) {
			t.Errorf("counted time: got %v, want the elapsed %v, at least 70 ms", time.Duration(w.Nanos()), elapsed)
		}
		_ = conn.Close()
		time.Sleep(time.Second) // until the written bytes have arrived
	})
}

// TestCountedConnectionsFailAlike proves that a counted connection returns the same errors as a plain one.
func TestCountedConnectionsFailAlike(t *testing.T) {
	open := func(ctx context.Context) (conn, peer net.Conn) {
		address, accepted := listenOnce(t)
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
				t.Errorf("write to a closed connection: got error %v, want net.ErrClosed", err)
			}
			expired, _ := open(ctx)
			_ = expired.SetWriteDeadline(time.Now().Add(-time.Second))
			if err := write(expired); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("write after the deadline: got error %v, want os.ErrDeadlineExceeded", err)
			}
			reset, peer := open(ctx)
			_ = peer.(*net.TCPConn).SetLinger(0)
			_ = peer.Close()
			err := write(reset)
			var op *net.OpError
			if !errors.As(err, &op) || op.Op != "write" || !errors.Is(err, syscall.EPIPE) &&
				!errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("write to a reset connection: got error %v, want EPIPE or ECONNRESET", err)
			}
		})
	}
}

func BenchmarkWrites(b *testing.B) {
	for name, ctx := range map[string]context.Context{"bare": b.Context(),
		"counted": drivers.WithWaiting(b.Context(), &drivers.Waiting{})} {
		b.Run(name, func(b *testing.B) {
			address, accepted := listenOnce(b)
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
