// Package engine turns an assignment into load: it owns time, sequence numbers, pacing, windows, reconnection and the
// account of every message, and asks of a driver only to move bytes. Nothing it does per message allocates, and no
// two publishers share a lock; what it measured is taken from it in increments, from any goroutine.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// Config is what an engine works with. The session stays the caller's.
type Config struct {
	Assignment plan.Assignment
	Session    drivers.Session
	Log        *slog.Logger
	// CopiesBody is what the driver declares of itself: the body is the engine's again when Publish returns.
	CopiesBody bool
	Access     drivers.Access // to payload files
}

// Engine is one agent's part of one task. ConnectConsumers, ConnectPublishers, Run and Close are called
// in this order, one at a time; Take and Event from any goroutine.
type Engine struct {
	assignment plan.Assignment
	work       plan.Workload
	session    drivers.Session
	topology   drivers.Topology
	log        *slog.Logger
	task       uint64
	clockID    uint64
	copiesBody bool

	redeliverAfter time.Duration // see plan.Cell

	tape []byte    // see contents
	keys *keyTable // nil: each message has another key

	publishers []*publisher
	writes     map[int]*drivers.Waiting // the blocked ones, by connection of publishers
	consumers  []*consumer
	churn      *churn // nil: no bindings are made while messages flow, or not by this agent
	arrivals   arrivals

	correction atomic.Int64 // see Correct

	// known from Run on
	origin          atomic.Int64 // clock.Now() at T0: when the measurement begins; with warmup "auto", when the load does
	warmup          int64        // ns from the start of the load to T0
	measured        measurement
	collector       *record.Collector
	begun           atomic.Bool
	over            atomic.Bool // the measurement has ended, or was cancelled: cheaper to ask than a context
	started         chan struct{}
	closed          chan struct{}
	closeOnce       sync.Once
	stopRun         context.CancelFunc
	running         sync.WaitGroup
	supervision     context.Context
	stopSupervision context.CancelFunc

	mu           sync.Mutex // guards what follows; never taken per message
	own          *record.Recorder
	events       []record.Event
	blockedSince map[string]int64
	warned       map[string]int
	comings      int // joins and leaves so far
	skew         time.Duration
	last         record.Part
}

