package judge

import (
	"math"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// addClockSamples adds an agent's clock comparisons, one per second, to the record; all times are in µs.
func (x *taskBuilder) addClockSamples(agent, clockID, reference string, from, to int, offset, bound, applied float64) {
	s := record.Snapshot{Agent: agent, Clock: clockID, Seq: 5000}
	for at := from; at <= to; at++ {
		s.Clocks = append(s.Clocks, record.ClockSample{At: int64(at) * int64(time.Second), Reference: reference,
			Offset: int64(offset * 1e3),
			Bound:  int64(bound * 1e3), Applied: int64(applied * 1e3)})
	}
	x.merge.Add(s)
	for i := range x.facts.Agents {
		if x.facts.Agents[i].Agent == agent {
			x.facts.Agents[i].Clock = clockID
		}
	}
}

// The median latency is 2 ms.
func TestBoundOfEndToEndLatency(t *testing.T) {
	for name, c := range map[string]struct {
		world  func(*taskBuilder)
		edit   func(*plan.Workload)
		bound  float64 // µs
		unsafe bool
	}{
		"one clock": {func(*taskBuilder) {}, nil, 0, false},
		"one clock, compared with another's": {func(x *taskBuilder) {
			x.addClockSamples("a", "h", "ref", -2, 11, 70, 50, -70)
			x.addClockSamples("b", "h", "ref", -2, 11, 70, 50, -70)
		}, nil, 0, false},
		"two clocks": {func(x *taskBuilder) {
			x.addClockSamples("a", "h1", "ref", -2, 11, 1000, 200, -1000)
			x.addClockSamples("b", "h2", "ref", -2, 11, -2000, 100, 2050) // differs by 50 µs from the smoothed offset
		}, nil, 350, false},
		"one of them is the reference": {func(x *taskBuilder) {
			x.addClockSamples("a", "h1", "h2", -2, 11, 0, 200, 0)
			x.facts.Agents[1].Clock = "h2"
		}, nil, 200, false},
		"one of them is the reference by the facts, not by the record": {func(x *taskBuilder) {
			x.addClockSamples("a", "h1", "h2", -2, 11, 0, 200, 0)
			x.merge.Add(record.Snapshot{Agent: "b", Clock: "h3", Seq: 5000})
			x.facts.Agents[1].Clock = "h2"
		}, nil, 200, false},
		"one of them is the reference by the record, not by the facts": {func(x *taskBuilder) {
			x.addClockSamples("a", "h1", "h2", -2, 11, 0, 200, 0)
			x.merge.Add(record.Snapshot{Agent: "b", Clock: "h2", Seq: 5000})
			x.facts.Agents[1].Clock = "h3"
		}, nil, 200, false},
		"bound above the median": {func(x *taskBuilder) {
			x.addClockSamples("a", "h1", "h2", -2, 11, 0, 2100, 0)
			x.facts.Agents[1].Clock = "h2"
		}, nil, 2100, true},
		"large differences only before the measurement": {func(x *taskBuilder) {
			x.addClockSamples("a", "h1", "h2", -5, -5, 0, 100, 90e3)
			x.addClockSamples("a", "h1", "h2", -5, -5, 0, 100, 90e3)
			s := record.Snapshot{Agent: "a", Seq: 6000}
			for at := int64(-1); at <= 11; at++ {
				s.Clocks = append(s.Clocks, record.ClockSample{At: at * 1e9, Reference: "h2", Bound: 100e3})
			}
			x.merge.Add(s)
			x.facts.Agents[1].Clock = "h2"
		}, nil, 100, false},
		"not compared until the end, 500 ppm from then on": {func(x *taskBuilder) {
			x.addClockSamples("a", "h1", "h2", -2, 6, 0, 100, 0)
			x.facts.Agents[1].Clock = "h2"
		}, nil, 100 + 500*4, true},
		"one agent without comparisons": {func(x *taskBuilder) {
			x.addClockSamples("a", "h1", "ref", -2, 11, 0, 100, 0)
			x.facts.Agents[1].Clock = "h2"
		}, nil, 0, true},
		"compared with two references": {func(x *taskBuilder) {
			x.addClockSamples("a", "h1", "ref", -2, 11, 0, 100, 0)
			x.addClockSamples("b", "h2", "another", -2, 11, 0, 100, 0)
		}, nil, 0, true},
		"colocated": {func(x *taskBuilder) {
			x.addClockSamples("a", "h1", "ref", -2, 11, 0, 9000, 0)
			x.addClockSamples("b", "h2", "ref", -2, 11, 0, 9000, 0)
		}, func(w *plan.Workload) {
			w.Publishers.Nodes, w.Consumers.Nodes, w.Topology.Queues, w.Consumers.Colocate = 2, 2, 2, true
		}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTaskBuilder(c.edit)
			x.steadyLoad(100, deliverAtOnce)
			c.world(x)
			o := x.judge()
			for _, value := range []string{"e2e.p50", "e2e.max"} {
				if got := o.Values[value].Bound * 1e6; math.Abs(got-c.bound) > 10 {
					t.Errorf("bound of %s: got %.0f µs, want %.0f", value, got, c.bound)
				}
			}
			checkFlag(t, o, plan.ClockUnsafe, c.unsafe, "e2e.p50", "e2e.max")
			checkFlag(t, o, plan.ClockUnsafe, false, "publish.p50", "publish.rate", "e2e.negative")
			if o.Values["publish.p50"].Bound != 0 {
				t.Error("publish.p50: got a bound, want none: one clock measures it")
			}
		})
	}
}

