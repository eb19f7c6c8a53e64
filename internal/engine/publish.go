package engine

import (
	"context"
	"errors"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// run sends what is due in the measurement and then waits for what is in flight. soft ends with the measurement; hard ends with the drain. Open-loop
// messages that were due in the measurement are still sent after it, in order, until hard ends: without them, a broker that stops would look as fast as
// it was before.
func (p *publisher) run(soft, hard context.Context) {
	p.soft, p.hard = soft, hard
	if p.schedule != nil {
		p.due = p.e.due(p.schedule)
	}
	p.stays, p.attended = untold, -forever
	cycle := p.cycle()
	for !p.e.over.Load() || !p.finished() {
		if p.turns != nil && !p.attend() {
			break
		}
		if !p.perMessage() && p.link.down.Load() && !p.reconnect(p.deadline()) {
			break
		}
		if !cycle() && !p.stayed() {
			break
		}
	}
	if p.flight != nil && !p.link.down.Load() && !p.perMessage() {
		p.settle()
	}
	p.countUnsent()
	p.sends.Flush()
	p.times.Publisher, p.times.Active = p.index, p.e.within(p.e.measured.from.Load(), p.e.now())
}

// behind reports whether messages that were due in the measurement are yet to be sent.
func (p *publisher) behind() bool {
	return p.schedule != nil && p.due < min(p.e.ends(), p.stays) && p.owed() > 0
}

// deadline is the context that ends waiting for the next send.
func (p *publisher) deadline() context.Context {
	if p.behind() {
		return p.hard
	}
	return p.soft
}

// finished reports whether the publisher sends nothing any more.
func (p *publisher) finished() bool {
	return p.e.over.Load() && (!p.behind() || p.hard.Err() != nil)
}

// cycle is what the mode repeats; false means that the publisher is done.
func (p *publisher) cycle() func() bool {
	switch p.mode {
	case drivers.ConfirmWindow:
		return p.oneInWindow
	case drivers.ConfirmEach:
		return func() bool { return p.batch(1) }
	case drivers.ConfirmBatch:
		least, most := p.work.Batch.Least, p.work.Batch.Most
		return func() bool { return p.batch(least + p.random.IntN(most-least+1)) }
	case drivers.ConnectionPerMessage, drivers.ConnectionPerMessageConfirm:
		return p.oneConnection
	}
	return p.oneUnconfirmed
}

// next says when the message is due and when it is sent, which is now; it waits for the due time. False: no more.
func (p *publisher) next() (due, send int64, more bool) {
	if p.owed() == 0 {
		return 0, 0, false
	}
	send = p.e.now()
	end := min(p.e.ends(), p.stays)
	if p.schedule == nil {
		return send, send, send < end
	}
	due = p.due
	if due >= end || send >= p.stays && p.stays < p.e.ends() {
		return 0, 0, false
	}
	if send < due {
		p.held = 0
		if p.waiter.Paced(p.hard, due+p.e.origin.Load(), p.gap) != nil {
			return 0, 0, false
		}
		began := send
		send = p.e.now()
		p.paused(began, send)
		if send >= p.stays && p.stays < p.e.ends() {
			return 0, 0, false
		}
	}
	return due, send, true
}

// publish hands one prepared body to the link and keeps the account of it.
func (p *publisher) publish(ctx context.Context, link drivers.Publisher, token uint64, body []byte, due, send int64) error {
	sequence, key := p.sequence, p.key()
	p.sequence++
	err := link.Publish(ctx, drivers.Message{Token: token, Key: key, Body: body})
	measured := p.e.belongs(due, send)
	w := p.sends.Window(send, measured)
	if p.schedule != nil {
		p.attribute(w, send-due)
		p.pace(w, send-due)
		p.advance()
	}
	if n := p.spec.Waiting.Nanos(); n != p.blocked {
		p.waited(send, min(send+n-p.blocked, p.e.now())) // of what another publisher's write was blocked, some may be before
	}
	if err != nil {
		p.countFailure(ctx, w, err, due, send)
		p.lack(send)
		p.uncertain.Add(sequence)
		return err
	}
	w.Counts[record.Sent]++
	w.Counts[record.SentBytes] += int64(len(body))
	w.Publish(p.flow, 1)
	p.sent.Add(sequence)
	p.lastSend = send
	p.failures = 0
	if measured {
		p.measured++
	}
	return nil
}

// failed deals with a publish error: a broken link is opened again by the loop, anything else waits a moment.
func (p *publisher) failed(err error) {
	if errors.Is(err, drivers.ErrClosed) {
		p.link.fail(err)
		return
	}
	p.e.warn("publish", err)
	p.pauseAfterFailure()
}

func (p *publisher) oneUnconfirmed() bool {
	due, send, more := p.next()
	if !more {
		return false
	}
	body := p.prepare(p.body, due, send)
	if err := p.publish(p.hard, p.link.conn, 0, body, due, send); err != nil {
		p.failed(err)
	}
	return true
}

// oneInFlight sends a message in a slot that was taken for it.
func (p *publisher) oneInFlight(link drivers.Publisher, token uint32) (more bool, err error) {
	s := &p.flight.slots[token]
	due, send, more := p.next()
	if !more {
		p.flight.undo(token)
		return false, nil
	}
	s.sequence, s.due, s.send, s.out = p.sequence, due, send, true
	body := p.prepare(s.body, due, send)
	if err := p.publish(p.hard, link, uint64(token), body, due, send); err != nil {
		p.flight.undo(token)
		return true, err
	}
	return true, nil
}

func (p *publisher) oneInWindow() bool {
	token, ok := p.acquire()
	if !ok {
		return !p.finished() // the link broke while it waited
	}
	more, err := p.oneInFlight(p.link.conn, token)
	if err != nil {
		p.failed(err)
	}
	return more
}

// batch sends n messages and waits until all are confirmed.
func (p *publisher) batch(n int) bool {
	more := true
	for i := 0; i < n && more; i++ {
		token, ok := p.flight.take()
		if !ok {
			break // cannot be: nothing is in flight between batches
		}
		var err error
		if more, err = p.oneInFlight(p.link.conn, token); err != nil {
			p.failed(err)
			break
		}
	}
	return p.settle() && more
}

// acquire takes a slot, waiting for room as the cell says: until there is some, or in pauses. False: the
// measurement ended or the link broke.
func (p *publisher) acquire() (uint32, bool) {
	for {
		if token, ok := p.flight.take(); ok {
			return token, true
		}
		if err := p.flush(); err != nil {
			p.failed(err)
			return 0, false
		}
		begin := p.e.now()
		if p.work.OnFull == "pause" { // the study's way to wait for room
			sleep(p.deadline(), p.work.Pause.D())
			p.waited(begin, p.e.now())
			if p.finished() || p.link.down.Load() {
				return 0, false
			}
			continue
		}
		ok := p.await(p.deadline(), 1)
		if p.flight.collect() > 0 {
			p.waited(begin, p.flight.firstFree) // until it ran again is the generator's time
		} else {
			p.waited(begin, p.e.now())
		}
		if !ok {
			return 0, false
		}
	}
}

// flush sends what the driver has buffered.
func (p *publisher) flush() error {
	p.blocked = p.spec.Waiting.Nanos()
	err := p.link.conn.Flush(p.hard)
	if n := p.spec.Waiting.Nanos() - p.blocked; n > 0 {
		now := p.e.now()
		p.waited(now-n, now)
	}
	return err
}

// await waits until n more messages were confirmed; false if the link broke or ctx ended first.
func (p *publisher) await(ctx context.Context, n int) bool {
	for p.flight.await(n) {
		select {
		case <-p.flight.room:
			continue
		case <-p.link.broken:
		case <-ctx.Done():
		}
		p.flight.settled()
		return false
	}
	p.flight.settled()
	return true
}

// settle sends what is buffered and waits until nothing is in flight; false if hard ended first. A link that breaks
// is closed, which settles everything too.
func (p *publisher) settle() bool {
	if n := p.flight.outstanding(); n > 0 {
		if err := p.flush(); err != nil {
			p.failed(err)
		}
		begin := p.e.now()
		if !p.link.down.Load() && p.await(p.hard, n) && p.flight.collect() > 0 {
			p.waited(begin, p.flight.lastFree)
		} else {
			p.waited(begin, p.e.now())
		}
	}
	if p.link.down.Load() {
		p.link.close()
	}
	return p.flight.outstanding() == 0
}

// oneConnection opens a connection for one message and closes it again. Latency counts from before the dial.
func (p *publisher) oneConnection() bool {
	due, send, more := p.next()
	if !more {
		return false
	}
	err := p.link.open(p.hard)
	connected := p.e.now()
	p.times.Waited += p.e.within(send, connected)
	p.blocked = p.spec.Waiting.Nanos()
	defer func() { p.held += connected - send }() // it holds up the messages that follow
	if err != nil {
		p.lack(send)
		w := p.sends.Window(send, p.e.belongs(due, send))
		p.countFailure(p.hard, w, err, due, send)
		if p.schedule != nil {
			p.attribute(w, send-due)
			p.advance()
		}
		p.e.warn("connection per message", err)
		p.pauseAfterFailure()
		return true
	}
	body, token := p.body, uint32(0)
	if p.flight != nil {
		token, _ = p.flight.take()
		s := &p.flight.slots[token]
		s.sequence, s.due, s.send, s.out = p.sequence, due, send, true
		body = s.body
	}
	body = p.prepare(body, due, send)
	err = p.publish(p.hard, p.link.conn, uint64(token), body, due, send)
	begin := p.e.now()
	switch {
	case err != nil:
		p.e.warn("publish", err)
		if p.flight != nil {
			p.flight.undo(token)
		}
	case p.flight != nil:
		p.settleConnection()
	}
	p.link.close()
	p.waited(begin, p.e.now())
	return true
}

// settleConnection waits for the one confirm, at most as long as a connection may take.
func (p *publisher) settleConnection() {
	ctx, cancel := context.WithTimeout(p.hard, p.e.work.Connect.D())
	defer cancel()
	if err := p.link.conn.Flush(ctx); err == nil {
		p.await(ctx, p.flight.outstanding())
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	_ = clock.Until(ctx, clock.Now()+int64(d)) // an early end shows in ctx
}
