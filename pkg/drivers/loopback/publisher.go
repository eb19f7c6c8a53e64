package loopback

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/pkg/drivers"
)

// publisher copies messages into the queues of its number, one for each subscription.
type publisher struct {
	session  *session
	spec     drivers.PublisherSpec
	topology *topology
	queues   []*queue
	confirms bool
	fast     bool // nothing to decide: one queue, no faults
	sequence *sequence
	limiter  *limiter    // nil: no limit
	later    *confirmer  // nil: confirms at once
	tap      func(Stamp) // nil: nobody asks
	number   uint64      // in stamps

	mu     sync.Mutex // held by Publish, its waits and its confirm included
	endMu  sync.Mutex
	ended  atomic.Bool
	notice *drivers.Notice
	stop   chan struct{} // closed with ended: wakes Publish
}

func newPublisher(s *session, t *topology, spec drivers.PublisherSpec) *publisher {
	p := &publisher{
		session: s, spec: spec, topology: t, queues: t.fanOut(spec.Queue),
		confirms: spec.Mode.Confirmed() && spec.OnConfirm != nil, sequence: &sequence{}, stop: make(chan struct{}),
		notice: drivers.NewNotice(spec.OnClosed),
	}
	if p.tap, p.number = s.broker.tapped(); p.tap != nil && p.confirms {
		p.spec.OnConfirm = tapConfirms(p.tap, p.number, spec.OnConfirm)
	}
	p.fast = len(p.queues) == 1 && s.options.plain() && p.tap == nil
	if each := spec.Mode == drivers.ConnectionPerMessage || spec.Mode == drivers.ConnectionPerMessageConfirm; each &&
		len(p.queues) > 0 {
		p.sequence = t.shared[spec.Queue]
	}
	if s.options.Rate > 0 {
		p.limiter = s.broker.limiter(s.options.Rate, s.options.Burst)
	}
	if s.options.confirmsLater() && p.confirms {
		p.later = newConfirmer(s.broker.now, p.spec.OnConfirm)
	}
	return p
}

func (p *publisher) start() {
	if p.later != nil {
		go p.later.loop()
	}
}

// Publish copies the body and, unless confirms are delayed, confirms before it returns.
func (p *publisher) Publish(ctx context.Context, m drivers.Message) error {
	p.mu.Lock()
	if p.fast && !p.ended.Load() && m.Key < drivers.ExtraKey {
		o := &p.session.options
		switch p.queues[0].offer(m.Body, 0, o.Capacity, o.CapacityBytes) {
		case taken:
			if p.confirms {
				p.spec.OnConfirm(m.Token, nil)
			}
			p.mu.Unlock()
			return nil
		case takenYield:
			if p.confirms {
				p.spec.OnConfirm(m.Token, nil)
			}
			p.mu.Unlock()
			runtime.Gosched()
			return nil
		}
	}
	defer p.mu.Unlock()
	return p.publish(ctx, m)
}

// publish is Publish with everything that may happen to a message.
func (p *publisher) publish(ctx context.Context, m drivers.Message) error {
	if p.tap != nil {
		p.tap(Stamp{Kind: Accepted, At: time.Now(), Publisher: p.number, Token: m.Token, Body: m.Body})
	}
	if err := p.pace(ctx); err != nil {
		return err
	}
	queues := p.queues
	if m.Key >= drivers.ExtraKey {
		queues = p.topology.bound(extra{p.spec.Queue, m.Key}, p.session.broker.now())
	}
	if unroutable(queues) {
		if p.spec.Mandatory && p.spec.OnReturn != nil {
			p.spec.OnReturn(m.Body)
		}
		return p.confirm(m.Token, p.session.options.ConfirmDelay.median(), nil)
	}
	// Room for the message itself is waited for before its number is taken: a cancelled one has none.
	if err := p.awaitRoom(ctx, queues, len(m.Body)); err != nil {
		return err
	}
	if m.Key >= drivers.ExtraKey {
		p.store(queues, m.Body, p.due(p.session.options.Delay.median()))
		return p.confirm(m.Token, p.session.options.ConfirmDelay.median(), nil)
	}
	f := p.sequence.next(&p.session.options, m.Body)
	ready := p.due(f.delay)
	for _, body := range f.bodies[:f.count] {
		p.store(queues, body, ready)
	}
	if f.rejected {
		return p.confirm(m.Token, f.confirmDelay, fmt.Errorf("loopback was told to reject it: %w", drivers.ErrRejected))
	}
	return p.confirm(m.Token, f.confirmDelay, nil)
}

