package plan

import (
	"fmt"
	"slices"
	"strings"
)

// Connections reports whether the fault applies to connections. The agents that own them inject it.
func (f Fault) Connections() bool { return f.Target == "" }

// BreaksLinks reports whether the fault itself breaks links to the broker, instead of only causing timeouts.
func (f Fault) BreaksLinks() bool {
	return slices.Contains([]string{FaultCut, FaultKill, FaultRestart, FaultIsolate}, f.Kind)
}

// Ends reports whether the fault ends a process of the broker, so that its memory is lost.
func (f Fault) Ends() bool { return f.Kind == FaultKill || f.Kind == FaultRestart }

// String returns a name that is unique within the cell: "pause rabbit at 3s for 1s", "cut 0.5 of publishers at 3s for
// 1s". The details of the fault's events begin with it.
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

// Matches reports whether an event of kind "fault" with this detail belongs to this fault.
func (f Fault) Matches(detail string) bool { return strings.HasPrefix(detail, f.String()+": ") }

// Detail returns the detail of an event of this fault.
func (f Fault) Detail(what string) string { return f.String() + ": " + what }

// Targets returns the targets of the workload's faults, each with its kinds of faults. It returns nil if there are
// none.
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

// FaultsConnections reports whether any fault applies to connections.
func (w Workload) FaultsConnections() bool { return slices.ContainsFunc(w.Faults, Fault.Connections) }
