package judge

import (
	"fmt"
	"slices"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// ledgerOf returns the delivery accounting of a task. Messages that a subscription did not receive are, in this order:
//
//   - unknown if an agent was lost. A lost consumer may have received them. Messages that a lost publisher sent after
//     its last snapshot are not counted, so the number is a minimum.
//   - undrained if the drain did not become idle: it reached its timeout, or the task failed or was cancelled.
//   - lost otherwise.
//
// Returned, rejected and dropped messages are not missing. Without publishers, every delivery is a received message.
func ledgerOf(in *input) plan.Ledger {
	t := in.accounting()
	l := plan.Ledger{
		Sent: t.Sent, Uncertain: t.Uncertain, Confirmed: t.Confirmed, Rejected: t.Rejected, Unroutable: t.Returned,
		Corrupt: t.Corrupt, Foreign: t.Foreign,
	}
	if in.workload.Publishers.Confirmed() {
		l.Unconfirmed = t.Unconfirmed
	}
	if !in.publishes() {
		l.Received = uint64(in.total(record.Unique))
	} else if in.subscriptions > 0 {
		l.Received, l.Dropped, l.Duplicated, l.Reordered = t.Received, t.Dropped, t.Duplicated, t.Reordered
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

// verdictOf returns the verdict and its reasons. Invalid precedes unknown: a broken guarantee is proven independent of
// other events.
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

// brokenGuarantees returns the guarantees that were broken. Guarantees that hold only while no link breaks are not
// checked if a link broke or an agent was lost.
func brokenGuarantees(in *input, l plan.Ledger) (reasons sentences) {
	p := in.task.Cell.Guarantees
	broke := in.republished() || in.record.Total(record.Reconnects) > 0 ||
		slices.ContainsFunc(in.workload.Faults, plan.Fault.BreaksLinks) ||
		slices.ContainsFunc(in.record.Events(), func(e record.Event) bool {
			return e.Kind == eventClosed || e.Kind == record.EventGap
		})
	whole := !broke && !in.degraded()
	// messages in memory are lost when their process ends
	kept := in.workload.Publishers.Persistent || !slices.ContainsFunc(in.workload.Faults, plan.Fault.Ends)
	if p.ConfirmedKept && l.LostConfirmed > 0 && kept {
		reasons.add("broken guarantee: %s that the broker had confirmed %s lost", messages(l.LostConfirmed),
			was(l.LostConfirmed))
	}
	if p.SentKept && l.Lost > 0 && whole {
		reasons.add("broken guarantee: %s lost although no link broke", messagesWere(l.Lost))
	}
	// messages that a disconnecting consumer did not acknowledge are delivered again
	left := in.workload.Consumers.Lifetime != plan.Lifetime{}
	if p.NoDuplicates && l.Duplicated > 0 && whole && !left {
		reasons.add("broken guarantee: %s received again although no link broke", messagesWere(l.Duplicated))
	}
	if p.Ordered && l.Reordered > 0 && !in.unmarkedRedeliveries() && !in.republished() {
		reasons.add("broken guarantee: %s received after a later one", messagesWere(l.Reordered))
	}
	if l.Corrupt > 0 {
		reasons.add("%s received corrupt: the envelope did not verify", messagesWere(l.Corrupt))
	}
	return reasons
}

// unknownReasons returns why there is no usable number; none if there is one.
func unknownReasons(in *input, l plan.Ledger) (reasons sentences) {
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
		reasons = append(reasons, TaskFailed+in.facts.Failure)
	}
	if in.facts.Cancelled {
		reasons = append(reasons, taskCancelled)
	}
	for _, f := range in.workload.Faults {
		late, agent, happened := startDelay(in.record, f)
		switch {
		case in.facts.Failure != "" || in.facts.Cancelled:
		case !happened:
			reasons.add("the fault %s did not happen", f)
		case f.At.D()+late >= in.workload.Measure.D():
			reasons.add("the fault %s began %v late on agent %s, after the measurement", f, late.Round(time.Millisecond), agent)
		}
	}
	if len(reasons) == 0 {
		reasons = strandedLinks(in)
	}
	if len(reasons) == 0 && (in.load == 0 || in.span.sending <= 0) {
		switch {
		case in.publishes():
			reasons = append(reasons, "nothing was sent in the measurement")
		case l.Received > 0:
			reasons = append(reasons, "all messages were received in warm-up: set warmup: \"0s\"")
		default:
			reasons = append(reasons, "the existing queues were empty: nothing was received")
		}
	}
	return reasons
}

// strandedLinks returns the links that were permanently lost in the measurement, unless a fault of the cell breaks
// links. The load was then smaller than configured. Losses for less than 2 % of the measurement do not count.
func strandedLinks(in *input) (reasons sentences) {
	if slices.ContainsFunc(in.workload.Faults, plan.Fault.BreaksLinks) {
		return nil
	}
	measured := in.span.length()
	for _, e := range in.record.Events() {
		missed := time.Duration(min(e.At+e.Nanos, int64(measured)) - max(e.At, 0))
		if e.Kind == record.EventGap && e.Lasting && missed > time.Duration(Tolerance*float64(measured)) {
			reasons.add("a link was missing during the last %v of the measurement: agent %s, %s",
				missed.Round(time.Millisecond), e.Agent, e.Detail)
		}
	}
	const maxLinks = 3
	if n := len(reasons) - maxLinks; n > 0 {
		reasons = append(reasons[:maxLinks], fmt.Sprintf("and %d more links", n))
	}
	return reasons
}
