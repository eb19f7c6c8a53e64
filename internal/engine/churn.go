package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// Bounds of the churn of bindings, beyond which the rate is not kept, and the outcome says so.
const (
	maxQueues = 64      // queues that bindings are made for, each with a link of its own
	maxCalls  = 64      // calls that make or remove a binding, at a time
	maxActive = 100_000 // bindings at a time
)

// churn makes bindings at a steady rate, sends messages through each while it stays, and removes it again. It belongs
// to agent 0, and has links of its own. A binding is removed only when the broker has confirmed what was sent through
// it, so that no message is lost by being overtaken; what is there at the end is left to Teardown.
type churn struct {
	e      *Engine
	work   plan.Churn
	binder drivers.Binder
	links  []*churnLink // by queue
	calls  chan struct{}

	mu   sync.Mutex // guards what follows; never taken for a message of the ledger
	rec  *record.Recorder
	sent *record.Set
	next uint64 // number of the next message
}

// churnBinding is a binding that was made while messages flow.
type churnBinding struct {
	number      uint64
	queue       int
	called      int64          // when the call that makes it began, ns since T0
	made        int64          // when that call returned
	unconfirmed sync.WaitGroup // messages
}

func (e *Engine) newChurn() (*churn, error) {
	binder, can := e.cfg.Session.(drivers.Binder)
	if !can {
		return nil, fmt.Errorf("make bindings while messages flow: %w: leave topology.churn out",
			drivers.ErrUnsupported)
	}
	c := &churn{e: e, work: e.work.Topology.Churn, binder: binder, calls: make(chan struct{}, maxCalls)}
	for queue := range min(e.topology.Queues, maxQueues) {
		c.links = append(c.links, newChurnLink(c, queue))
	}
	return c, nil
}

func (c *churn) connect(ctx context.Context) error {
	return each(c.links, func(l *churnLink) error { return l.link.open(ctx) })
}

// begin gives the churn its part of the record, when the start is known.
func (c *churn) begin(r *record.Collector) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rec = r.Recorder()
	c.sent = c.rec.Set(record.SetKey{Kind: record.SetBindingSent})
}

// run makes bindings until soft ends; hard ends the wait for confirms.
func (c *churn) run(soft, hard context.Context) {
	schedule := newUniform(c.work.Rate)
	active := make(chan struct{}, maxActive)
	var wg sync.WaitGroup
	defer wg.Wait()
	var waiter clock.Waiter
	for number := uint64(0); waiter.Until(soft, c.e.timeline.next(schedule)+
		c.e.timeline.origin.Load()) == nil; number++ {
		if !enter(soft, active) || !enter(soft, c.calls) { // the call is made by another goroutine, in its turn
			return
		}
		wg.Go(func() {
			c.live(soft, hard, number)
			<-active
		})
	}
}

// enter takes a place, or returns false when ctx ends first.
func enter(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// live makes a binding, sends messages through it and removes it; its place among the calls has been taken.
func (c *churn) live(soft, hard context.Context, number uint64) {
	b := &churnBinding{number: number, queue: int(number % uint64(len(c.links)))}
	ok := c.bind(soft, b)
	<-c.calls
	if !ok {
		return
	}
	c.carry(soft, b)
	c.awaitConfirms(hard, b)
	if soft.Err() != nil || !enter(soft, c.calls) {
		return
	}
	defer func() { <-c.calls }()
	ctx, cancel := context.WithTimeout(soft, c.e.work.Connect.D())
	defer cancel()
	if err := c.binder.Unbind(ctx, c.e.topology, c.subscription(b), b.queue, b.key()); err != nil {
		c.failed(soft, fmt.Errorf("remove binding: %w", err))
		return
	}
	c.count(record.BindingsRemoved)
}

func (c *churn) bind(ctx context.Context, b *churnBinding) bool {
	calling, cancel := context.WithTimeout(ctx, c.e.work.Connect.D())
	defer cancel()
	b.called = c.e.timeline.now()
	err := c.binder.Bind(calling, c.e.topology, c.subscription(b), b.queue, b.key())
	b.made = c.e.timeline.now()
	if err != nil {
		c.failed(ctx, fmt.Errorf("make binding: %w", err))
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.rec.Window(b.made, c.e.timeline.contains(b.called))
	w.Counts[record.BindingsMade]++
	w.Record(record.Binding, b.made-b.called)
	return true
}

// subscription is the one that a binding's messages reach.
func (c *churn) subscription(b *churnBinding) int {
	return int(b.number / uint64(len(c.links)) % uint64(c.e.topology.Subscriptions))
}

// key is the binding's own.
func (b *churnBinding) key() uint32 { return drivers.ExtraKey | uint32(b.number) }

// carry sends messages through a binding, the first at once, as long as it stays.
func (c *churn) carry(ctx context.Context, b *churnBinding) {
	var waiter clock.Waiter
	origin, end, every := c.e.timeline.origin.Load(), b.made+c.work.Hold.D().Nanoseconds(),
		float64(time.Second)/c.work.Probes
	for n := 0; ; n++ {
		intended := b.made + int64(float64(n)*every)
		if intended >= end {
			break
		}
		if waiter.Until(ctx, intended+origin) != nil {
			return
		}
		c.links[b.queue].send(ctx, b)
	}
	_ = waiter.Until(ctx, end+origin) // an early end shows in ctx
}

// awaitConfirms waits for the confirms of a binding's messages, or until hard ends.
func (c *churn) awaitConfirms(hard context.Context, b *churnBinding) {
	confirmed := make(chan struct{})
	go func() {
		b.unconfirmed.Wait()
		close(confirmed)
	}()
	select {
	case <-confirmed:
	case <-hard.Done(): // the links are closed then, which completes all
	}
}

// failed counts a call that failed, unless it was cancelled.
func (c *churn) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	c.count(record.BindingErrors)
	c.e.journal.warn("binding", err)
}

func (c *churn) count(counter record.Counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.e.timeline.now()
	c.rec.Window(now, c.e.timeline.contains(now)).Counts[counter]++
}

// number takes the number of the next message.
func (c *churn) number() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.next
	c.next++
	return n
}

// confirmed records a message that the broker confirmed: only such a message can be lost by a binding.
func (c *churn) confirmed(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.e.timeline.now()
	c.rec.Window(now, c.e.timeline.contains(now)).Counts[record.BindingSent]++
	c.sent.Add(number)
}

func (c *churn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rec.Flush()
}

func (c *churn) closeLinks() {
	var wg sync.WaitGroup
	for _, l := range c.links {
		wg.Go(l.link.close)
	}
	wg.Wait()
}

func (c *churn) finishLinks() {
	for _, l := range c.links {
		l.link.finish()
	}
}
