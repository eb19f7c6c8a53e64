package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// publisher is one publishing thread. Its goroutine owns sends; the driver's confirms own confirms, one call at a
// time; they meet only in flight.
type publisher struct {
	e        *Engine
	index    int // among all publishers of the task
	flow     int // of the first subscription
	spec     drivers.PublisherSpec
	link     drivers.Publisher
	mode     drivers.Mode
	work     plan.Publishers
	schedule Schedule // nil: closed loop
	random   *rand.Rand

	waiter     clock.Waiter
	flight     *inflight // confirmed modes
	body       []byte    // unconfirmed modes
	payloadSum uint32
	contents   *contents // nil: all bodies are alike
	keyDraws   rand.PCG
	sequence   uint64
	measured   uint64                // sent that belong to the measurement
	due        int64                 // of the next message, open loop
	gap        int64                 // between due times, a moving mean of about the last 16
	blocked    int64                 // spec.Waiting as read last
	held       int64                 // how long it waited for the broker since it was last on time
	times      record.PublisherTimes // of the measurement so far
	pacing     pacing                // of the message before
	failures   int                   // publish errors in a row
	turns      *turns                // nil: always there
	gone       bool                  // it left, or has not joined yet
	stays      int64                 // until when it is there, at most the end of the measurement
	attended   int64                 // when it was there last, as its turns say
	unsent     int64                 // counted as such so far
	lastSend   int64

	sends           *record.Recorder
	sent, uncertain *record.Set

	confirms     *record.Recorder
	acknowledged *record.Set
	rejected     *record.Set
	lastConfirm  int64
	confirmWait  wait
	lacking      lack // since when what was sent has failed, ns since T0, and nothing was confirmed; 0: it has not
	returnsMu    sync.Mutex
	returns      *record.Recorder
	returned     *record.Set
	down         atomic.Bool
	links        atomic.Int64  // numbers links
	downAt       atomic.Int64  // reading of the clock
	broken       chan struct{} // one token: the link went down
	closing      sync.Mutex    // guards link against Close from outside
	soft, hard   context.Context
}

func (e *Engine) newPublisher(i int) *publisher {
	w := e.work
	p := &publisher{e: e, index: i, mode: drivers.Mode(w.Publishers.Mode), work: w.Publishers,
		random: rand.New(rand.NewPCG(e.task, uint64(i))), broken: make(chan struct{}, 1)}
	p.keyDraws = *rand.NewPCG(e.task, 2<<32|uint64(i))
	p.turns = newTurns(w.Publishers.Presence, i, e.assignment.Publishers.Total, forever)
	number := connection(w.Topology, i-e.assignment.Publishers.First)
	if e.writes[number] == nil {
		e.writes[number] = &drivers.Waiting{}
	}
	p.spec = drivers.PublisherSpec{
		Topology: e.topology, Queue: queueOf(w, i, w.Publishers.Threads), Mode: p.mode, Window: w.Publishers.Window,
		Batch: w.Publishers.Batch.Most, Persistent: w.Publishers.Persistent, Mandatory: w.Publishers.Mandatory,
		Node: drivers.Node(w.Publishers.Node), Connection: number,
		OnReturn: p.onReturn, Waiting: &drivers.Waiting{Writes: e.writes[number]},
	}
	if p.mode.Confirmed() {
		p.spec.OnConfirm = p.onConfirm
		p.flight = newInflight(p.work.InFlight(), p.bodies())
		least, _ := w.LeastGap()
		p.confirmWait = newWait(record.GapConfirm, i, least)
	} else {
		p.body = p.newBody()
	}
	if p.perMessage() {
		p.spec.Connection, p.spec.Waiting.Writes = drivers.Exclusive, &drivers.Waiting{}
	}
	p.schedule = newSchedule(w.Publishers, w.Warmup.D(), e.task, i, e.assignment.Publishers.Total)
	p.flow = record.FlowsOf(w.Topology.Subscriptions, w.Topology.Queues).Of(0, p.spec.Queue)
	if w.Steady.Auto {
		askFor(p.schedule, e.beginning)
	}
	return p
}

func (p *publisher) perMessage() bool {
	return p.mode == drivers.ConnectionPerMessage || p.mode == drivers.ConnectionPerMessageConfirm
}

// bodies makes the bodies of slots. One does for all where the driver copies it, and stays in the processor's cache.
func (p *publisher) bodies() func() []byte {
	if !p.e.copiesBody {
		return p.newBody
	}
	one := p.newBody()
	return func() []byte { return one }
}

// newBody makes a stamped body; its payload follows from the task and the publisher alone.
func (p *publisher) newBody() []byte {
	body := make([]byte, p.e.work.Message.Size)
	rand.NewChaCha8(seed(p.e.task, p.index, 0)).Read(body[EnvelopeSize:]) // never fails
	p.payloadSum = stamp(body, p.e.task, p.e.clockID, uint32(p.index))
	if p.contents == nil {
		p.contents = p.e.newContents(p.index, body[EnvelopeSize:])
	}
	return body
}

// record gives the publisher its part of the record, when the start is known.
func (p *publisher) record(c *record.Collector) {
	p.sends, p.confirms, p.returns = c.Recorder(), c.Recorder(), c.Recorder()
	p.confirmWait.begin(-p.e.warmup)
	key := record.SetKey{Publisher: p.index}
	set := func(r *record.Recorder, kind record.SetKind) *record.Set {
		key.Kind = kind
		return r.Set(key)
	}
	p.sent, p.uncertain = set(p.sends, record.SetSent), set(p.sends, record.SetUncertain)
	p.acknowledged, p.rejected = set(p.confirms, record.SetConfirmed), set(p.confirms, record.SetRejected)
	p.returned = set(p.returns, record.SetReturned)
}

