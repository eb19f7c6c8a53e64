package judge

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// Every documented value is a quantile of a latency, a metric of the broker, or has a function. Every function and
// every latency belongs to documented values.
func TestEveryValueHasAFunction(t *testing.T) {
	var want []string
	m := &measurements{latencies: map[string]latency{}}
	for _, s := range latencySeries {
		m.latencies[s.name] = latency{}
		if _, known := plan.Metrics(nil).ValueNamed(s.name + ".p50"); !known {
			t.Errorf("series %s: its quantiles are not in the table of values", s.name)
		}
	}
	for _, v := range plan.Values() {
		if _, is := m.latencyOf(v.Name); !is && !strings.HasPrefix(v.Name, "broker.") {
			want = append(want, v.Name)
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(functions)); !slices.Equal(got, want) {
		t.Errorf("values with a function: got  %q\nwant %q", got, want)
	}
}

// Every flag has a rule.
func TestEveryFlagHasACondition(t *testing.T) {
	var flags []plan.Flag
	for _, r := range flagRules {
		flags = append(flags, r.flag)
	}
	slices.Sort(flags)
	if want := slices.Sorted(slices.Values(plan.Flags())); !slices.Equal(flags, want) {
		t.Errorf("flags with a rule: got %q, want %q", flags, want)
	}
}

// The first delivery counts from the start of the load, before the warm-up. The declaration is that of any agent.
func TestDeclarationAndFirstDelivery(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(1000, deliverAtOnce)
	x.last.FirstDelivery = int64(-750 * time.Millisecond)
	x.facts.Agents[1].Declared = plan.Duration(3 * time.Second)
	o := x.judge()
	checkValue(t, o, "topology.first", x.task.Cell.Workload.Warmup.D().Seconds()-0.75)
	checkValue(t, o, "topology.declare", 3)
	x = newTaskBuilder(nil)
	x.steadyLoad(1000, deliverAtOnce)
	x.last.FirstDelivery = -1 - int64(x.task.Cell.Workload.Warmup) // by a clock that is late
	checkValue(t, x.judge(), "topology.first", 0)
	x = newTaskBuilder(nil)
	x.steadyLoad(1000, deliverAtOnce)
	o = x.judge()
	if first, declare := o.Values["topology.first"], o.Values["topology.declare"]; first.NA != NANoSamples ||
		declare.NA != NANotReported {
		t.Errorf("without facts: got first delivery %+v, declaration %+v, want %q, %q", first, declare, NANoSamples,
			NANotReported)
	}
}

// The spread values are the difference between the nodes with the most and the fewest, over all agents. A node without
// any counts if the broker's description has more nodes. A warning states that the leaders are not known.
func TestSpread(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(1000, deliverAtOnce)
	x.facts.Subject.Members = []string{"a", "b", "c"}
	x.facts.Agents[0].Placement = &plan.Placement{Leaders: map[string]int{"a": 2, "b": 1, "c": 1},
		Publishers: map[string]int{"10.0.0.1": 2, "10.0.0.2": 3}, Consumers: map[string]int{"10.0.0.1": 1}}
	x.facts.Agents[1].Placement = &plan.Placement{Consumers: map[string]int{"10.0.0.2": 1, "10.0.0.3": 2}}
	o := x.judge()
	checkValue(t, o, "spread.leaders", 1)
	checkWarnings(t, o, false, "leaders of queues are uneven")
	x.facts.Agents[0].Placement.Leaders["a"] = 3
	x.task.Cell.Workload.Topology.QueueNode = "spread"
	checkWarnings(t, x.judge(), true, "leaders of queues are uneven")
	checkValue(t, o, "spread.publishers", 3)
	checkValue(t, o, "spread.consumers", 1)
	x = newTaskBuilder(nil)
	x.steadyLoad(1000, deliverAtOnce)
	if v := x.judge().Values["spread.leaders"]; v.NA != NANotReported {
		t.Errorf("spread.leaders without a placement: got %+v, want %q", v, NANotReported)
	}
	const unknown = "the placement of queues is not known: give management"
	for _, c := range []struct {
		node     plan.Node
		existing string
		members  []string
		warned   bool
	}{
		{"spread", "", nil, true}, {"spread", "", []string{"a", "b"}, true}, {"spread", "", []string{"a"}, false},
		{"any", "", nil, false}, {"spread", "orders", nil, false},
	} {
		x.facts.Agents[0].Placement = &plan.Placement{Unknown: "give management"}
		x.facts.Subject.Members = c.members
		x.task.Cell.Workload.Topology.QueueNode, x.task.Cell.Workload.Topology.Existing = c.node, c.existing
		checkWarnings(t, x.judge(), c.warned, unknown)
	}
}
