package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// dialing is loopback with a network connection per Conn, through which bodies and acknowledgements are sent and
// returned. dial replaces Env.Dial, for a driver that bypasses it. forward uses Env.Forward instead. serial waits for
// each body to return. waits is the call that waits for the network without a limit.
type dialing struct {
	address string
	bypass  bool
	forward bool
	serial  bool
	waits   string
}

func (dialing) Info() drivers.Info {
	info := loopback.Driver{}.Info()
	declare := info.Declare
	info.Declare = func(_ json.RawMessage, use drivers.Use) drivers.Declaration {
		return declare(json.RawMessage("{}"), use)
	}
	return info
}

func (d dialing) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	var o struct{ Name, Address string }
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	if o.Address != "" {
		d.address = o.Address
	}
	named := fmt.Appendf(nil, `{"name":%q}`, o.Name)
	s, err := loopback.Driver{}.Open(ctx, schematest.FillNamed("loopback", named), env)
	if err != nil {
		return nil, err
	}
	return &dialingSession{Session: s, d: d, env: env}, nil
}

type dialingSession struct {
	drivers.Session
	d     dialing
	env   drivers.Env
	mu    sync.Mutex
	conns []*dialingConn
}

func (s *dialingSession) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.await("Session.Close")
	}
	return s.Session.Close()
}

func (s *dialingSession) connect(ctx context.Context) (net.Conn, error) {
	address := s.d.address
	dial := s.env.Dial
	if s.d.forward {
		local, err := s.env.Forward(ctx, address)
		if err != nil {
			return nil, err
		}
		address, dial = local, (&net.Dialer{}).DialContext
	}
	if s.d.bypass {
		dial = (&net.Dialer{}).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", s.d.address, err)
	}
	return conn, nil
}

func (s *dialingSession) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	inner, err := s.Session.Connect(ctx, spec)
	if err != nil {
		return nil, err
	}
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	c := &dialingConn{Conn: inner, conn: conn, serial: s.d.serial, waits: s.d.waits, done: make(chan struct{})}
	s.mu.Lock()
	s.conns = append(s.conns, c)
	s.mu.Unlock()
	if c.serial {
		close(c.done)
	} else {
		go c.watch()
	}
	return c, nil
}

// dialingConn is a connection. Its publishers send each body through it, before loopback publishes the message, and its
// consumers each acknowledgement.
type dialingConn struct {
	drivers.Conn
	conn              net.Conn
	serial            bool
	waits             string
	done              chan struct{}
	closed            atomic.Bool
	written, returned atomic.Int64 // bytes; written includes those that a deadline kept back
}

func (c *dialingConn) watch() {
	defer close(c.done)
	_, _ = io.Copy(c, c.conn)
	if !c.closed.Load() {
		c.Conn.Cut()
	}
}

// Write counts what the server returns.
func (c *dialingConn) Write(p []byte) (int, error) {
	c.returned.Add(int64(len(p)))
	return len(p), nil
}

// await is the fault of a call that waits until the server has returned everything.
func (c *dialingConn) await(call string) {
	for c.waits == call && c.returned.Load() < c.written.Load() && !over(c.Conn) {
		time.Sleep(time.Millisecond)
	}
}

func (c *dialingConn) Cut() {
	_ = c.conn.Close()
	c.Conn.Cut()
}

func (c *dialingConn) Close() error {
	c.await("Conn.Close")
	c.closed.Store(true)
	err := c.Conn.Close()
	_ = c.conn.Close()
	<-c.done
	return err
}

func (c *dialingConn) Publisher(ctx context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	p, err := c.Conn.Publisher(ctx, spec)
	return &dialingPublisher{Publisher: p, conn: c}, err
}

func (c *dialingConn) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer,
	error) {
	inner, err := c.Conn.Consumer(ctx, spec, handle)
	var stopped atomic.Bool
	return &consuming{
		Consumer: inner,
		ack: func(n int) {
			if c.waits != "Consumer.Ack" {
				_ = c.conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			}
			c.written.Add(1)
			_, _ = c.conn.Write([]byte("a"))
			if stopped.Load() {
				c.await("Consumer.Ack after Stop")
			}
			inner.Ack(n)
		},
		stop: func() {
			c.await("Consumer.Stop")
			inner.Stop()
			stopped.Store(true)
		},
		close: func() {
			c.await("Consumer.Close")
			_ = inner.Close()
		},
	}, err
}

type dialingPublisher struct {
	drivers.Publisher
	conn *dialingConn
}

