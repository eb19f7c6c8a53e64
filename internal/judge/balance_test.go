package judge

import (
	"slices"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/rules"
)

// deliverThreeOfTen delivers 3 of 10 messages at once.
func deliverThreeOfTen(n int, sent time.Duration) (time.Duration, bool) {
	return sent + time.Millisecond, n%10 < 3
}

// TestBalance defines backlogs, at 1,000 messages per second for 10 s after 2 s of warm-up.
func TestBalance(t *testing.T) {
	slower := func(factor float64) func(int, time.Duration) (time.Duration, bool) {
		return func(_ int, sent time.Duration) (time.Duration, bool) {
			return time.Duration(float64(sent+2*time.Second)*factor) - 2*time.Second + time.Millisecond, true
		}
	}
	cases := []struct {
		name     string
		edit     func(*plan.Workload)
		received func(int, time.Duration) (time.Duration, bool)
		cut      bool
		backlog  bool
	}{
		{"at once", nil, deliverAtOnce, false, false},
		{"constant delay of 0.5 s", nil, deliverAfter(500 * time.Millisecond), false, false},
		{"half as fast", nil, slower(2), false, true},
		{"a tenth slower", nil, slower(1.1), false, true},
		{"5 % slower", nil, slower(1.05), false, true},
		{"1 % slower", nil, slower(1.01), false, false},
		{"no deliveries", nil, func(int, time.Duration) (time.Duration, bool) { return 0, false }, true, true},
		{"one of 100 lost, the others at once", nil, loseOnePercent, false, false},
		{"one of 10 lost, the others at once", nil,
			func(n int, sent time.Duration) (time.Duration, bool) { return sent + time.Millisecond, n%10 != 0 }, false,
			true},
		{"a queue that drops its head: 300 of 1,000 are received", nil, deliverThreeOfTen, false, true},
		{"a short measurement of such a queue", func(w *plan.Workload) { w.Measure = plan.Duration(time.Second) },
			deliverThreeOfTen, false, true},
		{"1 s, 9 % slower", func(w *plan.Workload) { w.Measure = plan.Duration(time.Second) }, slower(1 / 0.91), false,
			true},
		{"1.5 s, 9 % slower", func(w *plan.Workload) { w.Measure = plan.Duration(1500 * time.Millisecond) },
			slower(1 / 0.91), false, true},
		{"2 s, 9 % slower", func(w *plan.Workload) { w.Measure = plan.Duration(2 * time.Second) }, slower(1 / 0.91),
			false, true},
		{"1.5 s, 1 % slower", func(w *plan.Workload) { w.Measure = plan.Duration(1500 * time.Millisecond) },
			slower(1.01), false, false},
		{"1.5 s, constant delay of 0.5 s",
			func(w *plan.Workload) { w.Measure = plan.Duration(1500 * time.Millisecond) },
			deliverAfter(500 * time.Millisecond), false,
			false},
		{"one of 10 undrained", nil,
			func(n int, sent time.Duration) (time.Duration, bool) { return sent + time.Millisecond, n%10 != 0 }, true,
			true},
		{"consumers stop after 5 s", nil, func(_ int, sent time.Duration) (time.Duration, bool) {
			return sent + time.Millisecond, sent < 5*time.Second
		}, true, true},
		{"a pause of 300 ms in the middle", nil, func(_ int, sent time.Duration) (time.Duration, bool) {
			if sent > 4*time.Second && sent < 4300*time.Millisecond {
				return 4300 * time.Millisecond, true
			}
			return sent + time.Millisecond, true
		}, false, false},
		{"messages in flight on a slow network at the end",
			func(w *plan.Workload) { w.Network.Latency = plan.Duration(100 * time.Millisecond) },
			deliverAfter(100 * time.Millisecond), false,
			false},
		{"a short measurement, half as fast", func(w *plan.Workload) { w.Measure = plan.Duration(time.Second) },
			slower(2), false, true},
		{"a short measurement, at once", func(w *plan.Workload) { w.Measure = plan.Duration(300 * time.Millisecond) },
			deliverAtOnce, false, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			x := newTaskBuilder(c.edit)
			x.begin = -2 * time.Second
			x.task.Cell.Guarantees = plan.Guarantees{}
			x.facts.DrainCut = c.cut
			x.steadyLoad(1000, c.received)
			o := x.judge()
			checkFlag(t, o, plan.Backlog, c.backlog, "throughput", "consume.rate")
			checkFlag(t, o, plan.Backlog, false, "publish.rate", "publish.p99", "lost")
			if c.backlog && c.name != "no deliveries" {
				checkNA(t, o, "e2e.p99", NABacklog)
				checkFlag(t, o, plan.Backlog, true, "e2e.p99")
			}
			if !c.backlog {
				checkValue(t, o, "e2e.p50", 0.002)
			}
		})
	}
}

