package judge

import (
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

func checkWarnings(t *testing.T, o plan.Outcome, want bool, parts ...string) {
	t.Helper()
	all := strings.Join(o.Warnings, "\n")
	for _, p := range parts {
		if strings.Contains(all, p) != want {
			t.Errorf("warnings contain %q: got %v, want %v: %q", p, !want, want, o.Warnings)
		}
	}
}

func TestMissingConfirmsAreReported(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(1000, deliverAtOnce)
	checkWarnings(t, x.judge(), false, "never confirmed")
	for range 3 { // sent, without any response
		x.set(record.SetSent, 0).Add(x.next)
		x.set(record.SetReceived, 0).Add(x.next)
		x.next++
	}
	checkWarnings(t, x.judge(), true, "3 of 11003 messages were never confirmed")
}

// TestMissedRate proves that the warning has the reached rate, and whether the broker or the load generator
// was the cause.
func TestMissedRate(t *testing.T) {
	withRate := func(rate float64) *taskBuilder {
		x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Rate = rate })
		x.steadyLoad(500, deliverAtOnce)
		x.count(0, record.Unsent, int64(10*(rate-500)))
		return x
	}
	for rate, want := range map[float64]bool{500: false, 505: false, 520: true, 1000: true} {
		checkWarnings(t, withRate(rate).judge(), want, "intended publish rate")
	}
	late := withRate(500) // messages that were due in the last second are sent after the measurement
	late.rec.Window(int64(9*time.Second), true).Counts[record.Sent] -= 500
	late.rec.Window(int64(11*time.Second), true).Counts[record.Sent] += 500
	checkWarnings(t, late.judge(), true, "intended publish rate 500/s, actual 450/s")
	x := withRate(1000)
	x.sample(record.Backpressure, 2*time.Second)
	x.sample(record.SendDelay, time.Microsecond)
	o := x.judge()
	checkWarnings(t, o, true,
		"intended publish rate 1,000/s, actual 500/s: publishers waited for the broker (back-pressure p99 2",
		"unsent messages: 5000")
	checkVerdict(t, o, plan.Valid, "")

	x = withRate(1000)
	x.sample(record.SendDelay, 2*time.Second)
	o = x.judge()
	checkWarnings(t, o, true, "intended publish rate 1,000/s, actual 500/s: client-bound (send delay p99 2")
	checkWarnings(t, o, false, "publishers waited")

	x = withRate(1000) // the send delay is below a tenth of the latency, so it is no limitation
	x.sample(record.PublishIntended, 10*time.Second)
	x.sample(record.SendDelay, 500*time.Millisecond)
	o = x.judge()
	checkWarnings(t, o, true, "intended publish rate 1,000/s, actual 500/s: publishers were late (send delay p99 5",
		"back-pressure p99 below 1µs")
	checkWarnings(t, o, false, "publishers waited")

	for _, end := range []func(*Facts){func(f *Facts) { f.Failure = "no broker" }, func(f *Facts) { f.Cancelled = true }} {
		x = withRate(1000)
		end(&x.facts)
		checkWarnings(t, x.judge(), false, "intended publish rate")
	}

	closed := newTaskBuilder(nil)
	closed.steadyLoad(500, deliverAtOnce)
	checkWarnings(t, closed.judge(), false, "intended publish rate")
}

// If a load is behind at the end of warm-up, messages that were due in warm-up are not part of the rate that the
// measurement requires.
func TestMessagesOfTheWarmupAreNotDueAgain(t *testing.T) {
	for name, test := range map[string]struct {
		perSecond, afterwards int64 // sent in the measurement, and messages due in it that were sent after it
		warns                 bool
	}{
		"never caught up": {400, 2000, true},
		"always behind":   {500, 1000, false},
		"caught up":       {600, 0, false},
	} {
		x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Rate = 500 })
		for second := range 10 {
			// The first 1,000 messages are those of the warm-up.
			n, old := test.perSecond, min(test.perSecond, max(0, 1000-int64(second)*test.perSecond))
			at := int64(second) * int64(time.Second)
			x.rec.Window(at, false).Counts[record.Sent] += old
			x.rec.Window(at, true).Counts[record.Sent] += n - old
		}
		x.rec.Window(int64(11*time.Second), true).Counts[record.Sent] += test.afterwards
		o := x.judge()
		checkWarnings(t, o, test.warns, "intended publish rate")
		if test.warns {
			checkWarnings(t, o, true, "intended publish rate 500/s, actual 400/s")
		}
		if t.Failed() {
			t.Fatalf("case %q failed", name)
		}
	}
}

// With a count, the measurement lasts until all messages are sent, so no rate is missed.
func TestNothingIsMissingByCount(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Rate, w.Publishers.Count, w.Warmup = 100, 100, 0 })
	for i := range 100 {
		at := time.Duration(i) * 10 * time.Millisecond
		x.receive(x.send(at), 0, at+time.Millisecond)
	}
	x.last.LastConfirm = int64(2 * time.Second)
	checkWarnings(t, x.judge(), false, "intended publish rate")
}

func TestRoughly(t *testing.T) {
	for ns, want := range map[int64]string{0: "below 1µs", 999: "below 1µs", 1234: "1.234µs", 12345: "12.35µs",
		9876543210: "9.877s"} {
		if got := roughly(ns); got != want {
			t.Errorf("roughly(%d): got %q, want %q", ns, got, want)
		}
	}
}
