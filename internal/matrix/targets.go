package matrix

import (
	"encoding/json"
	"maps"
	"slices"

	"cuelang.org/go/cue"

	"lockstep/internal/plan"
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
			"nothing is named; name what may be disturbed, or leave --faults out"))
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
	report(!plainName.MatchString(t.Name), "its name is not a plain one; give letters, digits and _")
	report(ways > 1, "its process is given in several ways; give one of pid, port and command")
	report(len(t.Start) > 0 && (t.Process.PID != 0 || ways == 0),
		"what is started again has to be found again; give its process by port or by command")
	report(len(t.Stop) > 0 && len(t.Start) == 0, "stop is for what is started again; give start, too")
	report((len(t.Isolate) > 0) != (len(t.Heal) > 0), "isolate and heal belong together; give both, or neither")
	report(len(wrong) == 0 && len(t.Kinds()) == 0, "nothing can be done to it; give its process, or isolate and heal")
	return wrong
}
