// Package engine turns an assignment into load: it owns time, sequence numbers, pacing, windows, reconnection and the
// account of every message; a driver only moves bytes. Nothing it does per message allocates, and no two publishers
// share a lock. Its record is taken in increments, from any goroutine.
//
// The path of a message: publisher.go (with pacer.go, payload.go, inflight.go, recorder.go), the broker, consumer.go.
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
	// CopiesBody is the driver's capability: the body is the engine's again when Publish returns.
	CopiesBody bool
	Access     drivers.Access // to payload files
}

// Engine is one agent's part of one task. ConnectConsumers, ConnectPublishers, Run and Close are called in this order,
// one at a time; the other methods from any goroutine. Its fields are the parts of the attempt that publishers and
// consumers share.
type Engine struct {
	cfg      Config
	work     plan.Workload
	topology drivers.Topology
	task     uint64 // in envelopes
	clockID  uint64
	timeline *timeline
	journal  *journal

	payloadSource []byte       // see payloadGenerator
	keys          *keyTable    // nil: each message has another key
	correction    atomic.Int64 // see Correct

	publishers []*publisher
	consumers  []*consumer
	churn      *churn // nil: no bindings are made while messages flow, or not by this agent
	bindings   bindingDeliveries

	collector       *record.Collector
	started         chan struct{} // closed when the start and the collector are known
	stopRun         context.CancelFunc
	running         sync.WaitGroup
	supervision     context.Context // of consumers
	stopSupervision context.CancelFunc
	closeOnce       sync.Once

	mu   sync.Mutex  // guards what follows; never taken per message
	last record.Part // what Take returns beside increments
}

// New makes an engine; it touches no network.
func New(cfg Config) (*Engine, error) {
	a := cfg.Assignment
	w := a.Task.Cell.Workload
	if w.Message.Size < EnvelopeSize {
		return nil, fmt.Errorf("message size %d is less than the envelope's %d bytes", w.Message.Size, EnvelopeSize)
	}
	e := &Engine{cfg: cfg, work: w, topology: Topology(a.Task), task: identity(a.Task.Topic()),
		clockID:  identity(clock.ID()),
		timeline: newTimeline(w), started: make(chan struct{})}
	e.journal = newJournal(e.timeline)
	var err error
	if a.Index == 0 && w.Topology.Churn.Rate > 0 {
		if e.churn, err = e.newChurn(); err != nil {
			return nil, err
		}
	}
	if a.Publishers.Count > 0 {
		if e.payloadSource, err = newPayloadSource(w.Message, e.task, cfg.Access); err != nil {
			return nil, err
		}
		e.keys = newKeyTable(w.Message.Keys)
	}
	e.supervision, e.stopSupervision = context.WithCancel(context.Background())
	writes := map[int]*drivers.Waiting{}
	for i := range a.Publishers.Count {
		e.publishers = append(e.publishers, e.newPublisher(a.Publishers.First+i, writes))
	}
	for s := range e.topology.Subscriptions {
		for i := range a.Consumers.Count {
			e.consumers = append(e.consumers, e.newConsumer(s, a.Consumers.First+i))
		}
	}
	return e, nil
}

// Correct sets the ns that are added to this agent's times since T0 before they are compared with those of another
// clock: they lead to the times of the clock that all agents of the task are compared with. It applies to messages sent
// and received from then on.
func (e *Engine) Correct(ns int64) { e.correction.Store(ns) }

// clockCorrection converts this agent's time to the publisher's clock; 0 if both use the same clock.
func (e *Engine) clockCorrection(env envelope) int64 {
	if env.clock == e.clockID {
		return 0
	}
	return e.correction.Load() - env.correction
}

// ConnectConsumers returns when every consumer of this agent is ready: nothing published from then on is missed.
// Consumers that are not active at the start have disconnected again.
func (e *Engine) ConnectConsumers(ctx context.Context) error {
	if err := each(e.consumers, func(c *consumer) error { return c.link.open(ctx) }); err != nil {
		return err
	}
	return each(e.consumers, func(c *consumer) error { c.disconnectAbsent(); return nil })
}

