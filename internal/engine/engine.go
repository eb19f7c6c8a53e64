// Package engine generates the load of an assignment. It implements time, sequence numbers, pacing, max in flight,
// shared connections, reconnection, acknowledgement and delivery accounting; drivers implement protocols. The path of a
// message allocates nothing, and two publishers share no lock. Any goroutine can read the record in increments with
// Take.
//
// Files in the order of a message: publisher.go (with conns.go, link.go, pacer.go, payload.go, inflight.go,
// recorder.go), the broker, consumer.go (with ack.go).
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// Config is the input of an engine. The caller closes the session.
type Config struct {
	Assignment plan.Assignment
	Session    drivers.Session
	Log        *slog.Logger
	// CopiesBody is the driver's capability: the engine may reuse a body as soon as Publish returns.
	CopiesBody bool
	Access     drivers.Access // for payload files
}

// Engine is one agent's part of one task. Call ConnectConsumers, ConnectPublishers, Run and Close in this order, from
// one goroutine at a time. The other methods are safe for concurrent use. It has more than 20 fields: the parts of the
// task, and what ends them in order.
type Engine struct {
	cfg      Config
	work     plan.Workload
	topology drivers.Topology
	task     uint64 // identity of the task in envelopes
	clockID  uint64
	timeline *timeline
	journal  *journal

	payloadSource []byte       // see payloadGenerator
	keys          *keyTable    // nil: each message has a different key
	correction    atomic.Int64 // see Correct

	publishers []*publisher
	consumers  []*consumer
	conns      *conns
	churn      *churn // nil: no churn of bindings, or another agent runs it
	bindings   bindingDeliveries

	collector       *record.Collector
	started         chan struct{} // closed when the start time and the collector are set
	stopRun         context.CancelFunc
	running         sync.WaitGroup
	closing         sync.WaitGroup  // closePublishers at the end of the drain
	supervision     context.Context // of consumers
	stopSupervision context.CancelFunc
	closeOnce       sync.Once
	reconnecting    atomic.Int64 // reading of the clock at the last drivers.EventReconnecting; 0: none

	mu   sync.Mutex      // guards last; never locked per message
	last record.Snapshot // values that Take returns besides the increments
}

// New makes an engine. It opens no connection, but it may read a payload file.
func New(cfg Config) (*Engine, error) {
	a := cfg.Assignment
	w := a.Task.Cell.Workload
	if w.Message.Size < EnvelopeSize {
		return nil, fmt.Errorf("message size %d is less than the envelope's %d bytes", w.Message.Size, EnvelopeSize)
	}
	e := &Engine{cfg: cfg, work: w, topology: Topology(a.Task), task: identity(a.Task.Topic()),
		clockID:  identity(clock.ID()),
		timeline: newTimeline(w), started: make(chan struct{}),
		conns: &conns{session: cfg.Session, shared: map[connKey]*sharedConn{}}}
	e.journal = newJournal(e.timeline)
	var err error
	if a.Index == 0 && w.Topology.Churn.Rate > 0 {
		if e.churn, err = newChurn(e); err != nil {
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
	writes := map[connKey]*drivers.Waiting{}
	for i := range a.Publishers.Count {
		e.publishers = append(e.publishers, newPublisher(e, a.Publishers.First+i, writes))
	}
	for s := range e.topology.Subscriptions {
		for i := range a.Consumers.Count {
			e.consumers = append(e.consumers, newConsumer(e, s, a.Consumers.First+i))
		}
	}
	return e, nil
}

// Correct sets the clock correction of this agent, in ns. Adding it to a time of this agent gives the time of the
// reference clock, with which all agents of the task are compared. It applies to messages sent and received from then
// on.
func (e *Engine) Correct(ns int64) { e.correction.Store(ns) }

// clockCorrection converts this agent's time to the publisher's clock; 0 if both use the same clock.
func (e *Engine) clockCorrection(env envelope) int64 {
	if env.clock == e.clockID {
		return 0
	}
	return e.correction.Load() - env.correction
}

// connKey returns the key of a connection of a role. number is that of the connection on this agent, and ordinal that
// in the whole cell.
func (e *Engine) connKey(role drivers.Role, number, ordinal, subscription, queue int) connKey {
	spec := drivers.ConnSpec{Role: role, Topology: e.topology, Node: drivers.Node(e.work.Publishers.Node),
		Ordinal: ordinal}
	if role == drivers.ConsumerRole {
		spec.Node = drivers.Node(e.work.Consumers.Node)
	}
	if spec.Node.OfQueue() {
		spec.Subscription, spec.Queue = subscription, queue
	}
	return connKey{number, spec}
}

// ConnectConsumers connects all consumers of this agent. No message published after it returns is missed. Consumers
// that are not active at the start are disconnected again.
func (e *Engine) ConnectConsumers(ctx context.Context) error {
	if err := each(e.consumers, func(c *consumer) error { return c.link.open(ctx) }); err != nil {
		return err
	}
	return each(e.consumers, func(c *consumer) error {
		if !c.lifetime.activeAtStart() {
			c.depart()
		}
		return nil
	})
}

// ConnectPublishers connects the publishers and sends nothing. Publishers that are not active at the start are
// disconnected again.
func (e *Engine) ConnectPublishers(ctx context.Context) error {
	err := each(e.publishers, func(p *publisher) error { return p.connect(ctx) })
	if err == nil && e.churn != nil {
		err = each(e.churn.links, func(l *churnLink) error { return l.link.open(ctx) })
	}
	if err != nil {
		return err
	}
	return each(e.publishers, func(p *publisher) error { p.disconnectAbsent(); return nil })
}

// Nodes returns how many publishers and consumers are connected to each node, by its address. Those that are not
// connected to exactly one node are left out. Call it between ConnectPublishers and Run.
func (e *Engine) Nodes() (publishers, consumers map[string]int) {
	publishers, consumers = map[string]int{}, map[string]int{}
	count := func(nodes map[string]int, l *lease) {
		if l == nil { // not connected
			return
		}
		if at := l.shared.conn.Node(); at != "" {
			nodes[at]++
		}
	}
	for _, p := range e.publishers {
		count(publishers, p.link.conn.lease)
	}
	for _, c := range e.consumers {
		count(consumers, c.link.conn.lease)
	}
	return publishers, consumers
}

// each calls f for all elements, at most 8 at a time, and joins the errors. Errors with equal texts occur once.
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
	seen := map[string]bool{}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool {
		if err == nil || seen[err.Error()] {
			return true
		}
		seen[err.Error()] = true
		return false
	})...)
}