// TestBurstsAreNoBacklog proves that the saw-tooth of a publisher that sends bursts is no backlog, because its minima
// do not rise.
func TestBurstsAreNoBacklog(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) {
		w.Publishers.MaxInFlight, w.Publishers.OnFull = 1000, "pause"
	})
	for second := -1; second < 10; second++ {
		at := time.Duration(second)*time.Second + 950*time.Millisecond
		for i := range 1000 { // sent in the last 50 ms of each second, received in the next second
			x.receive(x.send(at), 0, at+100*time.Millisecond+time.Duration(i)*800*time.Microsecond)
		}
	}
	checkFlag(t, x.judge(), plan.Backlog, false, "throughput")
}

// A backlog of a single subscription or queue is detected.
func TestBacklogOfOneFlow(t *testing.T) {
	for _, c := range []struct {
		of      int
		gets    float64 // share of its messages that one of the flows delivers
		backlog bool
	}{{2, 1, false}, {2, 0.99, false}, {2, 0.97, true}, {10, 0.8, true}, {20, 0.55, true}, {50, 0, true},
		{50, 1, false}} {
		for _, queues := range []bool{false, true} {
			x := newTaskBuilder(func(w *plan.Workload) {
				w.Topology.Subscriptions = c.of
				if queues {
					w.Topology.Subscriptions, w.Topology.Queues = 1, c.of
				}
			})
			x.task.Cell.Guarantees = plan.Guarantees{}
			for second := -2; second < 10; second++ {
				published := []int64{1000}
				if queues {
					published = slices.Repeat(published, c.of)
				}
				delivered := slices.Repeat([]int64{1000}, c.of)
				delivered[c.of-1] = int64(1000 * c.gets)
				x.addSecond(second, published, delivered)
			}
			o := x.judge()
			checkFlag(t, o, plan.Backlog, c.backlog, "throughput", "consume.rate")
			condition, _ := rules.ParseCondition("!backlog", x.task.Cell.Workload, nil)
			if holds, _ := condition.Holds(o.Values); holds == c.backlog {
				t.Errorf("condition !backlog: got %v, want %v", holds, !c.backlog)
			}
			if t.Failed() {
				t.Fatalf("failed with %d flows, queues %v, one of which delivers %.0f %%", c.of, queues, 100*c.gets)
			}
		}
	}
}

// A flow that delivers nothing, or less than three quarters, is a backlog also if a measurement is too short for a
// slope. Messages in flight are none.
func TestOneFlowOfAShortMeasurement(t *testing.T) {
	for _, c := range []struct {
		warmup, measure int     // seconds
		each            int64   // messages per second and flow
		gets            float64 // share of its messages that one of 50 flows delivers
		backlog         bool
	}{
		{0, 1, 1000, 0, true}, {0, 2, 1000, 0, true}, {1, 1, 1000, 0, true}, {1, 1, 1000, 0.7, true},
		{0, 1, 100, 0, true}, {0, 1, 1000, 0.8, false}, {1, 1, 1000, 1, false}, {2, 1, 1000, 0, true},
		{0, 2, 10, 0.1, false},
	} {
		for _, queues := range []bool{false, true} {
			x := newTaskBuilder(func(w *plan.Workload) {
				w.Warmup = plan.Duration(time.Duration(c.warmup) * time.Second)
				w.Measure = plan.Duration(time.Duration(c.measure) * time.Second)
				w.Topology.Subscriptions = 50
				if queues {
					w.Topology.Subscriptions, w.Topology.Queues = 1, 50
				}
			})
			x.task.Cell.Guarantees = plan.Guarantees{}
			for second := -c.warmup; second < c.measure; second++ {
				published := []int64{c.each}
				if queues {
					published = slices.Repeat(published, 50)
				}
				delivered := slices.Repeat([]int64{c.each}, 50)
				delivered[49] = int64(float64(c.each) * c.gets)
				x.addSecond(second, published, delivered)
			}
			checkFlag(t, x.judge(), plan.Backlog, c.backlog, "throughput", "consume.rate")
			if t.Failed() {
				t.Fatalf("%+v, queues %v", c, queues)
			}
		}
	}
}

