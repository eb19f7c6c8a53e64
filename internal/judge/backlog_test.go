package judge

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// risingBacklog returns the levels per second of a backlog that grows by 100 messages per second until the time join,
// and is then consumed at a rate.
func risingBacklog(warmup int, join, rate, until float64) backlog {
	b := backlog{first: -warmup}
	level := 0.0
	const steps = 1000
	for i := -warmup; i < int(until); i++ {
		var sent, received float64
		for k := range steps {
			sent += 100.0 / steps
			got := 0.0
			if float64(i)+float64(k)/steps >= join {
				got = min(rate/steps, level+100.0/steps)
			}
			level += 100.0/steps - got
			received += got
		}
		b.level, b.received = append(b.level, level), append(b.received, received)
	}
	return b
}

// A backlog that falls at a known rate is drained in the computed second, and the catch-up rate is the consume rate of
// the seconds before.
func TestBacklogDrain(t *testing.T) {
	for name, test := range map[string]struct {
		warmup                int
		join, rate, remaining float64
		want                  float64 // 0: not drained
	}{
		"after a second":               {0, 3, 300, 0, 1.5},
		"with a warm-up":               {2, 3, 300, 0, 2.5},
		"in the first full second":     {0, 3.5, 300, 0, 1.75},
		"down to a remaining level":    {0, 3, 300, 150, 0.75},
		"slowly":                       {0, 4, 200, 0, 4},
		"not before the end":           {0, 8, 200, 0, 0},
		"slower than the publish rate": {0, 2, 50, 0, 0},
	} {
		b := risingBacklog(test.warmup, test.join, test.rate, 10)
		d := b.drain(test.join, 10, test.remaining+0.5)
		seconds := d.took
		if d.emptied {
			seconds -= d.last
		}
		if d.emptied != (test.want > 0) || d.emptied && (test.want < d.took-d.last || test.want > d.took+0.01) ||
			d.last > 1 {
			t.Errorf("%s: got %+v, want drained after %v s", name, d, test.want)
		}
		if seconds > 0 && math.Abs(d.received/seconds-test.rate) > 0.01*test.rate {
			t.Errorf("%s: rate of the %v s before: got %.1f/s, want %.1f/s", name, seconds, d.received/seconds,
				test.rate)
		}
		highest, want := slices.Max(b.level), 100*(test.join+float64(test.warmup))
		if test.rate >= 100 && math.Abs(highest-want) > 101 {
			t.Errorf("%s: maximum level: got %.0f, want about %.0f", name, highest, want)
		}
	}
}

// BenchmarkJudgeTwoHours measures the work per window: 7200 windows take about twice as long as 3600.
func BenchmarkJudgeTwoHours(b *testing.B) {
	for _, hours := range []int{1, 2} {
		b.Run(strconv.Itoa(hours)+"h", func(b *testing.B) {
			x := newTaskBuilder(func(w *plan.Workload) { w.Measure = plan.Duration(time.Duration(hours) * time.Hour) })
			for s := range hours * 3600 {
				for _, c := range []record.Counter{record.Sent, record.Received, record.Unique, record.Confirmed} {
					x.count(time.Duration(s)*time.Second, c, 100)
				}
			}
			x.merge.Add(x.snapshot())
			for b.Loop() {
				Judge(x.task, x.merge, x.facts)
			}
		})
	}
}

// A single pass over the record gives for every second the sums over that second.
func TestSecondsAreTheSumsOfTheirWindows(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(100, loseOnePercent)
	x.count(-1500*time.Millisecond, record.Sent, 7)
	x.count(3*time.Second, record.Returned, 2)
	x.count(3*time.Second, record.Rejected, 3)
	x.count(12*time.Second, record.Sent, 5)
	x.merge.Add(x.snapshot())
	every := perSecond(newInput(x.task, x.merge, x.facts, 0, nil))
	if every.first != -2 || len(every.of) != 12 {
		t.Fatalf("got %d seconds from %d, want 12 from -2", len(every.of), every.first)
	}
	for i := -2; i < 10; i++ {
		sum := func(c record.Counter) float64 { return float64(x.merge.Sum(c, i, i+1)) }
		got := every.of[i-every.first]
		for c, n := range map[record.Counter]float64{record.Sent: got.sent, record.Returned: got.returned,
			record.Rejected: got.rejected, record.Unique: got.unique} {
			if n != sum(c) {
				t.Errorf("second %d: %s: got %v, want %v", i, c, n, sum(c))
			}
		}
	}
}

