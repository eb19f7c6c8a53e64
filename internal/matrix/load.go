package matrix

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// document is a matrix file that is built in its own CUE context, with the errors found in it.
type document struct {
	source
	ctx    *cue.Context
	root   cue.Value
	schema cue.Value
	syntax *ast.File
	errors Errors
}

func (d *document) add(pos token.Pos, path, message string) {
	d.errors = append(d.errors, errorAt(pos, path, message))
}

// loader reads one matrix, part by part. It has more than 25 methods: one per part, which use what the parts before
// found.
type loader struct {
	doc      *document
	space    space
	unzipped bool                    // zipped axes have different lengths
	groups   groupNames              // names of the template's groups
	brokers  map[string]*plan.Broker // nil: an error was reported
	secrets  []plan.Secret           // of all brokers, and of influx
	skip     []pattern
	metrics  plan.Metrics // of the drivers
}

// load reads a matrix as far as possible. It returns the secrets that it found even if there are errors.
func load(s source) (*Matrix, []plan.Secret, Errors) {
	doc := &document{source: s, ctx: cuecontext.New()}
	doc.schema = schemaIn(doc.ctx)
	doc.root, doc.syntax, doc.errors = s.build(doc.ctx)
	if !doc.root.Exists() {
		return nil, nil, doc.errors
	}
	l := &loader{doc: doc, brokers: map[string]*plan.Broker{}}
	l.readBrokers()
	l.validate()
	l.readAxes()
	l.groupAxes()
	l.checkAxisNames()
	l.readSkip()
	l.readOnly()
	l.readGroups()
	l.checkTables()
	m := l.matrix()
	l.checkUnused(m.refers)
	l.probe(m)
	if len(doc.errors) > 0 {
		for i := range doc.errors {
			if doc.errors[i].File == "" {
				doc.errors[i].File = s.file
			}
		}
		return nil, l.secrets, doc.errors
	}
	return m, l.secrets, nil
}

// validate validates the parts of the file that do not depend on the combination.
func (l *loader) validate() {
	if err := l.doc.root.Validate(); err != nil {
		var others errors.Error
		for _, e := range errors.Errors(err) {
			// of a schema that the matrix embeds; the validator reports it
			if !strings.HasSuffix(message(e), notPresent) || lastPosition(e).IsValid() {
				others = errors.Append(others, e)
			}
		}
		l.doc.errors = append(l.doc.errors, cueErrors(l.doc.file, others)...)
	}
	x := validator{templates: []string{"cell", "axes", "skip"}}
	x.validate(lookupDefinition(l.doc.schema, "#Matrix"), l.doc.root, "")
	l.doc.errors = append(l.doc.errors, x.errors...)
}

// checkAxisNames reports references axis.NAME to unknown axes, in the template and in definitions that it may use.
func (l *loader) checkAxisNames() {
	for _, decl := range l.doc.syntax.Decls {
		if f, ok := decl.(*ast.Field); ok && slices.Contains([]string{"brokers", "axes", "tables", "skip"},
			labelOf(f)) {
			continue
		}
		ast.Walk(decl, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				l.checkSelector(sel)
			}
			return true
		}, nil)
	}
}

func (l *loader) checkSelector(sel *ast.SelectorExpr) {
	id, ok := sel.X.(*ast.Ident)
	if !ok || id.Name != "axis" {
		return
	}
	_, isLet := id.Node.(*ast.LetClause)
	if _, isFor := id.Scope.(*ast.ForClause); isLet || isFor {
		return // another variable with this name
	}
	name, _, err := ast.LabelName(sel.Sel)
	if err != nil || l.doc.root.LookupPath(cue.MakePath(cue.Str("axes"), cue.Str(name))).Exists() {
		return
	}
	l.doc.add(sel.Pos(), "cell", l.space.noAxis(name))
}

