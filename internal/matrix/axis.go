package matrix

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
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

// readAxes reads the field axes.
func (l *loader) readAxes() {
	it, err := l.doc.root.LookupPath(cue.ParsePath("axes")).Fields()
	if err != nil {
		return // no axes, or reported by the validation
	}
	for it.Next() {
		a := axis{name: it.Selector().Unquoted(), place: it.Value().Pos()}
		list, err := it.Value().List()
		if err != nil {
			continue // reported by the validation
		}
		path := join("axes", a.name)
		for i := 0; list.Next(); i++ {
			a.values = append(a.values, l.readValue(a, list.Value(), fmt.Sprintf("%s[%d]", path, i)))
		}
		if len(a.values) == 0 {
			l.doc.add(a.place, path, "it has no values; give at least one, or remove the axis")
			continue
		}
		l.space.axes = append(l.space.axes, a)
	}
}

func (l *loader) readValue(a axis, v cue.Value, path string) value {
	out := value{place: place(v), keep: true}
	text, err := v.MarshalJSON()
	if err != nil {
		out.bad = true
		var x validator
		x.validate(l.axisSchema(a.name), v, path)
		l.doc.errors = append(l.doc.errors, x.errors...)
		return out
	}
	out.json = text
	out.text = plan.Coordinate{Value: text}.Text()
	if a.name == "broker" {
		out.bad = out.bad || !l.isBroker(v, path)
	} else if schema := l.axisSchema(a.name); schema.Exists() {
		var x validator
		x.validate(schema, v, path)
		l.doc.errors = append(l.doc.errors, x.errors...)
		out.bad = out.bad || len(x.errors) > 0
	}
	return out
}

func (l *loader) isBroker(v cue.Value, path string) bool {
	name, err := v.String()
	if _, ok := l.brokers[name]; ok && err == nil {
		return true
	}
	l.doc.add(place(v), path, noBroker(l.brokers, show(v), name))
	return false
}

// axisSchema returns the schema of the field that a standard axis sets. For other axes it returns a schema that allows
// everything.
func (l *loader) axisSchema(name string) cue.Value {
	paths := standardAxes()[name]
	if paths == nil {
		return l.doc.ctx.CompileString("_")
	}
	schema := lookupDefinition(l.doc.schema, "#Cell")
	for part := range strings.SplitSeq(paths[0], ".") {
		schema = lookup(schema, cue.Str(part))
	}
	return schema
}

// groupAxes combines the axes that vary together.
func (l *loader) groupAxes() {
	partner := map[int]int{} // axis to its zip
	for z, names := range l.readZips() {
		for _, name := range names {
			if a := l.space.find(name); a >= 0 {
				partner[a] = z
			}
		}
	}
	placed := map[int]int{} // zip to its group
	for a := range l.space.axes {
		z, zipped := partner[a]
		if g, ok := placed[z]; zipped && ok {
			l.space.groups[g] = append(l.space.groups[g], a)
			continue
		}
		if zipped {
			placed[z] = len(l.space.groups)
		}
		l.space.groups = append(l.space.groups, []int{a})
	}
	for _, g := range l.space.groups {
		l.checkDuplicates(g)
	}
	if n := l.space.size(); n > maxCombinations {
		l.doc.add(l.doc.root.LookupPath(cue.ParsePath("axes")).Pos(), "axes",
			fmt.Sprintf("they have more than %d combinations; shorten some", maxCombinations))
	}
}

// checkDuplicates reports values, or combinations of values of zipped axes, that occur twice.
func (l *loader) checkDuplicates(group []int) {
	first := l.space.axes[group[0]]
	known := map[string]bool{}
	for i, v := range first.values {
		key := ""
		for _, a := range group {
			key += l.space.axes[a].values[i].text + "\x00"
		}
		if known[key] && v.json != nil {
			l.doc.add(v.place, fmt.Sprintf("%s[%d]", join("axes", first.name), i), v.text+" is duplicated; remove one")
		}
		known[key] = true
	}
}

// readZips reads and checks the field zip.
func (l *loader) readZips() [][]string {
	var out [][]string
	used := map[string]bool{}
	for i, v := range elements(l.doc.root.LookupPath(cue.ParsePath("zip"))) {
		var names []string
		length, path := -1, fmt.Sprintf("zip[%d]", i)
		sizes := []string{}
		equal := true
		for _, x := range elements(v) {
			name, err := x.String()
			if err != nil {
				continue // reported by the validation
			}
			a := l.space.find(name)
			switch {
			case a < 0:
				if !l.doc.root.LookupPath(cue.MakePath(cue.Str("axes"), cue.Str(name))).Exists() {
					l.doc.add(x.Pos(), path, l.space.noAxis(name))
				}
				continue
			case used[name]:
				l.doc.add(x.Pos(), path, fmt.Sprintf("axis %q is in another zip; name it once", name))
				continue
			}
			used[name] = true
			n := len(l.space.axes[a].values)
			sizes = append(sizes, fmt.Sprintf("%s has %d", name, n))
			equal, length = equal && (length < 0 || n == length), n
			names = append(names, name)
		}
		if !equal {
			l.doc.add(v.Pos(), path, "zipped axes need the same number of values: "+strings.Join(sizes, ", "))
			l.unzipped = true
			continue
		}
		out = append(out, names)
	}
	return out
}
