package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// Limits of the churn of bindings. At a limit the configured rate is not reached, and the outcome reports it.
const (
	maxQueues = 64      // queues for which bindings are made; each has a link of its own
	maxCalls  = 64      // concurrent calls that make or remove a binding
	maxActive = 100_000 // concurrent bindings
)

// churn makes bindings at a steady rate, sends messages through each binding, and removes it after its hold time. Only
// agent 0 runs it, over links of its own. A binding is removed only after the broker has confirmed all messages sent
// through it, so that its removal cannot lose messages. Teardown removes the bindings that are left at the end.
type churn struct {
	e      *Engine
	work   plan.Churn
	binder drivers.Binder
	links  []*churnLink // by queue
	calls  chan struct{}

	mu   sync.Mutex // guards the fields below; never locked for ordinary messages
	rec  *record.Recorder
	sent *record.Set
	next uint64 // number of the next message
}

// churnBinding is a binding that is made during the load.
type churnBinding struct {
	number      uint64
	queue       int
	due         int64          // intended time of the Bind call, ns since T0
	made        int64          // end of the Bind call, ns since T0
	unconfirmed sync.WaitGroup // messages without a confirm
}

func newChurn(e *Engine) (*churn, error) {
	binder, can := drivers.As[drivers.Binder](e.cfg.Session)
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

// begin creates the recorder of the churn. It is called when the start time is known.
func (c *churn) begin(r *record.Collector) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rec = r.Recorder()
	c.sent = c.rec.Set(record.SetKey{Kind: record.SetBindingSent})
}

// run makes bindings until soft ends. When hard ends, it no longer waits for confirms.
func (c *churn) run(soft, hard context.Context) {
	even := &schedule{curve: &rateCurve{rate: c.work.Rate}, step: 1}
	active := make(chan struct{}, maxActive)
	var wg sync.WaitGroup
	defer wg.Wait()
	var waiter clock.Waiter
	for number := uint64(0); ; number++ {
		due := c.e.timeline.next(even)
		if waiter.Until(soft, due+c.e.timeline.origin.Load()) != nil {
			return
		}
		if !enter(soft, active) || !enter(soft, c.calls) { // live releases both places
			for now := c.e.timeline.now(); due < now; due = c.e.timeline.next(even) {
				c.unmade(due)
			}
			return
		}
		wg.Go(func() {
			c.live(soft, hard, number, due)
			<-active
		})
	}
}

// enter occupies a place in places. It returns false if ctx ends first.
func enter(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// live makes a binding that is due, sends messages through it and removes it. The caller has entered c.calls, and live
// leaves it.
func (c *churn) live(soft, hard context.Context, number uint64, due int64) {
	b := &churnBinding{number: number, due: due, queue: int(number % uint64(len(c.links)))}
	ok := c.bind(soft, b)
	<-c.calls
	if !ok {
		return
	}
	c.carry(soft, b)
	confirmed := make(chan struct{})
	go func() { b.unconfirmed.Wait(); close(confirmed) }()
	select {
	case <-confirmed:
	case <-hard.Done():
	}
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
	err := c.binder.Bind(calling, c.e.topology, c.subscription(b), b.queue, b.key())
	b.made = c.e.timeline.now()
	if err != nil {
		if ctx.Err() != nil {
			c.unmade(b.due)
		}
		c.failed(ctx, fmt.Errorf("make binding: %w", err))
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.rec.Window(b.made, c.e.timeline.contains(b.due))
	w.Counts[record.BindingsMade]++
	w.Record(record.Binding, b.made-b.due)
	return true
}

// unmade records the age of a binding that was due and is not made when the load ends. Without them a stalled broker
// would look unaffected (coordinated omission).
func (c *churn) unmade(due int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.e.timeline.now(); c.e.timeline.contains(due) {
		c.rec.Window(now, true).Record(record.Binding, now-due)
	}
}

// subscription returns the subscription that receives the messages of a binding.
func (c *churn) subscription(b *churnBinding) int {
	return int(b.number / uint64(len(c.links)) % uint64(c.e.topology.Subscriptions))
}

// key returns the key that is used for this binding alone.
func (b *churnBinding) key() uint32 { return drivers.ChurnKey | uint32(b.number) }

// carry sends messages through a binding during its hold time. The first is sent at once.
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
	_ = waiter.Until(ctx, end+origin) // if ctx ended early, the caller sees it in ctx
}

// failed counts a failed call and records it in the journal, unless ctx has ended.
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

// number returns the number of the next message, and increments it.
func (c *churn) number() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.next
	c.next++
	return n
}

// confirmed records confirmed messages. Only confirmed messages can count as lost by a binding.
func (c *churn) confirmed(messages []*churnMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.e.timeline.now()
	c.rec.Window(now, c.e.timeline.contains(now)).Counts[record.BindingSent] += int64(len(messages))
	for _, m := range messages {
		c.sent.Add(m.number)
	}
}

func (c *churn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rec.Flush()
}
