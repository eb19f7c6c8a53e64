package matrix

import (
	"fmt"

	"example.org/lockstep/lockstep/internal/plan"
)

// validateFaults returns the errors of a cell's faults.
func validateFaults(w plan.Workload) []problem {
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
			"%s affects connections; remove target, or use kill, pause, restart or isolate", f.Kind)
		report(!connections && f.Target == "", "",
			"%s needs a target; name an entry of the --faults file of an agent on the broker's host", f.Kind)
		report(!connections && f.On != "all", ".on",
			"%s affects the broker, not the connections of %s; remove on", f.Kind, f.On)
		report(!connections && f.Share < 1, ".share",
			"%s affects the broker, not a share of connections; remove share", f.Kind)
		report(f.Kind == plan.FaultSlow && f.Latency == 0 && f.Bandwidth == 0, "",
			"slow has no effect; set latency, bandwidth, or both")
		report(f.Kind != plan.FaultSlow && f.Latency != 0, ".latency", "only slow has it; remove it")
		report(f.Kind != plan.FaultSlow && f.Bandwidth != 0, ".bandwidth", "only slow has it; remove it")
		report(f.At+f.For > w.Measure, "",
			"it ends at %s, after the end of the measurement, %s; begin earlier or raise measure", f.At+f.For,
			w.Measure)
		out = append(out, roles(w, f, path)...)
		for k, g := range w.Faults[:i] {
			report(meet(f, g), "", "it overlaps with faults[%d] (%s); begin at %s or later", k, g, g.At+g.For)
		}
	}
	if len(w.Faults) > 0 && len(w.Groups) > 0 {
		out = append(out,
			problem{"faults",
				"a cell with groups cannot have faults; use one cell per group, or remove faults"})
	}
	if len(w.Faults) > 0 && w.Search != nil {
		out = append(out, problem{"faults", "a search cannot have faults; remove faults or search"})
	}
	return out
}

// roles returns the errors of the fields that select the connections of a fault.
func roles(w plan.Workload, f plan.Fault, path string) []problem {
	var out []problem
	if f.On != "all" && w.Consumers.Colocate {
		out = append(out,
			problem{path + ".on",
				"with consumers.colocate each agent has connections of publishers and consumers; remove on or colocate"})
	}
	if f.On == "consumers" && w.Consumers.Nodes == 0 {
		out = append(out, problem{path + ".on", "the cell has no consumers; use publishers"})
	}
	if f.On == "publishers" && w.Publishers.Nodes == 0 {
		out = append(out, problem{path + ".on", "the cell has no publishers; use consumers"})
	}
	if f.Share < 1 && (w.Publishers.Mode == "connection-per-message" ||
		w.Publishers.Mode == "connection-per-message-confirm") && f.On != "consumers" {
		out = append(out, problem{path + ".share",
			"in mode " + w.Publishers.Mode + " there are no lasting connections; remove share"})
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
