package judge

import (
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// One of 1,000 messages is unsent, after a millisecond. Quantiles that it cannot change are exact, the others are
// bounds.
func TestUnsentMessagesBoundQuantiles(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Rate = 100 })
	x.steadyLoad(100, deliverAtOnce)
	for i := range 999 {
		x.sample(record.PublishIntended, time.Duration(i+1)*time.Millisecond)
	}
	x.count(0, record.Unsent, 1)
	x.sample(record.UnsentAge, time.Millisecond)
	o := x.judge()
	for name, want := range map[string]uint64{"publish.intended.p50": 0, "publish.intended.p99": 0,
		"publish.intended.max": 1, "e2e.p50": 0, "e2e.max": 1, "publish.max": 0} {
		if v := o.Values[name]; v.NA != "" || v.Over != want {
			t.Errorf("%s: got %+v, want a bound by %d messages", name, v, want)
		}
	}
	if n := o.Values["unsent"].Number; n != 1 {
		t.Errorf("unsent: got %v, want 1", n)
	}
}

// Messages that failed, for example because the driver gave up before the end of the drain, have no confirm. The time
// until the failure is a lower bound of their latency.
func TestFailedMessagesBoundTheIntendedLatency(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Rate = 100 })
	x.steadyLoad(100, deliverAtOnce)
	for range 900 {
		x.sample(record.PublishIntended, time.Millisecond)
	}
	for range 100 { // sent 2 s late
		x.sample(record.PublishFailed, 28*time.Second)
		x.sample(record.Unanswered, 30*time.Second)
	}
	o := x.judge()
	if v := o.Values["publish.intended.p50"]; v.Over != 0 || v.Number > 0.0011 {
		t.Errorf("publish.intended.p50: got %+v, want 1 ms", v)
	}
	if v := o.Values["publish.intended.p95"]; v.Over != 100 || v.Number < 29.9 || v.Number > 30.1 {
		t.Errorf("publish.intended.p95: got %+v, want a bound of 30 s by 100 messages", v)
	}
	if v := o.Values["e2e.p95"]; v.Over != 0 {
		t.Errorf("e2e.p95: got %+v, want no bound: failed messages may have been received", v)
	}
}

// A rejected message has a response, so it bounds no latency.
func TestRejectedMessagesBoundNoLatency(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Rate = 100 })
	x.steadyLoad(100, deliverAtOnce)
	x.count(0, record.Rejected, 40)
	for i := range 2000 {
		if i < 1960 {
			x.sample(record.PublishIntended, 2*time.Millisecond)
		} else {
			x.sample(record.PublishFailed, time.Millisecond)
		}
	}
	o := x.judge()
	for _, name := range []string{"publish.intended.p50", "publish.intended.p95", "publish.intended.p99"} {
		if v := o.Values[name]; v.NA != "" || v.Over != 0 || v.Number < 0.00199 || v.Number > 0.00201 {
			t.Errorf("%s: got %+v, want 2 ms", name, v)
		}
	}
}

// Failed messages also count in the highest quantiles of intervals, for every latency.
func TestIntervalsHaveEverySeries(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Rate, w.Interval = 100, plan.Duration(5*time.Second) })
	x.sample(record.PublishIntended, time.Millisecond)
	x.sample(record.Unanswered, time.Second)
	x.sample(record.UnsentAge, 2*time.Second)
	x.merge.Add(x.snapshot())
	in := newInput(x.task, x.merge, x.facts, 0, nil)
	in.subscriptions = 2
	for series, unanswered := range map[record.Series]uint64{record.PublishIntended: 2, record.EndToEnd: 2,
		record.Publish: 0} {
		var n uint64
		for _, d := range in.intervals(series) {
			n += d.hist.Count() - d.answered.Count()
		}
		if n != unanswered {
			t.Errorf("%s: unanswered messages in the intervals: got %d, want %d", series, n, unanswered)
		}
	}
}

// A tenth is unsent after 5 s each: quantiles above 90 % are at least that.
func TestUnsentMessagesCountWithTheirAge(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Rate = 100 })
	x.steadyLoad(100, deliverAtOnce)
	for i := range 1000 {
		if i < 900 {
			x.sample(record.PublishIntended, time.Millisecond)
		} else {
			x.count(0, record.Unsent, 1)
			x.sample(record.UnsentAge, 5*time.Second)
		}
	}
	o := x.judge()
	if v := o.Values["publish.intended.p50"]; v.Over != 0 || v.Number > 0.0011 {
		t.Errorf("publish.intended.p50: got %+v, want 1 ms", v)
	}
	if v := o.Values["publish.intended.p99"]; v.Over != 100 || v.Number < 4.99 || v.Number > 5.01 {
		t.Errorf("publish.intended.p99: got %+v, want a bound of 5 s by 100 messages", v)
	}
}

