package plan

import (
	"maps"
	"slices"
	"strings"
)

// Labels are properties of agents, or required properties, by name.
type Labels map[string]string

// Within reports whether others contain all of these labels.
func (l Labels) Within(others map[string]string) bool {
	for name, value := range l {
		if has, ok := others[name]; !ok || has != value {
			return false
		}
	}
	return true
}

// String formats the labels, sorted: "role=load zone=a".
func (l Labels) String() string {
	words := make([]string, 0, len(l))
	for _, name := range slices.Sorted(maps.Keys(l)) {
		words = append(words, name+"="+l[name])
	}
	return strings.Join(words, " ")
}

// Role is a number of agents of a cell that need the same labels.
type Role struct {
	Group  string // empty: the cell has no groups
	Name   string // "publishers", "consumers", or "publishers and consumers"
	Agents int
	On     Labels
}
