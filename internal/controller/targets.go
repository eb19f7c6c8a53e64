package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// disturbers finds the agents that do the faults of a cell to its targets: of those chosen already, or else others, which it adds to them. The
// words say what is missing; empty: nothing is.
func disturbers(w plan.Workload, chosen, there []wire.AgentInfo) (all []wire.AgentInfo, targets map[string][]string, missing string) {
	all, targets = slices.Clone(chosen), map[string][]string{}
	wanted := w.Targets()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		has := func(a wire.AgentInfo) bool { return a.Targets[name] != nil }
		who := slices.IndexFunc(all, has)
		if who < 0 {
			i := slices.IndexFunc(there, has)
			if i < 0 {
				return all, nil, fmt.Sprintf("no agent may disturb %q: start one on that host with --disturb FILE; %s", name, known(there))
			}
			all, who = append(all, there[i]), len(all)
		}
		for _, a := range there {
			if has(a) && a.Host != all[who].Host {
				return all, nil, fmt.Sprintf("agents of the hosts %s and %s may both disturb %q: give each a name of its own", all[who].Host, a.Host, name)
			}
		}
		can := all[who].Targets[name]
		for _, kind := range wanted[name] {
			if !slices.Contains(can, kind) {
				return all, nil, fmt.Sprintf("agent %s cannot %s %q: its --disturb file allows %s", all[who].Agent, kind, name, strings.Join(can, ", "))
			}
		}
		targets[all[who].Agent] = append(targets[all[who].Agent], name)
	}
	return all, targets, ""
}

// known says what can be disturbed.
func known(agents []wire.AgentInfo) string {
	var list []string
	for _, a := range agents {
		for _, name := range slices.Sorted(maps.Keys(a.Targets)) {
			if text := fmt.Sprintf("%s (%s)", name, strings.Join(a.Targets[name], ", ")); !slices.Contains(list, text) {
				list = append(list, text)
			}
		}
	}
	if len(list) == 0 {
		return "no agent that is there names anything"
	}
	return "there are: " + strings.Join(list, "; ")
}
