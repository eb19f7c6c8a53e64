package loopback

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// publisher copies messages into the queues of its number, one per subscription. Done and Err are those of its
// connection.
type publisher struct {
	drivers.Ended // of conn

	conn     *conn
	session  *session
	spec     drivers.PublisherSpec
	topology *topology
	queues   []*queue
	confirms bool
	fast     bool // Publish may take the short path: one queue, no faults, no tap
	sequence *sequence
	limiter  *limiter    // nil: no limit
	later    *confirmer  // nil: confirms at once
	tap      func(Stamp) // nil: not tapped
	number   uint64      // identifies the publisher in stamps

	mu    sync.Mutex    // locked during all of Publish, including waits and the confirm
	token [1]uint64     // buffer of OnConfirms
	once  sync.Once     // end
	ended atomic.Bool   // by end
	stop  chan struct{} // closed when ended is set: wakes Publish
}

func newPublisher(c *conn, t *topology, spec drivers.PublisherSpec) *publisher {
	s := c.session
	p := &publisher{
		Ended: c, conn: c, session: s, spec: spec, topology: t, queues: t.fanOut(spec.Queue),
		confirms: spec.Mode.Confirmed(), sequence: &sequence{}, stop: make(chan struct{}),
	}
	if p.tap, p.number = s.broker.tapped(); p.tap != nil && p.confirms {
		p.spec.OnConfirms = tapConfirms(p.tap, p.number, spec.OnConfirms)
	}
	p.fast = len(p.queues) == 1 && s.options.plain() && p.tap == nil
	if !p.ownSequence() && len(p.queues) > 0 {
		p.sequence = t.shared[spec.Queue]
	}
	if s.options.Rate > 0 {
		p.limiter = s.broker.limiter(s.options.Rate, s.options.Burst)
	}
	if s.options.confirmsLater() && p.confirms {
		p.later = newConfirmer(s.broker.now, p.spec.OnConfirms)
	}
	return p
}

func (p *publisher) start() {
	if p.later != nil {
		go p.later.loop()
	}
}

// Publish copies the body. It confirms before it returns, unless confirms are delayed.
func (p *publisher) Publish(ctx context.Context, m drivers.Message) error {
	p.mu.Lock()
	if p.fast && !p.ended.Load() && m.Key < drivers.ChurnKey {
		o := &p.session.options
		if result := p.queues[0].offer(m.Body, 0, o.Capacity, o.CapacityBytes); result == taken || result == takenYield {
			if p.confirms {
				p.token[0] = m.Token
				p.spec.OnConfirms(p.token[:], nil)
			}
			p.mu.Unlock()
			if result == takenYield {
				runtime.Gosched()
			}
			return nil
		}
	}
	defer p.mu.Unlock()
	return p.publish(ctx, m)
}

// publish handles the cases that Publish has no short path for. The caller holds mu.
func (p *publisher) publish(ctx context.Context, m drivers.Message) error {
	if p.tap != nil {
		p.tap(Stamp{Kind: Accepted, At: time.Now(), Publisher: p.number, Token: m.Token, Body: m.Body})
	}
	if err := p.pace(ctx); err != nil {
		return err
	}
	queues := p.queues
	if m.Key >= drivers.ChurnKey {
		queues = p.topology.bound(extra{p.spec.Queue, m.Key}, p.session.broker.now())
	}
	if unroutable(queues) {
		if p.spec.Mandatory && p.spec.OnReturn != nil {
			p.spec.OnReturn(m.Body)
		}
		return p.confirm(m.Token, p.session.options.ConfirmDelay.median(), nil)
	}
	// Wait before the sequence counts the message: a message that is cancelled here must have no number.
	if err := p.awaitSpace(ctx, queues, len(m.Body)); err != nil {
		return err
	}
	if m.Key >= drivers.ChurnKey {
		p.store(queues, m.Body, p.due(p.session.options.Delay.median()))
		return p.confirm(m.Token, p.session.options.ConfirmDelay.median(), nil)
	}
	f := p.sequence.next(&p.session.options, m.Body)
	ready := p.due(f.delay)
	for _, body := range f.bodies[:f.count] {
		p.store(queues, body, ready)
	}
	if f.rejected {
		return p.confirm(m.Token, f.confirmDelay, errRejected)
	}
	return p.confirm(m.Token, f.confirmDelay, nil)
}

// pace waits until the limiter admits a message.
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

// unroutable reports whether no queue accepts the message: there is none, or all were torn down.
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

// awaitSpace waits until every queue has space for the message. Other publishers may fill it first, so a queue can
// exceed its capacity by one message per publisher.
func (p *publisher) awaitSpace(ctx context.Context, queues []*queue, size int) error {
	o := &p.session.options
	for _, q := range queues {
		for {
			released := q.released(size, o.Capacity, o.CapacityBytes)
			if released == nil {
				break
			}
			p.spec.Waiting.Begin()
			select {
			case <-released:
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

// due returns the time, by the broker's clock, of an event that takes delay from now on. 0 means immediately.
func (p *publisher) due(delay int64) int64 {
	o := &p.session.options
	if delay == 0 && !o.shifts() {
		return 0
	}
	now := p.session.broker.now()
	return o.due(p.topology.since(now), now, delay)
}

// store puts a body into every queue, for delivery at the time ready.
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

var errRejected = fmt.Errorf("rejected by the option reject: %w", drivers.ErrRejected)

func (p *publisher) confirm(token uint64, delay int64, err error) error {
	if !p.confirms {
		return nil
	}
	if p.later == nil {
		p.token[0] = token
		p.spec.OnConfirms(p.token[:], err)
		return nil
	}
	if !p.later.add(token, err, p.due(delay)) {
		return fmt.Errorf("publish to loopback: %w", drivers.ErrClosed)
	}
	return nil
}

// Flush only reports whether the publisher is closed: the publisher buffers nothing.
func (p *publisher) Flush(context.Context) error {
	if p.ended.Load() {
		return fmt.Errorf("flush to loopback: %w", drivers.ErrClosed)
	}
	return nil
}

// end stops Publish.
func (p *publisher) end() {
	p.once.Do(func() {
		p.ended.Store(true)
		close(p.stop)
		p.conn.drop(p)
	})
}

// closeLimit is the maximum time that Close waits for delayed confirms.
const closeLimit = 3 * time.Second

// Close waits until a running Publish returns, and then up to closeLimit for delayed confirms.
func (p *publisher) Close() error {
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

// ownSequence reports whether no other publisher uses the sequence.
func (p *publisher) ownSequence() bool {
	return p.spec.Mode != drivers.ConnectionPerMessage && p.spec.Mode != drivers.ConnectionPerMessageConfirm
}

func (p *publisher) cut() {
	p.end()
	if p.later != nil {
		p.later.fail()
	}
}

func (p *publisher) abandon() {
	if p.later != nil {
		p.later.fail()
	}
	_ = p.Close()
}
