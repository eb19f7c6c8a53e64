package judge

import (
	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// measurements are the quantities of a record that values, flags, warnings and the verdict are made of.
type measurements struct {
	in               *input
	ledger           plan.Ledger
	keepsUp          bool               // consumers kept up with publishers
	latencies        map[string]latency // by the first part of the names of values, as "send"
	bindingLatencies map[string]latency
	bindings         record.BindingAccounting
	backlog          backlog              // of no seconds without consumers
	drain            drained              // of a backlog that was built
	gaps             map[string]gapValues // by kind
	broker           brokerMetrics
	clocks           clockComparison
	starts           starts
	limitations      []plan.Limitation
	drifts           []drift
}

func measure(in *input) *measurements {
	clocks := tracksOf(in)
	m := &measurements{in: in, ledger: ledgerOf(in), bindingLatencies: bindingLatenciesOf(in),
		bindings: in.record.Bindings(), gaps: gapsOf(in, clocks),
		broker: brokerMetricsOf(in), clocks: compareClocks(in, clocks), starts: startsOf(in, clocks),
		limitations: limitationsOf(in), drifts: driftsOf(in)}
	if in.subscriptions > 0 {
		load := perSecond(in)
		m.keepsUp = !builds(in.workload.Consumers) && keepsUp(in, load)
		m.backlog = backlogOf(in, load)
		if builds(in.workload.Consumers) {
			m.drain = m.backlog.drainOf(in, m.ledger.Lost)
		}
	}
	m.latencies = latenciesOf(in, m.keepsUp)
	return m
}
