// Package legacy has the former contract of drivers, and adapts its sessions to the present one. It is removed when no
// driver uses it. The decision when to acknowledge stays with the driver, whose numbers for every and interval are those
// of this package. Cut ends the contexts of running calls, and then closes the publishers and consumers.
package legacy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/kit"
)

// Exclusive is a connection number that is never shared. Connections of Wrap have other numbers.
const Exclusive = -1

// Session is the former drivers.Session.
type Session interface {
	Setup(ctx context.Context, t drivers.Topology) error
	Teardown(ctx context.Context, t drivers.Topology) error
	Publisher(ctx context.Context, spec PublisherSpec) (Publisher, error)
	Consumer(ctx context.Context, spec ConsumerSpec, handle Handler) (Consumer, error)
	Close() error
}

// PublisherSpec is the former drivers.PublisherSpec.
type PublisherSpec struct {
	Topology                     drivers.Topology
	Queue                        int
	Mode                         drivers.Mode
	MaxInFlight, Batch           int
	Persistent, Mandatory, Keyed bool
	Node                         drivers.Node
	Ordinal, Connection          int
	OnConfirms                   func(tokens []uint64, err error)
	OnReturn                     func(body []byte)
	Waiting                      *drivers.Waiting
	OnClosed                     func(err error) // at most once; not after Close was called, as Notice implements
}

// ConsumerSpec is the former drivers.ConsumerSpec.
type ConsumerSpec struct {
	Topology                                       drivers.Topology
	Subscription, Queue, Prefetch, Batch, AckEvery int
	Ack                                            drivers.Ack
	AckInterval                                    time.Duration
	Nack                                           bool
	Node                                           drivers.Node
	Ordinal, Connection                            int
	OnClosed                                       func(err error)
}

// Handler accepts deliveries, or rejects them with an error.
type Handler func([]drivers.Delivery) error

// Publisher is the former drivers.Publisher. Close may be called while the other methods run.
type Publisher interface {
	Publish(ctx context.Context, m drivers.Message) error
	Flush(ctx context.Context) error
	Close() error
}

// Consumer is the former drivers.Consumer. Close acknowledges what the handler accepted.
type Consumer interface{ Close() error }

// Located is implemented by publishers and consumers that are connected to one node.
type Located interface{ Node() string }

// Notice calls OnClosed at most once, and not after End.
type Notice struct {
	call func(error)
	turn chan struct{} // a token while OnClosed runs: a mutex would stop the virtual time of tests
	over bool
}

// NewNotice returns the Notice of an OnClosed, which may be nil.
func NewNotice(onClosed func(error)) *Notice {
	return &Notice{call: onClosed, turn: make(chan struct{}, 1)}
}

// Broke reports that the link broke.
func (n *Notice) Broke(err error) {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	if !n.over && n.call != nil {
		n.call(err)
	}
	n.over = true
}

// End must be the first call in Close. It returns true if neither Broke nor End was called before.
func (n *Notice) End() (whole bool) {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	whole, n.over = !n.over, true
	return whole
}

// Wrap adapts the result of a driver's former Open.
func Wrap(s Session, err error) (drivers.Session, error) {
	if err != nil {
		return nil, err
	}
	return &session{Session: s, conns: map[*conn]struct{}{}}, nil
}

// Of returns the session that Wrap adapted, in tests of drivers.
func Of(s drivers.Session) Session { return s.(*session).Session }

type session struct {
	Session
	mu     sync.Mutex
	number int
	conns  map[*conn]struct{}
}

// Legacy makes drivers.As find the optional interfaces.
func (s *session) Legacy() any { return s.Session }

func (s *session) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	c := &conn{session: s, spec: spec, number: s.number}
	c.life, c.cancel = context.WithCancel(context.Background())
	s.conns[c] = struct{}{}
	return c, ctx.Err()
}

func (s *session) Close() error {
	s.mu.Lock()
	for c := range s.conns {
		c.End()
	}
	s.mu.Unlock()
	return s.Session.Close()
}

// conn is a connection number. It ends when OnClosed of one of its parts is called.
type conn struct {
	kit.State
	session *session
	spec    drivers.ConnSpec
	number  int
	life    context.Context // ends with Cut
	cancel  context.CancelFunc

	mu    sync.Mutex
	node  string
	parts []interface{ Close() error } // Close may be called twice
}

