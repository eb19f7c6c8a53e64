package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// dialing is loopback with a network connection per publishers' Conn, through which bodies are sent and returned. dial replaces
// Env.Dial, for a driver that bypasses it. forward uses Env.Forward instead. serial waits for each body to return.
type dialing struct {
	address string
	bypass  bool
	forward bool
	serial  bool
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
	d   dialing
	env drivers.Env
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
	if err != nil || spec.Role == drivers.ConsumerRole {
		return inner, err
	}
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	c := &dialingConn{Conn: inner, conn: conn, serial: s.d.serial, done: make(chan struct{})}
	if c.serial {
		close(c.done)
	} else {
		go c.watch()
	}
	return c, nil
}

// dialingConn is a publishers' connection. Its publishers send each body through it, before loopback publishes the
// message.
type dialingConn struct {
	drivers.Conn
	conn   net.Conn
	serial bool
	done   chan struct{}
	closed atomic.Bool
}

func (c *dialingConn) watch() {
	defer close(c.done)
	_, _ = io.Copy(io.Discard, c.conn)
	if !c.closed.Load() {
		c.Conn.Cut()
	}
}

func (c *dialingConn) Cut() {
	_ = c.conn.Close()
	c.Conn.Cut()
}

func (c *dialingConn) Close() error {
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

type dialingPublisher struct {
	drivers.Publisher
	conn *dialingConn
}

func (p *dialingPublisher) Publish(ctx context.Context, m drivers.Message) error {
	if _, err := p.conn.conn.Write(m.Body); err != nil {
		return errors.Join(drivers.ErrClosed, err)
	}
	if p.conn.serial {
		if _, err := io.ReadFull(p.conn.conn, make([]byte, len(m.Body))); err != nil {
			return errors.Join(drivers.ErrClosed, err)
		}
	}
	return p.Publisher.Publish(ctx, m)
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
// it. This driver only has publishers' connections, so checks of others do not apply.
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