// TestFanOutIsBalancedBySubscription proves that two subscriptions, which together receive twice the number of sent
// messages, are no imbalance, and that a subscription that stops is one.
func TestFanOutIsBalancedBySubscription(t *testing.T) {
	for _, stops := range []bool{false, true} {
		x := newTaskBuilder(func(w *plan.Workload) { w.Topology.Subscriptions = 2 })
		x.facts.DrainCut = stops
		x.steadyLoad(1000, deliverAtOnce)
		for n := range x.next {
			if at := time.Duration(n)*time.Millisecond - time.Second; !stops || at < 2*time.Second {
				x.receive(n, 1, at+time.Millisecond)
			}
		}
		o := x.judge()
		checkFlag(t, o, plan.Backlog, stops, "throughput")
		if !stops {
			checkValue(t, o, "consume.rate", 2000)
		} else if o.Ledger.Undrained != 8000 {
			t.Errorf("got %d undrained, want 8000: those that subscription 1 did not receive", o.Ledger.Undrained)
		}
	}
}

func TestReturnedMessagesAreNoBacklog(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Mandatory = true })
	x.steadyLoad(1000, func(n int, sent time.Duration) (time.Duration, bool) {
		return sent + time.Millisecond,
			n%4 != 0
	})
	for n := uint64(0); n < x.next; n += 4 {
		x.set(record.SetReturned, 0).Add(n)
		at := time.Duration(n)*time.Millisecond - time.Second
		x.count(at, record.Returned, 1)
		x.rec.Window(int64(at), x.measured(at)).Publish(0, -1)
	}
	o := x.judge()
	checkFlag(t, o, plan.Backlog, false, "throughput")
	if o.Ledger.Unroutable != 2750 || o.Ledger.Lost != 0 {
		t.Errorf("got %d unroutable, %d lost, want 2750, 0: returned messages are not lost", o.Ledger.Unroutable,
			o.Ledger.Lost)
	}
}

// TestMessagesInFlightAreNoBacklog proves that messages in flight are no backlog. Without warm-up, a measurement
// begins without any and ends with many, so consume rates are lower, but the backlog does not grow.
func TestMessagesInFlightAreNoBacklog(t *testing.T) {
	for _, measure := range []time.Duration{time.Second, 3 * time.Second, 5 * time.Second} {
		x := newTaskBuilder(func(w *plan.Workload) {
			w.Publishers.Mode, w.Measure, w.Warmup = "fire-and-forget", plan.Duration(measure), 0
		})
		x.begin = 0
		x.steadyLoad(1000, deliverAfter(150*time.Millisecond))
		o := x.judge()
		checkFlag(t, o, plan.Backlog, false, "throughput")
		checkValue(t, o, "consume.rate", 1000*(1-0.15/measure.Seconds()))
	}
}

// With a count, the backlog at the ends of the seconds of publishing decides, also with dropped messages.
func TestBacklogByCount(t *testing.T) {
	for name, c := range map[string]struct {
		received func(n int, sent time.Duration) (time.Duration, bool)
		backlog  bool
	}{
		"at once": {deliverAtOnce, false},
		"3 of 10": {deliverThreeOfTen, true},
		"half":    {func(_ int, sent time.Duration) (time.Duration, bool) { return 2 * sent, true }, true},
		"a fifth slower, with deliveries in the second in which publishers end": {func(_ int,
			sent time.Duration) (time.Duration, bool) {
			return sent * 5 / 4, true
		}, true},
		"9 of 10s": {func(n int, sent time.Duration) (time.Duration, bool) { return sent + time.Millisecond, n%10 > 0 },
			true},
	} {
		x := newTaskBuilder(func(w *plan.Workload) {
			w.Publishers.Count, w.Warmup, w.Measure = 4200, 0, plan.Duration(4200*time.Millisecond)
		})
		x.task.Cell.Guarantees, x.begin = plan.Guarantees{}, 0
		x.steadyLoad(1000, c.received)
		o := x.judge()
		checkFlag(t, o, plan.Backlog, c.backlog, "throughput")
		if name == "half" {
			checkNA(t, o, "e2e.p50", NABacklog)
			checkValue(t, o, "consume.rate", 500)
		}
		if t.Failed() {
			t.Fatalf("case %q failed", name)
		}
	}
}

