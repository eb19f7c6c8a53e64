package judge

import (
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// Reasons why the number of messages lost through new bindings is not known.
const (
	naLossAgentLost = "unknown: an agent was lost"
	naLossDrainCut  = "unknown: the drain ended by its timeout"
)

// bindingNames are the latencies of bindings, in the order of their warnings.
var bindingNames = []string{"binding", "binding.first", "binding.message"}

// bindingLatenciesOf returns the latencies of bindings whose call, and of messages whose send, was inside the
// measurement. If another agent had the first delivery of a binding, the first delivery on this agent counts as a
// further message.
func bindingLatenciesOf(in *input) map[string]latency {
	if !in.churns() {
		return nil
	}
	first, further := record.NewHist(), record.NewHist()
	measured := func(at int64) bool { return at >= 0 && at < int64(in.workload.Measure.D()) }
	one, others := in.record.BindingDeliveries()
	for _, r := range one {
		if measured(r.Called) {
			first.Record(r.At - r.Called)
		}
	}
	for _, r := range others {
		if measured(r.Sent) {
			further.Record(r.At - r.Sent)
		}
	}
	further.Merge(in.hists[record.BindingMessage])
	of := func(h *record.Hist, across bool) latency {
		l := latency{distribution: distribution{hist: h}, across: across}
		if h.Count() == 0 {
			l.na = NANoSamples
		}
		return l
	}
	return map[string]latency{"binding": of(in.hists[record.Binding], false), "binding.first": of(first, true),
		"binding.message": of(further, true)}
}

// bindingsLost returns the number of messages lost through new bindings, by the rules of the ledger.
func bindingsLost(m *measurements) plan.Value {
	switch {
	case m.in.degraded():
		return plan.Value{NA: naLossAgentLost}
	case m.in.drainCut():
		return plan.Value{NA: naLossDrainCut}
	}
	return plan.Value{Number: float64(m.bindings.Missing)}
}