// Run generates the load: warm-up and measurement. It then waits for outstanding confirms, at most for the drain
// timeout. start is a reading of this host's clock.Now. An agent without publishers returns at the end of the
// measurement, or at once if a message count ends the measurement. In a cell without publishers, it also returns after
// the idle time of the drain without a delivery or fault. Run returns early with the error of ctx when ctx is
// cancelled. The record made until then is kept.
func (e *Engine) Run(ctx context.Context, start int64) error {
	ctx, e.stopRun = context.WithCancel(ctx)
	defer e.stopRun()
	e.running.Add(1)
	defer e.running.Done()
	if e.cfg.Assignment.Publishers.Total == 0 { // deliveries before the start would be in no measurement
		if err := clock.Until(ctx, start); err != nil {
			return err
		}
	}
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
	e.closing.Add(1)
	stop := context.AfterFunc(hard, func() { // cuts calls that do not return
		defer e.closing.Done()
		e.closePublishers()
	})
	defer func() {
		if stop() {
			e.closing.Done()
		}
	}()
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
	stopChurn() // churn ends with the publishers, also when a count ends the measurement
	churned.Wait()
	e.finishPublishers()
	return ctx.Err()
}

// consumeOnly waits for the end of the measurement on an agent without publishers.
func (e *Engine) consumeOnly(ctx context.Context, start int64) error {
	e.startedLate(max(0, clock.Now()-start))
	if e.timeline.byCount {
		return nil
	}
	select {
	case <-e.timeline.known:
	case <-ctx.Done():
		return ctx.Err()
	}
	origin, idle := e.timeline.origin.Load(), e.work.Drain.Idle.D().Nanoseconds()
	end := origin + e.timeline.ends()
	if e.cfg.Assignment.Publishers.Total > 0 {
		return clock.Until(ctx, end)
	}
	last := -e.timeline.warmup.Nanoseconds()
	for _, f := range e.work.Faults {
		last = max(last, (f.At + f.For).D().Nanoseconds())
	}
	for {
		until := min(origin+last+idle, end)
		if err := clock.Until(ctx, until); err != nil || until == end {
			return err
		}
		before := last
		for _, c := range e.consumers {
			_, delivered, _, interrupted := c.flush()
			if delivered != 0 {
				last = max(last, delivered)
			}
			if interrupted != 0 { // the broker may hold messages back
				last = max(last, interrupted+c.redeliverAfter.Nanoseconds())
			}
			if c.cutOff() {
				last = max(last, e.timeline.now())
			}
		}
		if last == before {
			return nil
		}
	}
}