// TestRejectedMessagesAreABacklog proves that a full queue that rejects messages is a backlog.
func TestRejectedMessagesAreABacklog(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(1000, func(n int, sent time.Duration) (time.Duration, bool) {
		return sent + time.Millisecond,
			n%4 != 0
	})
	for n := uint64(0); n < x.next; n += 4 {
		x.set(record.SetRejected, 0).Add(n)
	}
	checkFlag(t, x.judge(), plan.Backlog, true, "throughput")
}

// TestReceivedByAnotherConsumerIsNoBacklog proves that redeliveries to another consumer are no backlog, although more
// messages are received than sent, and that they do not compensate for missing messages.
func TestReceivedByAnotherConsumerIsNoBacklog(t *testing.T) {
	for name, c := range map[string]struct {
		missing, redelivered int // of 100
		backlog              bool
	}{"redelivered": {0, 10, false}, "missing": {10, 0, true}, "both": {10, 5, true},
		"as many of both": {10, 10, true}, "fewer missing": {5, 10, true}} {
		x := newTaskBuilder(func(w *plan.Workload) { w.Consumers.Threads = 2 })
		x.steadyLoad(100, func(n int, sent time.Duration) (time.Duration, bool) {
			return sent + time.Millisecond, n%100 >= c.missing
		})
		for n := uint64(100); n < 1000; n++ {
			if n%100 >= uint64(100-c.redelivered) {
				x.receiveMeasured(n, time.Duration(n)*10*time.Millisecond-990*time.Millisecond, true)
			}
		}
		checkFlag(t, x.judge(), plan.Backlog, c.backlog, "throughput")
		if t.Failed() {
			t.Fatalf("case %q failed", name)
		}
	}
}

// TestBacklogOfAShortMeasurement covers too few levels for a slope.
func TestBacklogOfAShortMeasurement(t *testing.T) {
	for name, c := range map[string]struct {
		received func(n int, sent time.Duration) (time.Duration, bool)
		backlog  bool
	}{
		"at once":     {deliverAtOnce, false},
		"20 ms later": {deliverAfter(20 * time.Millisecond), false},
		"half as often": {func(_ int, sent time.Duration) (time.Duration, bool) { return max(sent, 2*sent), true },
			true},
		"stopped": {func(_ int, sent time.Duration) (time.Duration, bool) {
			return sent + time.Millisecond, sent < 200*time.Millisecond
		}, true},
	} {
		for _, measure := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond,
			2500 * time.Millisecond} {
			x := newTaskBuilder(func(w *plan.Workload) {
				w.Warmup, w.Measure = plan.Duration(500*time.Millisecond), plan.Duration(measure)
			})
			x.task.Cell.Guarantees = plan.Guarantees{}
			x.steadyLoad(1000, c.received)
			o := x.judge()
			checkFlag(t, o, plan.Backlog, c.backlog, "throughput")
			if t.Failed() {
				t.Fatalf("case %q failed with a measurement of %v", name, measure)
			}
		}
	}
}

// TestBacklogWithoutOverlap covers an agent that was lost at once, so that there is no second in which all agents
// ran.
func TestBacklogWithoutOverlap(t *testing.T) {
	for _, measure := range []time.Duration{time.Second, 10 * time.Second} {
		for _, late := range []time.Duration{0, 3 * time.Second} {
			x := newTaskBuilder(func(w *plan.Workload) { w.Measure = plan.Duration(measure) })
			x.steadyLoad(1000, deliverAtOnce)
			x.facts.Agents[1].Lost = true
			x.last.Skew = late
			o := x.judge()
			checkVerdict(t, o, plan.Unknown, "agent b lost")
			checkFlag(t, o, plan.Backlog, false, "throughput")
		}
	}
}
