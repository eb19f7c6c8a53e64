package judge

import (
	"math"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// Reasons why the number of messages lost through new bindings is not known.
const (
	naLossAgentLost = "unknown: an agent was lost"
	naLossDrainCut  = "unknown: the drain ended by its timeout"
)

// bindingFirst stands for the first deliveries through bindings. The record has them one by one, not as a series.
const bindingFirst = record.Series(math.MaxUint8)

// addBindings adds the latencies of bindings whose call, and of messages whose send, was inside the measurement. If
// another agent had the first delivery of a binding, the first delivery on this agent counts as a further message.
func (in *input) addBindings() {
	first, further := record.NewHist(), in.hists[record.BindingMessage].Clone()
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
	in.hists[bindingFirst], in.hists[record.BindingMessage] = first, further
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