// pace waits for the broker's rate.
func (p *publisher) pace(ctx context.Context) error {
	if err := p.check(ctx); err != nil || p.limiter == nil {
		return err
	}
	wait := p.limiter.reserve(time.Now())
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	p.spec.Waiting.Begin()
	defer p.spec.Waiting.End()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-p.stop:
	}
	return p.check(ctx)
}

func (p *publisher) check(ctx context.Context) error {
	if p.ended.Load() {
		return fmt.Errorf("publish to loopback: %w", drivers.ErrClosed)
	}
	return ctx.Err()
}

// unroutable reports whether no queue would take the message: none was declared or bound, or all were torn down.
func unroutable(queues []*queue) bool {
	for _, q := range queues {
		q.mu.Lock()
		gone := q.gone
		q.mu.Unlock()
		if !gone {
			return false
		}
	}
	return true
}

// awaitRoom waits until every queue has room. Others may take it first; bounds then give way by one message each.
func (p *publisher) awaitRoom(ctx context.Context, queues []*queue, size int) error {
	o := &p.session.options
	for _, q := range queues {
		for room := q.room(size, o.Capacity, o.CapacityBytes); room != nil; room = q.room(size, o.Capacity,
			o.CapacityBytes) {
			p.spec.Waiting.Begin()
			select {
			case <-room:
			case <-ctx.Done():
			case <-p.stop:
			}
			p.spec.Waiting.End()
			if err := p.check(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// due is when what takes delay from now on happens, by the broker's clock; 0 is now.
func (p *publisher) due(delay int64) int64 {
	o := &p.session.options
	if delay == 0 && !o.shifts() {
		return 0
	}
	now := p.session.broker.now()
	return o.due(p.topology.since(now), now, delay)
}

// store puts a body into every queue, to be delivered at ready.
func (p *publisher) store(queues []*queue, body []byte, ready int64) {
	for _, q := range queues {
		if !p.session.options.Delay.fixed() {
			q.offerLater(body, ready)
			continue
		}
		if q.offer(body, ready, unbounded, unbounded) == takenYield {
			runtime.Gosched()
		}
	}
}

const unbounded = int(^uint(0) >> 1)

func (p *publisher) confirm(token uint64, delay int64, err error) error {
	if !p.confirms {
		return nil
	}
	if p.later == nil {
		p.spec.OnConfirm(token, err)
		return nil
	}
	if !p.later.add(token, err, p.due(delay)) {
		return fmt.Errorf("publish to loopback: %w", drivers.ErrClosed)
	}
	return nil
}

// Flush has nothing to do: nothing is buffered on this side.
func (p *publisher) Flush(context.Context) error {
	if p.ended.Load() {
		return fmt.Errorf("flush to loopback: %w", drivers.ErrClosed)
	}
	return nil
}

// end stops Publish; it reports whether this call did.
func (p *publisher) end() bool {
	p.endMu.Lock()
	defer p.endMu.Unlock()
	if p.ended.Load() {
		return false
	}
	p.ended.Store(true)
	close(p.stop)
	p.session.drop(p)
	return true
}

// closeLimit bounds how long Close waits for delayed confirms.
const closeLimit = 3 * time.Second

// Close waits for a Publish in progress to leave and for delayed confirms, as long as closeLimit allows.
func (p *publisher) Close() error {
	p.notice.End()
	p.end()
	p.mu.Lock()
	//lint:ignore SA2001 a Publish in progress leaves first
	p.mu.Unlock()
	if p.later != nil {
		p.later.finish(closeLimit)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ownSequence() {
		if body, has := p.sequence.rest(); has {
			p.store(p.queues, body, 0)
		}
	}
	return nil
}

// ownSequence reports whether the sequence ends with this publisher.
func (p *publisher) ownSequence() bool {
	return p.spec.Mode != drivers.ConnectionPerMessage && p.spec.Mode != drivers.ConnectionPerMessageConfirm
}

func (p *publisher) cut() {
	if !p.end() {
		return
	}
	if p.later != nil {
		p.later.fail()
	}
	p.notice.Broke(fmt.Errorf("loopback publisher was cut: %w", drivers.ErrClosed))
}

func (p *publisher) abandon() {
	if p.later != nil {
		p.later.fail()
	}
	_ = p.Close()
}