// checkUnused reports axes that no part of the cell depends on.
func (l *loader) checkUnused(refers map[string]bool) {
	for _, a := range l.space.axes {
		if refers == nil || refers[a.name] || standardAxes()[a.name] != nil {
			continue
		}
		msg := fmt.Sprintf("it does not affect the cell; use axis.%s in the template, or in labels: {%s: axis.%s}",
			a.name, a.name, a.name)
		if near := plan.ClosestMatch(a.name, slices.Sorted(maps.Keys(standardAxes()))); near != "" {
			msg += fmt.Sprintf("; did you mean the axis %q?", near)
		}
		l.doc.add(a.place, join("axes", a.name), msg)
	}
}

// readOnly applies --filter.
func (l *loader) readOnly() {
	wanted := map[int][]bool{}
	for _, only := range l.doc.narrow.Filter {
		name, list, ok := strings.Cut(only, "=")
		report := func(msg string) { l.doc.errors = append(l.doc.errors, Error{File: "--filter " + only, Message: msg}) }
		if !ok {
			report("write it as axis=value, as in mode=confirm-each")
			continue
		}
		a := l.space.find(strings.TrimSpace(name))
		if a < 0 {
			report(l.space.noAxis(name))
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
				report(noValue(strings.TrimSpace(text), name, texts))
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
	return fmt.Sprintf("axis %s has no value %q", axis, text) + plan.DidYouMean(text, texts) +
		" (available: " + strings.Join(texts, ", ") + ")"
}

// probe evaluates the template for a first combination, and then once for each other value of each axis. It finds most
// errors before the expansion.
func (l *loader) probe(m *Matrix) {
	first := make([]int, len(l.space.axes))
	for a, x := range l.space.axes {
		first[a] = slices.IndexFunc(x.values, func(v value) bool { return !v.bad })
		if first[a] < 0 {
			return
		}
	}
	w := newWorker(m)
	if w.use(l.doc.ctx, l.doc.root, l.doc.schema) != nil {
		return
	}
	groups := l.space.groups
	if l.unzipped {
		groups = nil
		for a := range l.space.axes {
			groups = append(groups, []int{a})
		}
	}
	found := newFindings(l.doc.errors)
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
	l.doc.errors = append(l.doc.errors, found.errs()...)
}

// readGroups collects the names of groups in the template.
func (l *loader) readGroups() {
	ast.Walk(l.doc.syntax, func(n ast.Node) bool {
		f, ok := n.(*ast.Field)
		switch {
		case ok && slices.Contains([]string{"brokers", "axes", "tables", "labels", "skip"}, labelOf(f)):
			return false // options, axes and labels may have these names
		case ok && labelOf(f) == "groups":
			l.groups.collect(f.Value)
			return false
		case ok && labelOf(f) == "sideBySide":
			l.groups.collectBrokers(f.Value)
			return false
		}
		return true
	}, nil)
	if a := l.space.find(groupAxis); a >= 0 && l.groups.any() {
		l.doc.add(l.space.axes[a].place, join("axes", groupAxis),
			"tables use this name for the groups of the cell; rename the axis")
	}
}

// matrix returns the parts that the loader has read as a Matrix.
func (l *loader) matrix() *Matrix {
	m := &Matrix{source: l.doc.source, refers: referred(l.doc.syntax), space: l.space, skip: l.skip, brokers: l.brokers,
		drivers: map[string]func(json.RawMessage, drivers.Use) drivers.Declaration{}}
	for _, b := range l.brokers {
		if b == nil {
			continue
		}
		if d, err := drivers.Lookup(b.Driver); err == nil {
			m.drivers[b.Driver] = d.Info().Declare
		}
	}
	m.base = plan.Run{Version: plan.RecordFormat, Name: l.name(), Tables: l.tables(), Order: l.order(),
		Settle: l.duration("settle", 0), Grace: l.duration("grace", time.Minute), Source: l.record(),
		Axes: l.space.names(), Influx: l.influx(), Metrics: l.metrics}
	m.base.Repeat, m.base.Until = l.repeat()
	m.untilAt = place(l.doc.root.LookupPath(untilPath))
	m.base.Strict, _ = l.doc.root.LookupPath(cue.ParsePath("strict")).Bool()
	return m
}
