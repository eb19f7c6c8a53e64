package matrix

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/token"

	"lockstep/internal/plan"
	"lockstep/pkg/drivers"
)

// loader reads one matrix and collects its faults.
type loader struct {
	source
	ctx      *cue.Context
	root     cue.Value
	schema   cue.Value
	syntax   *ast.File
	errors   Errors
	space    space
	groups   groupNames              // that the template gives to workloads
	brokers  map[string]*plan.Broker // nil: reported already
	secrets  []plan.Secret           // of all brokers and of influx
	skip     []pattern
	unzipped bool // axes that vary together are not equally long
}

func (l *loader) add(pos token.Pos, path, message string) {
	l.errors = append(l.errors, errorAt(pos, path, message))
}

// load reads a matrix as far as it can. The secrets are those that it found, also where there are faults.
func load(s source) (*Matrix, []plan.Secret, Errors) {
	l := &loader{source: s, ctx: cuecontext.New(), brokers: map[string]*plan.Broker{}}
	l.schema = schemaIn(l.ctx)
	l.root, l.syntax, l.errors = s.build(l.ctx)
	if !l.root.Exists() {
		return nil, nil, l.errors
	}
	l.readBrokers()
	l.validate()
	l.readAxes()
	l.group()
	l.checkAxisNames()
	l.readSkip()
	l.readOnly()
	l.readGroups()
	l.checkTables()
	m := l.matrix()
	l.checkUnused(m.refers)
	l.probe(m)
	if len(l.errors) > 0 {
		for i := range l.errors {
			if l.errors[i].File == "" {
				l.errors[i].File = s.file
			}
		}
		return nil, l.secrets, l.errors
	}
	return m, l.secrets, nil
}

// validate validates the file, as far as it does not depend on the combination.
func (l *loader) validate() {
	if err := l.root.Validate(); err != nil {
		l.errors = append(l.errors, cueErrors(l.file, err)...)
	}
	x := validator{templates: []string{"cell", "axes", "skip"}}
	x.validate(lookupDefinition(l.schema, "#Matrix"), l.root, "")
	l.errors = append(l.errors, x.errors...)
}

// checkAxisNames finds axis.NAME in the template where there is no such axis.
func (l *loader) checkAxisNames() {
	ast.Walk(l.syntax, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			l.checkSelector(sel)
		}
		return true
	}, nil)
}

func (l *loader) checkSelector(sel *ast.SelectorExpr) {
	id, ok := sel.X.(*ast.Ident)
	if !ok || id.Name != "axis" {
		return
	}
	name, _, err := ast.LabelName(sel.Sel)
	if err != nil || l.root.LookupPath(cue.MakePath(cue.Str("axes"), cue.Str(name))).Exists() {
		return
	}
	l.add(sel.Pos(), "cell", l.space.noAxis(name))
}

// checkUnused finds axes that nothing depends on.
func (l *loader) checkUnused(refers map[string]bool) {
	for _, a := range l.space.axes {
		if refers == nil || refers[a.name] || standardAxes()[a.name] != nil {
			continue
		}
		msg := fmt.Sprintf("it does not enter the cell; use axis.%s in the template, or in labels: {%s: axis.%s}", a.name, a.name, a.name)
		if near := plan.ClosestMatch(a.name, slices.Sorted(maps.Keys(standardAxes()))); near != "" {
			msg += fmt.Sprintf("; did you mean the axis %q?", near)
		}
		l.add(a.place, join("axes", a.name), msg)
	}
}

// readOnly applies --only.
func (l *loader) readOnly() {
	wanted := map[int][]bool{}
	for _, only := range l.narrow.Only {
		name, list, ok := strings.Cut(only, "=")
		fault := func(msg string) { l.errors = append(l.errors, Error{File: "--only " + only, Message: msg}) }
		if !ok {
			fault("write it as axis=value, as in mode=confirm-each")
			continue
		}
		a := l.space.find(strings.TrimSpace(name))
		if a < 0 {
			fault(l.space.noAxis(name))
			continue
		}
		texts := l.space.axes[a].texts()
		if wanted[a] == nil {
			wanted[a] = make([]bool, len(texts))
		}
		choices := []string{list}
		if !slices.Contains(texts, list) {
			choices = strings.Split(list, ",")
		}
		for _, text := range choices {
			i := slices.Index(texts, strings.TrimSpace(text))
			if i < 0 {
				fault(noValue(strings.TrimSpace(text), name, texts))
				continue
			}
			wanted[a][i] = true
		}
	}
	for a, keep := range wanted {
		for i := range keep {
			l.space.axes[a].values[i].keep = keep[i]
		}
	}
}

func noValue(text, axis string, texts []string) string {
	msg := fmt.Sprintf("axis %s has no value %q", axis, text)
	if near := plan.ClosestMatch(text, texts); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	}
	return msg + " (there are: " + strings.Join(texts, ", ") + ")"
}

// probe evaluates the template for a first combination and then once for each other value of each axis, to find now what
// would be found in the middle of the expansion.
func (l *loader) probe(m *Matrix) {
	first := make([]int, len(l.space.axes))
	for a, x := range l.space.axes {
		first[a] = slices.IndexFunc(x.values, func(v value) bool { return !v.bad })
		if first[a] < 0 {
			return
		}
	}
	w := &worker{m: m, declared: map[question]drivers.Declaration{}}
	if w.use(l.ctx, l.root, l.schema) != nil {
		return
	}
	groups := l.space.groups
	if l.unzipped {
		groups = nil
		for a := range l.space.axes {
			groups = append(groups, []int{a})
		}
	}
	found := newFindings(l.errors)
	w.examine(first, found)
	for _, group := range groups {
		for i := range l.space.axes[group[0]].values {
			combo := slices.Clone(first)
			bad := false
			for _, a := range group {
				combo[a] = i
				bad = bad || l.space.axes[a].values[i].bad
			}
			if !bad && !slices.Equal(combo, first) {
				w.examine(combo, found)
			}
		}
	}
	l.errors = append(l.errors, found.faults()...)
}
