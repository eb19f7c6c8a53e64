package judge

import (
	"maps"
	"slices"
	"testing"

	"lockstep/internal/plan"
)

// Every documented value has a function, and every function belongs to a documented value.
func TestEveryValueHasAFunction(t *testing.T) {
	var want []string
	for _, v := range plan.Values() {
		want = append(want, v.Name)
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(functions())); !slices.Equal(got, want) {
		t.Errorf("functions of %q\nvalues %q", got, want)
	}
}

// Every flag has a rule, and the values of the rule exist.
func TestEveryFlagHasACondition(t *testing.T) {
	var flags []plan.Flag
	for _, r := range flagRules {
		flags = append(flags, r.flag)
		for _, name := range r.values() {
			if _, is := functions()[name]; !is {
				t.Errorf("%s: no value %q", r.flag, name)
			}
		}
	}
	slices.Sort(flags)
	if want := slices.Sorted(slices.Values(plan.Flags())); !slices.Equal(flags, want) {
		t.Errorf("conditions for %q, want %q", flags, want)
	}
}