// A window long before the load, which no real agent records, must not allocate all seconds since then.
func TestDistantWindowsUseNoMemory(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(100, loseOnePercent)
	s := x.snapshot()
	s.Windows = append(s.Windows, record.Window{Index: math.MinInt + 1, Length: int64(time.Second)})
	x.merge.Add(s)
	if every := perSecond(newInput(x.task, x.merge, x.facts, 0, nil)); len(every.of) > 10+
		int((x.task.Cell.Workload.Warmup.D()+earlier)/time.Second) {
		t.Errorf("got %d allocated seconds, want only those of the load", len(every.of))
	}
}

// deliverLate delivers 500 messages per second in order from 4 s on; 100 per second are sent from -1 s on.
func deliverLate(n int, sent time.Duration) (time.Duration, bool) {
	return max(sent+time.Millisecond, 4*time.Second+time.Duration(n)*2*time.Millisecond), true
}

// If a backlog is drained within less than a full second, the result is only a bound of the time.
func TestBacklogThatDrainsWithinASecond(t *testing.T) {
	if d := risingBacklog(0, 3.25, 100_000, 10).drain(3.25, 10, 0); !d.emptied || d.took != 0.75 || d.last != 0.75 {
		t.Errorf("got %+v, want drained within 0.75 s", d)
	}
	x := newTaskBuilder(func(w *plan.Workload) { w.Consumers.Lifetime.ConnectAt = plan.Duration(4 * time.Second) })
	x.steadyLoad(100, func(_ int, sent time.Duration) (time.Duration, bool) {
		return max(sent+time.Millisecond, 4*time.Second+5*time.Millisecond), true
	})
	o := x.judge()
	if v := o.Values["backlog.drain"]; v.NA != "" || v.Number != 0.5 || v.Bound != 0.5 {
		t.Errorf("backlog.drain: got %+v, want 0.5 s ± 0.5", v)
	}
	if v := o.Values["catchup.rate"]; v.NA != NAFastDrain {
		t.Errorf("catchup.rate: got %+v, want %q", v, NAFastDrain)
	}
}

// A planned backlog has its values, and flags if consumers did not keep up. Without a planned backlog the values are
// n/a.
func TestBacklogValues(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Consumers.Lifetime.ConnectAt = plan.Duration(4 * time.Second) })
	x.steadyLoad(100, deliverLate)
	o := x.judge()
	checkValue(t, o, "backlog.max", 500)
	// At 4 s, 500 messages wait, and then 400 fewer per second.
	if v := o.Values["backlog.drain"]; v.NA != "" || v.Number != 1.5 || v.Bound != 0.5 {
		t.Errorf("backlog.drain: got %+v, want 1.5 s ± 0.5: drained after 1.25 s", v)
	}
	if v := o.Values["catchup.rate"]; v.NA != "" || math.Abs(v.Number-500) > 10 {
		t.Errorf("catchup.rate: got %+v, want 500/s", v)
	}
	if got := o.Values["e2e.p50"]; got.NA != NABacklog {
		t.Errorf("end-to-end latency of a planned backlog: got %+v, want %q", got, NABacklog)
	}
	x = newTaskBuilder(func(w *plan.Workload) { w.Consumers.Lifetime.ConnectAt = plan.Duration(4 * time.Second) })
	x.steadyLoad(100, func(n int, sent time.Duration) (time.Duration, bool) {
		return max(sent, 4*time.Second+time.Duration(n)*9*time.Millisecond), true
	})
	if got := x.judge().Values["backlog.drain"]; got.NA != NANotDrained {
		t.Errorf("backlog.drain of slow consumers: got %+v, want %q", got, NANotDrained)
	}
	x = newTaskBuilder(func(w *plan.Workload) { w.Consumers.Lifetime.ConnectAt = plan.Duration(4 * time.Second) })
	x.steadyLoad(100, func(n int, sent time.Duration) (time.Duration, bool) {
		at, _ := deliverLate(n, sent)
		return at, n%10 > 0
	})
	o = x.judge()
	// lost messages do not wait, and waiting messages are not lost
	for _, name := range []string{"backlog.drain", "catchup.rate"} {
		if got := o.Values[name]; got.NA != NADrainLost {
			t.Errorf("%s with one of ten messages lost: got %+v, want %q", name, got, NADrainLost)
		}
	}
	x = newTaskBuilder(nil)
	x.steadyLoad(100, deliverAtOnce)
	if got := x.judge().Values["backlog.drain"]; got.NA != NANoBuild {
		t.Errorf("backlog.drain without a backlog: got %+v, want %q", got, NANoBuild)
	}
}

