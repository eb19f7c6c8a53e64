package netsim

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/nettest"

	"example.org/lockstep/lockstep/internal/clock"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("example.org/lockstep/lockstep/internal/clock.(*keeper).keep"))
}

// bare dials without a simulated network.
var bare = new(net.Dialer).DialContext

// serve listens on loopback and calls handle with each connection. The connection is closed at the end of the test.
func serve(t testing.TB, handle func(*net.TCPConn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { listener.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go handle(c.(*net.TCPConn))
		}
	}()
	return listener.Addr().String()
}

func echo(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
	c.CloseWrite()
}

// connect connects to a new server with conditions, and returns both ends.
func connect(t testing.TB, c Conditions) (near net.Conn, far *net.TCPConn) {
	t.Helper()
	fars := make(chan *net.TCPConn, 1)
	near = dialTo(t, serve(t, func(c *net.TCPConn) { fars <- c }), c)
	return near, <-fars
}

func dialTo(t testing.TB, address string, c Conditions) net.Conn {
	t.Helper()
	near, err := Dialer(bare, c)(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	return near
}

func closeWrite(t testing.TB, c net.Conn) {
	t.Helper()
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatalf("CloseWrite: %v", err)
	}
}

func TestConnConformance(t *testing.T) {
	conditions := map[string]Conditions{
		"latency":   {Latency: 500 * time.Microsecond},
		"jitter":    {Latency: 200 * time.Microsecond, Jitter: 500 * time.Microsecond, Seed: 7},
		"bandwidth": {Bandwidth: 500e6, Buffer: 100_000},
	}
	for name, c := range conditions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				fars := make(chan *net.TCPConn, 1)
				c1 = dialTo(t, serve(t, func(c *net.TCPConn) { fars <- c }), c)
				far := <-fars
				c2 = newConn(far, newPath(c, 100), newPath(c, 101), Conditions{Buffer: 1 << 20})
				return c1, c2, func() { c1.Close(); c2.Close() }, nil
			})
		})
	}
}

func TestNoConditionsGiveTheBareConnection(t *testing.T) {
	address := serve(t, echo)
	for _, c := range []Conditions{{}, {Buffer: 1, Seed: 3}, {Latency: -1, Jitter: -1, Bandwidth: -1}} {
		if _, bare := dialTo(t, address, c).(*net.TCPConn); !bare {
			t.Errorf("%+v: got a wrapped connection, want what the base dials", c)
		}
	}
	if _, wrapped := dialTo(t, address, Conditions{Latency: 1}).(*net.TCPConn); wrapped {
		t.Error("with latency, the bare connection came back")
	}
}

func TestVia(t *testing.T) {
	var asked []string
	base := func(_ context.Context, _, address string) (net.Conn, error) {
		asked = append(asked, address)
		return nil, syscall.ECONNREFUSED
	}
	_, _ = Via(base, "proxy:1")(t.Context(), "tcp", "broker:5672")
	_, _ = Via(base, "")(t.Context(), "tcp", "broker:5672")
	if want := []string{"proxy:1", "broker:5672"}; !slices.Equal(asked, want) {
		t.Errorf("dialled %v, want %v", asked, want)
	}
}

func TestDialTakesARoundTripMore(t *testing.T) {
	const latency = 20 * time.Millisecond
	refused := errors.New("refused")
	synctest.Test(t, func(t *testing.T) {
		var p pipes
		for _, base := range []DialFunc{p.dial, func(context.Context, string, string) (net.Conn, error) {
			return nil,
				refused
		}} {
			begin := clock.Now()
			c, err := Dialer(base, Conditions{Latency: latency})(t.Context(), "tcp", "broker:1")
			if took := since(begin); took != latency || err != nil && err != refused {
				t.Errorf("dial: %v after %v, want the round trip of %v", err, took, latency)
			}
			if err == nil {
				closeBoth(c, p.peers[0])
			}
		}
	})

	dial := Dialer(bare, Conditions{Latency: latency})
	begin := clock.Now()
	c, err := dial(t.Context(), "tcp", serve(t, echo))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if took := since(begin); took < latency {
		t.Errorf("dial took %v, less than the round trip of %v", took, latency)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close() // the port is closed now
	begin = clock.Now()
	_, err = dial(t.Context(), "tcp", listener.Addr().String())
	if took := since(begin); !errors.Is(err, syscall.ECONNREFUSED) || took < latency {
		t.Errorf("refused dial: %v after %v, want ECONNREFUSED after the round trip of %v", err, took, latency)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	for _, after := range []time.Duration{5 * time.Millisecond, 300 * time.Millisecond} { // in both directions
		synctest.Test(t, func(t *testing.T) {
			var p pipes
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			begin := clock.Now()
			c, err := Dialer(p.dial, Conditions{Latency: 400 * time.Millisecond})(ctx, "tcp", "broker:1")
			if c != nil || !errors.Is(err, context.DeadlineExceeded) || !isTimeout(err) || since(begin) != after {
				t.Errorf("dial cut after %v: %v, %v after %v; want no connection and a timeout", after, c, err,
					since(begin))
			}
			for _, peer := range p.peers {
				if _, err := peer.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("dial cut after %v: the peer reads %v, want the end of the connection", after, err)
				}
			}
			if dialled := len(p.peers) == 1; dialled != (after > 200*time.Millisecond) {
				t.Errorf("dial cut after %v: dialled %t", after, dialled)
			}
		})
	}
}

func TestJitterStaysWithinItsBoundsAndDiffersByConnection(t *testing.T) {
	c := Conditions{Latency: 10 * time.Millisecond, Jitter: 6 * time.Millisecond, Seed: 1}
	draw := func(c Conditions, stream uint64) []int64 {
		p := newPath(c, stream)
		var delays []int64
		for range 1000 {
			p.last = 0 // independent pieces: the order is normally kept by delaying
			delays = append(delays, p.arrival(1, 1e18)-1e18)
		}
		return delays
	}
	one := draw(c, 1)
	if low, high := slices.Min(one), slices.Max(one); low < 5e6 || high > 8e6 || high-low < 2.5e6 {
		t.Errorf("one way took %d…%d ns, want all of 5…8 ms used and no more", low, high)
	}
	if !slices.Equal(one, draw(c, 1)) {
		t.Error("the same seed and connection drew other delays")
	}
	if slices.Equal(one, draw(c, 2)) {
		t.Error("two connections drew the same delays")
	}
	p, last := newPath(c, 1), int64(0)
	for i := range int64(1000) {
		at := p.arrival(1, 1e18+i*1000)
		if at < last {
			t.Fatal("jitter changed the order")
		}
		last = at
	}
}
