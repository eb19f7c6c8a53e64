package matrix

import (
	"fmt"

	"lockstep/internal/plan"
)

// faulty returns the errors of a cell's faults.
func faulty(w plan.Workload) []problem {
	var out []problem
	for i, f := range w.Faults {
		path := fmt.Sprintf("faults[%d]", i)
		report := func(wrong bool, field, format string, args ...any) {
			if wrong {
				out = append(out, problem{path + field, fmt.Sprintf(format, args...)})
			}
		}
		connections := f.Kind == plan.FaultCut || f.Kind == plan.FaultStall || f.Kind == plan.FaultSlow
		report(connections && f.Target != "", ".target",
			"%s is done to connections; leave target out, or choose kill, pause, restart or isolate", f.Kind)
		report(!connections && f.Target == "", "",
			"%s needs a target: what an agent on the broker's host may disturb, by the name in that agent's --faults file", f.Kind)
		report(!connections && f.On != "all", ".on",
			"%s is done to the broker, not to the connections of %s; leave on out", f.Kind, f.On)
		report(!connections && f.Share < 1, ".share",
			"%s is done to the broker, not to a share of connections; leave share out", f.Kind)
		report(f.Kind == plan.FaultSlow && f.Latency == 0 && f.Bandwidth == 0, "",
			"slow changes nothing; give a latency, a bandwidth, or both")
		report(f.Kind != plan.FaultSlow && f.Latency != 0, ".latency", "it is for slow alone; leave it out")
		report(f.Kind != plan.FaultSlow && f.Bandwidth != 0, ".bandwidth", "it is for slow alone; leave it out")
		report(f.At+f.For > w.Measure, "",
			"it ends %s after the measurement began, which lasts %s; begin earlier, or raise measure", f.At+f.For,
			w.Measure)
		out = append(out, roles(w, f, path)...)
		for k, g := range w.Faults[:i] {
			report(meet(f, g), "", "it overlaps with faults[%d] (%s); let it begin at %s or later", k, g, g.At+g.For)
		}
	}
	if len(w.Faults) > 0 && len(w.Groups) > 0 {
		out = append(out,
			problem{"faults",
				"a cell of several groups cannot have faults; give each group a cell of its own, or take faults out"})
	}
	if len(w.Faults) > 0 && w.Search != nil {
		out = append(out, problem{"faults", "a search finds the rate that holds by itself; take faults or search out"})
	}
	return out
}

// roles returns the errors of the fields that select the connections of a fault.
func roles(w plan.Workload, f plan.Fault, path string) []problem {
	var out []problem
	if f.On != "all" && w.Consumers.Colocate {
		out = append(out,
			problem{path + ".on",
				"with consumers.colocate each agent's connections are of publishers and consumers; leave on out, or colocate"})
	}
	if f.On == "consumers" && w.Consumers.Nodes == 0 {
		out = append(out, problem{path + ".on", "the cell has no consumers; choose publishers"})
	}
	if f.Share < 1 && (w.Publishers.Mode == "connection-per-message" ||
		w.Publishers.Mode == "connection-per-message-confirm") && f.On != "consumers" {
		out = append(out, problem{path + ".share",
			"in mode " + w.Publishers.Mode + " no connection stays to be chosen; leave share out"})
	}
	return out
}

// meet reports whether two faults affect the same target or connections at the same time.
func meet(f, g plan.Fault) bool {
	if f.At >= g.At+g.For || g.At >= f.At+f.For || f.Connections() != g.Connections() {
		return false
	}
	if !f.Connections() {
		return f.Target == g.Target
	}
	return f.On == g.On || f.On == "all" || g.On == "all"
}
