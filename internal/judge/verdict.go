package judge

import (
	"fmt"
	"slices"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// ledgerOf is the account of a task's messages. Messages that a subscription did not get are, in this order:
//
//   - unknown, when an agent was lost: a lost consumer may have had them, and what a lost publisher sent after its last
//     snapshot is not even known to be missing, so that the number is the least;
//   - undrained, when the drain did not run until silence: cut by its limit, or the task failed or was cancelled;
//   - lost. What was returned or rejected is not missing.
func ledgerOf(in *input) plan.Ledger {
	t := in.accounting()
	l := plan.Ledger{
		Sent: t.Sent, Uncertain: t.Uncertain, Confirmed: t.Confirmed, Rejected: t.Rejected, Unroutable: t.Returned,
		Corrupt: t.Corrupt, Foreign: t.Foreign,
	}
	if Confirmed(in.workload.Publishers.Mode) {
		l.Unconfirmed = t.Unconfirmed
	}
	if in.subscriptions > 0 {
		l.Received, l.Duplicated, l.Reordered = t.Received, t.Duplicated, t.Reordered
		switch {
		case in.degraded():
			l.Unknown = t.Missing
		case in.drainCut():
			l.Undrained = t.Missing
		default:
			l.Lost, l.LostConfirmed = t.Missing, t.MissingConfirmed
		}
	}
	return l
}

// verdictOf decides whether the numbers may be used. A broken guarantee is proven whatever else happened, so invalid
// goes before unknown.
func verdictOf(in *input, l plan.Ledger) (plan.Verdict, []string) {
	broken, unknown := brokenGuarantees(in, l), unknownReasons(in, l)
	reasons := append(broken, unknown...)
	switch {
	case len(broken) > 0:
		return plan.Invalid, reasons
	case len(unknown) > 0:
		return plan.Unknown, reasons
	}
	return plan.Valid, reasons
}

// brokenGuarantees lists the guarantees that were broken. A link that broke, or an agent that was lost with its links,
// excuses what a guarantee does not cover then.
func brokenGuarantees(in *input, l plan.Ledger) []string {
	p := in.task.Cell.Guarantees
	whole := !in.linkBroke() && !in.degraded()
	// what is in memory alone ends with its process
	kept := in.workload.Publishers.Persistent || !slices.ContainsFunc(in.workload.Faults, plan.Fault.Ends)
	var reasons []string
	if p.ConfirmedKept && l.LostConfirmed > 0 && kept {
		reasons = append(reasons, fmt.Sprintf("broken guarantee: %s that the broker had confirmed %s lost",
			messages(l.LostConfirmed), was(l.LostConfirmed)))
	}
	if p.SentKept && l.Lost > 0 && whole {
		reasons = append(reasons, fmt.Sprintf("broken guarantee: %s %s lost although no link broke", messages(l.Lost),
			was(l.Lost)))
	}
	// what one that left had and did not acknowledge comes again
	left := in.workload.Consumers.Lifetime != plan.Lifetime{}
	if p.NoDuplicates && l.Duplicated > 0 && whole && !left {
		reasons = append(reasons, fmt.Sprintf("broken guarantee: %s received again although no link broke",
			messagesWere(l.Duplicated)))
	}
	if p.Ordered && l.Reordered > 0 && !in.unmarkedRedeliveries() {
		reasons = append(reasons, fmt.Sprintf("broken guarantee: %s received after a later one",
			messagesWere(l.Reordered)))
	}
	if l.Corrupt > 0 {
		reasons = append(reasons, fmt.Sprintf("%s received corrupt: the envelope did not verify",
			messagesWere(l.Corrupt)))
	}
	return reasons
}

// unmarkedRedeliveries reports whether messages that were received after later ones may have been with a consumer that
// left before it took them: they go to others of its queue then, and are no redeliveries to a broker that marks none.
func (in *input) unmarkedRedeliveries() bool {
	c := in.workload.Consumers
	return c.Lifetime != plan.Lifetime{} && c.Nodes*c.Threads > in.workload.Topology.Queues &&
		in.record.Total(record.Redelivered) == 0
}

// linkBroke reports whether any link broke, whether it was opened again or never.
func (in *input) linkBroke() bool {
	return in.record.Total(record.Reconnects) > 0 || slices.ContainsFunc(in.workload.Faults, plan.Fault.BreaksLinks) ||
		slices.ContainsFunc(in.record.Events(), func(e record.Event) bool {
			return e.Kind == eventClosed || e.Kind == record.EventGap
		})
}

// unknownReasons lists why there is no usable number.
func unknownReasons(in *input, l plan.Ledger) []string {
	var reasons []string
	for _, a := range in.facts.Agents {
		if a.Lost {
			how := "lost"
			if a.Left {
				how = "left"
			}
			reason := fmt.Sprintf("agent %s %s in phase %s", a.Agent, how, a.Phase)
			if n := l.Unknown; n > 0 {
				reason += fmt.Sprintf("; at least %s unknown", messages(n))
			}
			reasons = append(reasons, reason)
		}
	}
	if in.facts.Failure != "" {
		reasons = append(reasons, "the task failed: "+in.facts.Failure)
	}
	if in.facts.Cancelled {
		reasons = append(reasons, "the task was cancelled")
	}
	for _, f := range in.workload.Faults {
		if _, happened := endOf(in.record, f, common{}); !happened && in.facts.Failure == "" && !in.facts.Cancelled {
			reasons = append(reasons, fmt.Sprintf("the fault %s did not happen", f))
		}
	}
	if len(reasons) == 0 {
		reasons = strandedLinks(in)
	}
	if len(reasons) == 0 && (in.sent == 0 || in.span.sending <= 0) {
		reasons = append(reasons, "nothing was sent in the measurement")
	}
	return reasons
}

// strandedLinks lists who lost a link in the measurement for good, though no fault of the cell's breaks links: fewer
// took part than the cell asks for. The last of the measurement does not count.
func strandedLinks(in *input) (reasons []string) {
	if slices.ContainsFunc(in.workload.Faults, plan.Fault.BreaksLinks) {
		return nil
	}
	measured := in.span.length()
	for _, e := range in.record.Events() {
		missed := time.Duration(min(e.At+e.Nanos, int64(measured)) - max(e.At, 0))
		if e.Kind == record.EventGap && e.Lasting && missed > time.Duration(Tolerance*float64(measured)) {
			reasons = append(reasons, fmt.Sprintf("a link was gone for the last %v of the measurement: agent %s, %s",
				missed.Round(time.Millisecond), e.Agent, e.Detail))
		}
	}
	const most = 3
	if n := len(reasons) - most; n > 0 {
		reasons = append(reasons[:most], fmt.Sprintf("and %d more links", n))
	}
	return reasons
}
