package plan

import (
	"fmt"
	"slices"
	"strings"
)

// Connections reports whether the fault is done to connections, by the agents that own them.
func (f Fault) Connections() bool { return f.Target == "" }

// BreaksLinks reports whether links to the broker break by this fault itself, and not only when somebody gives up.
func (f Fault) BreaksLinks() bool {
	return slices.Contains([]string{FaultCut, FaultKill, FaultRestart, FaultIsolate}, f.Kind)
}

// Ends reports whether the fault ends a process of the broker, with what it had in memory.
func (f Fault) Ends() bool { return f.Kind == FaultKill || f.Kind == FaultRestart }

// String names the fault, apart from others of the cell: "pause rabbit at 3s for 1s", "cut 0.5 of publishers at 3s for
// 1s". The detail of the events that tell of it begins so.
func (f Fault) String() string {
	if !f.Connections() {
		return fmt.Sprintf("%s %s at %s for %s", f.Kind, f.Target, f.At, f.For)
	}
	whose := f.On
	if f.Share < 1 {
		whose = fmt.Sprintf("%g of %s", f.Share, f.On)
	}
	return fmt.Sprintf("%s %s at %s for %s", f.Kind, whose, f.At, f.For)
}

// Tells reports whether an event of kind "fault" with this detail is of this fault.
func (f Fault) Tells(detail string) bool { return strings.HasPrefix(detail, f.String()+": ") }

// Detail is that of an event that tells of this fault.
func (f Fault) Detail(what string) string { return f.String() + ": " + what }

// Targets lists what the workload's faults disturb, each once, with the kinds of faults.
func (w Workload) Targets() map[string][]string {
	var targets map[string][]string
	for _, f := range w.Faults {
		if f.Connections() || slices.Contains(targets[f.Target], f.Kind) {
			continue
		}
		if targets == nil {
			targets = map[string][]string{}
		}
		targets[f.Target] = append(targets[f.Target], f.Kind)
	}
	return targets
}

// FaultsConnections reports whether any fault is done to connections.
func (w Workload) FaultsConnections() bool { return slices.ContainsFunc(w.Faults, Fault.Connections) }
