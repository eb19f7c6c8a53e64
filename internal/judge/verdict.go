package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// account fills the ledger. Messages that a subscription did not get are, in this order:
//
//   - unknown, when an agent was lost: a lost consumer may have had them, and what a lost publisher sent after its last snapshot is
//     not even known to be missing, so that the number is the least;
//   - undrained, when the drain did not run until silence: cut by its limit, or the task failed or was cancelled;
//   - lost. What was returned or rejected is not missing.
func (j *judge) account() {
	t := j.tally
	l := plan.Ledger{
		Sent: t.Sent, Uncertain: t.Uncertain, Confirmed: t.Confirmed, Rejected: t.Rejected, Unroutable: t.Returned,
		Corrupt: t.Corrupt, Foreign: t.Foreign,
	}
	if Confirmed(j.w.Publishers.Mode) {
		l.Unconfirmed = t.Unconfirmed
	}
	if j.subs > 0 {
		l.Received, l.Duplicated, l.Reordered = t.Received, t.Duplicated, t.Reordered
		switch {
		case j.degraded():
			l.Unknown = t.Missing
		case j.cut():
			l.Undrained = t.Missing
		default:
			l.Lost, l.LostConfirmed = t.Missing, t.MissingConfirmed
		}
	}
	j.out.Ledger = l
}

// cut tells whether the drain ended before silence.
func (j *judge) cut() bool { return j.f.DrainCut || j.f.Failure != "" || j.f.Cancelled }

// degraded tells whether only some of the agents are in the record.
func (j *judge) degraded() bool {
	return slices.ContainsFunc(j.f.Agents, func(a plan.AgentPart) bool { return a.Lost })
}

// verdict decides whether the numbers may be used. A broken promise is proven whatever else happened, so invalid goes before unknown.
func (j *judge) verdict() {
	broken, unknown := j.broken(), j.unknown()
	j.out.Reasons = append(broken, unknown...)
	switch {
	case len(broken) > 0:
		j.out.Verdict = plan.Invalid
	case len(unknown) > 0:
		j.out.Verdict = plan.Unknown
	default:
		j.out.Verdict = plan.Valid
	}
	j.remarks()
}

// broken lists the promises that were broken. A link that broke, or an agent that was lost with its links, excuses what a
// promise does not cover then.
func (j *judge) broken() []string {
	p, l := j.task.Cell.Promises, j.out.Ledger
	whole := !j.linkBroke() && !j.degraded()
	kept := j.w.Publishers.Persistent || !slices.ContainsFunc(j.w.Faults, plan.Fault.Ends) // what is in memory alone ends with its process
	var reasons []string
	if p.ConfirmedKept && l.LostConfirmed > 0 && kept {
		reasons = append(reasons, fmt.Sprintf("broken promise: %s that the broker had confirmed %s lost", messages(l.LostConfirmed), was(l.LostConfirmed)))
	}
	if p.SentKept && l.Lost > 0 && whole {
		reasons = append(reasons, fmt.Sprintf("broken promise: %s %s lost although no link broke", messages(l.Lost), was(l.Lost)))
	}
	left := j.w.Consumers.Presence != plan.Presence{} // what one that left had and did not acknowledge comes again
	if p.NoDuplicates && l.Duplicated > 0 && whole && !left {
		reasons = append(reasons, fmt.Sprintf("broken promise: %s received again although no link broke", messagesWere(l.Duplicated)))
	}
	if p.Ordered && l.Reordered > 0 && !j.unmarked() {
		reasons = append(reasons, fmt.Sprintf("broken promise: %s received after a later one", messagesWere(l.Reordered)))
	}
	if l.Corrupt > 0 {
		reasons = append(reasons, fmt.Sprintf("%s received corrupt: the envelope did not verify", messagesWere(l.Corrupt)))
	}
	return reasons
}

// unmarked tells whether messages that were received after later ones may have been with a consumer that left before it took them: they go to others of its
// queue then, and are no redeliveries to a broker that marks none.
func (j *judge) unmarked() bool {
	c := j.w.Consumers
	return c.Presence != plan.Presence{} && c.Nodes*c.Threads > j.w.Topology.Queues && j.m.Total(record.Redelivered) == 0
}

// linkBroke tells whether any link broke, whether it was opened again or never.
func (j *judge) linkBroke() bool {
	return j.m.Total(record.Reconnects) > 0 || slices.ContainsFunc(j.w.Faults, plan.Fault.BreaksLinks) || slices.ContainsFunc(j.m.Events(), func(e record.Event) bool {
		return e.Kind == eventClosed || e.Kind == record.EventGap
	})
}