// ConnectPublishers connects the publishers; nothing is sent yet.
func (e *Engine) ConnectPublishers(ctx context.Context) error {
	err := each(e.publishers, func(p *publisher) error { return p.connect(ctx) })
	if err == nil && e.churn != nil {
		err = e.churn.connect(ctx)
	}
	if err != nil {
		return err
	}
	return each(e.publishers, func(p *publisher) error { p.disconnectAbsent(); return nil })
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

// Run sends from start on, a reading of this host's clock.Now, through warm-up and measurement, and then waits for
// outstanding confirms, at most as long as the drain may take. An agent without publishers returns at the end of the
// measurement, or at once if a count ends it. It returns early, with ctx's error, when ctx is cancelled; what was
// measured stays.
func (e *Engine) Run(ctx context.Context, start int64) error {
	ctx, e.stopRun = context.WithCancel(ctx)
	defer e.stopRun()
	e.running.Add(1)
	defer e.running.Done()
	e.begin(start)
	if len(e.publishers) == 0 {
		return e.consumeOnly(ctx, start)
	}
	if err := clock.Until(ctx, start); err != nil {
		return err
	}
	e.startedLate(clock.Now() - start)
	soft, cancelSoft := e.timeline.until(ctx, 0)
	defer cancelSoft()
	defer context.AfterFunc(soft, func() { e.timeline.over.Store(true) })()
	hard, cancelHard := e.timeline.until(ctx, e.work.Drain.Timeout.D())
	defer cancelHard()
	defer context.AfterFunc(hard, e.closePublishers)() // a driver may be stuck in a write that has no context
	var wg sync.WaitGroup
	churning, stopChurn := context.WithCancel(soft)
	defer stopChurn()
	var churned sync.WaitGroup
	if e.churn != nil {
		churned.Go(func() { e.churn.run(churning, hard) })
	}
	for _, p := range e.publishers {
		wg.Go(func() { p.run(soft, hard) })
	}
	wg.Wait()
	stopChurn() // it ends with the publishers, by a count or by time
	churned.Wait()
	e.finishPublishers()
	return ctx.Err()
}

// consumeOnly waits for the end of the measurement. Consumers work from the start, or from now if that is late.
func (e *Engine) consumeOnly(ctx context.Context, start int64) error {
	e.startedLate(max(0, clock.Now()-start))
	if e.timeline.byCount {
		return nil
	}
	select {
	case <-e.timeline.known:
		return clock.Until(ctx, e.timeline.origin.Load()+e.timeline.ends())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startedLate notes by how much this agent started after the agreed time.
func (e *Engine) startedLate(ns int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last.Skew = time.Duration(ns)
}

// begin fixes the epoch and lets waiting deliveries through.
func (e *Engine) begin(start int64) {
	e.timeline.origin.Store(start + int64(e.timeline.warmup))
	e.collector = record.NewCollector(0)
	if !e.timeline.auto {
		e.setMeasurement(0)
	}
	e.journal.begin(e.collector)
	for _, p := range e.publishers {
		p.begin(e.collector)
	}
	if e.churn != nil {
		e.churn.begin(e.collector)
	}
	e.bindings.begin(e.collector)
	for _, c := range e.consumers {
		c.begin(e.collector)
	}
	close(e.started)
	for _, c := range e.consumers {
		go c.supervise(e.supervision)
	}
}

// hasStarted reports whether the start is known.
func (e *Engine) hasStarted() bool {
	select {
	case <-e.started:
		return true
	default:
		return false
	}
}

// Measure has the measurement begin at a whole second after T0, if that becomes known while the load runs
// (plan.Steady.Auto). It may be called from any goroutine, once. It fails, and changes nothing, if messages that count
// may have passed.
func (e *Engine) Measure(at time.Duration) error {
	if !e.hasStarted() {
		return errors.New("begin the measurement: the load does not run yet")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.timeline.check(at); err != nil {
		return err
	}
	e.setMeasurement(int64(at))
	return nil
}

// setMeasurement fixes the measurement. The collector is told before any message counts.
func (e *Engine) setMeasurement(from int64) {
	end := from + int64(e.timeline.measure)
	e.collector.EndAt(time.Duration(end))
	e.timeline.set(from, end)
}

// MeasureBegins waits until the beginning of the measurement is known, and returns it as a reading of this host's
// clock.
func (e *Engine) MeasureBegins(ctx context.Context) (int64, error) {
	select {
	case <-e.timeline.known:
		return e.timeline.origin.Load() + e.timeline.from.Load(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Event records what a driver reports of its link; the agent puts it into drivers.Env. Time between blocked and
// unblocked is counted for each detail by itself.
func (e *Engine) Event(kind drivers.EventKind, detail string) { e.journal.event(kind, detail) }

// RecordInterval records what was done to this agent's part from one reading of the clock to another. Run must have
// been called.
func (e *Engine) RecordInterval(kind, detail string, from, to int64) {
	e.journal.interval(kind, detail, from, to)
}

// Observe records n samples of the agent's process, of ns nanoseconds each, in the window of at, a reading of
// clock.Now. Before Run there is none, and they are dropped.
func (e *Engine) Observe(at int64, s record.Series, ns int64, n uint64) {
	e.journal.observe(at, s, ns, n)
}

// Take returns what was recorded since it was called last; final, after Close, the rest. Publishers hand over once a
// second by themselves; consumers are asked, so that a drain sees every delivery.
func (e *Engine) Take(final bool) record.Part {
	if !e.hasStarted() {
		return record.Part{Events: e.journal.take(false)}
	}
	var lastDelivery, lastInterrupted int64
	cutOff := 0
	for _, c := range e.consumers {
		delivery, interrupted := c.flush()
		lastDelivery, lastInterrupted = max(lastDelivery, delivery), max(lastInterrupted, interrupted)
		if c.cutOff() {
			cutOff++
		}
	}
	for _, p := range e.publishers {
		p.recorder.flushReturns()
	}
	if e.churn != nil {
		e.churn.flush()
	}
	bindings := e.bindings.flush()
	e.mu.Lock()
	part := e.last
	e.mu.Unlock()
	part.LastDelivery, part.LastInterrupted, part.Apart, part.Bindings = lastDelivery, lastInterrupted, cutOff, bindings
	part.Events = e.journal.take(final)
	part.Windows, part.Sets = e.collector.Take()
	part.Gaps = e.collector.TakeGaps()
	return part
}

// finishPublishers notes when they last did something, and hands over the confirms of those with nothing in flight.
func (e *Engine) finishPublishers() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.publishers {
		if times := p.pacer.times; times.Active > 0 &&
			(e.last.Busiest.Active == 0 || times.Busy() > e.last.Busiest.Busy()) {
			e.last.Busiest = times
		}
		e.last.LastSend = max(e.last.LastSend, p.recorder.lastSend)
		if p.window != nil && p.window.outstanding() == 0 {
			e.last.LastConfirm = max(e.last.LastConfirm, p.recorder.lastConfirm)
			p.recorder.confirms.Flush()
		}
	}
}

// Close closes publishers and then consumers, in an orderly way, at most until ctx ends; Take(true) then has
// everything. It is safe at any point of the task.
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
	e.stopSupervision()
	started := e.hasStarted()
	if started {
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
			if started {
				<-c.done
			}
			c.link.close()
		})
	}
	wg.Wait()
	if !started {
		return
	}
	e.finishPublishers()
	now := e.timeline.now()
	for _, p := range e.publishers {
		p.recorder.finish(now)
	}
	for _, c := range e.consumers {
		c.finish(now)
	}
}

// closePublishers closes all links to publish over. None of them counts as broken from then on, even if one is closed
// by the end of another.
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
