package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// publisher is one publishing thread. The methods are in the order of a message's path. The payload is made, the pacer
// waits for the send time, the driver publishes, the broker confirms. The recorder records each step. The publisher's
// goroutine owns everything but the confirms. The driver calls OnConfirms, one call at a time. The two sides share only
// the window and the recorder, each with its own part. It has more than 25 methods, one per step of the path, and more
// than 20 fields, which the steps share without a lock.
type publisher struct {
	e      *Engine
	index  int // among all publishers of the task
	mode   drivers.Mode
	work   plan.Publishers
	conn   connKey
	spec   drivers.PublisherSpec
	random *rand.Rand // batch sizes

	pacer    pacer
	link     link[publishing]
	window   *inflight     // confirmed modes
	again    *again        // messages to be sent again; nil: none ever
	progress uint64        // 1 + number of completed or sent messages at the last backOff; 0: none
	pause    time.Duration // of the last backOff
	recorder recorder

	body       []byte            // used in unconfirmed modes
	payloadSum uint32            // of the constant payload, or of that of the next message
	payloads   *payloadGenerator // nil: all bodies are alike
	keyDraws   rand.PCG
	sequence   uint64 // of the next message
	failures   int    // consecutive publish errors, at most maxFailures

	departed   bool  // disconnected by its lifetime, or not connected yet
	lastActive int64 // when it was last active according to its lifetime

	soft, hard context.Context // soft ends with the measurement, hard with the drain
	// linked is hard, and also ends when the link breaks
	linked context.Context
	unlink context.CancelFunc
}

// newPublisher makes publisher i. writes has one entry per connection, which counts its blocked writes.
func newPublisher(e *Engine, i int, writes map[connKey]*drivers.Waiting) *publisher {
	w, a := e.work, e.cfg.Assignment
	p := &publisher{e: e, index: i, mode: drivers.Mode(w.Publishers.Mode), work: w.Publishers,
		random: rand.New(rand.NewPCG(e.task, uint64(i))), keyDraws: *rand.NewPCG(e.task, 2<<32|uint64(i))}
	queue, number := queueOf(w, i, w.Publishers.Threads), connection(w.Topology, i-a.Publishers.First)
	p.conn = e.connKey(drivers.PublisherRole, number,
		ordinal(w.Topology, number, w.Publishers.Threads, a.Publishers.First, w.Publishers.Threads), 0, queue)
	if p.perMessage() {
		p.conn.number, p.conn.spec.Ordinal = exclusive, i
	}
	if writes[p.conn] == nil {
		writes[p.conn] = &drivers.Waiting{}
	}
	p.spec = drivers.PublisherSpec{
		Topology: e.topology, Queue: queue, Mode: p.mode, MaxInFlight: w.Publishers.MaxInFlight,
		Batch: w.Publishers.Batch.Max, Persistent: w.Publishers.Persistent, Mandatory: w.Publishers.Mandatory,
		Keyed: w.Message.Keys.Count > 0, OnReturn: p.onReturn, Waiting: &drivers.Waiting{Writes: writes[p.conn]},
	}
	p.link = newLink(e, fmt.Sprintf("publisher %d", i), p.dial)
	minGap, _ := w.MinGap()
	p.recorder = recorder{timeline: e.timeline, index: i,
		flow:  record.FlowsOf(w.Topology.Subscriptions, w.Topology.Queues).Of(0, p.spec.Queue),
		paced: w.Publishers.Open(), confirmed: p.mode.Confirmed(), gaps: newGapDetector(record.GapConfirm, i, minGap)}
	if p.mode.Confirmed() {
		p.spec.OnConfirms = p.onConfirms
		if r := a.Task.Cell.Resilience; r != "" && r != plan.NoResilience {
			p.again = &again{}
		}
		p.window = newInflight(p.work.InFlight(), p.bodies())
	} else {
		p.body = p.newBody()
	}
	p.pacer = pacer{timeline: e.timeline, waiting: p.spec.Waiting, count: w.Publishers.Count,
		maxUnsent: maxUnsent / int64(a.Publishers.Count),
		due:       func(d time.Duration) float64 { return w.Publishers.Due(d) / float64(a.Publishers.Total) },
		schedule:  newSchedule(w.Publishers, w.Warmup.D(), e.task, i, a.Publishers.Total),
		lifetime:  newLifetime(e.timeline, w.Publishers.Lifetime, i, a.Publishers.Total, forever)}
	if w.Steady.Auto {
		p.pacer.schedule.deferStages(e.timeline.warmupEnds)
	}
	return p
}

