package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// Why there is no time to recover.
const (
	naNoFaults     = "no faults"
	naNotRecovered = "not recovered"
	naOwnerMissing = "not known of every publisher and consumer"
	naNothingDue   = "nothing was under way when a fault ended, or sent after it"
)

// stretch is a time in which no owner at all saw anything of a kind, though one of them waited all along. Open: nothing came after it.
type stretch struct {
	from, to int64 // ns since T0
	open     bool
}

// stretches finds what the gaps of so many owners have in common, by time. It begins when the last of them saw something and one of them waited, and
// ends with the next that any of them sees.
func stretches(gaps []record.Gap, owners int) []stretch {
	type edge struct {
		at    int64
		begin bool
		gap   record.Gap
	}
	var edges []edge
	for _, g := range gaps {
		if g.To > g.From {
			edges = append(edges, edge{g.From, true, g}, edge{g.To, false, g})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { // what ends at a time goes before what begins then: something came between
		if c := cmp.Compare(a.at, b.at); c != 0 || a.begin == b.begin {
			return c
		}
		if b.begin {
			return -1
		}
		return 1
	})
	in := map[int]record.Gap{} // by owner
	var out []stretch
	var since int64
	for _, e := range edges {
		if e.begin {
			if in[e.gap.Owner] = e.gap; len(in) == owners {
				since = e.at
			}
			continue
		}
		if len(in) == owners {
			s := stretch{from: e.at, to: e.at, open: e.gap.Open}
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

// gaps sets the longest times inside the measurement in which nothing was confirmed, and nothing received, by anybody; and how long it took from the
// end of a fault, the slowest of several, until something was. Times of different clocks are corrected, and have a bound; they are clock-unsafe if the clocks
// are not known.
func (j *judge) gaps() {
	minConfirm, minReceipt := j.w.LeastGap()
	for _, k := range []struct {
		kind    string
		owners  int
		least   time.Duration
		span    time.Duration
		last    func(record.Last) int64 // of what came
		missing uint64                  // that did not come
		why     string
	}{
		{record.GapConfirm, j.w.Publishers.Nodes * j.w.Publishers.Threads, minConfirm, j.span.sending, func(l record.Last) int64 { return l.Confirm }, j.tally.Unconfirmed,
			unconfirmedReason(j.w.Publishers.Mode)},
		{record.GapReceipt, j.subs * j.w.Consumers.Nodes * j.w.Consumers.Threads, minReceipt, j.span.receiving, func(l record.Last) int64 { return l.Receipt }, j.tally.Missing, ""},
	} {
		var own []record.Gap
		ended, least, agents := map[int]bool{}, k.least, map[string]bool{}
		for _, e := range j.m.Events() {
			if e.Kind == record.EventFault {
				agents[e.Agent] = true
			}
		}
		for _, g := range j.m.Gaps() {
			if g.Kind == k.kind {
				own = append(own, g)
				agents[g.Agent] = true
				ended[g.Owner] = ended[g.Owner] || g.Open
				least = max(least, time.Duration(g.Least)) // a stretch is of all owners: that of the one who kept least
			}
		}
		why := k.why
		switch {
		case k.kind == record.GapReceipt && j.subs == 0:
			why = NANoConsumers
		case why == "" && len(own) == 0:
			why = NANotMeasured
		case why == "" && len(ended) < k.owners:
			why = naOwnerMissing
		}
		if why != "" {
			j.na("gap."+k.kind, why)
			j.na("recovery."+k.kind, why)
			continue
		}
		clocks := j.common(agents, int64(k.span)/2)
		for i, g := range own {
			own[i].From, own[i].To, own[i].Waited = clocks.time(g.Agent, g.From), clocks.time(g.Agent, g.To), clocks.time(g.Agent, g.Waited)
		}
		all := stretches(own, k.owners)
		j.between("gap."+k.kind, longestWithin(all, 0, int64(k.span)), least, clocks)
		last := int64(math.MinInt64) // of what came, if all that was to come did
		for agent, l := range j.m.LastOfEach() {
			if at := k.last(l); at != 0 {
				last = max(last, clocks.time(agent, at))
			}
		}
		if k.missing > 0 || j.m.Total(record.PublishErrors) > 0 {
			last = math.MaxInt64
		}
		j.recovery("recovery."+k.kind, all, least, last, clocks)
	}
}

// between sets the length of a stretch; one below what is kept is only known to be shorter than that. It is as wrong as
// the clocks can be at its ends.
func (j *judge) between(name string, s stretch, least time.Duration, clocks common) {
	v := plan.Value{Number: time.Duration(s.to - s.from).Seconds(), Bound: max(clocks.bound(s.from), clocks.bound(s.to)).Seconds()}
	if !clocks.known {
		v.Flags = []plan.Flag{plan.ClockUnsafe}
	}
	if time.Duration(s.to-s.from) < least {
		v = plan.Value{NA: fmt.Sprintf("< %g ms", float64(least)/1e6)}
	}
	j.out.Values[name] = v
}

// longestWithin is the longest of stretches between two times.
func longestWithin(all []stretch, from, to int64) (longest stretch) {
	for _, s := range all {
		s.from, s.to = max(s.from, from), min(s.to, to)
		if s.to-s.from > longest.to-longest.from {
			longest = s
		}
	}
	return longest
}

// recovery sets the longest time from the end of a fault to the next that came. Where all had come before, as when publishers had their count or had left,
// there was nothing to recover.
func (j *judge) recovery(name string, all []stretch, least time.Duration, last int64, clocks common) {
	if len(j.w.Faults) == 0 {
		j.na(name, naNoFaults)
		return
	}
	var longest stretch
	for _, f := range j.w.Faults {
		end, happened := j.endOf(f, clocks)
		if !happened {
			j.na(name, NANotMeasured)
			return
		}
		if last < end {
			j.na(name, naNothingDue)
			return
		}
		for _, s := range all {
			if s.from > end || s.to <= end {
				continue
			}
			if s.open {
				j.na(name, naNotRecovered)
				return
			}
			if s.to-end > longest.to-longest.from {
				longest = stretch{from: end, to: s.to}
			}
		}
	}
	j.between(name, longest, least, clocks)
}

// endOf is when a fault was undone, on the last of the agents that did it.
func (j *judge) endOf(f plan.Fault, clocks common) (end int64, happened bool) {
	for _, e := range j.m.Events() {
		if e.Kind == record.EventFault && f.Tells(e.Detail) {
			end, happened = max(end, clocks.time(e.Agent, e.At+e.Nanos)), true
		}
	}
	return end, happened
}

// missed lists the faults that were to be done and of which no agent tells.
func (j *judge) missed() (missed []plan.Fault) {
	for _, f := range j.w.Faults {
		if _, happened := j.endOf(f, common{}); !happened {
			missed = append(missed, f)
		}
	}
	return missed
}
