package judge

import (
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// measurements are the quantities of a record from which values, flags, warnings and the verdict are computed.
type measurements struct {
	in          *input
	ledger      plan.Ledger
	keepsUp     bool               // consumers kept up with publishers
	latencies   map[string]latency // by the prefix of value names: "publish"
	bindings    record.BindingAccounting
	backlog     backlog              // zero without consumers
	drain       drained              // of a backlog that the cell builds on purpose
	gaps        map[string]gapValues // by kind
	broker      brokerMetrics
	clocks      clockComparison
	starts      starts
	limitations []plan.Limitation
	drifts      []drift
}

func measure(in *input) *measurements {
	clocks := tracksOf(in)
	m := &measurements{in: in, ledger: ledgerOf(in), bindings: in.record.Bindings(), gaps: gapsOf(in, clocks),
		broker: brokerMetricsOf(in), clocks: compareClocks(in, clocks), starts: startsOf(in, clocks),
		limitations: limitationsOf(in), drifts: driftsOf(in)}
	if in.subscriptions > 0 && in.publishes() {
		load := perSecond(in)
		m.keepsUp = !builds(in.workload.Consumers) && keepsUp(in, load)
		m.backlog = backlogOf(in, load)
		if builds(in.workload.Consumers) {
			m.drain = m.backlog.drainOf(in, m.ledger.Lost)
		}
	}
	m.latencies = latenciesOf(in, m.keepsUp, m.clocks)
	return m
}
