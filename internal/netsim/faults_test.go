package netsim

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
)

// pipes dials connections and stores their peers.
type pipes struct{ peers []net.Conn }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p.peers = append(p.peers, far)
	return near, nil
}

// bubble runs a test with n connections and faults, and closes them.
func bubble(t *testing.T, c Conditions, n int, test func(t *testing.T, f *Faults, dial DialFunc, near,
	far []net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		c.Faults = NewFaults(7)
		var p pipes
		dial := Dialer(p.dial, c)
		var near []net.Conn
		for range n {
			x, err := dial(t.Context(), "tcp", "broker:1")
			if err != nil {
				t.Fatal(err)
			}
			near = append(near, x)
		}
		test(t, c.Faults, dial, near, p.peers)
		c.Faults.Slow(0, 0, 0).End()
		for _, x := range append(near, p.peers...) {
			x.Close()
		}
		time.Sleep(time.Second)
	})
}

// reads reports the arrival times of the next bytes, relative to begin.
func reads(c net.Conn, begin int64, n int) <-chan []time.Duration {
	got := make(chan []time.Duration, 1)
	go func() {
		var at []time.Duration
		for range n {
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				break
			}
			at = append(at, since(begin))
		}
		got <- at
	}()
	return got
}

func TestStallKeepsBackEverythingAndLosesNothing(t *testing.T) {
	const latency = 10 * time.Millisecond
	bubble(t, Conditions{Latency: latency}, 1, func(t *testing.T, f *Faults, dial DialFunc, near, far []net.Conn) {
		begin := clock.Now()
		there, back := reads(far[0], begin, 3), reads(near[0], begin, 2)
		write := func(c net.Conn) {
			if _, err := c.Write([]byte("x")); err != nil {
				t.Errorf("write during the stall: %v", err)
			}
		}
		write(near[0]) // arrives before
		time.Sleep(6 * time.Millisecond)
		write(near[0]) // in flight
		write(far[0])
		hit := f.Stall(1)
		if hit.Of != 1 || hit.All != 1 {
			t.Errorf("stall hit %d of %d, want the one", hit.Of, hit.All)
		}
		dialled := make(chan time.Duration, 1)
		go func() {
			if c, err := dial(t.Context(), "tcp", "broker:1"); err == nil {
				defer c.Close()
			}
			dialled <- since(begin)
		}()
		time.Sleep(100 * time.Millisecond)
		write(near[0])
		write(far[0])
		time.Sleep(94 * time.Millisecond)
		hit.End() // at 200 ms
		if got := <-there; len(got) != 3 || got[0] != 5*time.Millisecond || got[1] != 200*time.Millisecond ||
			got[2] != 200*time.Millisecond {
			t.Errorf("the peer read at %v, want at 5 ms and twice at 200 ms", got)
		}
		if got := <-back; len(got) != 2 || got[0] != 200*time.Millisecond || got[1] != 200*time.Millisecond {
			t.Errorf("we read at %v, want twice at 200 ms", got)
		}
		// one direction had passed when the stall began, the other one starts after it
		if at := <-dialled; at != 205*time.Millisecond {
			t.Errorf("a dial during the stall was through at %v, want 205 ms", at)
		}
	})
}

// The end of a fault has no effect on the next one, which began before it.
func TestTheEndOfAFaultIsItsOwn(t *testing.T) {
	bubble(t, Conditions{}, 1, func(t *testing.T, f *Faults, _ DialFunc, near, far []net.Conn) {
		begin := clock.Now()
		slow := f.Slow(1, 10*time.Millisecond, 0)
		stall := f.Stall(1)
		slow.End()
		there := reads(far[0], begin, 1)
		if _, err := near[0].Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		stall.End()
		if got := <-there; len(got) != 1 || got[0] != time.Second {
			t.Errorf("the peer read at %v, want at the end of the stall", got)
		}
	})
}