// perMessage reports whether each message has its own connection.
func (p *publisher) perMessage() bool {
	return p.mode == drivers.ConnectionPerMessage || p.mode == drivers.ConnectionPerMessageConfirm
}

// bodies returns a function that makes the buffers of messages in flight. If the driver copies bodies, all messages
// share one buffer, which stays in the processor's cache. Different payloads that may be sent again need a buffer each.
func (p *publisher) bodies() func() []byte {
	if !p.e.cfg.CopiesBody || p.again != nil && p.e.work.Message.Varies() {
		return p.newBody
	}
	one := p.newBody()
	return func() []byte { return one }
}

// newBody makes a stamped body. Its payload depends only on the task and the publisher.
func (p *publisher) newBody() []byte {
	body := make([]byte, p.e.work.Message.Size)
	rand.NewChaCha8(seed(p.e.task, p.index, 0)).Read(body[EnvelopeSize:]) // never returns an error
	p.payloadSum = stamp(body, p.e.task, p.e.clockID, uint32(p.index))
	if p.payloads == nil {
		p.payloads = newPayloadGenerator(p.e.work.Message, p.e.task, p.e.payloadSource, p.index, body[EnvelopeSize:])
	}
	return body
}

// dial opens one connection.
func (p *publisher) dial(ctx context.Context, onClosed func(error)) (publishing, error) {
	conn, err := p.e.conns.publish(drivers.WithWaiting(ctx, p.spec.Waiting.Writes), p.conn, p.spec, onClosed)
	// this host has no free ports or file descriptors
	if p.recorder.sends != nil && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EMFILE)) {
		p.recorder.sends.Window(p.e.timeline.now(), false).Counts[record.PortsExhausted]++
	}
	return conn, err
}

// connect opens the link before the load starts.
func (p *publisher) connect(ctx context.Context) error {
	if p.perMessage() {
		return nil
	}
	return p.link.open(ctx)
}

// begin creates the publisher's part of the record. It is called when the start time is known.
func (p *publisher) begin(c *record.Collector) {
	p.recorder.begin(c)
	p.pacer.sends = p.recorder.sends
}

// run sends the messages of the measurement, and then waits for the confirms of those in flight. soft ends with the
// measurement, hard with the drain. Open-loop messages that were due in the measurement are still sent after it, in
// order, until hard ends. Without them, a broker that stalls would look as fast as before.
func (p *publisher) run(soft, hard context.Context) {
	p.soft, p.hard = soft, hard
	p.linked, p.unlink = hard, func() {}
	p.watchLink()
	defer func() { p.unlink() }()
	p.link.turn <- struct{}{}
	defer func() { <-p.link.turn }()
	p.pacer.start()
	p.lastActive = -forever
	step := p.step()
	for !p.e.timeline.over.Load() || !p.finished() {
		if p.pacer.lifetime != nil && !p.followLifetime() {
			break
		}
		if !p.perMessage() && p.link.down.Load() && !p.restore() {
			break
		}
		if !step() && !p.becomesActive() {
			break
		}
	}
	switch {
	case p.perMessage():
	case p.window == nil:
		p.flushLast()
	case p.again != nil || !p.link.down.Load():
		p.awaitConfirms()
	}
	now := p.e.timeline.now()
	if !errors.Is(p.soft.Err(), context.Canceled) {
		p.pacer.countUnsent(now)
	}
	p.recorder.sends.Flush()
	p.pacer.times.Publisher, p.pacer.times.Active = p.index,
		p.e.timeline.within(p.e.timeline.from.Load(), p.e.timeline.now())
}

