package engine

import (
	"context"
	"fmt"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// Take returns what was recorded since it was called last; final, after Close, the rest. Publishers hand over once a second by
// themselves; consumers are asked, so that a drain sees every receipt.
func (e *Engine) Take(final bool) record.Part {
	select {
	case <-e.started:
	default:
		return record.Part{Events: e.takeEvents()}
	}
	var lastReceipt, lastInterrupted int64
	apart := 0
	for _, c := range e.consumers {
		receipt, interrupted := c.flush()
		lastReceipt, lastInterrupted = max(lastReceipt, receipt), max(lastInterrupted, interrupted)
		if c.apart() {
			apart++
		}
	}
	for _, p := range e.publishers {
		p.flushReturns()
	}
	if e.churn != nil {
		e.churn.flush()
	}
	receipts := e.arrivals.flush()
	e.mu.Lock()
	if final {
		for detail := range e.blockedSince {
			e.unblocked(detail)
		}
	}
	e.own.Flush()
	part := e.last
	part.Skew = e.skew
	e.mu.Unlock()
	part.LastReceipt, part.LastInterrupted, part.Apart = lastReceipt, lastInterrupted, apart
	part.Bindings = receipts
	part.Windows, part.Sets = e.collector.Take()
	part.Events, part.Gaps = e.takeEvents(), e.collector.TakeGaps()
	return part
}

func (e *Engine) takeEvents() []record.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	events := e.events
	e.events = nil
	return events
}

// Event takes what a driver reports of its link; the agent puts it into drivers.Env. Time between blocked and
// unblocked is counted for each detail by itself.
func (e *Engine) Event(kind drivers.EventKind, detail string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.eventTime()
	e.events = append(e.events, record.Event{At: now, Kind: string(kind), Detail: detail})
	switch kind {
	case drivers.EventBlocked:
		if _, already := e.blockedSince[detail]; !already {
			e.blockedSince[detail] = now
		}
	case drivers.EventUnblocked:
		e.unblocked(detail)
	}
}

// Lasted records what was done to this agent's part from one reading of the clock to another. Any goroutine, once Run was called.
func (e *Engine) Lasted(kind, detail string, from, to int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, record.Event{At: from - e.origin.Load(), Kind: kind, Nanos: to - from,
		Detail: fmt.Sprintf("%s, took %v", detail, time.Duration(to-from).Round(time.Microsecond))})
}

// unblocked counts a blocked time that ended. The caller holds mu.
func (e *Engine) unblocked(detail string) {
	since, was := e.blockedSince[detail]
	delete(e.blockedSince, detail)
	if !was || e.own == nil { // all of it was before the start
		return
	}
	now := e.eventTime()
	e.own.Window(now, e.counts(now)).Counts[record.ConnBlockedNanos] += now - since
}

// eventTime is now, or 0 while the start is not known. The caller holds mu.
func (e *Engine) eventTime() int64 {
	if e.own == nil {
		return 0
	}
	return e.now()
}

// outage records how long a publisher or consumer was without its link, since a reading of the clock.
func (e *Engine) outage(name string, since int64, ended bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, gap := e.eventTime(), clock.Now()-since
	how := "reconnected"
	if !ended {
		how = "not reconnected"
	}
	e.events = append(e.events, record.Event{At: now - gap, Kind: record.EventGap, Nanos: gap, Lasting: !ended,
		Detail: fmt.Sprintf("%s %s after %v", name, how, time.Duration(gap).Round(time.Microsecond))})
}

// countOwn counts something that happened to a consumer's link.
func (e *Engine) countOwn(c record.Counter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.own.Window(e.eventTime(), false).Counts[c]++
}

// Observe records n samples of the agent's process, of ns nanoseconds each, in the window of at, a reading of clock.Now. Before Run there is
// none, and they are dropped.
func (e *Engine) Observe(at int64, s record.Series, ns int64, n uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.own == nil {
		return
	}
	at -= e.origin.Load()
	e.own.Window(at, e.counts(at)).RecordN(s, ns, n)
}

// warn records the first few errors of a kind; the rest are in the counters.
func (e *Engine) warn(what string, err error) {
	const most = 3
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.warned[what]++; e.warned[what] <= most {
		e.events = append(e.events, record.Event{At: e.eventTime(), Kind: "error", Detail: fmt.Sprintf("%s: %v", what, err)})
	}
}

// retry calls connect with growing pauses until it succeeds or ctx ends.
func (e *Engine) retry(ctx context.Context, connect func(context.Context) error) bool {
	const least, most = 10 * time.Millisecond, time.Second
	for pause := least; ctx.Err() == nil; pause = min(2*pause, most) {
		err := connect(ctx)
		if err == nil {
			return true
		}
		e.warn("reconnect", err)
		sleep(ctx, pause)
	}
	return false
}