func TestDeadlinesHoldInAStall(t *testing.T) {
	bubble(t, Conditions{}, 1, func(t *testing.T, f *Faults, dial DialFunc, near, _ []net.Conn) {
		f.Stall(1)
		begin := clock.Now()
		_ = near[0].SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := near[0].Read(make([]byte, 1)); !isTimeout(err) || since(begin) != 50*time.Millisecond {
			t.Errorf("read in a stall: %v after %v, want a timeout after 50 ms", err, since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := dial(ctx, "tcp", "broker:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial in a stall: %v, want its deadline", err)
		}
	})
}

func TestSlowAddsLatencyAndBandwidthAndKeepsOrder(t *testing.T) {
	bubble(t, Conditions{Latency: 2 * time.Millisecond}, 1,
		func(t *testing.T, f *Faults, _ DialFunc, near, far []net.Conn) {
			begin := clock.Now()
			there := reads(far[0], begin, 4)
			send := func() { _, _ = near[0].Write([]byte("x")) }
			send()                                     // 1 ms
			slow := f.Slow(1, 40*time.Millisecond, 50) // an additional 20 ms per direction, and 20 ms per byte
			send()                                     // 20 + 1 + 20
			send()                                     // 40 + 1 + 20
			slow.End()
			send() // at 1 ms by itself, but it waits for the previous ones
			want := []time.Duration{time.Millisecond, 41 * time.Millisecond, 61 * time.Millisecond,
				61 * time.Millisecond}
			got := <-there
			for i := range want {
				if len(got) != len(want) || got[i] != want[i] {
					t.Fatalf("the peer read at %v, want %v", got, want)
				}
			}
			begin = clock.Now()
			there = reads(far[0], begin, 1)
			send()
			if got := <-there; got[0] != time.Millisecond {
				t.Errorf("after the end a byte took %v, want the usual 1 ms", got[0])
			}
		})
}

func TestCutResetsAndRefuses(t *testing.T) {
	bubble(t, Conditions{Latency: 10 * time.Millisecond}, 2,
		func(t *testing.T, f *Faults, dial DialFunc, near, far []net.Conn) {
			_, _ = far[0].Write([]byte("in flight"))
			failed := make(chan error, 1)
			go func() {
				_, err := near[1].Read(make([]byte, 1)) // waiting when the cut occurs
				failed <- err
			}()
			synctest.Wait()
			begin := clock.Now()
			hit := f.Cut(1)
			if hit.Of != 2 || hit.All != 2 {
				t.Errorf("cut hit %d of %d, want both", hit.Of, hit.All)
			}
			if _, err := near[0].Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read of a cut connection: %v, want a reset", err)
			}
			if _, err := near[0].Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("write to a cut connection: %v, want a reset", err)
			}
			if err := <-failed; !errors.Is(err, syscall.ECONNRESET) || since(begin) != 0 {
				t.Errorf("waiting read: %v after %v, want a reset at once", err, since(begin))
			}
			if _, err := far[0].Read(make([]byte, 1)); err == nil {
				t.Error("the peer of a cut connection still reads")
			}
			if _, err := dial(t.Context(), "tcp", "broker:1"); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("dial during the cut: %v, want it refused", err)
			}
			hit.End()
			c, err := dial(t.Context(), "tcp", "broker:1")
			if err != nil {
				t.Fatalf("dial after the cut: %v", err)
			}
			c.Close()
		})
}

// During a cut of a share, as many connections as are spared can be opened, by any dialer.
func TestShareOfConnections(t *testing.T) {
	bubble(t, Conditions{}, 8, func(t *testing.T, f *Faults, dial DialFunc, near, _ []net.Conn) {
		if hit := f.Cut(0.25); hit.Of != 2 || hit.All != 8 {
			t.Errorf("a cut of a quarter hit %d of %d, want 2 of 8", hit.Of, hit.All)
		}
		var spared []net.Conn
		for _, c := range near {
			_ = c.SetReadDeadline(time.Now())
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				spared = append(spared, c)
			}
		}
		if len(spared) != 6 {
			t.Fatalf("%d connections are left, want 6", len(spared))
		}
		if _, err := dial(t.Context(), "tcp", "broker:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial beyond the spared: %v, want it refused", err)
		}
		spared[0].Close()
		synctest.Wait()
		c, err := dial(t.Context(), "tcp", "broker:1")
		if err != nil {
			t.Fatalf("dial in place of a spared one: %v", err)
		}
		c.Close()
	})
}

// lingering notes whether it was closed before SetLinger returned. SetLinger gives Close time to happen.
type lingering struct {
	net.Conn
	closed    chan struct{}
	discarded atomic.Bool
}

func (c *lingering) SetLinger(int) error {
	select {
	case <-c.closed:
	case <-time.After(50 * time.Millisecond):
		c.discarded.Store(true)
	}
	return nil
}

func (c *lingering) Close() error {
	err := c.Conn.Close()
	select {
	case c.closed <- struct{}{}:
	default:
	}
	return err
}

// A cut connection is closed only after it was set to discard unsent bytes. Otherwise its peer reads an orderly end.
func TestCutDiscardsBeforeItCloses(t *testing.T) {
	f := NewFaults(1)
	near, far := net.Pipe()
	defer far.Close()
	c := &lingering{Conn: near, closed: make(chan struct{}, 1)}
	dial := Dialer(func(context.Context, string, string) (net.Conn, error) { return c, nil }, Conditions{Faults: f})
	if _, err := dial(t.Context(), "tcp", "broker:1"); err != nil {
		t.Fatal(err)
	}
	f.Cut(1)
	if !c.discarded.Load() {
		t.Error("the connection was closed before it was set to discard unsent bytes")
	}
}

// The peer of a real connection receives a reset, not an orderly end, also through a forwarder.
func TestCutOfRealConnections(t *testing.T) {
	f := NewFaults(1)
	received := make(chan error, 2)
	address := serve(t, func(c *net.TCPConn) {
		_, err := c.Read(make([]byte, 1))
		received <- err
		c.Close()
	})
	dial := Dialer(bare, Conditions{Faults: f})
	forwarder := NewForwarder(dial)
	defer forwarder.Close()
	local, err := forwarder.Forward(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	direct, err := dial(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	forwarded, err := net.Dial("tcp", local)
	if err != nil {
		t.Fatal(err)
	}
	defer forwarded.Close()
	// the forwarder dials later
	for begin := clock.Now(); f.Slow(0, 0, 0).All < 2; time.Sleep(time.Millisecond) {
		if since(begin) > hang {
			t.Fatal("the forwarder did not dial")
		}
	}
	f.Cut(1)
	for range 2 {
		if err := <-received; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the peer received %v, want a reset", err)
		}
	}
	if _, err := forwarded.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("a forwarded client read %v, want a failure", err)
	}
}
