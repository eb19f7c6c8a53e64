package judge

import (
	"math"
	"slices"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// track describes one clock relative to the reference clock during a task.
type track struct {
	offsets []clock.Offset // by time; none: it is the reference clock
	// maxError is the maximum error of corrected times, in either direction, at any time from the beginning of the
	// measurement, ns.
	maxError int64
}

// at returns the offset nearest to a time. Further than one second away, its bound grows by the maximum drift that a
// kernel permits.
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

// tracksOf returns the track of each agent's clock. Agents without samples are omitted, unless they use the reference
// clock. If agents were compared with different references, for example after a controller failover, no track is known.
//
// Between two samples one correction was applied. Its error at either end is its difference from the best estimate
// there, plus the bound of the estimate. Estimates use all samples of the task. After the last sample, a clock may
// drift by the maximum that a kernel permits.
func tracksOf(in *input) map[string]track {
	byAgent := in.record.ClockSamples()
	reference := ""
	for _, samples := range byAgent {
		for _, s := range samples {
			if reference != "" && s.Reference != reference {
				return nil
			}
			reference = s.Reference
		}
	}
	known := map[string]track{}
	for agent, id := range in.clocks {
		if reference != "" && id == reference {
			known[agent] = track{}
		}
	}
	for _, a := range in.facts.Agents { // the facts and the record may differ
		if reference != "" && a.Clock == reference {
			known[a.Agent] = track{}
		}
	}
	for agent, samples := range byAgent {
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
		if o.At <= 0 || i == 0 { // before the measurement, or the only sample
			t.maxError = o.Bound
			continue
		}
		t.maxError = max(t.maxError, correctionError(samples[i].Applied, offsets[i-1]),
			correctionError(samples[i].Applied, o))
	}
	last := offsets[len(offsets)-1]
	if open := max(measured, in.record.Last().Delivery) - last.At; open > int64(time.Second) && last.Bound > 0 {
		t.maxError += int64(clock.MaxDrift * float64(open))
	}
	return t
}

// correctionError returns the maximum error of an applied correction at the time of o.
func correctionError(applied int64, o clock.Offset) int64 {
	return max(applied+o.Offset, -applied-o.Offset) + o.Bound
}

// common converts times of agents to one common clock. If all agents use the same clock, times are not corrected.
type common struct {
	clock map[string]string // by agent
	best  map[string]track  // by clock, where known
	known bool              // every clock has a track
}

// commonOf returns the common clock of some agents. For each clock it uses the track with the smallest bound at the
// time at.
func commonOf(in *input, known map[string]track, agents map[string]bool, at int64) common {
	c := common{clock: in.clocks, best: map[string]track{}}
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

// time converts a time of an agent to the common clock.
func (c common) time(agent string, at int64) int64 { return at - c.best[c.clock[agent]].at(at).Offset }

// bound returns the maximum error of the difference between times of two agents near at. It is the sum of the two
// largest bounds.
func (c common) bound(at int64) time.Duration {
	var first, second int64
	for _, t := range c.best {
		b := t.at(at).Bound
		first, second = max(first, b), max(second, min(first, b))
	}
	return time.Duration(first + second)
}

// clockComparison describes how accurately the clocks of publishers and consumers are known.
type clockComparison struct {
	pairs   []plan.ClockPair
	unknown bool          // nothing is known of some pair
	bound   time.Duration // largest bound of the known pairs
	steps   []record.Event
}

// compareClocks compares the clocks of publishers and consumers that measure latencies between each other. There are
// none if every agent receives only its own messages.
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
				Bound:  plan.Duration(sends.maxError + receives.maxError),
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

// coarse reports whether the clocks are known, but less accurately than the median of a latency.
func (c clockComparison) coarse(median plan.Value) bool {
	return !c.unknown && median.NA == "" && c.bound.Seconds() > median.Number
}

// starts describes when agents actually began.
type starts struct {
	agents      []plan.AgentPart // agents of the input, with their skews
	skew        plan.Value       // largest difference between starts
	clocksKnown bool
}

// startsOf converts the start of each agent to the common clock. Without a known track, the start counts as read from
// the agent's own clock.
func startsOf(in *input, known map[string]track) starts {
	s := starts{agents: slices.Clone(in.facts.Agents), skew: plan.Value{NA: NANotMeasured}}
	skews, reported, warmup := in.record.Skews(), in.record.ReportedUntil(), int64(in.warmup())
	started := map[string]bool{}
	for _, a := range s.agents {
		if _, has := reported[a.Agent]; has {
			started[a.Agent] = true
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

// beyond reports whether the agents' starts differ by more than the workload permits.
func (s starts) beyond(w plan.Workload) bool {
	return s.skew.NA == "" && s.skew.Number > w.Skew.D().Seconds()
}
