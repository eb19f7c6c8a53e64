package judge

import (
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// newChurn returns a taskBuilder with bindings. Each has a call of 10 ms, a first delivery 30 ms after the call, and a
// later message with a latency of 5 ms.
func newChurn(n int, edit func(*plan.Workload)) *taskBuilder {
	x := newTaskBuilder(func(w *plan.Workload) {
		w.Topology.Churn = plan.Churn{Rate: 1, Hold: plan.Duration(time.Second), Probes: 10}
		if edit != nil {
			edit(w)
		}
	})
	x.steadyLoad(100, deliverAtOnce)
	ms := int64(time.Millisecond)
	var deliveries []record.BindingDelivery
	for i := range n {
		called := int64(i-1) * int64(time.Second) // the first one is in the warm-up
		w := x.rec.Window(called, called >= 0)
		w.Counts[record.BindingsMade]++
		w.Record(record.Binding, 10*ms)
		for m := range 2 {
			x.set(record.SetBindingSent, 0).Add(uint64(2*i + m))
			x.set(record.SetBindingReceived, 0).Add(uint64(2*i + m))
		}
		deliveries = append(deliveries, record.BindingDelivery{Binding: uint64(i), Called: called, Sent: called + 10*ms,
			At: called + 30*ms})
		x.rec.Window(called, called >= 0).Record(record.BindingMessage, 5*ms)
	}
	x.merge.Add(record.Snapshot{Agent: "c", Seq: 1, Bindings: deliveries})
	return x
}

func TestBindingValues(t *testing.T) {
	x := newChurn(11, nil)
	// Another agent treated a later message of binding 5 as the first.
	s := int64(time.Second)
	x.merge.Add(record.Snapshot{Agent: "d", Seq: 1,
		Bindings: []record.BindingDelivery{{Binding: 5, Called: 4 * s, Sent: 4*s + s/2, At: 5 * s}}})
	o := x.judge()
	checkVerdict(t, o, plan.Valid, "")
	for name, want := range map[string]float64{
		"binding.p50": 0.010, "binding.max": 0.010, "binding.first.p50": 0.030, "binding.first.max": 0.030,
		"binding.message.p50": 0.005, "binding.message.max": 0.5,
		"binding.made": 11, "binding.sent": 22, "binding.received": 22, "binding.lost": 0, "binding.errors": 0,
	} {
		checkValue(t, o, name, want)
	}
	if len(o.Warnings) > 0 || o.Ledger.Lost != 0 {
		t.Errorf("got warnings %q, ledger %+v, want no warnings, 0 lost", o.Warnings, o.Ledger)
	}
}

// Messages lost through new bindings are reported, but break no guarantee: they are not in the ledger.
func TestBindingLossIsNoBrokenGuarantee(t *testing.T) {
	x := newChurn(11, nil)
	x.set(record.SetBindingSent, 0).Add(100)
	o := x.judge()
	checkVerdict(t, o, plan.Valid, "")
	checkValue(t, o, "binding.lost", 1)
	checkValue(t, o, "lost", 0)
	checkWarnings(t, o, true, "1 message through a new binding was lost")
}

func TestUnknownBindingLoss(t *testing.T) {
	x := newChurn(11, nil)
	x.set(record.SetBindingSent, 0).Add(100)
	x.facts.DrainCut = true
	checkNA(t, x.judge(), "binding.lost", "unknown: the drain ended by its timeout")
}

// If the broker is too slow for the rate of bindings, the result shows it.
func TestMissedRateOfBindings(t *testing.T) {
	x := newChurn(11, func(w *plan.Workload) { w.Topology.Churn.Rate = 5 })
	checkWarnings(t, x.judge(), true, "configured are 5 bindings per second, created were 1")
}

func TestBindingTimesOfTwoClocks(t *testing.T) {
	x := newChurn(11, nil)
	x.facts.Agents[1].Clock = "clock-2"
	o := x.judge()
	if v := o.Values["binding.first.p50"]; len(v.Flags) != 1 || v.Flags[0] != plan.ClockUnsafe {
		t.Errorf("flags of binding.first.p50: got %v, want clock-unsafe", v.Flags)
	}
	if v := o.Values["binding.p50"]; len(v.Flags) != 0 {
		t.Errorf("flags of binding.p50: got %v, want none: one clock measures it", v.Flags)
	}
}

// Warnings about the latencies of bindings follow those about metrics. They do not mention negative samples without
// quantiles.
func TestWarningsAboutBindingLatencies(t *testing.T) {
	x := newChurn(11, nil)
	in := newInput(x.task, x.merge, x.facts, 0, nil)
	m := &measurements{in: in, broker: brokerMetrics{lacking: 1}, latencies: map[string]latency{}}
	first, published, bound := record.NewHist(), record.NewHist(), record.NewHist()
	first.Record(-1e9)
	published.Record(2 * int64(time.Hour))
	bound.Record(2 * int64(time.Hour))
	for _, s := range latencySeries {
		m.latencies[s.name] = latency{name: s.name, na: NAClosedLoop}
	}
	m.latencies["publish"] = latency{name: "publish", distribution: distribution{hist: published}}
	m.latencies["binding"] = latency{name: "binding", distribution: distribution{hist: bound}}
	m.latencies["binding.first"] = latency{name: "binding.first", distribution: distribution{hist: first}, across: true,
		na: NANoSamples}
	all := warningsOf(m, nil)
	for i, part := range []string{"1 publish samples", "did not include all nodes", "1 binding samples",
		"configured are"} {
		if i >= len(all) || !strings.Contains(all[i], part) {
			t.Errorf("warning %d: want %q in it, got %q", i, part, all)
		}
	}
	if strings.Contains(strings.Join(all, "\n"), "negative") {
		t.Errorf("warnings: got %q, want none about negative samples", all)
	}
}
