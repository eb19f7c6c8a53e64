package matrix

import (
	"fmt"

	"example.org/lockstep/lockstep/internal/plan"
)

// validateFaults returns the errors of a cell's faults.
func validateFaults(w plan.Workload) []problem {
	var out problems
	for i, f := range w.Faults {
		path := fmt.Sprintf("faults[%d]", i)
		connections := f.Kind == plan.FaultCut || f.Kind == plan.FaultStall || f.Kind == plan.FaultSlow
		out.report(connections && f.Target != "", path+".target",
			"%s affects connections; remove target, or use kill, pause, restart or isolate", f.Kind)
		out.report(!connections && f.Target == "", path,
			"%s needs a target; name an entry of the --faults file of an agent on the broker's host", f.Kind)
		out.report(!connections && f.On != "all", path+".on",
			"%s affects the broker, not the connections of %s; remove on", f.Kind, f.On)
		out.report(!connections && f.Share < 1, path+".share",
			"%s affects the broker, not a share of connections; remove share", f.Kind)
		out.report(f.Kind == plan.FaultSlow && f.Latency == 0 && f.Bandwidth == 0, path,
			"slow has no effect; set latency, bandwidth, or both")
		out.report(f.Kind != plan.FaultSlow && f.Latency != 0, path+".latency", "only slow has it; remove it")
		out.report(f.Kind != plan.FaultSlow && f.Bandwidth != 0, path+".bandwidth", "only slow has it; remove it")
		out.report(f.At+f.For > w.Measure, path,
			"it ends at %s, after the end of the measurement, %s; begin earlier or raise measure", f.At+f.For,
			w.Measure)
		out = append(out, roles(w, f, path)...)
		for k, g := range w.Faults[:i] {
			out.report(meet(f, g), path, "it overlaps with faults[%d] (%s); begin at %s or later", k, g, g.At+g.For)
		}
	}
	out.report(len(w.Faults) > 0 && len(w.Groups) > 0, "faults",
		"a cell with groups cannot have faults; use one cell per group, or remove faults")
	out.report(len(w.Faults) > 0 && w.Search != nil, "faults", "a search cannot have faults; remove faults or search")
	return out
}

// roles returns the errors of the fields that select the connections of a fault.
func roles(w plan.Workload, f plan.Fault, path string) []problem {
	var out problems
	out.report(f.On != "all" && w.Consumers.Colocate, path+".on",
		"with consumers.colocate each agent has connections of publishers and consumers; remove on or colocate")
	out.report(f.On == "consumers" && w.Consumers.Nodes == 0, path+".on", "the cell has no consumers; use publishers")
	out.report(f.On == "publishers" && w.Publishers.Nodes == 0, path+".on", "the cell has no publishers; use consumers")
	mode := w.Publishers.Mode
	out.report(f.Share < 1 && (mode == "connection-per-message" || mode == "connection-per-message-confirm") &&
		f.On != "consumers", path+".share", "in mode %s there are no lasting connections; remove share", mode)
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