// Of 1,000 messages, 30 are at the broker when the drain times out. They count as end-to-end latencies of at least the
// drain's timeout. Messages of the warm-up and lost messages do not count.
func TestUndrainedMessagesBoundTheLatency(t *testing.T) {
	atTheEnd := func(_ int, sent time.Duration) bool { return sent >= 9700*time.Millisecond }
	inWarmup := func(n int, _ time.Duration) bool { return n < 30 }
	again := func(x *taskBuilder, n uint64) { x.receive(n, 0, 9*time.Second) }
	reject := func(x *taskBuilder, n uint64) {
		x.set(record.SetRejected, 0).Add(n)
		x.count(4*time.Second, record.Rejected, 1) // when they were sent
	}
	for _, x := range []struct {
		name            string
		missing         func(n int, sent time.Duration) bool
		timedOut        bool
		also            func(x *taskBuilder, n uint64) // happens to 10 measured messages; nil: nothing
		undrained, over uint64
	}{
		{"undrained", atTheEnd, true, nil, 30, 30},
		{"lost", atTheEnd, false, nil, 0, 0},
		{"undrained in warm-up", inWarmup, true, nil, 30, 0},
		{"undrained in warm-up, duplicates", inWarmup, true, again, 30, 0},
		{"undrained in warm-up, rejected", func(n int, sent time.Duration) bool {
			return inWarmup(n, sent) || n >= 500 && n < 510
		}, true, reject, 30, 0},
		{"undrained, rejected and delivered", atTheEnd, true, reject, 30, 30},
		{"undrained, received by two consumers", atTheEnd, true, func(x *taskBuilder, n uint64) {
			x.receiveMeasured(n, 9*time.Second, true)
		}, 30, 30},
		{"all delivered", func(int, time.Duration) bool { return false }, true, nil, 0, 0},
	} {
		w := newTaskBuilder(func(w *plan.Workload) {
			w.Publishers.Rate, w.Drain.Timeout = 100, plan.Duration(20*time.Second)
		})
		w.facts.DrainCut = x.timedOut
		w.steadyLoad(100, func(n int, sent time.Duration) (time.Duration, bool) {
			return sent + time.Millisecond, !x.missing(n, sent)
		})
		for n := range uint64(10) {
			if x.also != nil {
				x.also(w, 500+n)
			}
		}
		o := w.judge()
		if o.Ledger.Undrained != x.undrained {
			t.Errorf("%s: got %d undrained, want %d", x.name, o.Ledger.Undrained, x.undrained)
		}
		if v := o.Values["e2e.p50"]; v.NA != "" || v.Over != 0 || v.Number > 0.0021 {
			t.Errorf("%s: e2e.p50: got %+v, want 2 ms", x.name, v)
		}
		if v := o.Values["e2e.max"]; v.NA != "" || v.Over != x.over || (x.over > 0) != (v.Number > 19.9) {
			t.Errorf("%s: e2e.max: got %+v, want a bound of 20 s by %d messages", x.name, v, x.over)
		}
	}
}

// Undrained messages belong to the last interval of the measurement.
func TestUndrainedMessagesAreInTheLastInterval(t *testing.T) {
	w := newTaskBuilder(func(w *plan.Workload) {
		w.Publishers.Rate, w.Interval = 100, plan.Duration(5*time.Second)
	})
	w.facts.DrainCut = true
	w.steadyLoad(100, func(n int, sent time.Duration) (time.Duration, bool) {
		return sent + time.Millisecond, sent < 5*time.Second || n%100 < 40
	})
	w.merge.Add(w.snapshot())
	in := newInput(w.task, w.merge, w.facts, 0, nil)
	var unanswered []uint64
	for _, d := range in.intervals(record.EndToEnd) {
		unanswered = append(unanswered, d.hist.Count()-d.answered.Count())
	}
	if len(unanswered) == 0 || unanswered[len(unanswered)-1] != 300 {
		t.Errorf("unanswered messages in the intervals: got %v, want 300 in the last one", unanswered)
	}
}
