package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"lockstep/internal/clock"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// churnWindow is the most unconfirmed messages of one link.
const churnWindow = 1000

// churnConnection numbers the connection that the links of new bindings share.
const churnConnection = 2 << 20

// churnLink carries the messages through the new bindings of one queue.
type churnLink struct {
	c     *churn
	queue int
	room  chan struct{} // a token for each message in flight

	mu sync.Mutex // one call of the publisher at a time

	closing sync.Mutex // guards link against Close from outside
	link    drivers.Publisher
	number  atomic.Int64 // of the link
	downAt  atomic.Int64 // reading of the clock; 0: the link is up

	pending sync.Map // token to *churned
}

// churned is a message in flight.
type churned struct {
	b      *fresh
	number uint64
}

func newChurnLink(c *churn, queue int) *churnLink {
	return &churnLink{c: c, queue: queue, room: make(chan struct{}, churnWindow)}
}

func (l *churnLink) connect(ctx context.Context) error {
	e := l.c.e
	ctx, cancel := context.WithTimeout(ctx, e.work.Connect.D())
	defer cancel()
	number := l.number.Add(1)
	link, err := e.session.Publisher(ctx, drivers.PublisherSpec{
		Topology: e.topology, Queue: l.queue, Mode: drivers.ConfirmWindow, Window: churnWindow, Batch: 1,
		Persistent: e.work.Publishers.Persistent, Node: drivers.Node(e.work.Publishers.Node), Connection: churnConnection,
		OnConfirm: l.onConfirm,
		OnReturn:  func([]byte) {}, // not asked for
		OnClosed:  func(err error) { l.onClosed(number, err) },
	})
	if err != nil {
		return fmt.Errorf("connect publisher for new bindings of queue %d: %w", l.queue, err)
	}
	l.closing.Lock()
	l.link = link
	l.closing.Unlock()
	l.downAt.Store(0)
	return nil
}

// send sends one message through a binding. What goes wrong is counted; the message is then not one that can be lost.
func (l *churnLink) send(ctx context.Context, b *fresh) {
	if !enter(ctx, l.room) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.downAt.Load() != 0 && !l.reopen(ctx) {
		<-l.room
		return
	}
	e := l.c.e
	m := &churned{b, l.c.number()}
	body := newBindingBody(e, m)
	l.pending.Store(m.number, m)
	b.outstanding.Add(1)
	err := l.link.Publish(ctx, drivers.Message{Token: m.number, Key: b.key(), Body: body})
	if err == nil {
		err = l.link.Flush(ctx)
	} else if l.forget(m.number) != nil {
		b.outstanding.Done()
		<-l.room
	}
	if errors.Is(err, drivers.ErrClosed) {
		l.onClosed(l.number.Load(), err)
	} else if err != nil {
		l.c.failed(ctx, fmt.Errorf("publish through a new binding: %w", err))
	}
}

// reopen opens the link again. The caller holds mu.
func (l *churnLink) reopen(ctx context.Context) bool {
	e := l.c.e
	since := l.downAt.Load()
	l.number.Add(1) // what is still said of the broken one is old
	l.close()
	ok := e.retry(ctx, l.connect)
	e.gap("publisher for new bindings of queue", l.queue, since, ok)
	if ok {
		e.countOwn(record.Reconnects)
	}
	return ok
}

func (l *churnLink) onConfirm(token uint64, err error) {
	m := l.forget(token)
	if m == nil {
		l.c.e.Event(drivers.EventNotice, fmt.Sprintf("driver confirmed message %d of the new bindings of queue %d, which is not in flight", token, l.queue))
		return
	}
	if err == nil {
		l.c.confirmed(m.number)
	}
	m.b.outstanding.Done()
	<-l.room
}

// forget takes a message from those in flight; nil: it is not there.
func (l *churnLink) forget(token uint64) *churned {
	if m, was := l.pending.LoadAndDelete(token); was {
		return m.(*churned)
	}
	return nil
}

// onClosed hears that a link broke; news of an earlier one than the present is old.
func (l *churnLink) onClosed(number int64, err error) {
	if number == l.number.Load() && l.downAt.CompareAndSwap(0, clock.Now()) {
		l.c.e.Event("closed", fmt.Sprintf("publisher for new bindings of queue %d: %v", l.queue, err))
	}
}

// close is safe to call from outside and twice.
func (l *churnLink) close() {
	l.closing.Lock()
	link := l.link
	l.closing.Unlock()
	if link == nil {
		return
	}
	if err := link.Close(); err != nil {
		l.c.e.log.Debug("close publisher for new bindings", "queue", l.queue, "error", err)
	}
}
