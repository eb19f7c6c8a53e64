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
			t.Errorf("the quantiles of %s are no values", s.name)
		}
	}
	for _, v := range plan.Values() {
		if _, is := m.latencyOf(v.Name); !is && !strings.HasPrefix(v.Name, "broker.") {
			want = append(want, v.Name)
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(functions)); !slices.Equal(got, want) {
		t.Errorf("functions of %q\nvalues %q", got, want)
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
		t.Errorf("conditions for %q, want %q", flags, want)
	}
}

// The first delivery counts from the start of the load, before the warm-up. The declaration is that of any agent.
func TestDeclarationAndFirstDelivery(t *testing.T) {
	x := newWorld(nil)
	x.steady(1000, atOnce)
	x.last.FirstDelivery = int64(-750 * time.Millisecond)
	x.facts.Agents[1].Declared = plan.Duration(3 * time.Second)
	o := x.judge()
	near(t, o, "topology.first", x.task.Cell.Workload.Warmup.D().Seconds()-0.75)
	near(t, o, "topology.declare", 3)
	x = newWorld(nil)
	x.steady(1000, atOnce)
	x.last.FirstDelivery = -1 - int64(x.task.Cell.Workload.Warmup) // by a clock that is late
	near(t, x.judge(), "topology.first", 0)
	x = newWorld(nil)
	x.steady(1000, atOnce)
	o = x.judge()
	if first, declare := o.Values["topology.first"], o.Values["topology.declare"]; first.NA != NANoSamples ||
		declare.NA != NANotReported {
		t.Errorf("without facts: first delivery %+v, declaration %+v", first, declare)
	}
}

// The spread values are the difference between the nodes with the most and the fewest, over all agents. A node without
// any counts if the broker's description has more nodes. A warning states that the leaders are not known.
func TestSpread(t *testing.T) {
	x := newWorld(nil)
	x.steady(1000, atOnce)
	x.facts.Subject.Members = []string{"a", "b", "c"}
	x.facts.Agents[0].Placement = &plan.Placement{Leaders: map[string]int{"a": 2, "b": 1, "c": 1},
		Publishers: map[string]int{"10.0.0.1": 2, "10.0.0.2": 3}, Consumers: map[string]int{"10.0.0.1": 1}}
	x.facts.Agents[1].Placement = &plan.Placement{Consumers: map[string]int{"10.0.0.2": 1, "10.0.0.3": 2}}
	o := x.judge()
	near(t, o, "spread.leaders", 1)
	warned(t, o, false, "leaders of queues are uneven")
	x.facts.Agents[0].Placement.Leaders["a"] = 3
	x.task.Cell.Workload.Topology.QueueNode = "spread"
	warned(t, x.judge(), true, "leaders of queues are uneven")
	near(t, o, "spread.publishers", 3)
	near(t, o, "spread.consumers", 1)
	x = newWorld(nil)
	x.steady(1000, atOnce)
	if v := x.judge().Values["spread.leaders"]; v.NA != NANotReported {
		t.Errorf("without a placement: %+v", v)
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
		warned(t, x.judge(), c.warned, unknown)
	}
}
