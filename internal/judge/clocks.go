package judge

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// track is what is known of one clock against the reference, over a task.
type track struct {
	offsets []clock.Offset // by time; none: it is the reference
	// wrong is the most by which times that were corrected can have been off, either way, at any time from the beginning of the measurement, ns.
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
		nearest.Bound += int64(clock.MostDrift * float64(away))
	}
	return nearest
}

// tracks finds what is known of each agent's clock. An agent without samples is not in it, unless its clock is the one that all others
// were compared with. Where agents were compared with several, as when another controller took over, nothing is known of any.
//
// Between two samples one correction was applied. How far off it can have been at either end is its difference from the best estimate
// there, with the bound of that, both in the light of all samples of the task. From the last sample on a clock may have drifted by all that
// a kernel lets it.
func (j *judge) tracks() map[string]track {
	compared := j.m.Compared()
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
	for agent, id := range j.m.Clocks() {
		if reference != "" && id == reference {
			known[agent] = track{}
		}
	}
	for _, a := range j.f.Agents {
		if reference != "" && a.Clock == reference {
			known[a.Agent] = track{}
		}
	}
	for agent, samples := range compared {
		known[agent] = j.track(samples)
	}
	return known
}

func (j *judge) track(samples []record.ClockSample) track {
	offsets := make([]clock.Offset, len(samples))
	for i, s := range samples {
		offsets[i] = clock.Offset{At: s.At, Offset: s.Offset, Bound: s.Bound, Drift: s.Drift / 1e6, Slew: s.Slew, SlewBound: s.SlewBound}
	}
	offsets = clock.Hindsight(offsets)
	measured := int64(j.span.sending)
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
	if open := max(measured, j.m.Last().Receipt) - last.At; open > int64(time.Second) && last.Bound > 0 {
		t.wrong += int64(clock.MostDrift * float64(open))
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

// common returns the time of these agents, by the best that is known of each clock at a time.
func (j *judge) common(agents map[string]bool, at int64) common {
	c := common{clock: j.m.Clocks(), best: map[string]track{}, known: true}
	for _, a := range j.f.Agents {
		c.clock[a.Agent] = cmp.Or(c.clock[a.Agent], a.Clock)
	}
	clocks := map[string]bool{}
	for agent := range agents {
		id := c.clock[agent]
		clocks[id] = true
		t, known := j.known[agent]
		if b, has := c.best[id]; known && (!has || t.at(at).Bound < b.at(at).Bound) {
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

// clocks says how well the clocks of publishers and consumers were known, and flags what was measured between two that were not: without any
// knowledge, with a bound above the median, or with a step in between.
func (j *judge) clocks() {
	if j.subs == 0 || j.w.Consumers.Colocate { // everybody receives its own messages alone
		return
	}
	unknown, bound := false, time.Duration(0)
	concerned := map[string]bool{}
	publishers, consumers := j.roles()
	for _, p := range publishers {
		for _, c := range consumers {
			if p.Agent == c.Agent || p.Clock == c.Clock && p.Clock != "" {
				continue
			}
			concerned[p.Agent], concerned[c.Agent] = true, true
			sends, sent := j.known[p.Agent]
			receives, received := j.known[c.Agent]
			if !sent || !received {
				unknown = true
				continue
			}
			from, to := sends.at(int64(j.span.sending)/2), receives.at(int64(j.span.sending)/2)
			pair := plan.ClockPair{Publisher: p.Agent, Consumer: c.Agent, Bound: plan.Duration(sends.wrong + receives.wrong),
				Offset: plan.Duration(to.Offset - from.Offset), Drift: (to.Drift - from.Drift) * 1e6}
			j.out.Clocks = append(j.out.Clocks, pair)
			bound = max(bound, pair.Bound.D())
		}
	}
	stepped := j.clockSteps(concerned)
	for _, l := range []string{"processing", "binding.first", "binding.message"} {
		j.boundLatency(l, bound, unknown, stepped)
	}
}

// boundLatency gives the values of a latency between two clocks their bound and, with a reason, the flag that they are doubtful.
func (j *judge) boundLatency(latency string, bound time.Duration, unknown, stepped bool) {
	median := j.out.Values[latency+".p50"]
	coarse := median.NA == "" && bound.Seconds() > median.Number
	if coarse && !unknown {
		j.warn("clock-unsafe: the clocks of publishers and consumers were known to %v, which is more than the median of %s", bound.Round(time.Microsecond), latency)
	}
	for _, name := range latencyValues(latency) {
		v, has := j.out.Values[name]
		if !has || v.NA != "" && v.NA != NABacklog {
			continue
		}
		if v.NA == "" && !unknown {
			v.Bound = bound.Seconds()
			j.out.Values[name] = v
		}
		if unknown || coarse || stepped {
			j.flag(plan.ClockUnsafe, name)
		}
	}
}

// manyNegative is the part of all latencies above which negative ones are more than a few receipts that one reading of
// the clocks explains.
const manyNegative = 0.001

// negatives flags processing latencies if more than a few samples were negative, whatever is known of the clocks: as
// many of the others may be as wrong.
func (j *judge) negatives() {
	h := j.m.Hist(record.Processing)
	if n := float64(h.Negative()); n <= manyNegative*(n+float64(h.Count())) {
		return
	}
	for _, name := range latencyValues("processing") {
		if v, has := j.out.Values[name]; has && v.NA == "" {
			j.flag(plan.ClockUnsafe, name)
		}
	}
}

// clockSteps warns of each clock that was stepped while its times were compared with another's.
func (j *judge) clockSteps(concerned map[string]bool) (any bool) {
	for _, e := range j.m.Events() {
		if e.Kind == record.EventClockStep && concerned[e.Agent] {
			j.warn("clock-unsafe: agent %s, %v into the measurement: %s", e.Agent, time.Duration(e.At).Round(time.Millisecond), e.Detail)
			any = true
		}
	}
	return any
}

// latencyValues are the names of all quantiles of a latency.
func latencyValues(latency string) []string {
	var names []string
	for _, q := range plan.Quantiles() {
		names = append(names, latency+"."+q.Name)
	}
	for _, q := range plan.HighestQuantiles() {
		names = append(names, latency+"."+q.Name+".highest")
	}
	return names
}

// starts puts every agent's actual start into the reference's time, and says how far apart they were. Agents of one clock are compared by it
// alone; a start that nobody could compare counts by its own host's calendar, and makes the value doubtful.
func (j *judge) starts() {
	skews, before, started := j.m.Skews(), int64(j.before()), map[string]bool{}
	for agent := range j.m.Heard() {
		started[agent] = slices.ContainsFunc(j.f.Agents, func(a plan.AgentPart) bool { return a.Agent == agent })
	}
	maps.DeleteFunc(started, func(_ string, is bool) bool { return !is })
	if len(started) == 0 {
		j.na("start.skew", NANotMeasured)
		return
	}
	clocks, first, last := j.common(started, -before), time.Duration(math.MaxInt64), time.Duration(math.MinInt64)
	for i := range j.out.Agents {
		if a := &j.out.Agents[i]; started[a.Agent] {
			a.Skew = plan.Duration(clocks.time(a.Agent, int64(skews[a.Agent])-before) + before)
			first, last = min(first, a.Skew.D()), max(last, a.Skew.D())
		}
	}
	v := plan.Value{Number: (last - first).Seconds()}
	if clocks.known {
		v.Bound = clocks.bound(-before).Seconds()
	} else {
		v.Flags = []plan.Flag{plan.ClockUnsafe}
	}
	j.out.Values["start.skew"] = v
}

// skewed flags what measures the broker when agents started further apart than the cell allows.
func (j *judge) skewed() {
	v, budget := j.out.Values["start.skew"], j.w.Skew.D()
	if v.NA != "" || v.Number <= budget.Seconds() {
		return
	}
	var late []string
	for _, a := range j.out.Agents {
		late = append(late, a.Agent+" "+a.Skew.D().Round(10*time.Microsecond).String())
	}
	const most = 10
	if len(late) > most {
		late = append(late[:most], "…")
	}
	j.flag(plan.Skewed, performance()...)
	j.warn("skewed: agents started %v apart, and the cell allows %v; after the agreed time: %s",
		time.Duration(v.Number*1e9).Round(10*time.Microsecond), budget, strings.Join(late, ", "))
}