// step returns the function that sends one message or batch in the publish mode. That function returns false when the
// publisher is done.
func (p *publisher) step() func() bool {
	switch p.mode {
	case drivers.ConfirmWindow:
		return p.sendInWindow
	case drivers.ConfirmEach:
		return func() bool { return p.sendBatch(1) }
	case drivers.ConfirmBatch:
		min, max := p.work.Batch.Min, p.work.Batch.Max
		return func() bool { return p.sendBatch(min + p.random.IntN(max-min+1)) }
	case drivers.ConnectionPerMessage, drivers.ConnectionPerMessageConfirm:
		return p.sendOverOwnConnection
	}
	return p.sendUnconfirmed
}

// deadline returns the context that ends the wait for the next send.
func (p *publisher) deadline() context.Context {
	if p.pacer.behind() {
		return p.hard
	}
	return p.soft
}

// finished reports whether the publisher will send nothing more.
func (p *publisher) finished() bool {
	return p.e.timeline.over.Load() && (!p.pacer.behind() || p.hard.Err() != nil)
}

func (p *publisher) sendUnconfirmed() bool {
	body := p.fill(p.body)
	intended, send, more := p.pacer.wait(p.linked)
	if !more {
		return p.cutOff()
	}
	if err := p.publish(0, body, intended, send); err != nil {
		p.failed(err)
	}
	return true
}

// sendInWindow sends one message when fewer than the maximum number of messages are in flight.
func (p *publisher) sendInWindow() bool {
	token, ok := p.acquire()
	if !ok {
		return !p.finished() // false from acquire also means that the link broke
	}
	more, err := p.sendInSlot(token)
	if err != nil {
		p.failed(err)
	}
	return more
}

// sendBatch sends n messages and waits until all are confirmed.
func (p *publisher) sendBatch(n int) bool {
	more := true
	for i := 0; i < n && more && !p.link.down.Load(); i++ {
		token, ok := p.window.take()
		if !ok {
			break // cannot happen: nothing is in flight between batches
		}
		var err error
		if more, err = p.sendInSlot(token); err != nil {
			p.failed(err)
			break
		}
	}
	return p.awaitConfirms() && more
}

// sendInSlot sends a message in a slot that the caller took.
func (p *publisher) sendInSlot(token uint32) (more bool, err error) {
	s := &p.window.slots[token]
	body := p.fill(s.body[:cap(s.body)])
	intended, send, more := p.pacer.wait(p.linked)
	if !more {
		p.window.undo(token)
		return p.cutOff(), nil
	}
	s.sequence, s.intended, s.send, s.out = p.sequence, intended, send, true
	if err := p.publish(uint64(token), body, intended, send); err != nil {
		p.window.undo(token)
		return true, err
	}
	return true, nil
}

// cutOff reports whether the link broke while the publisher may still send.
func (p *publisher) cutOff() bool { return p.link.down.Load() && p.hard.Err() == nil }

// sendOverOwnConnection opens a connection for one message and closes it afterwards. Publish latency includes the dial.
func (p *publisher) sendOverOwnConnection() bool {
	body, s, token := p.body, (*slot)(nil), uint32(0)
	if p.window != nil {
		var ok bool
		if token, ok = p.window.take(); !ok {
			return false // the drain has ended, and the previous message is to be sent again
		}
		s = &p.window.slots[token]
		body = s.body[:cap(s.body)]
	}
	body = p.fill(body)
	intended, send, more := p.pacer.wait(p.hard)
	if !more {
		if s != nil {
			p.window.undo(token)
		}
		return false
	}
	err := p.link.open(p.hard)
	connected := p.e.timeline.now()
	p.pacer.connected(send, connected)
	defer func() { p.pacer.held += connected - send }() // it delays the following messages
	if err != nil {
		if s != nil {
			p.window.undo(token)
		}
		w := p.recorder.sends.Window(send, p.e.timeline.belongs(intended, send))
		p.recorder.fail(p.hard, w, err, intended, send)
		if p.pacer.schedule != nil {
			p.pacer.held = min(send-intended, p.pacer.held)
			p.pacer.attribute(w, send-intended)
			p.pacer.advance()
		}
		p.e.journal.warn("connection per message", err)
		p.pauseAfterFailure()
		return true
	}
	if s != nil {
		s.sequence, s.intended, s.send, s.out = p.sequence, intended, send, true
	}
	err = p.publish(uint64(token), body, intended, send)
	begin := p.e.timeline.now()
	switch {
	case err != nil:
		p.e.journal.warn("publish", err)
		if s != nil {
			p.window.undo(token)
		}
	case s != nil:
		p.awaitOwnConfirm()
	}
	p.link.close()
	for p.again != nil && p.window.outstanding() > 0 {
		p.backOff(p.hard)
		if !p.link.openWithRetry(p.hard) {
			break
		}
		p.republish()
		p.awaitOwnConfirm()
		p.link.close()
	}
	p.pacer.waited(begin, p.e.timeline.now())
	return true
}

