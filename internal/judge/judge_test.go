package judge

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

func near(t *testing.T, o plan.Outcome, name string, want float64) {
	t.Helper()
	v := o.Values[name]
	if v.NA != "" || math.Abs(v.Number-want) > 0.005*math.Abs(want)+1e-9 {
		t.Errorf("%s is %+v, want %v", name, v, want)
	}
}

func na(t *testing.T, o plan.Outcome, name, want string) {
	t.Helper()
	if got := o.Values[name].NA; got != want {
		t.Errorf("%s: n/a because of %q, want %q", name, got, want)
	}
}

func flagged(t *testing.T, o plan.Outcome, f plan.Flag, want bool, names ...string) {
	t.Helper()
	for _, name := range names {
		if got := slices.Contains(o.Values[name].Flags, f); got != want {
			t.Errorf("%s: flag %s is %v, want %v (flags %v)", name, f, got, want, o.Values[name].Flags)
		}
	}
}

func verdict(t *testing.T, o plan.Outcome, want plan.Verdict, reason string) {
	t.Helper()
	if o.Verdict != want {
		t.Errorf("verdict %s, want %s; reasons %q", o.Verdict, want, o.Reasons)
	}
	if reason != "" && !strings.Contains(strings.Join(o.Reasons, "\n"), reason) {
		t.Errorf("reasons %q do not contain %q", o.Reasons, reason)
	}
}

func TestTaskWithoutProblemsIsValid(t *testing.T) {
	x := newWorld(nil)
	x.steady(1000, atOnce)
	o := x.judge()
	verdict(t, o, plan.Valid, "")
	near(t, o, "publish.rate", 1000)
	near(t, o, "confirm.rate", 1000)
	near(t, o, "consume.rate", 1000)
	near(t, o, "throughput", 1000)
	near(t, o, "publish.p99", 0.001)
	near(t, o, "e2e.max", 0.002)
	near(t, o, "sent", 11000) // the accounting includes the warm-up
	near(t, o, "received", 11000)
	near(t, o, "lost", 0)
	na(t, o, "publish.intended.p50", NAClosedLoop)
	na(t, o, "send_delay.p99", NAClosedLoop)
	na(t, o, "backpressure.max", NAClosedLoop)
	na(t, o, "broker.cpu.mean", NANotReported)
	na(t, o, "broker.rss.p50", NANoProcess)
	na(t, o, "broker.memory.max", NANotReported)
	na(t, o, "binding.first.p50", NANoChurn)
	for name, v := range o.Values {
		if len(v.Flags) > 0 {
			t.Errorf("%s has flags %v without a reason", name, v.Flags)
		}
	}
	if o.Measured.D() != 10*time.Second || len(o.Warnings) > 0 {
		t.Errorf("measured %v, warnings %q", o.Measured, o.Warnings)
	}
}

// TestEveryValueIsInEveryOutcome proves that every value is present: a missing one would look like a misspelt name in a
// table.
func TestEveryValueIsInEveryOutcome(t *testing.T) {
	for name, o := range map[string]plan.Outcome{
		"measured": func() plan.Outcome { x := newWorld(nil); x.steady(100, atOnce); return x.judge() }(),
		"failed":   Judge(newWorld(nil).task, record.NewMerged(), Facts{Failure: "no broker"}),
		"churned": func() plan.Outcome {
			x := newWorld(func(w *plan.Workload) { w.Topology.Churn.Rate = 1 })
			x.steady(100, atOnce)
			return x.judge()
		}(),
		"no consumers": func() plan.Outcome {
			x := newWorld(func(w *plan.Workload) { w.Consumers.Nodes = 0 })
			x.send(0)
			return x.judge()
		}(),
		"no publishers": func() plan.Outcome {
			x := newWorld(func(w *plan.Workload) { w.Publishers.Nodes = 0 })
			return x.judge()
		}(),
	} {
		for _, v := range plan.Values() {
			if _, has := o.Values[v.Name]; !has {
				t.Errorf("%s: no value %s", name, v.Name)
			}
		}
		if len(o.Values) != len(plan.Values()) {
			t.Errorf("%s: %d values, plan knows %d", name, len(o.Values), len(plan.Values()))
		}
	}
}

func TestModesWithoutConfirms(t *testing.T) {
	for mode, why := range map[string]string{"fire-and-forget": NAFireAndForget,
		"connection-per-message": NANoConfirms} {
		x := newWorld(func(w *plan.Workload) { w.Publishers.Mode, w.Publishers.Rate = mode, 100 })
		x.steady(100, atOnce)
		for range 20 {
			x.sample(record.SendDelay, time.Microsecond)
		}
		o := x.judge()
		verdict(t, o, plan.Valid, "")
		for _, name := range []string{"publish.p50", "publish.intended.p99", "confirm.rate", "confirmed", "rejected"} {
			na(t, o, name, why)
		}
		near(t, o, "send_delay.p50", 1e-6)
		if o.Ledger.Unconfirmed != 0 {
			t.Errorf("%s: %d messages unconfirmed in a mode without confirms", mode, o.Ledger.Unconfirmed)
		}
	}
}

