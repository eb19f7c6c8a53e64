package matrix

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
)

// groupName matches valid group names. They are short and consist of letters and digits, because they are part of queue
// names at every broker.
var groupName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,11}$`)

const maxGroupName = 12

// ofGroups are the parts of a cell that each group may override.
var ofGroups = []string{"publishers", "consumers", "topology", "message"}

// validateNames returns errors for invalid group names, and for sizes that are given twice in a group.
func validateNames(tree map[string]any) (out []problem) {
	groups, _ := tree["groups"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		group, _ := groups[name].(map[string]any)
		for _, p := range duplicateSizes(at(group, "message", "size")) {
			out = append(out, problem{join("groups", name) + "." + p.path, p.message})
		}
		if !groupName.MatchString(name) {
			out = append(out, problem{join("groups", name),
				fmt.Sprintf("%q is no valid name of a group; give up to 12 letters and digits that begin with a letter", name)})
		}
	}
	return out
}

// normaliseGroups converts the groups to a list, sorted by name. Each group inherits the missing fields from the cell.
// The cell's own publishers, consumers, topology and message are then deleted: they are not measured, and must not
// affect the cell's id.
func normaliseGroups(tree map[string]any) {
	groups, _ := tree["groups"].(map[string]any)
	delete(tree, "groups")
	var list []any
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		group, ok := groups[name].(map[string]any)
		if !ok {
			continue
		}
		whole := map[string]any{"name": name}
		for _, part := range ofGroups {
			base, _ := tree[part].(map[string]any)
			own, _ := group[part].(map[string]any)
			whole[part] = overlay(clone(base), clone(own))
		}
		normalisePart(whole)
		list = append(list, whole)
	}
	if len(list) == 0 {
		return
	}
	tree["groups"] = list
	for _, part := range ofGroups {
		delete(tree, part)
	}
}

// inconsistentParts returns the errors of a cell without groups, or of its groups.
func inconsistentParts(w plan.Workload) []problem {
	wrong := func(part plan.Workload) []problem { return append(inconsistent(part), validateShape(part)...) }
	if len(w.Groups) == 0 {
		return wrong(w)
	}
	var out []problem
	if w.Search != nil {
		out = append(out,
			problem{"search",
				"a search varies one rate, and each group has its own; use a cell without groups"})
	}
	for i, part := range w.Parts() {
		if part.Topology.Existing != "" {
			out = append(out, problem{"groups." + w.Groups[i].Name + ".topology.existing",
				"groups run at the same time, and need queues of their own; use a cell without groups"})
		}
		for _, p := range wrong(part) {
			if top, _, _ := strings.Cut(p.path, "."); slices.Contains(ofGroups, top) {
				p.path = "groups." + w.Groups[i].Name + "." + p.path
			}
			if !slices.Contains(out, p) { // errors of the cell occur once per group
				out = append(out, p)
			}
		}
	}
	return out
}
