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

func checkValue(t *testing.T, o plan.Outcome, name string, want float64) {
	t.Helper()
	v := o.Values[name]
	if v.NA != "" || math.Abs(v.Number-want) > 0.005*math.Abs(want)+1e-9 {
		t.Errorf("%s: got %+v, want %v", name, v, want)
	}
}

func checkNA(t *testing.T, o plan.Outcome, name, want string) {
	t.Helper()
	if got := o.Values[name].NA; got != want {
		t.Errorf("%s: got n/a because of %q, want %q", name, got, want)
	}
}

func checkFlag(t *testing.T, o plan.Outcome, f plan.Flag, want bool, names ...string) {
	t.Helper()
	for _, name := range names {
		if got := slices.Contains(o.Values[name].Flags, f); got != want {
			t.Errorf("%s: flag %s: got %v, want %v (flags %v)", name, f, got, want, o.Values[name].Flags)
		}
	}
}

func checkVerdict(t *testing.T, o plan.Outcome, want plan.Verdict, reason string) {
	t.Helper()
	if o.Verdict != want {
		t.Errorf("got verdict %s, want %s; reasons %q", o.Verdict, want, o.Reasons)
	}
	if reason != "" && !strings.Contains(strings.Join(o.Reasons, "\n"), reason) {
		t.Errorf("reasons: want %q, got %q", reason, o.Reasons)
	}
}

func TestTaskWithoutProblemsIsValid(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(1000, deliverAtOnce)
	o := x.judge()
	checkVerdict(t, o, plan.Valid, "")
	checkValue(t, o, "publish.rate", 1000)
	checkValue(t, o, "confirm.rate", 1000)
	checkValue(t, o, "consume.rate", 1000)
	checkValue(t, o, "throughput", 1000)
	checkValue(t, o, "publish.p99", 0.001)
	checkValue(t, o, "e2e.max", 0.002)
	checkValue(t, o, "sent", 11000) // the accounting includes the warm-up
	checkValue(t, o, "received", 11000)
	checkValue(t, o, "lost", 0)
	checkNA(t, o, "publish.intended.p50", NAClosedLoop)
	checkNA(t, o, "send_delay.p99", NAClosedLoop)
	checkNA(t, o, "backpressure.max", NAClosedLoop)
	checkNA(t, o, "broker.cpu.mean", NANotReported)
	checkNA(t, o, "broker.rss.p50", NANoProcess)
	checkNA(t, o, "broker.memory.max", NANotReported)
	checkNA(t, o, "binding.first.p50", NANoChurn)
	for name, v := range o.Values {
		if len(v.Flags) > 0 {
			t.Errorf("flags of %s: got %v, want none", name, v.Flags)
		}
	}
	if o.Measured.D() != 10*time.Second || len(o.Warnings) > 0 {
		t.Errorf("got a measurement of %v, warnings %q, want 10 s, none", o.Measured, o.Warnings)
	}
}

// TestEveryValueIsInEveryOutcome proves that every value is present: a missing one would look like a misspelt name in a
// table.
func TestEveryValueIsInEveryOutcome(t *testing.T) {
	for name, o := range map[string]plan.Outcome{
		"measured": func() plan.Outcome {
			x := newTaskBuilder(nil)
			x.steadyLoad(100,
				deliverAtOnce)
			return x.judge()
		}(),
		"failed": Judge(newTaskBuilder(nil).task, record.NewMerged(), Facts{Failure: "no broker"}),
		"churned": func() plan.Outcome {
			x := newTaskBuilder(func(w *plan.Workload) { w.Topology.Churn.Rate = 1 })
			x.steadyLoad(100, deliverAtOnce)
			return x.judge()
		}(),
		"no consumers": func() plan.Outcome {
			x := newTaskBuilder(func(w *plan.Workload) { w.Consumers.Nodes = 0 })
			x.send(0)
			return x.judge()
		}(),
		"no publishers": func() plan.Outcome {
			x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Nodes = 0 })
			return x.judge()
		}(),
	} {
		for _, v := range plan.Values() {
			if _, has := o.Values[v.Name]; !has {
				t.Errorf("%s: value %s is missing", name, v.Name)
			}
		}
		if len(o.Values) != len(plan.Values()) {
			t.Errorf("%s: got %d values, want %d", name, len(o.Values), len(plan.Values()))
		}
	}
}