// startedLate stores by how many ns this agent started after the agreed time.
func (e *Engine) startedLate(ns int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last.Skew = time.Duration(ns)
}

// begin sets T0, creates the collector, and releases waiting deliveries.
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

// hasStarted reports whether the start time is known.
func (e *Engine) hasStarted() bool {
	select {
	case <-e.started:
		return true
	default:
		return false
	}
}

// Measure sets the beginning of the measurement, with warm-up "auto" (plan.Steady.Auto). at is a whole number of
// seconds after T0. It may be called from any goroutine, once, while the load runs. It returns an error and changes
// nothing if at is closer than minNotice, because measured messages may have passed.
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

// setMeasurement sets the measurement. The collector gets the end first, before any message can belong to the
// measurement.
func (e *Engine) setMeasurement(from int64) {
	end := from + int64(e.timeline.measure)
	e.collector.EndAt(time.Duration(end))
	e.timeline.set(from, end)
}

// MeasureBegins waits until the beginning of the measurement is known. It returns it as a reading of this host's clock.
func (e *Engine) MeasureBegins(ctx context.Context) (int64, error) {
	select {
	case <-e.timeline.known:
		return e.timeline.origin.Load() + e.timeline.from.Load(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Event records an event of a driver's link. The agent uses it as drivers.Env.Event. The time between blocked and
// unblocked is counted separately per detail.
func (e *Engine) Event(kind drivers.EventKind, detail string) {
	if kind == drivers.EventReconnecting {
		e.reconnecting.Store(clock.Now())
	}
	e.journal.event(kind, detail)
}

// Retried counts requests that the driver's library repeated.
func (e *Engine) Retried(requests int64) { e.journal.count(record.Retries, requests) }

// RecordInterval records an event with a duration, for example a fault. from and to are readings of the clock. Call it
// only after Run has begun.
func (e *Engine) RecordInterval(kind, detail string, from, to int64) {
	e.journal.interval(kind, detail, from, to)
}

// Observe records n samples of the agent's process, of ns nanoseconds each. at is a reading of clock.Now. Samples
// before Run are dropped.
func (e *Engine) Observe(at int64, s record.Series, ns int64, n uint64) {
	e.journal.observe(at, s, ns, n)
}

// Take returns the record since the last call, as a snapshot without the data of the agent. With final, after Close, it
// also ends open blocked times. Publishers pass their windows to the collector once per second. Consumers are flushed
// here, so that the controller sees every delivery during the drain.
func (e *Engine) Take(final bool) record.Snapshot {
	if !e.hasStarted() {
		return record.Snapshot{Events: e.journal.take(false)}
	}
	var firstDelivery, lastDelivery, lastOther, lastInterrupted int64
	cutOff := 0
	for _, c := range e.consumers {
		first, last, other, interrupted := c.flush()
		if firstDelivery == 0 || first != 0 && first < firstDelivery {
			firstDelivery = first
		}
		lastDelivery, lastInterrupted = max(lastDelivery, last), max(lastInterrupted, interrupted)
		lastOther = max(lastOther, other)
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
	part.FirstDelivery, part.LastDelivery, part.LastInterrupted = firstDelivery, lastDelivery, lastInterrupted
	part.LastOther, part.Apart, part.Bindings = lastOther, cutOff, bindings
	part.Events = e.journal.take(final)
	part.Windows, part.Sets = e.collector.Take()
	part.Gaps = e.collector.TakeGaps()
	return part
}

// finishPublishers stores the busiest publisher and the last send. It flushes the confirms of publishers with nothing
// in flight.
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

// Close closes publishers and then consumers in an orderly way. It returns an error if ctx ends first. Take(true)
// returns the complete record afterwards. Close may be called at any point of the task.
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
	e.running.Wait()    // publisher goroutines own their state until they end
	e.closePublishers() // a publisher may have opened another link meanwhile
	e.closing.Wait()
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
	for _, p := range e.publishers {
		p.giveUp()
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

// closePublishers closes all publishing links. It first cuts those whose publisher does not return from a call. The
// context of these calls has ended. A link that closes from then on does not count as broken, even if closing another
// link caused it.
func (e *Engine) closePublishers() {
	var links []*link[publishing]
	for _, p := range e.publishers {
		links = append(links, &p.link)
	}
	if e.churn != nil {
		for _, l := range e.churn.links {
			links = append(links, &l.link)
		}
	}
	for _, l := range links {
		l.finish()
	}
	var wg sync.WaitGroup
	for _, l := range links {
		wg.Go(func() {
			l.unblock()
			l.close()
		})
	}
	wg.Wait()
}