// brokenLinks is how many links broke, without those of one message only.
func (j *judge) brokenLinks() (n int64) {
	for _, e := range j.m.Events() {
		if e.Kind == record.EventGap {
			n++
		}
	}
	return n
}

// unknown lists why there is no usable number.
func (j *judge) unknown() []string {
	var reasons []string
	for _, a := range j.f.Agents {
		if a.Lost {
			how := "lost"
			if a.Left {
				how = "left"
			}
			reason := fmt.Sprintf("agent %s %s in phase %s", a.Agent, how, a.Phase)
			if n := j.out.Ledger.Unknown; n > 0 {
				reason += fmt.Sprintf("; at least %s unknown", messages(n))
			}
			reasons = append(reasons, reason)
		}
	}
	if j.f.Failure != "" {
		reasons = append(reasons, "the task failed: "+j.f.Failure)
	}
	if j.f.Cancelled {
		reasons = append(reasons, "the task was cancelled")
	}
	for _, f := range j.missed() {
		if j.f.Failure == "" && !j.f.Cancelled {
			reasons = append(reasons, fmt.Sprintf("the fault %s did not happen", f))
		}
	}
	if len(reasons) == 0 {
		reasons = j.stranded()
	}
	if len(reasons) == 0 && (j.counted(record.Sent) == 0 || j.span.sending <= 0) {
		reasons = append(reasons, "nothing was sent in the measurement")
	}
	return reasons
}

// stranded lists who lost a link in the measurement for good, though no fault of the cell's breaks links: fewer took part than the cell asks for. The last of
// the measurement does not count.
func (j *judge) stranded() (reasons []string) {
	if slices.ContainsFunc(j.w.Faults, plan.Fault.BreaksLinks) {
		return nil
	}
	measured := max(j.span.sending, j.span.receiving)
	for _, e := range j.m.Events() {
		missed := time.Duration(min(e.At+e.Nanos, int64(measured)) - max(e.At, 0))
		if e.Kind == record.EventGap && e.Lasting && missed > time.Duration(Tolerance*float64(measured)) {
			reasons = append(reasons, fmt.Sprintf("a link was gone for the last %v of the measurement: agent %s, %s", missed.Round(time.Millisecond), e.Agent, e.Detail))
		}
	}
	const most = 3
	if n := len(reasons) - most; n > 0 {
		reasons = append(reasons[:most], fmt.Sprintf("and %d more links", n))
	}
	return reasons
}

// remarks are warnings about what did not decide the verdict.
func (j *judge) remarks() {
	l := j.out.Ledger
	if l.Foreign > 0 {
		j.warn("%s of another task %s received: something else uses the same queues", messages(l.Foreign), was(l.Foreign))
	}
	if l.Uncertain > 0 {
		j.warn("%s may or may not have gone out: the call to publish failed", messages(l.Uncertain))
	}
	if l.Unconfirmed > 0 {
		j.warn("%d of %s %s never confirmed", l.Unconfirmed, messages(l.Sent), was(l.Unconfirmed))
	}
	if l.Rejected > 0 {
		j.warn("%d of %s %s refused by the broker", l.Rejected, messages(l.Sent), was(l.Rejected))
	}
	if j.task.Cell.Promises.Ordered && l.Reordered > 0 && j.unmarked() {
		j.warn("%s received after a later one: consumers left, and the broker does not say whether that is what they had not taken", messagesWere(l.Reordered))
	}
	j.shortfall()
	if n := uint64(j.m.Total(record.Reconnects)); n > 0 {
		j.warn("links broke and were opened again %d times; see the events", n)
	}
	if n := j.brokenLinks() - j.m.Total(record.Reconnects); n > 0 {
		j.warn("links that broke and were not opened again: %d; see the events", n)
	}
	if l.Undrained > 0 && j.f.DrainCut {
		j.warn("the drain was cut by its limit of %v with %s still missing", j.w.Drain.Most, messages(l.Undrained))
	}
	for _, a := range j.f.Agents {
		if a.Error != "" && !strings.Contains(j.f.Failure, a.Error) {
			j.warn("agent %s in phase %s: %s", a.Agent, a.Phase, a.Error)
		}
	}
}

func messages(n uint64) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}

func was(n uint64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

func messagesWere(n uint64) string { return messages(n) + " " + was(n) }