func TestModesWithoutConfirms(t *testing.T) {
	for mode, why := range map[string]string{"fire-and-forget": NAFireAndForget,
		"connection-per-message": NANoConfirms} {
		x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Mode, w.Publishers.Rate = mode, 100 })
		x.steadyLoad(100, deliverAtOnce)
		for range 20 {
			x.sample(record.SendDelay, time.Microsecond)
		}
		o := x.judge()
		checkVerdict(t, o, plan.Valid, "")
		for _, name := range []string{"publish.p50", "publish.intended.p99", "confirm.rate", "confirmed", "rejected"} {
			checkNA(t, o, name, why)
		}
		checkValue(t, o, "send_delay.p50", 1e-6)
		if o.Ledger.Unconfirmed != 0 {
			t.Errorf("%s: unconfirmed in a mode without confirms: got %d, want 0", mode, o.Ledger.Unconfirmed)
		}
	}
}

func TestWithoutConsumers(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Consumers.Nodes = 0 })
	x.steadyLoad(100, func(int, time.Duration) (time.Duration, bool) { return 0, false })
	o := x.judge()
	checkVerdict(t, o, plan.Valid, "")
	for _, name := range []string{"consume.rate", "received", "lost", "undrained", "unknown", "duplicated", "reordered",
		"e2e.p99"} {
		checkNA(t, o, name, NANoConsumers)
	}
	checkValue(t, o, "throughput", 100)
	checkFlag(t, o, plan.Backlog, false, "throughput", "publish.rate")
}

// TestWithoutPublishers covers 300 deliveries in 3 s, of which 100 come in warm-up. All are received messages, the
// measurement ends with the last one, and nothing is lost or duplicated.
func TestWithoutPublishers(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Nodes = 0 })
	for i := range 300 {
		at := time.Duration(i)*10*time.Millisecond - time.Second
		x.count(at, record.Received, 1)
		x.count(at, record.Unique, 1)
		x.last.LastDelivery = int64(at)
	}
	o := x.judge()
	checkVerdict(t, o, plan.Valid, "")
	checkValue(t, o, "consume.rate", 200/1.99)
	checkValue(t, o, "received", 300)
	for _, name := range []string{"publish.rate", "confirm.rate", "throughput", "publish.p99", "publish.intended.p99",
		"e2e.p99", "sent", "confirmed", "lost", "undrained", "duplicated", "reordered", "backlog.max", "publish.errors"} {
		checkNA(t, o, name, NANoPublishers)
	}
	if o.Measured.D() != 1990*time.Millisecond || len(o.Warnings) > 0 {
		t.Errorf("got a measurement of %v, warnings %q, want 1.99 s, none", o.Measured, o.Warnings)
	}

	x = newTaskBuilder(func(w *plan.Workload) { w.Publishers.Nodes = 0 })
	x.count(-time.Second, record.Unique, 5)
	x.last.LastDelivery = -int64(time.Second)
	checkVerdict(t, x.judge(), plan.Unknown, "received in warm-up")
}

func TestMeasurementByCount(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Count = 1000; w.Warmup = 0 })
	for i := range 1000 {
		at := time.Duration(i) * 4 * time.Millisecond
		x.receive(x.send(at), 0, at+time.Millisecond)
	}
	o := x.judge()
	checkVerdict(t, o, plan.Valid, "")
	checkValue(t, o, "publish.rate", 1000/3.996)
	checkValue(t, o, "consume.rate", 1000/3.997)
	checkFlag(t, o, plan.Backlog, false, "throughput")
	if o.Measured.D() != 3996*time.Millisecond {
		t.Errorf("measurement: got %v, want 3.996 s: until the last confirm", o.Measured)
	}
}

// TestConsumersReceiveTheBacklogOfTheWarmupFirst covers consumers at 100 per second. They receive 300 messages of
// the warm-up before the 200 of the count, in 5 s.
func TestConsumersReceiveTheBacklogOfTheWarmupFirst(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Count, w.Publishers.Mode = 200, "fire-and-forget" })
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
		x.receiveMeasured(n, at, i >= 300)
	}
	o := x.judge()
	checkValue(t, o, "consume.rate", 500/4.99)
}

func TestOutcomeWithoutMessages(t *testing.T) {
	o := newTaskBuilder(nil).judge()
	checkVerdict(t, o, plan.Unknown, "nothing was sent in the measurement")
	checkNA(t, o, "publish.rate", NANotMeasured)
	checkNA(t, o, "publish.p50", NANoSamples)
	x := newTaskBuilder(nil)
	x.receive(x.send(-time.Second), 0, -time.Second/2)
	checkVerdict(t, x.judge(), plan.Unknown, "nothing was sent in the measurement") // only in the warm-up
}

func TestJudgeIsPure(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(100, deliverAtOnce)
	x.facts.Events = []plan.Event{{At: 5, Kind: "notice", Agent: "b", Detail: "seen by the controller"}}
	first := x.judge()
	second := Judge(x.task, x.merge, x.facts)
	a, _ := json.Marshal(first)
	b, _ := json.Marshal(second)
	if string(a) != string(b) {
		t.Errorf("second judgement: got\n%s\nwant\n%s", b, a)
	}
}