func (p *dialingPublisher) Publish(ctx context.Context, m drivers.Message) error {
	sent, err := p.conn.conn.Write(m.Body)
	p.conn.written.Add(int64(sent))
	if err != nil {
		return errors.Join(drivers.ErrClosed, err)
	}
	if p.conn.serial {
		if _, err := io.ReadFull(p.conn.conn, make([]byte, len(m.Body))); err != nil {
			return errors.Join(drivers.ErrClosed, err)
		}
	}
	return p.Publisher.Publish(ctx, m)
}

func (p *dialingPublisher) Close() error {
	p.conn.await("Publisher.Close")
	return p.Publisher.Close()
}

// echo starts a server that returns what it receives, until the end of the test.
func echo(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// TestDialChecks proves that the checks of connections pass for a driver that uses Env, and fail for one that bypasses
// it.
func TestDialChecks(t *testing.T) {
	address := echo(t)
	for _, test := range []struct {
		kind   string
		driver dialing
		checks []string
	}{
		{"dial", dialing{address: address}, []string{"open/dead", "open/cancel", "dial/refused", "dial/counted",
			"dial/conns", "mode/confirm-window", "in-flight", "publish-blocks/cut", "cut/conn", "cut/publisher"}},
		// A forwarder accepts before it dials, so that only a protocol's handshake detects a refusal.
		{"forward", dialing{address: address, forward: true},
			[]string{"dial/counted", "dial/conns", "cut/publisher"}},
		{"bypass", dialing{address: address, bypass: true},
			[]string{"open/cancel", "dial/refused", "dial/counted", "dial/conns", "cut/publisher"}},
		{"serial", dialing{address: address, serial: true}, []string{"in-flight"}},
	} {
		for _, name := range test.checks {
			t.Run(test.kind+"/"+name, func(t *testing.T) { testDial(t, test.driver, name) })
		}
	}
}

// testDial checks the result of the named check for a driver that bypasses Dial, or waits for answers, or does neither.
func testDial(t *testing.T, d dialing, name string) {
	wait := time.Duration(0)
	if d.bypass || d.serial {
		wait = 400 * time.Millisecond
	}
	r := prove(t, Harness{
		Driver: d, Options: json.RawMessage(`{"name":"dialing"}`), wait: wait,
		DeadOptions: json.RawMessage(`{"name":"dialing","address":"127.0.0.1:1"}`), DeadAddress: "127.0.0.1:1",
	}, find(t, name))
	switch {
	case (d.bypass || d.serial) && len(r.failures) == 0:
		t.Errorf("%s does not find that the driver goes past Dial, or waits for each answer", name)
	case !d.bypass && !d.serial && len(r.failures) > 0:
		t.Errorf("%s fails for a driver that keeps to Dial: %v", name, r.failures)
	}
}

// TestCloseDeadFindsWaits proves that the checks of closing at a dead broker pass for a driver whose calls end, and
// find each call that waits for the network.
func TestCloseDeadFindsWaits(t *testing.T) {
	address := echo(t)
	const silent, stalled = "close-dead/silent", "close-dead/stalled"
	var all sync.WaitGroup
	for waits, reports := range map[string]map[string]string{
		"":                        {},
		"Publisher.Close":         {silent: "Publisher.Close", stalled: "Publisher.Close"},
		"Consumer.Ack":            {stalled: "Consumer.Stop"}, // of the handler; a silent broker reads it
		"Consumer.Ack after Stop": {silent: "Consumer.Ack after Stop", stalled: "Consumer.Ack after Stop"},
		"Consumer.Stop":           {silent: "Consumer.Stop", stalled: "Consumer.Stop"},
		"Consumer.Close":          {silent: "Consumer.Close", stalled: "Consumer.Close"},
		"Conn.Close":              {silent: "Conn.Close", stalled: "Conn.Close"},
		"Session.Close":           {silent: "Session.Close", stalled: "Session.Close"},
	} {
		for _, name := range []string{silent, stalled} {
			all.Go(func() {
				h := Harness{Driver: dialing{address: address, waits: waits}, Options: json.RawMessage(`{"name":"dialing"}`)}
				report, found := reports[name]
				if found {
					h.wait = 2 * time.Second
				}
				r := prove(t, h, find(t, name))
				reported := slices.ContainsFunc(r.failures, func(failure string) bool {
					return strings.HasPrefix(failure, report) && strings.Contains(failure, "does not return within")
				})
				switch {
				case found && !reported:
					t.Errorf("%s does not find that %s waits: %.500q", name, waits, r.failures)
				case !found && len(r.failures) > 0 || r.inapplicable != "":
					t.Errorf("%s fails for a driver in which %q waits: %.500q %s", name, waits, r.failures, r.inapplicable)
				}
			})
		}
	}
	all.Wait()
}