// connect opens the link, within the connect deadline.
func (p *publisher) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(drivers.WithWaiting(ctx, p.spec.Waiting.Writes), p.e.work.Connect.D())
	defer cancel()
	spec, link := p.spec, p.links.Add(1)
	spec.OnClosed = func(err error) { p.onClosed(link, err) }
	opened, err := p.e.session.Publisher(ctx, spec)
	if err != nil {
		return fmt.Errorf("connect publisher %d: %w", p.index, err)
	}
	p.closing.Lock()
	p.link = opened
	p.closing.Unlock()
	return nil
}

// onConfirm records before it releases, so that a publisher which sees nothing in flight sees everything recorded.
func (p *publisher) onConfirm(token uint64, err error) {
	now := p.e.now()
	s := p.flight.find(token)
	if s == nil {
		p.e.Event(drivers.EventNotice, fmt.Sprintf("driver confirmed token %d of publisher %d, which is not in flight", token, p.index))
		return
	}
	w := p.confirms.Window(now, p.e.belongs(s.due, s.send))
	switch {
	case err == nil:
		w.Counts[record.Confirmed]++
		w.Record(record.Send, now-s.send)
		if p.schedule != nil {
			w.Record(record.SendDue, now-s.due)
		}
		p.acknowledged.Add(s.sequence)
		p.lastConfirm = now
		p.confirmedAt(now, s.send)
	case errors.Is(err, drivers.ErrRejected):
		w.Counts[record.Rejected]++
		w.Record(record.SendFailed, now-s.send)
		p.rejected.Add(s.sequence)
		p.lack(s.send)
	default:
		w.Counts[record.Unconfirmed]++
		p.unanswered(w, s.due, s.send, now)
		p.lack(s.send)
	}
	p.flight.release(token, now)
}

func (p *publisher) onReturn(body []byte) {
	env, err := open(body, p.e.task)
	if err != nil {
		p.e.Event(drivers.EventNotice, fmt.Sprintf("broker returned a message to publisher %d: %v", p.index, err))
		return
	}
	p.returnsMu.Lock()
	defer p.returnsMu.Unlock()
	if p.returned.Add(env.sequence) {
		w := p.returns.Window(p.e.now(), p.e.belongs(env.due, env.send))
		w.Counts[record.Returned]++
		w.Publish(p.flow, -1)
	}
}

// onClosed hears that a link broke; news of an earlier one than the present is old.
func (p *publisher) onClosed(link int64, err error) {
	if p.perMessage() && !p.e.drained.Load() {
		p.e.Event("closed", fmt.Sprintf("publisher %d: %v", p.index, err)) // the publish or confirm that it breaks deals with it
		return
	}
	if !p.perMessage() && link == p.links.Load() {
		p.fail(err)
	}
}

// fail marks the link as broken and wakes whatever waits for it.
func (p *publisher) fail(err error) {
	if p.down.CompareAndSwap(false, true) {
		p.downAt.Store(clock.Now())
		if !p.e.drained.Load() {
			p.e.Event("closed", fmt.Sprintf("publisher %d: %v", p.index, err))
		}
		select {
		case p.broken <- struct{}{}:
		default:
		}
	}
}

// reconnect closes the broken link and opens another until ctx ends.
func (p *publisher) reconnect(ctx context.Context) bool {
	begin := p.e.now()
	p.disconnect()
	ok := p.e.retry(ctx, func(ctx context.Context) error {
		err := p.connect(ctx)
		p.countPorts(err)
		return err
	})
	p.e.gap("publisher", p.index, p.downAt.Load(), ok)
	p.lack(p.downAt.Load() - p.e.origin.Load())
	if ok {
		p.sends.Window(p.e.now(), false).Counts[record.Reconnects]++
	}
	p.waited(begin, p.e.now())
	return ok
}

// disconnect closes the link, which settles all that was in flight, and forgets that it was down.
func (p *publisher) disconnect() {
	p.links.Add(1) // what is still said of the link is old
	p.closeLink()
	select {
	case <-p.broken:
	default:
	}
	p.down.Store(false)
}

func (p *publisher) countPorts(err error) {
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EMFILE) {
		p.sends.Window(p.e.now(), false).Counts[record.PortsExhausted]++
	}
}

// closeLink is safe to call from outside and twice.
func (p *publisher) closeLink() {
	p.closing.Lock()
	link := p.link
	p.closing.Unlock()
	if link == nil {
		return
	}
	if err := link.Close(); err != nil {
		p.e.log.Debug("close publisher", "publisher", p.index, "error", err)
	}
}

// flushReturns hands over what came back; safe at any time.
func (p *publisher) flushReturns() {
	p.returnsMu.Lock()
	p.returns.Flush()
	p.returnsMu.Unlock()
}

// pauseAfterFailure keeps a publisher whose every call fails from spinning.
func (p *publisher) pauseAfterFailure() {
	begin := p.e.now()
	p.failures = min(p.failures+1, 7)
	sleep(p.deadline(), time.Millisecond<<p.failures)
	p.waited(begin, p.e.now())
}