func TestWithoutConsumers(t *testing.T) {
	x := newWorld(func(w *plan.Workload) { w.Consumers.Nodes = 0 })
	x.steady(100, func(int, time.Duration) (time.Duration, bool) { return 0, false })
	o := x.judge()
	verdict(t, o, plan.Valid, "")
	for _, name := range []string{"consume.rate", "received", "lost", "undrained", "unknown", "duplicated", "reordered",
		"e2e.p99"} {
		na(t, o, name, NANoConsumers)
	}
	near(t, o, "throughput", 100)
	flagged(t, o, plan.Backlog, false, "throughput", "publish.rate")
}

// TestWithoutPublishers covers 300 deliveries in 3 s, of which 100 come in warm-up. All are received messages, the
// measurement ends with the last one, and nothing is lost or duplicated.
func TestWithoutPublishers(t *testing.T) {
	x := newWorld(func(w *plan.Workload) { w.Publishers.Nodes = 0 })
	for i := range 300 {
		at := time.Duration(i)*10*time.Millisecond - time.Second
		x.count(at, record.Received, 1)
		x.count(at, record.Unique, 1)
		x.last.LastDelivery = int64(at)
	}
	o := x.judge()
	verdict(t, o, plan.Valid, "")
	near(t, o, "consume.rate", 200/1.99)
	near(t, o, "received", 300)
	for _, name := range []string{"publish.rate", "confirm.rate", "throughput", "publish.p99", "publish.intended.p99",
		"e2e.p99", "sent", "confirmed", "lost", "undrained", "duplicated", "reordered", "backlog.max", "publish.errors"} {
		na(t, o, name, NANoPublishers)
	}
	if o.Measured.D() != 1990*time.Millisecond || len(o.Warnings) > 0 {
		t.Errorf("measured %v, warnings %q", o.Measured, o.Warnings)
	}

	x = newWorld(func(w *plan.Workload) { w.Publishers.Nodes = 0 })
	x.count(-time.Second, record.Unique, 5)
	x.last.LastDelivery = -int64(time.Second)
	verdict(t, x.judge(), plan.Unknown, "received in warm-up")
}

func TestMeasurementByCount(t *testing.T) {
	x := newWorld(func(w *plan.Workload) { w.Publishers.Count = 1000; w.Warmup = 0 })
	for i := range 1000 {
		at := time.Duration(i) * 4 * time.Millisecond
		x.receive(x.send(at), 0, at+time.Millisecond)
	}
	o := x.judge()
	verdict(t, o, plan.Valid, "")
	near(t, o, "publish.rate", 1000/3.996)
	near(t, o, "consume.rate", 1000/3.997)
	flagged(t, o, plan.Backlog, false, "throughput")
	if o.Measured.D() != 3996*time.Millisecond {
		t.Errorf("measured %v, want the time of the last confirm", o.Measured)
	}
}

// TestConsumersReceiveTheBacklogOfTheWarmupFirst covers consumers at 100 per second. They receive 300 messages of
// the warm-up before the 200 of the count, in 5 s.
func TestConsumersReceiveTheBacklogOfTheWarmupFirst(t *testing.T) {
	x := newWorld(func(w *plan.Workload) { w.Publishers.Count, w.Publishers.Mode = 200, "fire-and-forget" })
	var sent []uint64
	for i := range 500 { // 300 in the last second before the count, the others in the next second
		at := -time.Second + time.Duration(i)*time.Second/300
		if i >= 300 {
			at = time.Duration(i-300) * time.Second / 200
		}
		sent = append(sent, x.send(at))
	}
	for i, n := range sent {
		at := time.Duration(i) * 10 * time.Millisecond
		x.received(n, at, i >= 300)
	}
	o := x.judge()
	near(t, o, "consume.rate", 500/4.99)
}

func TestOutcomeOfNothing(t *testing.T) {
	o := newWorld(nil).judge()
	verdict(t, o, plan.Unknown, "nothing was sent in the measurement")
	na(t, o, "publish.rate", NANotMeasured)
	na(t, o, "publish.p50", NANoSamples)
	x := newWorld(nil)
	x.receive(x.send(-time.Second), 0, -time.Second/2)
	verdict(t, x.judge(), plan.Unknown, "nothing was sent in the measurement") // only in the warm-up
}

func TestJudgeIsPure(t *testing.T) {
	x := newWorld(nil)
	x.steady(100, atOnce)
	x.facts.Events = []plan.Event{{At: 5, Kind: "notice", Agent: "b", Detail: "seen by the controller"}}
	first := x.judge()
	second := Judge(x.task, x.merge, x.facts)
	a, _ := json.Marshal(first)
	b, _ := json.Marshal(second)
	if string(a) != string(b) {
		t.Errorf("judging twice gives two outcomes:\n%s\n%s", a, b)
	}
}