func TestClockPairsAreInTheOutcome(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(100, deliverAtOnce)
	x.addClockSamples("a", "h1", "ref", -2, 11, 1000, 200, -1000)
	x.addClockSamples("b", "h2", "ref", -2, 11, -2000, 100, 2000)
	x.last.Skew = 3 * time.Millisecond
	o := x.judge()
	want := plan.ClockPair{Publisher: "a", Consumer: "b", Offset: plan.Duration(-3 * time.Millisecond),
		Bound: plan.Duration(300 * time.Microsecond)}
	if len(o.Clocks) != 1 || o.Clocks[0] != want {
		t.Errorf("clock pairs: got %+v, want %+v", o.Clocks, want)
	}
	// a started at 3 ms of its own clock, 2 of the reference's; b at 0 of its own, 2 of the reference's.
	checkValue(t, o, "start.skew", 0)
	if got := o.Values["start.skew"].Bound; math.Abs(got-300e-6) > 1e-9 {
		t.Errorf("bound of start.skew: got %v s, want 300 µs", got)
	}
	if again := Judge(x.task, x.merge, FactsOf(o, x.merge)); again.Agents[0].Skew != o.Agents[0].Skew ||
		again.Values["start.skew"].Number != o.Values["start.skew"].Number {
		t.Errorf("skew in a new judgement: got %v, want %v", again.Agents[0].Skew, o.Agents[0].Skew)
	}
}

func TestClockStepIsReportedAndFlagged(t *testing.T) {
	for agent, want := range map[string]bool{"a": true, "b": true, "c": false} { // c is not in the task
		x := newTaskBuilder(nil)
		x.steadyLoad(100, deliverAtOnce)
		x.addClockSamples("a", "h1", "ref", -2, 11, 0, 10, 0)
		x.addClockSamples("b", "h2", "ref", -2, 11, 0, 10, 0)
		x.merge.Add(record.Snapshot{Agent: agent, Seq: 7000,
			Events: []record.Event{{At: 1e9, Kind: record.EventClockStep, Detail: "moved by 100ms"}}})
		o := x.judge()
		checkFlag(t, o, plan.ClockUnsafe, want, "e2e.p50")
		checkFlag(t, o, plan.ClockUnsafe, false, "publish.p50")
		checkWarnings(t, o, want, "moved by 100ms")
	}
}

// Negative latencies are in no quantile. If there are many, the clocks differ, even if their ids are equal.
func TestNegativeLatenciesMakeQuantilesUnsafe(t *testing.T) {
	for _, c := range []struct {
		negative int
		unsafe   []string
		safe     []string
	}{
		{0, nil, []string{"e2e.p50", "e2e.max"}},
		{5, nil, []string{"e2e.p50", "e2e.p99"}},                                       // of 11,000
		{200, []string{"e2e.p50", "e2e.max"}, []string{"publish.p50", "consume.rate"}}, // 2 %
	} {
		x := newTaskBuilder(nil)
		x.steadyLoad(1000, deliverAtOnce)
		for range c.negative {
			x.sample(record.EndToEnd, -time.Millisecond)
		}
		o := x.judge()
		checkFlag(t, o, plan.ClockUnsafe, true, c.unsafe...)
		checkFlag(t, o, plan.ClockUnsafe, false, c.safe...)
	}
}
