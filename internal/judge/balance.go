package judge

import (
	"math"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

const (
	tolerance = 0.02                  // of what was sent: the difference of rates that is still called balanced
	edge      = 50 * time.Millisecond // a stall of either side moves so much over an edge of the measurement
	inFlight  = 0.1                   // at most this part of what was sent is explained by messages in flight
)

// balance is what the rule of balance looks at, for all subscriptions together. What was sent and did not arrive counts against
// receiving, whether it is queued or was dropped or refused: rates that differ do not agree. Only what the broker returned as
// unroutable, which nobody can receive, is left out.
//
// Sending and receiving are balanced when both hold:
//
//   - The messages received in the measurement differ from those sent in it by at most 2 % and a slack: what is sent in 50 ms and in the
//     simulated network's round trip; and, up to a tenth of what was sent, what publishers send in one burst (a batch, a window with a
//     pause), or by how much their unconfirmed messages became more or fewer from the beginning to the end, which is about nothing after a
//     warm-up. What came again to another consumer, as behind a broken link, is not too much. By count: all but 2 % arrived, and receiving
//     ended at most 2 %, 50 ms (or a tenth of the time, if that is less) and a round trip later than sending.
//   - The backlog does not grow: from the lowest backlog at the end of any window in the first third of the measurement to the lowest in
//     its last third, it rises by at most 2 % of what was sent between them, and the slack; of messages in flight only bursts count
//     here. Lowest, because a bursty sender's troughs show what receivers cannot catch up with.
//
// A measurement of fewer than three windows is judged by the first condition only: receivers that are slower by 9 % are seen from one second
// on. In less, 50 ms weigh more, and they may not be.
type balance struct {
	w                   plan.Workload
	subs                float64
	share               float64 // of sent messages that receivers were to get
	span                span
	sent, received      []float64 // by window of the measurement; received over all subscriptions, by each consumer once
	allSent, allReceipt float64   // by count: of the measurement's messages
	flight              float64   // change of the number of unconfirmed messages over the measurement
	again               float64   // of received: what another consumer had received before
}

func (j *judge) balance() balance {
	b := balance{w: j.w, subs: float64(j.subs), span: j.span, share: 1,
		sent: make([]float64, j.span.windows), received: make([]float64, j.span.windows),
		allSent: j.counted(record.Sent), allReceipt: j.counted(record.Unique)}
	for i := range b.sent {
		s := j.perSecond().at(i)
		b.sent[i], b.received[i] = s.sent, s.unique
	}
	b.again = max(0, float64(j.m.Total(record.Unique))-float64(j.tally.Received))
	if j.tally.Sent > 0 {
		b.share = max(0, 1-float64(j.tally.Returned)/float64(j.tally.Sent))
	}
	if Confirmed(j.w.Publishers.Mode) {
		sum := func(c record.Counter) float64 { return float64(j.m.Sum(c, 0, j.span.windows)) }
		b.flight = math.Abs(sum(record.Sent) - sum(record.Confirmed) - sum(record.Rejected) - sum(record.Unconfirmed))
	}
	return b
}

// kept tells whether receiving kept up with sending.
func (b balance) kept() bool {
	if b.allSent == 0 || b.share == 0 || b.allReceipt == 0 || b.grows() {
		return false
	}
	expected := b.allSent * b.subs * b.share
	if b.span.byCount {
		late := b.span.receiving - b.span.sending
		limit := time.Duration(tolerance*float64(b.span.sending)) + min(edge, time.Duration(inFlight*float64(b.span.sending))) + b.roundTrip()
		return late <= limit && expected-b.allReceipt <= tolerance*expected
	}
	slack := b.crossing(b.span.sending, b.allSent) + min(max(b.burst(), b.flight)*b.subs, inFlight*expected)
	more := b.allReceipt - expected
	return max(-more, more-b.again) <= tolerance*expected+slack
}

// grows tells whether the troughs of the backlog rise.
func (b balance) grows() bool {
	n := len(b.sent)
	if n < 3 {
		return false
	}
	level, total := make([]float64, n), make([]float64, n)
	var backlog, sent float64
	for i := range n {
		expected := b.sent[i] * b.subs * b.share
		backlog += expected - b.received[i]
		sent += expected
		level[i], total[i] = backlog, sent
	}
	first, last := lowest(level, 0, n/3), lowest(level, n-n/3, n)
	between := total[last] - total[first]
	slack := b.crossing(time.Duration(last-first)*time.Second, between/b.subs) + min(b.burst()*b.subs, inFlight*between)
	return level[last]-level[first] > tolerance*between+slack
}

// lowest is the index of the smallest of levels[from:to].
func lowest(levels []float64, from, to int) int {
	at := from
	for i := from; i < to; i++ {
		if levels[i] < levels[at] {
			at = i
		}
	}
	return at
}

func (b balance) roundTrip() time.Duration { return b.w.Network.Latency.D() + b.w.Network.Jitter.D() }

// crossing is how many receipts belong to messages on their way at an edge, at the rate of sent messages in d; at least one a publisher.
func (b balance) crossing(d time.Duration, sent float64) float64 {
	if d <= 0 {
		return 0
	}
	rate := sent / d.Seconds()
	return b.subs * (rate*(edge+b.roundTrip()).Seconds() + b.publishers())
}

func (b balance) publishers() float64 {
	return float64(b.w.Publishers.Nodes * b.w.Publishers.Threads)
}

// burst is how many messages publishers send at once and then wait.
func (b balance) burst() float64 {
	switch p := b.w.Publishers; {
	case p.Mode == "confirm-batch":
		return b.publishers() * float64(p.Batch.Most)
	case p.Mode == "confirm-window" && p.OnFull == "pause":
		return b.publishers() * float64(p.Window)
	}
	return 0
}
