package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
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
	link     link[drivers.Publisher]
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
	soft, hard   context.Context
}

func (e *Engine) newPublisher(i int) *publisher {
	w := e.work
	p := &publisher{e: e, index: i, mode: drivers.Mode(w.Publishers.Mode), work: w.Publishers,
		random: rand.New(rand.NewPCG(e.task, uint64(i)))}
	p.link.e, p.link.name, p.link.dial = e, fmt.Sprintf("publisher %d", i), p.dial
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

// dial opens one connection.
func (p *publisher) dial(ctx context.Context, onClosed func(error)) (drivers.Publisher, error) {
	spec := p.spec
	spec.OnClosed = onClosed
	opened, err := p.e.session.Publisher(drivers.WithWaiting(ctx, spec.Waiting.Writes), spec)
	if (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EMFILE)) && p.sends != nil {
		p.sends.Window(p.e.now(), false).Counts[record.PortsExhausted]++
	}
	return opened, err
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

// reconnect replaces the broken link until ctx ends.
func (p *publisher) reconnect(ctx context.Context) bool {
	begin := p.e.now()
	ok := p.link.reopen(ctx)
	if at := p.link.lastBreak(); at != 0 {
		p.lack(at - p.e.origin.Load())
	}
	if ok {
		p.sends.Window(p.e.now(), false).Counts[record.Reconnects]++
	}
	p.waited(begin, p.e.now())
	return ok
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