// New makes an engine; it touches no network.
func New(cfg Config) (*Engine, error) {
	a := cfg.Assignment
	w := a.Task.Cell.Workload
	if w.Message.Size < EnvelopeSize {
		return nil, fmt.Errorf("message size %d is less than the envelope's %d bytes", w.Message.Size, EnvelopeSize)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{
		assignment: a, work: w, session: cfg.Session, topology: Topology(a.Task), log: cfg.Log,
		task: identity(a.Task.Topic()), clockID: identity(clock.ID()), copiesBody: cfg.CopiesBody, redeliverAfter: a.Task.Cell.RedeliverAfter.D(),
		started: make(chan struct{}), closed: make(chan struct{}), measured: measurement{known: make(chan struct{})},
		supervision: ctx, stopSupervision: cancel,
		blockedSince: map[string]int64{}, warned: map[string]int{}, writes: map[int]*drivers.Waiting{},
	}
	if a.Index == 0 && w.Topology.Churn.Rate > 0 {
		var err error
		if e.churn, err = e.newChurn(); err != nil {
			cancel()
			return nil, err
		}
	}
	if a.Publishers.Count > 0 {
		var err error
		if e.tape, err = e.makeTape(cfg.Access); err != nil {
			cancel()
			return nil, err
		}
		e.keys = newKeyTable(w.Message.Keys)
	}
	e.measured.from.Store(untold)
	e.measured.end.Store(untold)
	for i := range a.Publishers.Count {
		e.publishers = append(e.publishers, e.newPublisher(a.Publishers.First+i))
	}
	for s := range e.topology.Subscriptions {
		for i := range a.Consumers.Count {
			e.consumers = append(e.consumers, e.newConsumer(s, a.Consumers.First+i))
		}
	}
	return e, nil
}

// now is nanoseconds since T0.
func (e *Engine) now() int64 { return clock.Now() - e.origin.Load() }

// Correct says what is added to this agent's times since T0 before they are compared with those of another clock: ns that lead to the
// times of the clock that all agents of the task compare theirs with. It may be called at any time, from any goroutine, and holds for
// messages sent, and receipts, from then on.
func (e *Engine) Correct(ns int64) { e.correction.Store(ns) }

// lead is what is added to a time of this agent to get that of the clock from which a message's times were read: exactly nothing where it
// is the same clock.
func (e *Engine) lead(env envelope) int64 {
	if env.clock == e.clockID {
		return 0
	}
	return e.correction.Load() - env.correction
}

// due is when a schedule's next message is due.
func (e *Engine) due(s Schedule) int64 { return int64(s.Next()) - e.warmup }

// ConnectConsumers returns when every consumer of this agent is ready: nothing published from then on is missed. Those that are not there at
// the start have left again.
func (e *Engine) ConnectConsumers(ctx context.Context) error {
	err := each(e.consumers, func(c *consumer) error { return c.link.open(ctx) })
	if err != nil {
		return err
	}
	return each(e.consumers, func(c *consumer) error { c.withdraw(); return nil })
}

// ConnectPublishers connects the publishers; nothing is sent yet.
func (e *Engine) ConnectPublishers(ctx context.Context) error {
	err := each(e.publishers, func(p *publisher) error {
		if p.perMessage() {
			return nil
		}
		return p.link.open(ctx)
	})
	if err == nil && e.churn != nil {
		err = e.churn.connect(ctx)
	}
	if err != nil {
		return err
	}
	return each(e.publishers, func(p *publisher) error { p.withdraw(); return nil })
}

// each calls f for all, a few at a time, and joins the errors.
func each[T any](all []T, f func(T) error) error {
	const atATime = 8
	var (
		wg   sync.WaitGroup
		gate = make(chan struct{}, atATime)
		errs = make([]error, len(all))
	)
	for i, x := range all {
		gate <- struct{}{}
		wg.Go(func() {
			errs[i] = f(x)
			<-gate
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Run sends from start on, a reading of this host's clock.Now, through warm-up and measurement, and then waits for outstanding confirms, at
// most as long as the drain may take. An agent without publishers returns at the end of the measurement, or at once when a count ends it. It
// returns early, and with ctx's error, when ctx is cancelled; what was measured stays.
func (e *Engine) Run(ctx context.Context, start int64) error {
	ctx, e.stopRun = context.WithCancel(ctx)
	defer e.stopRun()
	e.running.Add(1)
	defer e.running.Done()
	e.begin(start)
	if len(e.publishers) == 0 { // consumers are at work from the start, or from when this is late for it
		e.startedLate(max(0, clock.Now()-start))
		if e.work.Publishers.Count > 0 {
			return nil
		}
		select {
		case <-e.measured.known:
			return clock.Until(ctx, e.origin.Load()+e.ends())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := clock.Until(ctx, start); err != nil {
		return err
	}
	e.startedLate(clock.Now() - start)
	soft, cancelSoft := e.until(ctx, 0)
	defer cancelSoft()
	defer context.AfterFunc(soft, func() { e.over.Store(true) })()
	hard, cancelHard := e.until(ctx, e.work.Drain.Most.D())
	defer cancelHard()
	unblock := context.AfterFunc(hard, func() { // a driver may be stuck in a write that knows no context
		e.closePublishers()
	})
	defer unblock()
	churned := e.startChurn(soft, hard)
	var wg sync.WaitGroup
	for _, p := range e.publishers {
		wg.Go(func() { p.run(soft, hard) })
	}
	wg.Wait()
	churned()
	e.finishPublishers()
	return ctx.Err()
}

// startedLate notes by how much this agent started after the agreed time.
func (e *Engine) startedLate(ns int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.skew = time.Duration(ns)
}

// begin fixes the epoch and lets waiting deliveries through.
func (e *Engine) begin(start int64) {
	e.warmup = e.work.Warmup.D().Nanoseconds()
	e.origin.Store(start + e.warmup)
	e.collector = record.NewCollector(0)
	if !e.work.Steady.Auto {
		e.setMeasurement(0)
	}
	e.mu.Lock()
	e.own = e.collector.Recorder()
	e.mu.Unlock()
	for _, p := range e.publishers {
		p.record(e.collector)
	}
	if e.churn != nil {
		e.churn.record(e.collector)
	}
	e.arrivals.record(e.collector)
	for _, c := range e.consumers {
		c.record(e.collector, e.assignment.Publishers.Total)
	}
	close(e.started)
	e.begun.Store(true)
	for _, c := range e.consumers {
		go c.supervise(e.supervision)
	}
}

// finishPublishers notes when they last did something, and hands over the confirm side of those with nothing in flight.
func (e *Engine) finishPublishers() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.publishers {
		if p.times.Active > 0 && (e.last.Busiest.Active == 0 || p.times.Busy() > e.last.Busiest.Busy()) {
			e.last.Busiest = p.times
		}
		e.last.LastSend = max(e.last.LastSend, p.lastSend)
		if p.flight != nil && p.flight.outstanding() == 0 {
			e.last.LastConfirm = max(e.last.LastConfirm, p.lastConfirm)
			p.confirms.Flush()
		}
	}
}

// Close closes publishers and then consumers, in an orderly way, at most until ctx ends; Take(true) then has everything.
// It is safe at any point of the task.
func (e *Engine) Close(ctx context.Context) error {
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		e.closeOnce.Do(e.closeAll)
	}()
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close publishers and consumers: %w; a driver did not let go", ctx.Err())
	}
}

func (e *Engine) closeAll() {
	close(e.closed)
	e.stopSupervision()
	if e.begun.Load() {
		e.stopRun()
	}
	e.closePublishers()
	e.running.Wait()    // what publishers own is theirs until they have stopped
	e.closePublishers() // and the link that one may have opened meanwhile
	for _, c := range e.consumers {
		c.link.finish()
	}
	var wg sync.WaitGroup
	for _, c := range e.consumers {
		wg.Go(func() {
			if e.collector != nil {
				<-c.done
			}
			c.link.close()
		})
	}
	wg.Wait()
	if e.collector == nil {
		return
	}
	e.finishPublishers()
	now := e.now()
	for _, p := range e.publishers {
		p.endWait(now)
		p.confirms.Flush()
	}
	for _, c := range e.consumers {
		c.endWait(now)
	}
}

// closePublishers closes all links to publish over. None of them counts as broken from then on, even if one is closed by the end of another.
func (e *Engine) closePublishers() {
	for _, p := range e.publishers {
		p.link.finish()
	}
	var wg sync.WaitGroup
	if e.churn != nil {
		e.churn.finishLinks()
		wg.Go(e.churn.closeLinks)
	}
	for _, p := range e.publishers {
		wg.Go(p.link.close)
	}
	wg.Wait()
}