// Unacknowledged messages of a consumer that disconnects are redelivered. That breaks no guarantee.
func TestDisconnectedConsumersMayCauseDuplicates(t *testing.T) {
	for lifetime, want := range map[plan.Lifetime]plan.Verdict{{}: plan.Invalid,
		{DisconnectAt: plan.Duration(5 * time.Second)}: plan.Valid} {
		x := newTaskBuilder(func(w *plan.Workload) { w.Consumers.Lifetime = lifetime })
		x.steadyLoad(100, deliverAtOnce)
		x.receive(7, 0, time.Second)
		if got := x.judge().Verdict; got != want {
			t.Errorf("lifetime %+v: got verdict %s, want %s", lifetime, got, want)
		}
	}
}

// Messages of a consumer that disconnects may go to another consumer of its queue, after later messages. If the broker
// marks redeliveries, the order of the others is still checked.
func TestDisconnectedConsumersMayCauseReordering(t *testing.T) {
	for name, c := range map[string]struct {
		lifetime          plan.Lifetime
		threads           int
		marked, unordered bool
	}{
		"none disconnects":         {plan.Lifetime{}, 2, false, true},
		"one of two disconnects":   {plan.Lifetime{Stay: 1e9, Away: 1e9}, 2, false, false},
		"the only one disconnects": {plan.Lifetime{Stay: 1e9, Away: 1e9}, 1, false, true},
		"redeliveries are marked":  {plan.Lifetime{Stay: 1e9, Away: 1e9}, 2, true, true},
	} {
		x := newTaskBuilder(func(w *plan.Workload) {
			w.Consumers.Lifetime, w.Consumers.Threads = c.lifetime,
				c.threads
		})
		x.steadyLoad(100, deliverAtOnce)
		x.count(time.Second, record.Reordered, 3)
		if c.marked {
			x.count(time.Second, record.Redelivered, 1)
		}
		o := x.judge()
		if invalid := o.Verdict == plan.Invalid; invalid != c.unordered {
			t.Errorf("%s: got %s %v, want invalid %v", name, o.Verdict, o.Reasons, c.unordered)
		}
		checkWarnings(t, o, !c.unordered, "3 messages were received after a later one: consumers disconnected")
	}
}

// Kinds of failures have separate values, and are not part of the publish latency.
func TestFailureValues(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(100, deliverAtOnce)
	x.count(time.Second, record.PublishErrors, 9)
	x.count(time.Second, record.ClosedErrors, 5)
	x.count(time.Second, record.Timeouts, 3)
	x.sample(record.PublishFailed, 8*time.Second)
	o := x.judge()
	for name, want := range map[string]float64{"publish.errors": 9, "errors.closed": 5, "errors.timeout": 3,
		"errors.other": 1, "publish.max": 0.001, "publish.failed.max": 8} {
		if v := o.Values[name]; v.NA != "" || math.Abs(v.Number-want) > 0.01*want {
			t.Errorf("%s: got %+v, want %v", name, v, want)
		}
	}
}
