// Package judge computes the outcome of a task from its record: values, delivery accounting, flags and the verdict. It
// is deterministic: it reads no clock and no file.
//
// No stage changes the result of an earlier one:
//
//	newInput   the record, the facts and the times of the measurement
//	measure    every quantity that later stages need
//	values     one function per value (the tables in values.go and latency.go)
//	flags      one condition per flag (the table in flags.go)
//	warnings, verdict
package judge

import (
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// Reasons for no number. Reports distinguish impossible values (a dash) from missing ones.
const (
	NAFireAndForget = "fire-and-forget"
	NANoConfirms    = "no confirms"
	NAClosedLoop    = "closed loop"
	NANoConsumers   = "no consumers"
	NANoPublishers  = "no publishers"
	NABacklog       = "backlog"
	NANoSamples     = "no samples"
	NAFewSamples    = "too few samples"
	NANotMeasured   = "not measured"
	NAApart         = "an agent sent its messages within its first second, and others later"
	NANoProcess     = "no process of the broker on a host of an agent"
	NANotObserved   = "an observer of the broker was lost"
	NANotFound      = "the broker's processes were not found by its observer"
	NANotReported   = "not reported by the broker"
	NANoChurn       = "no churn of bindings"
	NAUndrained     = "undrained"
	NANoSearch      = "no search for capacity"
	NANoNetwork     = "no simulated network, or no traffic through it"

	// of the number of messages lost through new bindings
	naLossAgentLost = "unknown: an agent was lost"
	naLossDrainCut  = "unknown: the drain ended by its timeout"
)

// Judge returns the outcome of a task: values, delivery accounting, flags, verdict. It is deterministic. It rebases the
// record m if the measurement did not begin at T0.
func Judge(t plan.Task, m *record.Merged, f Facts) plan.Outcome {
	cut := Cut(t.Cell.Workload, m)
	m.Rebase(cut)
	var o plan.Outcome
	if len(t.Cell.Workload.Groups) > 0 {
		o = judgeGroups(t, m, f, cut)
	} else {
		o = evaluate(newInput(t, m, f, cut, nil))
	}
	for _, e := range f.Events {
		if e.Kind == eventTakenOver || e.Kind == EventNotObserved {
			o.Warnings = append(o.Warnings, e.Detail)
		}
	}
	return o
}

// Again judges a task again, from its record and the facts in its outcome. The record of a search is that of its last
// step.
func Again(t plan.Task, m *record.Merged, o plan.Outcome) plan.Outcome {
	facts := FactsOf(o, m)
	var again plan.Outcome
	if s := o.Search; s != nil && len(s.Steps) > 0 {
		last := s.Steps[len(s.Steps)-1]
		again = Searched(t, Judge(t.Step(last.Rate, last.Measure), m, facts), *s)
	} else {
		again = Judge(t, m, facts)
	}
	again.Attempt, again.FailedAttempts = o.Attempt, o.FailedAttempts
	return again
}

// evaluate returns the outcome of a task without groups, or of one group.
func evaluate(in *input) plan.Outcome {
	m := measure(in)
	values := valuesOf(m)
	o := plan.Outcome{
		Version: plan.RecordFormat, Run: in.task.Run, Task: in.task.ID, Cell: in.task.Cell.ID,
		Index: in.task.Cell.Index, Repetition: in.task.Repetition,
		Values: withFlags(m, values), Ledger: m.ledger, Agents: m.starts.agents, Subject: in.facts.Subject,
		Events:  allEvents(in.record, in.facts),
		Started: in.facts.Started, Ended: in.facts.Ended, Measured: plan.Duration(in.overlap.length),
		Cut:         plan.Duration(in.cut),
		Limitations: m.limitations, Clocks: m.clocks.pairs, Warnings: warningsOf(m, values), Attempt: 1,
		Failure: in.facts.Kind,
	}
	o.Verdict, o.Reasons = verdictOf(in, m.ledger)
	return o
}

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
		m.keepsUp = !builds(in.workload.Consumers) && keepsUp(in, distinct(in, m.ledger, load))
		m.backlog = backlogOf(in, load)
		if builds(in.workload.Consumers) {
			from, to := in.workload.Consumers.Lifetime.ConnectAt.D().Seconds(), in.span.sending.Seconds()
			m.drain = m.backlog.drain(from, to, in.inFlight())
			m.drain.emptiedOrLost = m.backlog.drain(from, to, in.inFlight()+float64(m.ledger.Lost)).emptied
		}
	}
	m.latencies = latenciesOf(in, m.keepsUp, m.clocks)
	return m
}

// latencyOf returns the latency of which a value is a quantile.
func (m *measurements) latencyOf(name string) (l latency, is bool) {
	stem, _, _, _ := plan.SplitQuantile(name)
	l, is = m.latencies[stem]
	return l, is
}
