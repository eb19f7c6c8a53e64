package matrix

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"example.org/lockstep/lockstep/internal/plan"
)

// labelName matches the valid names of agents' labels. Values have the same form.
var labelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// Label checks an agent's label. The error contains the valid form.
func Label(name, value string) error {
	if !labelName.MatchString(name) || !labelName.MatchString(value) {
		return fmt.Errorf("label %q: write it like zone=a, name and value of letters, digits, \".\", \"_\" and \"-\", each beginning with a letter or digit", name+"="+value)
	}
	return nil
}

// validatePlacement returns errors for label requirements that no agent can meet.
func validatePlacement(w plan.Workload) (out []problem) {
	p, c := w.Publishers, w.Consumers
	for _, side := range []struct {
		path string
		on   plan.Labels
	}{{"publishers.on", p.On}, {"consumers.on", c.On}} {
		for _, name := range slices.Sorted(maps.Keys(side.on)) {
			if !labelName.MatchString(name) {
				out = append(out, problem{side.path,
					fmt.Sprintf("%q is no valid label; give a name of letters, digits, \".\", \"_\" and \"-\"", name)})
			}
		}
	}
	if !c.Colocate {
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(p.On)) {
		if other, both := c.On[name]; both && other != p.On[name] {
			out = append(out, problem{"consumers.on",
				fmt.Sprintf("%s is %q, and %q in publishers.on: with consumers.colocate an agent needs both; make them equal", name,
					other, p.On[name])})
		}
	}
	return out
}
