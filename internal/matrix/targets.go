package matrix

import (
	"encoding/json"
	"maps"
	"slices"

	"cuelang.org/go/cue"

	"example.org/lockstep/lockstep/internal/plan"
)

// Targets reads an agent's --faults file, CUE or JSON. It returns the targets for faults on the agent's host, sorted by
// name. The error is of type Errors and contains all errors.
func Targets(file string, text []byte) ([]plan.Target, error) {
	v, tree, errs := readFile(file, text, "#Faults")
	if len(errs) > 0 {
		return nil, errs
	}
	named, _ := tree["targets"].(map[string]any)
	var targets []plan.Target
	for _, name := range slices.Sorted(maps.Keys(named)) {
		raw, err := json.Marshal(named[name])
		if err != nil {
			return nil, Errors{{File: file, Message: err.Error()}}
		}
		t := plan.Target{}
		if err := json.Unmarshal(raw, &t); err != nil {
			return nil, Errors{{File: file, Path: join("targets", name), Message: err.Error()}}
		}
		t.Name = name
		at := place(v.LookupPath(cue.MakePath(cue.Str("targets"), cue.Str(name))))
		for _, wrong := range unfit(t) {
			errs = append(errs, errorAt(at, join("targets", name), wrong))
		}
		targets = append(targets, t)
	}
	if len(targets) == 0 && len(errs) == 0 {
		errs = append(errs, errorAt(v.Pos(), "targets",
			"the file has no target; add one or omit --faults"))
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return targets, nil
}

// unfit returns the errors of a target.
func unfit(t plan.Target) (wrong []string) {
	ways := 0
	for _, given := range []bool{t.Process.PID != 0, t.Process.Port != 0, t.Process.Command != ""} {
		if given {
			ways++
		}
	}
	report := func(is bool, text string) {
		if is {
			wrong = append(wrong, text)
		}
	}
	report(!plainName.MatchString(t.Name), "its name is invalid; give letters, digits and _")
	report(ways > 1, "it has several of pid, port and command; give one of them")
	report(len(t.Start) > 0 && (t.Process.PID != 0 || ways == 0),
		"a process that is started again needs port or command; give one of them instead of pid")
	report(len(t.Stop) > 0 && len(t.Start) == 0, "stop needs start; give start, too")
	report((len(t.Isolate) > 0) != (len(t.Heal) > 0), "only one of isolate and heal is set; give both or neither")
	report(len(wrong) == 0 && len(t.Kinds()) == 0, "no fault is possible for it; give its process, or isolate and heal")
	return wrong
}
