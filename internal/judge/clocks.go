package judge

import (
	"cmp"
	"math"
	"slices"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// track is what is known of one clock against the reference, over a task.
type track struct {
	offsets []clock.Offset // by time; none: it is the reference
	// wrong is the most by which times that were corrected can have been off, either way, at any time from the
	// beginning of the measurement, ns.
	wrong int64
}

// at is what is known of the clock at a time. More than a second away from the nearest comparison it may have drifted
// by all that a kernel lets it.
func (t track) at(time int64) (nearest clock.Offset) {
	for i, o := range t.offsets {
		if i == 0 || max(o.At-time, time-o.At) < max(nearest.At-time, time-nearest.At) {
			nearest = o
		}
	}
	if away := max(nearest.At-time, time-nearest.At); away > 1e9 && nearest.Bound > 0 {
		nearest.Bound += int64(clock.MaxDrift * float64(away))
	}
	return nearest
}

// tracksOf finds what is known of each agent's clock. An agent without samples is not in it, unless its clock is the
// one that all others were compared with. Where agents were compared with several, as when another controller took
// over, nothing is known of any.
//
// Between two samples one correction was applied. How far off it can have been at either end is its difference from the
// best estimate there, with the bound of that, both in the light of all samples of the task. From the last sample on a
// clock may have drifted by all that a kernel lets it.
func tracksOf(in *input) map[string]track {
	compared := in.record.ClockSamples()
	reference := ""
	for _, samples := range compared {
		for _, s := range samples {
			if reference != "" && s.Reference != reference {
				return nil
			}
			reference = s.Reference
		}
	}
	known := map[string]track{}
	for agent, id := range in.record.Clocks() {
		if reference != "" && id == reference {
			known[agent] = track{}
		}
	}
	for _, a := range in.facts.Agents {
		if reference != "" && a.Clock == reference {
			known[a.Agent] = track{}
		}
	}
	for agent, samples := range compared {
		known[agent] = trackOf(in, samples)
	}
	return known
}

func trackOf(in *input, samples []record.ClockSample) track {
	offsets := make([]clock.Offset, len(samples))
	for i, s := range samples {
		offsets[i] = clock.Offset{At: s.At, Offset: s.Offset, Bound: s.Bound, Drift: s.Drift / 1e6, Slew: s.Slew,
			SlewBound: s.SlewBound}
	}
	offsets = clock.SmoothOffsets(offsets)
	measured := int64(in.span.sending)
	t := track{offsets: offsets}
	for i, o := range offsets {
		t.wrong = max(t.wrong, o.Bound) // of the only one, or before the measurement
		if o.At <= 0 || i == 0 {
			t.wrong = o.Bound
			continue
		}
		t.wrong = max(t.wrong, wrong(samples[i].Applied, offsets[i-1]), wrong(samples[i].Applied, o))
	}
	last := offsets[len(offsets)-1]
	if open := max(measured, in.record.Last().Delivery) - last.At; open > int64(time.Second) && last.Bound > 0 {
		t.wrong += int64(clock.MaxDrift * float64(open))
	}
	return t
}

// wrong is how far off a correction can have been at a time of which this is known.
func wrong(applied int64, o clock.Offset) int64 {
	return max(applied+o.Offset, -applied-o.Offset) + o.Bound
}

// common is the time of some agents by one clock, with which they are compared with each other. Times of one clock are
// not corrected.
type common struct {
	clock map[string]string // of each agent
	best  map[string]track  // of each clock that is known
	known bool              // all are
}

// commonOf returns the time of these agents, by the best that is known of each clock at a time.
func commonOf(in *input, known map[string]track, agents map[string]bool, at int64) common {
	c := common{clock: in.record.Clocks(), best: map[string]track{}, known: true}
	for _, a := range in.facts.Agents {
		c.clock[a.Agent] = cmp.Or(c.clock[a.Agent], a.Clock)
	}
	clocks := map[string]bool{}
	for agent := range agents {
		id := c.clock[agent]
		clocks[id] = true
		t, is := known[agent]
		if b, has := c.best[id]; is && (!has || t.at(at).Bound < b.at(at).Bound) {
			c.best[id] = t
		}
	}
	if len(clocks) < 2 {
		c.best = nil
	}
	c.known = len(clocks) < 2 || len(c.best) == len(clocks)
	return c
}

// time is a time of an agent by the common clock.
func (c common) time(agent string, at int64) int64 { return at - c.best[c.clock[agent]].at(at).Offset }

// bound is by how much the difference of two times of different agents, at this time, can be wrong: for the pair of
// clocks that is known worst.
func (c common) bound(at int64) time.Duration {
	var first, second int64
	for _, t := range c.best {
		b := t.at(at).Bound
		first, second = max(first, b), max(second, min(first, b))
	}
	return time.Duration(first + second)
}

// clockComparison is how well the clocks of publishers and consumers were known to each other.
type clockComparison struct {
	pairs   []plan.ClockPair
	unknown bool          // of a pair nothing is known
	bound   time.Duration // of the worst pair that is known
	steps   []record.Event
}

// compareClocks compares the agents that measure latencies between two clocks. None do where everybody receives its own
// messages alone.
func compareClocks(in *input, known map[string]track) (c clockComparison) {
	if in.subscriptions == 0 || in.workload.Consumers.Colocate {
		return clockComparison{}
	}
	concerned := map[string]bool{}
	publishers, consumers := in.roles()
	for _, p := range publishers {
		for _, k := range consumers {
			if p.Agent == k.Agent || p.Clock == k.Clock && p.Clock != "" {
				continue
			}
			concerned[p.Agent], concerned[k.Agent] = true, true
			sends, sent := known[p.Agent]
			receives, received := known[k.Agent]
			if !sent || !received {
				c.unknown = true
				continue
			}
			from, to := sends.at(int64(in.span.sending)/2), receives.at(int64(in.span.sending)/2)
			pair := plan.ClockPair{Publisher: p.Agent, Consumer: k.Agent,
				Bound:  plan.Duration(sends.wrong + receives.wrong),
				Offset: plan.Duration(to.Offset - from.Offset), Drift: (to.Drift - from.Drift) * 1e6}
			c.pairs = append(c.pairs, pair)
			c.bound = max(c.bound, pair.Bound.D())
		}
	}
	for _, e := range in.record.Events() {
		if e.Kind == record.EventClockStep && concerned[e.Agent] {
			c.steps = append(c.steps, e)
		}
	}
	return c
}

// coarse reports whether the clocks were known, but to more than the median of a latency.
func (c clockComparison) coarse(median plan.Value) bool {
	return !c.unknown && median.NA == "" && c.bound.Seconds() > median.Number
}

// starts are when agents really began.
type starts struct {
	agents      []plan.AgentPart // of the input, with their skews
	skew        plan.Value       // how far apart they began
	clocksKnown bool
}

// startsOf puts every agent's actual start into the reference's time. Agents of one clock are compared by it alone; a
// start that could not be compared counts by its own host's calendar.
func startsOf(in *input, known map[string]track) starts {
	s := starts{agents: slices.Clone(in.facts.Agents), skew: plan.Value{NA: NANotMeasured}}
	skews, warmup, started := in.record.Skews(), int64(in.warmup()), map[string]bool{}
	for agent := range in.record.ReportedUntil() {
		if slices.ContainsFunc(in.facts.Agents, func(a plan.AgentPart) bool { return a.Agent == agent }) {
			started[agent] = true
		}
	}
	if len(started) == 0 {
		return s
	}
	clocks, first, last := commonOf(in, known, started, -warmup), time.Duration(math.MaxInt64),
		time.Duration(math.MinInt64)
	for i := range s.agents {
		if a := &s.agents[i]; started[a.Agent] {
			a.Skew = plan.Duration(clocks.time(a.Agent, int64(skews[a.Agent])-warmup) + warmup)
			first, last = min(first, a.Skew.D()), max(last, a.Skew.D())
		}
	}
	s.skew, s.clocksKnown = plan.Value{Number: (last - first).Seconds()}, clocks.known
	if clocks.known {
		s.skew.Bound = clocks.bound(-warmup).Seconds()
	}
	return s
}
