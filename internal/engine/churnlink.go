package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// maxChurnInFlight is the maximum number of unconfirmed messages of one link.
const maxChurnInFlight = 1000

// churnConnection is the connection number that all links for new bindings share.
const churnConnection = 2 << 20

// churnLink sends the messages through the new bindings of one queue.
type churnLink struct {
	c     *churn
	queue int
	slots chan struct{} // one token per message in flight

	link link[publishing] // its turn serialises calls of the publisher

	pending sync.Map        // token to *churnMessage
	batch   []*churnMessage // buffer of onConfirms
}

// churnMessage is a message in flight.
type churnMessage struct {
	b      *churnBinding
	number uint64
}

func newChurnLink(c *churn, queue int) *churnLink {
	l := &churnLink{c: c, queue: queue, slots: make(chan struct{}, maxChurnInFlight)}
	l.link = newLink(c.e, fmt.Sprintf("publisher for new bindings of queue %d", queue), l.dial)
	return l
}

// dial opens one connection.
func (l *churnLink) dial(ctx context.Context, onClosed func(error)) (publishing, error) {
	e := l.c.e
	key := e.connKey(drivers.PublisherRole, churnConnection, 0, 0, l.queue)
	return e.conns.publish(ctx, key, drivers.PublisherSpec{
		Topology: e.topology, Queue: l.queue, Mode: drivers.ConfirmWindow, MaxInFlight: maxChurnInFlight, Batch: 1,
		Persistent: e.work.Publishers.Persistent,
		OnConfirms: l.onConfirms,
		OnReturn:   func([]byte) {}, // messages are not mandatory
	}, onClosed)
}

// send sends one message through a binding. Failures are counted. A message that failed is not expected by the record.
func (l *churnLink) send(ctx context.Context, b *churnBinding) {
	if !enter(ctx, l.slots) {
		return
	}
	l.link.turn <- struct{}{}
	defer func() { <-l.link.turn }()
	e := l.c.e
	if l.link.down.Load() {
		if _, ok := l.link.reopen(ctx); !ok {
			<-l.slots
			return
		}
		e.journal.count(record.Reconnects, 1)
	}
	m := &churnMessage{b, l.c.number()}
	body := newBindingBody(e, m)
	l.pending.Store(m.number, m)
	b.unconfirmed.Add(1)
	err := l.link.conn.Publish(ctx, drivers.Message{Token: m.number, Key: b.key(), Body: body})
	if err == nil {
		err = l.link.conn.Flush(ctx)
	} else if l.forget(m.number) != nil {
		b.unconfirmed.Done()
		<-l.slots
	}
	if errors.Is(err, drivers.ErrClosed) {
		l.link.fail(err)
	} else if err != nil {
		l.c.failed(ctx, fmt.Errorf("publish through a new binding: %w", err))
	}
}

func (l *churnLink) onConfirms(tokens []uint64, err error) {
	batch := l.batch[:0]
	for _, token := range tokens {
		if m := l.forget(token); m != nil {
			batch = append(batch, m)
			continue
		}
		l.c.e.Event(drivers.EventNotice,
			fmt.Sprintf("driver confirmed message %d of the new bindings of queue %d, which is not in flight", token,
				l.queue))
	}
	if err == nil {
		l.c.confirmed(batch)
	}
	for _, m := range batch {
		m.b.unconfirmed.Done()
		<-l.slots
	}
	clear(batch)
	l.batch = batch
}

// forget removes a message from those in flight. It returns nil if the token is not in flight.
func (l *churnLink) forget(token uint64) *churnMessage {
	if m, was := l.pending.LoadAndDelete(token); was {
		return m.(*churnMessage)
	}
	return nil
}
