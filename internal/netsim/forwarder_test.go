package netsim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
)

func forward(t *testing.T, f *Forwarder, address string) string {
	t.Helper()
	local, err := f.Forward(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(local, "127.0.0.1:") {
		t.Fatalf("Forward listens on %s, want loopback", local)
	}
	return local
}

func TestForwarderKeepsHalfClosesBothWays(t *testing.T) {
	for name, c := range map[string]Conditions{"bare": {}, "slow": slow} {
		t.Run(name, func(t *testing.T) {
			f := NewForwarder(Dialer(bare, c))
			defer f.Close()
			local := forward(t, f, serve(t, func(c *net.TCPConn) {
				fmt.Fprint(c, "hello")
				c.CloseWrite() // the server closes its side first, and still receives
				all, _ := io.ReadAll(c)
				if len(all) == 100_000 {
					c.SetLinger(-1)
					c.Close()
				}
			}))
			begin := clock.Now()
			near := dialTo(t, local, Conditions{}).(*net.TCPConn)
			_ = near.SetDeadline(time.Now().Add(hang))
			if got, err := io.ReadAll(near); string(got) != "hello" || err != nil {
				t.Errorf("server said %q, %v", got, err)
			}
			if since(begin) < c.Latency/2 {
				t.Errorf("the server's word came after %v, earlier than the latency allows", since(begin))
			}
			if _, err := near.Write(make([]byte, 100_000)); err != nil {
				t.Errorf("write after the server's end: %v", err)
			}
			near.CloseWrite()
		})
	}
}

func TestForwarderEcho(t *testing.T) {
	f := NewForwarder(Dialer(bare, slow))
	defer f.Close()
	near := dialTo(t, forward(t, f, serve(t, echo)), Conditions{}).(*net.TCPConn)
	go func() {
		_, _ = near.Write(make([]byte, 1<<20))
		near.CloseWrite()
	}()
	if got, err := io.ReadAll(near); len(got) != 1<<20 || err != nil {
		t.Errorf("got %d bytes back, %v; want all and the end", len(got), err)
	}
}

func TestForwarderReusesItsListeners(t *testing.T) {
	f := NewForwarder(bare)
	a, again, b := forward(t, f, "one:1"), forward(t, f, "one:1"), forward(t, f, "two:2")
	if a != again || a == b {
		t.Errorf("one:1 is led from %s and %s, two:2 from %s; want one listener an address", a, again, b)
	}
	f.Close()
	if _, err := f.Forward(t.Context(), "one:1"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Forward after Close: %v, want net.ErrClosed", err)
	}
	if _, err := bare(t.Context(), "tcp", a); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial after Close: %v, want a refusal", err)
	}
}

func TestForwarderCloseEndsConnectionsAndDials(t *testing.T) {
	dialling := make(chan struct{}, 1)
	f := NewForwarder(func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == "nowhere:1" {
			dialling <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return bare(ctx, network, address)
	})
	fars := make(chan *net.TCPConn, 1)
	near := dialTo(t, forward(t, f, serve(t, func(c *net.TCPConn) { fars <- c })), Conditions{})
	waits := dialTo(t, forward(t, f, "nowhere:1"), Conditions{})
	far := <-fars
	<-dialling
	f.Close()
	for name, c := range map[string]net.Conn{"client": near, "server": far,
		"client whose upstream was dialled": waits} {
		_ = c.SetReadDeadline(time.Now().Add(hang))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			t.Errorf("%s reads %v after Close, want an end", name, err)
		}
	}
}

func TestForwarderResetsClientsOfUnreachableServers(t *testing.T) {
	f := NewForwarder(func(context.Context, string, string) (net.Conn, error) { return nil, syscall.EHOSTUNREACH })
	defer f.Close()
	near, err := bare(t.Context(), "tcp", forward(t, f, "gone:1"))
	if err == nil { // the reset may arrive that early
		defer near.Close()
		_, err = near.Read(make([]byte, 1))
	}
	if err == nil || isTimeout(err) {
		t.Errorf("client gets %v, want its connection to end", err)
	}
}

func TestForwarderPassesResetsOn(t *testing.T) {
	f := NewForwarder(bare)
	defer f.Close()
	near := dialTo(t, forward(t, f, serve(t, func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1))
		c.SetLinger(0)
		c.Close()
	})), Conditions{})
	_, _ = near.Write([]byte("x"))
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("client of a reset server reads %v, want a reset", err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
