package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// Reasons for no recovery time.
const (
	naNoFaults     = "no faults"
	naNotRecovered = "not recovered"
	naOwnerMissing = "unknown for some publishers or consumers"
	naNothingDue   = "no message was in flight when a fault ended, and none was sent after it"
)

// outage is a time in which no owner had a confirm (or delivery) although at least one waited. open means that none
// came afterwards.
type outage struct {
	from, to int64 // ns since T0
	open     bool
}

// outages returns the times that gaps of all owners have in common, in order of time. An outage begins when the last
// owner had its last event and at least one owner waited. It ends with the next event of any owner.
func outages(gaps []record.Gap, owners int) []outage {
	const end, begin = 0, 1 // an end sorts before a beginning at the same time: an event came between
	type edge struct {
		at   int64
		kind int
		gap  record.Gap
	}
	var edges []edge
	for _, g := range gaps {
		if g.To > g.From {
			edges = append(edges, edge{g.From, begin, g}, edge{g.To, end, g})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), a.kind-b.kind) })
	in := map[int]record.Gap{} // by owner
	var out []outage
	var since int64
	for _, e := range edges {
		if e.kind == begin {
			if in[e.gap.Owner] = e.gap; len(in) == owners {
				since = e.at
			}
			continue
		}
		if len(in) == owners {
			s := outage{from: e.at, to: e.at, open: e.gap.Open}
			for _, g := range in {
				s.from = min(s.from, max(since, g.Waited))
			}
			if s.to > s.from {
				out = append(out, s)
			}
		}
		delete(in, e.gap.Owner)
	}
	return out
}

// gapValues are the longest outage of one kind in the measurement, and the longest recovery time of a fault. Times of
// different clocks are corrected, and have a bound.
type gapValues struct {
	longest, recovery plan.Value
	clocksKnown       bool
}

// gapsOf returns the outages of confirms and those of deliveries.
func gapsOf(in *input, known map[string]track) map[string]gapValues {
	minConfirm, minDelivery := in.workload.MinGap()
	accounting, p, c := in.accounting(), in.workload.Publishers, in.workload.Consumers
	confirms := gapKind{kind: record.GapConfirm, owners: p.Nodes * p.Threads, minLength: minConfirm, span: in.span.sending,
		last: func(l record.Last) int64 { return l.Confirm }, missing: accounting.Unconfirmed}
	deliveries := gapKind{kind: record.GapDelivery, owners: in.subscriptions * c.Nodes * c.Threads, minLength: minDelivery,
		span: in.span.receiving,
		last: func(l record.Last) int64 { return l.Delivery }, missing: accounting.Missing}
	return map[string]gapValues{confirms.kind: confirms.values(in, known),
		deliveries.kind: deliveries.values(in, known)}
}

// gapKind describes the gaps of one kind.
type gapKind struct {
	kind      string
	owners    int
	minLength time.Duration // minimum length of recorded gaps
	span      time.Duration
	last      func(record.Last) int64 // time of the last event
	missing   uint64                  // expected messages that did not come
}

func (k gapKind) values(in *input, known map[string]track) gapValues {
	var own []record.Gap
	ended, agents := map[int]bool{}, map[string]bool{}
	for _, e := range in.record.Events() {
		if e.Kind == record.EventFault {
			agents[e.Agent] = true
		}
	}
	for _, g := range in.record.Gaps() {
		if g.Kind == k.kind {
			own = append(own, g)
			agents[g.Agent] = true
			ended[g.Owner] = ended[g.Owner] || g.Open
			k.minLength = max(k.minLength, time.Duration(g.Min)) // the largest minimum limits what can be seen
		}
	}
	switch {
	case len(own) == 0:
		return gapValues{longest: plan.Value{NA: NANotMeasured}, recovery: plan.Value{NA: NANotMeasured}}
	case len(ended) < k.owners:
		return gapValues{longest: plan.Value{NA: naOwnerMissing}, recovery: plan.Value{NA: naOwnerMissing}}
	}
	clocks := commonOf(in, known, agents, int64(k.span)/2)
	for i, g := range own {
		own[i].From, own[i].To, own[i].Waited = clocks.time(g.Agent, g.From), clocks.time(g.Agent, g.To),
			clocks.time(g.Agent, g.Waited)
	}
	all := outages(own, k.owners)
	last := int64(math.MinInt64) // time of the last event, if none is missing
	for agent, l := range in.record.LastOfEach() {
		if at := k.last(l); at != 0 {
			last = max(last, clocks.time(agent, at))
		}
	}
	if k.missing > 0 || in.record.Total(record.PublishErrors) > 0 {
		last = math.MaxInt64
	}
	return gapValues{longest: k.value(longestWithin(all, 0, int64(k.span)), clocks),
		recovery: k.recovery(in, all, last, clocks), clocksKnown: clocks.known}
}

// value returns the length of an outage. If it is below the minimum of recorded gaps, only that upper bound is known.
// Its bound is the error of the clocks at its ends.
func (k gapKind) value(o outage, clocks common) plan.Value {
	if time.Duration(o.to-o.from) < k.minLength {
		return plan.Value{NA: fmt.Sprintf("< %g ms", float64(k.minLength)/1e6)}
	}
	return plan.Value{Number: time.Duration(o.to - o.from).Seconds(),
		Bound: max(clocks.bound(o.from), clocks.bound(o.to)).Seconds()}
}

// longestWithin returns the longest part of an outage between two times.
func longestWithin(all []outage, from, to int64) (longest outage) {
	for _, o := range all {
		o.from, o.to = max(o.from, from), min(o.to, to)
		if o.to-o.from > longest.to-longest.from {
			longest = o
		}
	}
	return longest
}

// recovery returns the longest time from the end of a fault to the next event. If the last event came before the end of
// a fault, there was nothing to recover. This happens when publishers have sent their count or disconnected.
func (k gapKind) recovery(in *input, all []outage, last int64, clocks common) plan.Value {
	if len(in.workload.Faults) == 0 {
		return plan.Value{NA: naNoFaults}
	}
	var longest outage
	for _, f := range in.workload.Faults {
		end, happened := endOf(in.record, f, clocks)
		if !happened {
			return plan.Value{NA: NANotMeasured}
		}
		if last < end {
			return plan.Value{NA: naNothingDue}
		}
		for _, o := range all {
			if o.from > end || o.to <= end {
				continue
			}
			if o.open {
				return plan.Value{NA: naNotRecovered}
			}
			if o.to-end > longest.to-longest.from {
				longest = outage{from: end, to: o.to}
			}
		}
	}
	return k.value(longest, clocks)
}

// endOf returns when a fault was undone by the last of the agents that injected it.
func endOf(m *record.Merged, f plan.Fault, clocks common) (end int64, happened bool) {
	for _, e := range m.Events() {
		if e.Kind == record.EventFault && f.Matches(e.Detail) {
			end, happened = max(end, clocks.time(e.Agent, e.At+e.Nanos)), true
		}
	}
	return end, happened
}

// startDelay returns how much later than planned a fault began, and the agent on which it was latest.
func startDelay(m *record.Merged, f plan.Fault) (late time.Duration, agent string, happened bool) {
	for _, e := range m.Events() {
		if e.Kind == record.EventFault && f.Matches(e.Detail) {
			if by := time.Duration(e.At) - f.At.D(); !happened || by > late {
				late, agent = by, e.Agent
			}
			happened = true
		}
	}
	return late, agent, happened
}
