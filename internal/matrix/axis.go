package matrix

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue/token"

	"example.org/lockstep/lockstep/internal/plan"
)

// axis is a named list of values.
type axis struct {
	name   string
	values []value
	place  token.Pos
}

// value is one value of an axis.
type value struct {
	json  json.RawMessage
	text  string // as in tables and --filter
	place token.Pos
	keep  bool // not excluded by --filter
	bad   bool // an error was reported
}

func (a axis) texts() []string {
	out := make([]string, len(a.values))
	for i, v := range a.values {
		out[i] = v.text
	}
	return out
}

// space is the set of all combinations, numbered in the order of the matrix.
type space struct {
	axes   []axis
	groups [][]int // axes that vary together (zipped), outermost first
}

// maxCombinations limits the size of a matrix. A larger one is a mistake.
const maxCombinations = 10_000_000

// size returns the number of combinations, at most maxCombinations+1.
func (s space) size() int {
	n := 1
	for _, g := range s.groups {
		n = min(n*len(s.axes[g[0]].values), maxCombinations+1)
	}
	return n
}

// longest returns the number of bytes of the names and values of the longest combination, and the longest value.
func (s space) longest() (size int, longest value) {
	for _, g := range s.groups {
		longestOf := 0
		for i := range s.axes[g[0]].values {
			n := 0
			for _, a := range g {
				v := s.axes[a].values[i]
				n += len(s.axes[a].name) + len(v.json)
				if len(v.json) > len(longest.json) {
					longest = v
				}
			}
			longestOf = max(longestOf, n)
		}
		size += longestOf
	}
	return size, longest
}

// at returns, for each axis, the index of its value in a combination.
func (s space) at(ordinal int) []int {
	out := make([]int, len(s.axes))
	for i := len(s.groups) - 1; i >= 0; i-- {
		n := len(s.axes[s.groups[i][0]].values)
		for _, a := range s.groups[i] {
			out[a] = ordinal % n
		}
		ordinal /= n
	}
	return out
}

// kept reports whether --filter keeps the combination.
func (s space) kept(combo []int) bool {
	for a, i := range combo {
		if !s.axes[a].values[i].keep {
			return false
		}
	}
	return true
}

func (s space) coordinates(combo []int) []plan.Coordinate {
	out := make([]plan.Coordinate, len(combo))
	for a, i := range combo {
		out[a] = plan.Coordinate{Axis: s.axes[a].name, Value: s.axes[a].values[i].json}
	}
	return out
}

// name returns a combination on one line, for messages.
func (s space) name(combo []int) string {
	return plan.Cell{Coordinates: s.coordinates(combo)}.Name()
}

func (s space) names() []string {
	out := make([]string, len(s.axes))
	for i, a := range s.axes {
		out[i] = a.name
	}
	return out
}

func (s space) find(name string) int {
	return slices.IndexFunc(s.axes, func(a axis) bool { return a.name == name })
}

// noAxis returns the message for an unknown axis name.
func (s space) noAxis(name string) string {
	msg := fmt.Sprintf("unknown axis %q", name) + plan.DidYouMean(name, s.names())
	if len(s.axes) == 0 {
		return msg + ": the matrix has none"
	}
	return msg + " (available: " + strings.Join(s.names(), ", ") + ")"
}

// pattern excludes combinations. It is a struct, and matches a combination if every field matches. Each field is
// compared once with each value of its axis.
type pattern struct {
	text  string
	place string
	fits  map[int][]bool // axis: one entry per value
}

func (p pattern) subsumes(combo []int) bool {
	for a, fits := range p.fits {
		if !fits[combo[a]] {
			return false
		}
	}
	return true
}
