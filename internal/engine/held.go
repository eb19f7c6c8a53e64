package engine

import (
	"cmp"
	"math"
	"math/bits"
	"sync/atomic"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// held measures for how long a link of a consumer holds deliveries until it answers them. The broker may deliver a
// message again if that is longer than plan.Cell.RedeliverAfter. The acker owns it. A nil held measures nothing.
//
// A client prefetches deliveries: they wait in it before the handler receives them. A message is not delivered before
// it is sent, nor before the message that many places before it is answered. The time counts from the later of both.
type held struct {
	limit    int64         // RedeliverAfter, ns
	atOnce   bool          // the handler answers deliveries in the call that receives them, without processing
	since    atomic.Int64  // since when the oldest unanswered delivery is held, ns since T0; 0: none, or atOnce
	exceeded *atomic.Int64 // when a delivery was answered that was held for longer than limit, ns since T0; 0: never
	latest   int64         // since when the deliveries of the latest call of the handler are held
	at       int64         // current time, ns since T0; it is only read from the clock when time has passed
	timeline *timeline

	received, answered uint64 // number of deliveries
	prefetch           uint64 // 0: unlimited
	opened             int64  // clock.Now() when the link was opened
	shift              int
	times              []int64 // ring of 2^n: when answered reached a multiple of 2^shift
}

// maxAnswerTimes is about how many times of answers a link keeps.
const maxAnswerTimes = 256

// newHeld returns nil if the broker delivers no message again because of a late answer.
func newHeld(c plan.Consumers, limit int64, exceeded *atomic.Int64, t *timeline) *held {
	if limit == 0 || drivers.Ack(c.Ack) == drivers.AckAutomatic {
		return nil
	}
	h := &held{limit: limit, exceeded: exceeded, timeline: t, opened: clock.Now(),
		atOnce: drivers.Ack(c.Ack) == drivers.AckEach && c.Process == (plan.DurationDist{})}
	if c.Prefetch > 0 {
		h.prefetch = uint64(max(c.Prefetch, c.Batch))
		h.shift = bits.Len64(h.prefetch / maxAnswerTimes)
		h.times = make([]int64, 1<<bits.Len64(h.prefetch>>h.shift+1))
	}
	return h
}

// receive adds n deliveries that the handler receives at a time, and with atOnce their answers. sent is the earliest
// send time of their messages, or unknownSend.
func (h *held) receive(n int, sent, at int64) {
	if h == nil {
		return
	}
	if h.at = at; h.atOnce {
		if (sent > at || at-sent > h.limit) && at-h.begin(sent, at) > h.limit {
			h.exceeded.Store(max(1, at))
		}
		h.received += uint64(n)
		h.free(n)
		return
	}
	h.latest = cmp.Or(h.begin(sent, at), -1) // 0: none
	if h.received += uint64(n); h.since.Load() == 0 {
		h.since.Store(h.latest)
	}
}

// begin returns since when deliveries are held that the handler receives at a time.
func (h *held) begin(sent, at int64) int64 {
	since := h.earliest()
	switch {
	case sent != unknownSend:
		since = max(since, sent)
	case h.prefetch == 0:
		since = at
	}
	return min(since, at)
}

// unknownSend is the send time of messages without an envelope.
const unknownSend int64 = math.MaxInt64

// earliest returns the earliest time of the next delivery: when its place in the prefetch became free.
func (h *held) earliest() int64 {
	if h.prefetch > 0 && h.received >= h.prefetch {
		if reached := min(h.received+1-h.prefetch, h.answered) >> h.shift; reached > 0 {
			return h.times[reached&uint64(len(h.times)-1)]
		}
	}
	return h.opened - h.timeline.origin.Load()
}

// elapse updates the time after the deliveries were processed, or after an interval.
func (h *held) elapse() {
	if h != nil {
		h.at = h.timeline.now()
	}
}

// answer counts the answers to the n oldest unanswered deliveries.
func (h *held) answer(n int) {
	if h == nil || h.atOnce {
		return
	}
	if h.overdue(h.at) {
		h.exceeded.Store(max(1, h.at))
	}
	h.free(n)
	if h.answered < h.received { // the acker leaves only deliveries of the latest call unanswered
		h.since.Store(h.latest)
	} else {
		h.since.Store(0)
	}
}

// free notes that n places in the prefetch become free.
func (h *held) free(n int) {
	before := h.answered
	h.answered += uint64(n)
	if h.times != nil {
		for i := before>>h.shift + 1; i<<h.shift <= h.answered; i++ {
			h.times[i&uint64(len(h.times)-1)] = h.at
		}
	}
}

// overdue reports whether the oldest unanswered delivery has been held for longer than the limit at now. It is safe for
// concurrent use.
func (h *held) overdue(now int64) bool {
	since := h.since.Load()
	return since != 0 && now-since > h.limit
}

// close ends the measurement. The broker delivers unanswered messages again because the link is closed.
func (h *held) close() {
	if h != nil {
		h.since.Store(0)
	}
}
