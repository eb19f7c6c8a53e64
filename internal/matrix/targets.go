package matrix

import "example.org/lockstep/lockstep/internal/plan"

// Targets reads an agent's --faults file, CUE or JSON. It returns the targets for faults on the agent's host, sorted by
// name. The error is of type Errors and contains all errors.
func Targets(file string, text []byte) ([]plan.Target, error) {
	return readNamed(file, text, "#Faults", "targets", plan.Target{}, validateTarget,
		"the file has no target; add one or omit --faults")
}

// validateTarget names a target and returns its errors.
func validateTarget(name string, t *plan.Target) []problem {
	t.Name = name
	ways := b2i(t.Process.PID != 0) + b2i(t.Process.Port != 0) + b2i(t.Process.Command != "")
	var out problems
	out.report(!plainName.MatchString(name), "", "its name is invalid; give letters, digits and _")
	out.report(ways > 1, ".process", "it has several of pid, port and command; give one of them")
	out.report(len(t.Start) > 0 && (t.Process.PID != 0 || ways == 0), ".process",
		"a process that is started again needs port or command; give one of them instead of pid")
	out.report(len(t.Stop) > 0 && len(t.Start) == 0, ".stop", "stop needs start; give start, too")
	out.report((len(t.Isolate) > 0) != (len(t.Heal) > 0), "",
		"only one of isolate and heal is set; give both or neither")
	out.report(len(out) == 0 && len(t.Kinds()) == 0, "",
		"no fault is possible for it; give its process, or isolate and heal")
	return out
}