// awaitOwnConfirm waits for the confirm of the message on its own connection, at most for the connect timeout.
func (p *publisher) awaitOwnConfirm() {
	ctx, cancel := context.WithTimeout(p.hard, p.e.work.Connect.D())
	defer cancel()
	if err := p.link.conn.Flush(ctx); err == nil {
		p.await(ctx, p.window.outstanding())
	}
}

// fill makes the payload of the next message in a buffer and returns its body. It runs before the send time, because
// copying and checksums take about 0.1 ms per MiB.
func (p *publisher) fill(buffer []byte) (body []byte) {
	if p.payloads == nil {
		return buffer
	}
	body, p.payloadSum = p.payloads.fill(buffer)
	return body
}

// publish completes the message in a body, passes it to the driver and records it.
func (p *publisher) publish(token uint64, body []byte, intended, send int64) error {
	put(body, p.payloadSum, p.sequence, intended, send, p.e.correction.Load())
	sequence, key := p.sequence, p.e.keys.key(p.sequence, &p.keyDraws)
	p.sequence++
	if p.again != nil {
		s := &p.window.slots[token]
		s.key = key
		if p.payloads != nil {
			s.body = body
		}
	}
	err := p.link.conn.Publish(p.hard, drivers.Message{Token: token, Key: key, Body: body})
	if err != nil && errors.Is(err, drivers.ErrClosed) && p.again.add(uint32(token)) {
		p.recorder.waitsSince(send)
		p.failed(err)
		err = nil // like a message that the link lost after Publish
	}
	measured := p.e.timeline.belongs(intended, send)
	w := p.recorder.sends.Window(send, measured)
	if p.pacer.schedule != nil {
		p.pacer.sent(w, send-intended)
	}
	if n := p.spec.Waiting.Nanos(); n != p.pacer.seenWaiting {
		p.pacer.published(send, n)
	}
	if err != nil {
		p.recorder.fail(p.hard, w, err, intended, send)
		p.recorder.uncertain.Add(sequence)
		return err
	}
	p.recorder.accept(w, sequence, len(body), send)
	p.failures = 0
	if measured {
		p.pacer.measured++
	}
	return nil
}

// failed handles a publish error. A closed link is marked, and run reopens it. After any other error the publisher
// pauses.
func (p *publisher) failed(err error) {
	if errors.Is(err, drivers.ErrClosed) {
		p.link.fail(err)
		return
	}
	p.e.journal.warn("publish", err)
	p.pauseAfterFailure()
}

// maxFailures limits the counted failures, and thereby pauses and attempts.
const maxFailures = 7

// pauseAfterFailure pauses for 2 ms, doubled per consecutive failure up to 128 ms. It prevents a busy loop when every
// call fails.
func (p *publisher) pauseAfterFailure() {
	begin := p.e.timeline.now()
	p.failures = min(p.failures+1, maxFailures)
	sleep(p.deadline(), time.Millisecond<<p.failures)
	p.pacer.waited(begin, p.e.timeline.now())
}

