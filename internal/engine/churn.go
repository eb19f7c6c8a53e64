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
	mostChurned = 64      // queues that bindings are made for, each with a link of its own
	mostCalls   = 64      // calls that make or remove a binding, at a time
	mostLiving  = 100_000 // bindings at a time
)

// churn makes bindings at a steady rate, sends messages through each while it stays, and removes it again. It belongs to agent 0, and has
// links of its own. A binding is removed only when the broker has confirmed what was sent through it, so that no message is lost by
// being overtaken; what is there at the end is left to Teardown.
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

// fresh is a binding that was made while messages flow.
type fresh struct {
	number      uint64
	queue       int
	called      int64          // when it was asked for, ns since T0
	made        int64          // when the broker had made it
	outstanding sync.WaitGroup // messages without a confirm
}

func (e *Engine) newChurn() (*churn, error) {
	binder, can := e.session.(drivers.Binder)
	if !can {
		return nil, fmt.Errorf("make bindings while messages flow: %w: leave topology.churn out", drivers.ErrUnsupported)
	}
	c := &churn{e: e, work: e.work.Topology.Churn, binder: binder, calls: make(chan struct{}, mostCalls)}
	for queue := range min(e.topology.Queues, mostChurned) {
		c.links = append(c.links, newChurnLink(c, queue))
	}
	return c, nil
}

func (c *churn) connect(ctx context.Context) error {
	return each(c.links, func(l *churnLink) error { return l.link.open(ctx) })
}

// record gives the churn its part of the record, when the start is known.
func (c *churn) record(r *record.Collector) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rec = r.Recorder()
	c.sent = c.rec.Set(record.SetKey{Kind: record.SetBindingSent})
}

// startChurn begins to make bindings, if this agent has to, and returns how to end that: when the publishers have, by a count or by time.
func (e *Engine) startChurn(soft, hard context.Context) (end func()) {
	if e.churn == nil {
		return func() {}
	}
	soft, cancel := context.WithCancel(soft)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.churn.run(soft, hard)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// run makes bindings until soft ends; hard ends the wait for confirms.
func (c *churn) run(soft, hard context.Context) {
	schedule := newUniform(c.work.Rate)
	living := make(chan struct{}, mostLiving)
	var wg sync.WaitGroup
	defer wg.Wait()
	var waiter clock.Waiter
	for number := uint64(0); waiter.Until(soft, c.e.due(schedule)+c.e.origin.Load()) == nil; number++ {
		if !enter(soft, living) || !enter(soft, c.calls) { // the call is made from beside, in its turn
			return
		}
		wg.Go(func() {
			c.live(soft, hard, number)
			<-living
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

// live is a binding's life; its place among the calls has been taken.
func (c *churn) live(soft, hard context.Context, number uint64) {
	b := &fresh{number: number, queue: int(number % uint64(len(c.links)))}
	ok := c.bind(soft, b)
	<-c.calls
	if !ok {
		return
	}
	c.carry(soft, b)
	c.settle(hard, b)
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

func (c *churn) bind(ctx context.Context, b *fresh) bool {
	calling, cancel := context.WithTimeout(ctx, c.e.work.Connect.D())
	defer cancel()
	b.called = c.e.now()
	err := c.binder.Bind(calling, c.e.topology, c.subscription(b), b.queue, b.key())
	b.made = c.e.now()
	if err != nil {
		c.failed(ctx, fmt.Errorf("make binding: %w", err))
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.rec.Window(b.made, c.e.counts(b.called))
	w.Counts[record.BindingsMade]++
	w.Record(record.Binding, b.made-b.called)
	return true
}

// subscription is the one that a binding's messages reach.
func (c *churn) subscription(b *fresh) int {
	return int(b.number / uint64(len(c.links)) % uint64(c.e.topology.Subscriptions))
}

// key is the binding's own.
func (b *fresh) key() uint32 { return drivers.ExtraKey | uint32(b.number) }

// carry sends messages through a binding, the first at once, as long as it stays.
func (c *churn) carry(ctx context.Context, b *fresh) {
	var waiter clock.Waiter
	origin, end, every := c.e.origin.Load(), b.made+c.work.Hold.D().Nanoseconds(), float64(time.Second)/c.work.Probes
	for n := 0; ; n++ {
		due := b.made + int64(float64(n)*every)
		if due >= end {
			break
		}
		if waiter.Until(ctx, due+origin) != nil {
			return
		}
		c.links[b.queue].send(ctx, b)
	}
	_ = waiter.Until(ctx, end+origin) // an early end shows in ctx
}

// settle waits for the confirms of a binding's messages, or until hard ends.
func (c *churn) settle(hard context.Context, b *fresh) {
	settled := make(chan struct{})
	go func() {
		b.outstanding.Wait()
		close(settled)
	}()
	select {
	case <-settled:
	case <-hard.Done(): // the links are closed then, which settles all
	}
}

// failed counts a call that did not do what it should, unless it was cancelled.
func (c *churn) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	c.count(record.BindingErrors)
	c.e.warn("binding", err)
}

func (c *churn) count(counter record.Counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.e.now()
	c.rec.Window(now, c.e.counts(now)).Counts[counter]++
}

// number takes the number of the next message.
func (c *churn) number() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.next
	c.next++
	return n
}

// confirmed notes a message that the broker has taken: what it was not sure to have got is not lost by a binding.
func (c *churn) confirmed(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.e.now()
	c.rec.Window(now, c.e.counts(now)).Counts[record.BindingSent]++
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