func (c *conn) broke(err error) { c.Broke(err) }

// add registers a part after it was connected.
func (c *conn) add(part interface{ Close() error }, at any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, is := at.(Located); is {
		c.node = l.Node()
	}
	c.parts = append(c.parts, part)
}

func (c *conn) Node() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node
}

func (c *conn) Cut() {
	c.Broke(errors.New("the connection was cut"))
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, part := range c.parts {
		go func() { _ = part.Close() }()
	}
}

func (c *conn) Close() error {
	c.End()
	c.cancel()
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	delete(c.session.conns, c)
	return nil
}

func (c *conn) check() error {
	select {
	case <-c.Done():
		return fmt.Errorf("use of a connection that has ended: %w", drivers.ErrClosed)
	default:
		return nil
	}
}

type publisher struct {
	*conn
	inner Publisher
	ctx   context.Context // of the last call
	inCtx context.Context // ends with it, or with Cut
	stop  func()
}

func (c *conn) Publisher(ctx context.Context, s drivers.PublisherSpec) (drivers.Publisher, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	inner, err := c.session.Session.Publisher(ctx, PublisherSpec{Topology: s.Topology, Queue: s.Queue, Mode: s.Mode,
		MaxInFlight: s.MaxInFlight, Batch: s.Batch, Persistent: s.Persistent, Mandatory: s.Mandatory, Keyed: s.Keyed,
		Node: c.spec.Node, Ordinal: c.spec.Ordinal, Connection: c.number, OnConfirms: s.OnConfirms, OnReturn: s.OnReturn,
		Waiting: s.Waiting, OnClosed: c.broke})
	if err != nil {
		return nil, err
	}
	p := &publisher{conn: c, inner: inner, stop: func() {}}
	c.add(p, inner)
	return p, nil
}

func (p *publisher) enter(ctx context.Context) context.Context {
	if ctx != p.ctx {
		p.stop()
		inCtx, cancel := context.WithCancel(ctx)
		unhook := context.AfterFunc(p.life, cancel)
		p.ctx, p.inCtx, p.stop = ctx, inCtx, func() { unhook(); cancel() }
	}
	return p.inCtx
}

func (p *publisher) explain(err error) error {
	if err != nil && p.check() != nil && !errors.Is(err, drivers.ErrClosed) {
		return fmt.Errorf("%w: %w", drivers.ErrClosed, err)
	}
	return err
}

func (p *publisher) Publish(ctx context.Context, m drivers.Message) error {
	return p.explain(p.inner.Publish(p.enter(ctx), m))
}

func (p *publisher) Flush(ctx context.Context) error { return p.explain(p.inner.Flush(p.enter(ctx))) }

func (p *publisher) Close() error { return p.inner.Close() }

type consumer struct {
	*conn
	inner  Consumer
	nacked atomic.Bool // by the running call of the handler
}

func (c *conn) Consumer(ctx context.Context, s drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	k := &consumer{conn: c}
	every := 100
	if s.Prefetch > 0 {
		every = min(every, s.Prefetch)
	}
	inner, err := c.session.Session.Consumer(ctx, ConsumerSpec{Topology: s.Topology, Subscription: s.Subscription,
		Queue: s.Queue, Prefetch: s.Prefetch, Batch: s.Batch, Ack: s.Ack, AckEvery: every,
		AckInterval: 100 * time.Millisecond, Nack: s.Nack, Node: c.spec.Node, Ordinal: c.spec.Ordinal, Connection: c.number,
		OnClosed: c.broke}, func(batch []drivers.Delivery) error {
		handle(batch)
		if k.nacked.Swap(false) {
			return errors.New("rejected")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	k.inner = inner
	c.add(k, inner)
	return k, nil
}

// Ack has no effect: the driver acknowledges what is not rejected.
func (k *consumer) Ack(int) {}

func (k *consumer) Nack(int) { k.nacked.Store(true) }

func (k *consumer) Stop() { _ = k.inner.Close() }

func (k *consumer) Close() error { return k.inner.Close() }