// acquire takes a slot. If all messages are in flight, it waits for a free slot, or pauses and checks again (onFull
// "pause"). It returns false if the measurement ended or the link broke.
func (p *publisher) acquire() (uint32, bool) {
	for {
		if token, ok := p.window.take(); ok {
			return token, true
		}
		if err := p.flush(); err != nil {
			p.failed(err)
			return 0, false
		}
		begin := p.e.timeline.now()
		if p.work.OnFull == "pause" { // as the client of the mqperf study does
			sleep(p.deadline(), p.work.Pause.D())
			p.pacer.waited(begin, p.e.timeline.now())
			if p.finished() || p.link.down.Load() {
				return 0, false
			}
			continue
		}
		ok := p.await(p.deadline(), 1)
		if p.window.collect() > 0 {
			p.pacer.waited(begin, p.window.firstFree) // the time from the release until now is the generator's
		} else {
			p.pacer.waited(begin, p.e.timeline.now())
		}
		if !ok {
			return 0, false
		}
	}
}

// flush sends the messages that the driver has buffered.
func (p *publisher) flush() error {
	before := p.spec.Waiting.Nanos()
	err := p.link.conn.Flush(p.hard)
	p.pacer.flushed(before)
	return err
}

// flushLast sends the messages that the driver has buffered in an unconfirmed mode, when the publisher sends no more.
func (p *publisher) flushLast() {
	if p.departed || p.link.down.Load() || p.hard.Err() != nil {
		return
	}
	if err := p.flush(); err != nil && p.hard.Err() == nil {
		p.failed(err)
	}
}

// await waits until n more messages are confirmed. It returns false if the link breaks or ctx ends first.
func (p *publisher) await(ctx context.Context, n int) bool {
	defer p.window.stopWaiting()
	for p.window.await(n) {
		select {
		case <-p.window.released:
		case <-p.link.broken:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// awaitConfirms sends buffered messages and waits until nothing is in flight. It returns false if hard ends first. If
// the link breaks, its messages are sent again on another one. If they are not to be sent again, the link is closed,
// which completes them.
func (p *publisher) awaitConfirms() bool {
	for {
		if n := p.window.outstanding(); n > 0 && !p.link.down.Load() {
			if err := p.flush(); err != nil {
				p.failed(err)
			}
			begin := p.e.timeline.now()
			if !p.link.down.Load() && p.await(p.hard, n) && p.window.collect() > 0 {
				p.pacer.waited(begin, p.window.lastFree)
			} else {
				p.pacer.waited(begin, p.e.timeline.now())
			}
		}
		if p.link.down.Load() && p.again == nil {
			p.link.close()
		}
		if n := p.window.outstanding(); n == 0 || p.again == nil || !p.link.down.Load() {
			return n == 0
		}
		if p.hard.Err() != nil || !p.restore() {
			return false
		}
	}
}

// watchLink renews linked for the current link, so that a broken link is replaced before the next message is due.
func (p *publisher) watchLink() {
	if p.perMessage() {
		return
	}
	p.unlink()
	p.linked, p.unlink = context.WithCancel(p.hard)
	go func(ctx context.Context, end context.CancelFunc, broken <-chan struct{}) {
		select {
		case <-broken:
		case <-ctx.Done():
		}
		end()
	}(p.linked, p.unlink, p.link.broken)
}

// restore replaces the broken link and sends the messages again whose confirm it did not deliver. It returns false if
// there is no link when the publisher has to end. It pauses if nothing was completed since the last time: a message may
// be the reason that links break.
func (p *publisher) restore() bool {
	for p.link.down.Load() {
		ctx := p.deadline()
		if p.again != nil && p.window.outstanding() > 0 {
			ctx = p.hard
		}
		begin := p.e.timeline.now()
		p.backOff(ctx)
		p.pacer.waited(begin, p.e.timeline.now())
		if !p.reconnect(ctx) {
			return false
		}
		p.watchLink()
		begin = p.e.timeline.now()
		p.republish()
		p.pacer.waited(begin, p.e.timeline.now())
	}
	return true
}

// backOff pauses for 10 ms, doubled up to a second, if no message was completed since the last call, or sent in an
// unconfirmed mode. The caller records the time.
func (p *publisher) backOff(ctx context.Context) {
	const minPause, maxPause = 10 * time.Millisecond, time.Second
	n := p.sequence
	if p.window != nil {
		n = p.window.tail.Load()
	}
	if n++; n != p.progress {
		p.progress, p.pause = n, 0
		return
	}
	p.pause = min(max(minPause, 2*p.pause), maxPause)
	sleep(ctx, p.pause)
}

// republish sends the messages again whose link broke before the confirm, in the order of their first publish call. It
// stops when the link breaks or hard ends. Their latency counts from the first call. A message that the driver refuses
// repeatedly stays unconfirmed, so that it does not delay the others. The caller records the time that it takes.
func (p *publisher) republish() {
	tokens := p.again.take()
	if len(tokens) == 0 {
		return
	}
	slices.SortFunc(tokens, func(a, b uint32) int {
		return cmp.Compare(p.window.slots[a].sequence, p.window.slots[b].sequence)
	})
	for len(tokens) > 0 && !p.link.down.Load() && p.hard.Err() == nil {
		s := &p.window.slots[tokens[0]]
		if p.payloads == nil { // the buffer may be shared
			put(s.body, p.payloadSum, s.sequence, s.intended, s.send, p.e.correction.Load())
		}
		m := drivers.Message{Token: uint64(tokens[0]), Key: s.key, Body: s.body}
		if err := p.link.conn.Publish(p.hard, m); errors.Is(err, drivers.ErrClosed) {
			p.link.fail(err)
			continue
		} else if err != nil {
			p.e.journal.warn("publish again", err)
			if p.failures < maxFailures {
				p.failures++
				sleep(p.hard, time.Millisecond<<p.failures)
				continue
			}
			now := p.e.timeline.now()
			w := p.recorder.sends.Window(now, p.e.timeline.belongs(s.intended, s.send))
			p.recorder.neverConfirmed(w, s, now)
			p.window.undo(tokens[0])
		} else {
			p.failures = 0
			p.recorder.sends.Window(p.e.timeline.now(), false).Counts[record.Republished]++
		}
		tokens = tokens[1:]
	}
	for _, token := range tokens {
		p.again.add(token)
	}
	if !p.link.down.Load() {
		if err := p.link.conn.Flush(p.hard); errors.Is(err, drivers.ErrClosed) {
			p.link.fail(err)
		}
	}
}

// giveUp completes the messages that were still to be sent again when the drain or the run ended. It is called when the
// link is closed.
func (p *publisher) giveUp() {
	tokens := p.again.take()
	if len(tokens) == 0 {
		return
	}
	now := p.e.timeline.now()
	if p.e.timeline.ends() != notYetKnown {
		now = min(now, p.e.timeline.drainEnds())
	}
	for _, token := range tokens {
		p.recorder.confirmFailed(&p.window.slots[token], false, now)
		p.window.free(uint64(token), now)
	}
	p.window.release()
}

// onConfirms records confirms before it releases their slots. When nothing is in flight, everything is therefore
// recorded. All confirms of one call have one time.
func (p *publisher) onConfirms(tokens []uint64, err error) {
	now, earliest := p.e.timeline.now(), int64(math.MaxInt64)
	rejected := err != nil && errors.Is(err, drivers.ErrRejected)
	again := p.again != nil && err != nil && errors.Is(err, drivers.ErrClosed)
	for _, token := range tokens {
		s := p.window.find(token)
		switch {
		case s == nil:
			p.e.Event(drivers.EventNotice,
				fmt.Sprintf("driver confirmed token %d of publisher %d, which is not in flight", token, p.index))
			continue
		case again:
			p.again.add(uint32(token))
			p.recorder.waitsSince(s.send)
			continue
		case err == nil:
			p.recorder.confirm(s, now)
			earliest = min(earliest, s.send)
		default:
			p.recorder.confirmFailed(s, rejected, now)
		}
		p.window.free(token, now)
	}
	if earliest != math.MaxInt64 {
		p.recorder.endGap(now, earliest)
	}
	p.window.release()
	if again && !p.perMessage() {
		p.link.fail(err) // the connection may end later, or not at all
	}
}

func (p *publisher) onReturn(body []byte) {
	env, err := open(body, p.e.task)
	if err != nil {
		p.e.Event(drivers.EventNotice, fmt.Sprintf("broker returned a message to publisher %d: %v", p.index, err))
		return
	}
	p.recorder.takeBack(env)
}

// reconnect replaces the broken link, with retries until ctx ends.
func (p *publisher) reconnect(ctx context.Context) bool {
	begin := p.e.timeline.now()
	brokeAt, ok := p.link.reopen(ctx)
	if brokeAt != 0 {
		p.recorder.waitsSince(brokeAt - p.e.timeline.origin.Load())
	}
	if ok {
		p.recorder.sends.Window(p.e.timeline.now(), false).Counts[record.Reconnects]++
	}
	p.pacer.waited(begin, p.e.timeline.now())
	return ok
}

// followLifetime disconnects and connects the publisher at the times of its lifetime, or later if the broker delayed
// it. Messages that were due before the active period are skipped. It returns false when the publisher will send
// nothing more.
func (p *publisher) followLifetime() bool {
	t, life := p.e.timeline, p.pacer.lifetime
	for !t.over.Load() {
		now := t.now()
		if now >= t.ends() {
			break
		}
		active, until := life.activeAt(now)
		began := life.activeSince(now)
		switch {
		case !p.departed && (!active || began > p.lastActive): // the broker may have held it for an inactive period
			p.depart()
			continue // depart took time: read the clock again
		case active && p.departed:
			if !p.arrive() {
				return false
			}
			continue // arrive took time: read the clock again
		case active:
			p.pacer.activeUntil, p.lastActive = until, now
			p.pacer.skip(began, 0, false)
			if p.pacer.schedule == nil || p.pacer.intended < until || until >= t.ends() {
				return true
			}
		default:
			to := min(until, t.ends())
			if to == notYetKnown {
				to = now
			}
			p.pacer.skip(to, 0, false)
		}
		err := p.pacer.waiter.Until(p.soft, life.wake(until))
		p.pacer.paused(now, t.now())
		if err != nil {
			return false
		}
		if p.departed {
			p.pacer.held = 0
		}
	}
	return !p.departed && p.pacer.activeUntil >= t.ends() && p.pacer.behind() // messages from its last active period
}

// becomesActive reports whether the publisher may still have messages to send after its active period.
func (p *publisher) becomesActive() bool {
	return p.pacer.lifetime != nil && p.pacer.activeUntil < p.e.timeline.ends() && !p.e.timeline.over.Load()
}

// depart waits for the confirms of messages in flight and closes the link in an orderly way.
func (p *publisher) depart() {
	if !p.perMessage() {
		if p.window != nil {
			p.awaitConfirms()
		}
		begin := p.e.timeline.now()
		p.link.disconnect()
		p.pacer.waited(begin, p.e.timeline.now())
	}
	p.departed = true
	p.recorder.sends.Window(p.e.timeline.now(), false).Counts[record.Disconnects]++
	p.e.journal.lifetime(p.link.name, eventLeft)
}

// arrive opens the link again. The time that it takes counts as a wait for the broker.
func (p *publisher) arrive() bool {
	begin := p.e.timeline.now()
	if !p.perMessage() && !p.link.openWithRetry(p.soft) {
		return false
	}
	now := p.e.timeline.now()
	p.pacer.waited(begin, now)
	p.departed, p.lastActive = false, now
	p.watchLink()
	p.recorder.sends.Window(p.e.timeline.now(), false).Counts[record.Connects]++
	p.e.journal.lifetime(p.link.name, eventJoined)
	return true
}

// disconnectAbsent closes the link of a publisher that is not active at the start. All publishers connect first, so
// that an unreachable broker fails the task at once.
func (p *publisher) disconnectAbsent() {
	if p.pacer.lifetime.activeAtStart() {
		return
	}
	p.departed = true
	p.link.disconnect()
}
