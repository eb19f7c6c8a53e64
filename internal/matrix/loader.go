package matrix

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
	"example.org/lockstep/lockstep/internal/sampling"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// loader reads one matrix in its own CUE context, part by part. It has more than 25 methods: one per part, which use
// the results of the parts before.
type loader struct {
	source   source
	ctx      *cue.Context
	root     cue.Value
	schema   cue.Value
	syntax   *ast.File
	errors   Errors
	space    space
	unzipped bool                    // zipped axes have different lengths
	groups   groupNames              // names of the template's groups
	brokers  map[string]*plan.Broker // nil: an error was reported
	secrets  []plan.Secret           // of all brokers, and of influx
	skip     []pattern
	metrics  plan.Metrics // of the drivers
}

// at returns the value at a path, which may not exist.
func (l *loader) at(path string) cue.Value { return l.root.LookupPath(cue.ParsePath(path)) }

func (l *loader) add(pos token.Pos, path, message string) {
	l.errors = append(l.errors, errorAt(pos, path, message))
}

// load reads a matrix as far as possible. It returns the secrets that it found even if there are errors.
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
	l.groupAxes()
	l.checkAxisNames()
	l.readSkip()
	l.readFilter()
	l.readGroups()
	l.checkTables()
	m := l.matrix()
	l.checkUnused(m.refers)
	l.probe(m)
	if len(l.errors) > 0 {
		for i := range l.errors {
			l.errors[i].File = cmp.Or(l.errors[i].File, s.file)
		}
		return nil, l.secrets, l.errors
	}
	return m, l.secrets, nil
}

// validate validates the parts of the file that do not depend on the combination.
func (l *loader) validate() {
	if err := l.root.Validate(); err != nil {
		var others errors.Error
		for _, e := range errors.Errors(err) {
			// of a schema that the matrix embeds; the validator reports it
			if !strings.HasSuffix(message(e), notPresent) || lastPosition(e).IsValid() {
				others = errors.Append(others, e)
			}
		}
		l.errors = append(l.errors, cueErrors(l.source.file, others)...)
	}
	x := validator{templates: []string{"cell", "axes", "skip"}}
	x.validate(lookupDefinition(l.schema, "#Matrix"), l.root, "")
	l.errors = append(l.errors, x.errors...)
}

// readBrokers reads the field brokers, and validates the options of each with its driver's schema.
func (l *loader) readBrokers() {
	it, err := l.at("brokers").Fields()
	if err != nil {
		return // reported by the validation
	}
	for it.Next() {
		name := it.Selector().Unquoted()
		l.brokers[name] = l.readBroker(name, it.Value())
		if len(name) > plan.MaxName {
			l.add(it.Value().Pos(), "brokers", fmt.Sprintf("a name has %d bytes, and the maximum is %d; shorten it", len(name),
				plan.MaxName))
		}
	}
	if len(l.brokers) == 0 {
		l.add(place(l.at("brokers")), "brokers",
			`it is empty; give at least one, as in brokers: local: {driver: "nats", options: embedded: true}`)
	}
}

// readBroker returns nil if it reported an error.
func (l *loader) readBroker(name string, v cue.Value) *plan.Broker {
	path := join("brokers", name)
	driver := v.LookupPath(cue.ParsePath("driver"))
	wanted, err := driver.String()
	if err != nil {
		return nil
	}
	d, err := drivers.Lookup(wanted)
	if err != nil {
		l.add(place(driver), path+".driver", noDriver(wanted))
		return nil
	}
	l.metrics = l.metrics.Join(d.Info().Metrics...)
	before := len(l.errors)
	b := &plan.Broker{Name: name, Driver: wanted}
	l.readOptions(b, d.Info(), v)
	b.Version, _ = v.LookupPath(cue.ParsePath("version")).String()
	b.Via, _ = v.LookupPath(cue.ParsePath("via")).String()
	l.secrets = append(l.secrets, plan.SecretsOf(path+".via", b.Via, false)...)
	process := v.LookupPath(cue.ParsePath("process"))
	if process.Exists() {
		text, err := process.MarshalJSON()
		if err != nil || json.Unmarshal(text, &b.Process) != nil {
			return nil // reported by the validation
		}
	}
	if len(l.errors) > before {
		return nil
	}
	if d := d.Info().Declare(plan.Unfilled(b.Options), useOf(plan.Default())); len(d.Capabilities.Modes) == 0 {
		l.add(place(v), path+".options", strings.Join(d.Rejections, "; "))
		return nil
	}
	return b
}

func noDriver(name string) string {
	names := drivers.Names()
	return fmt.Sprintf("unknown driver %q", name) + plan.DidYouMean(name, names) +
		" (available: " + strings.Join(names, ", ") +
		"); for a driver in another language pass --drivers FILE"
}

// noBroker returns the error of a broker that does not exist. shown is its name as the matrix writes it.
func noBroker(brokers map[string]*plan.Broker, shown, name string) string {
	return fmt.Sprintf("unknown broker %s", shown) + plan.DidYouMean(name, slices.Sorted(maps.Keys(brokers))) +
		brokersThere(brokers)
}

func brokersThere(brokers map[string]*plan.Broker) string {
	return " (available: " + strings.Join(slices.Sorted(maps.Keys(brokers)), ", ") + ")"
}

// readOptions reads the options, with the driver's defaults, and the paths of those that are secret.
func (l *loader) readOptions(b *plan.Broker, info drivers.Info, broker cue.Value) {
	v, path := broker.LookupPath(cue.ParsePath("options")), join("brokers", b.Name)+".options"
	schema := l.ctx.CompileString(info.Schema,
		cue.Filename("the schema of driver "+info.Name)).LookupPath(cue.ParsePath("#Options"))
	if schema.Err() != nil {
		l.add(place(v), path, "the schema of driver "+info.Name+" is invalid: "+schema.Err().Error())
		return
	}
	whole := schema
	if v.Exists() {
		whole = schema.Unify(v)
	} else {
		v = l.ctx.CompileString("{}", cue.Filename(inheritedFile))
	}
	l.findSecrets(b, whole, path, "", false)
	x := validator{fallback: place(broker)}
	if x.validate(schema, v, path); len(x.errors) == 0 {
		var err error
		if b.Options, err = whole.MarshalJSON(); err != nil {
			x.add(v, path, err.Error())
		}
	}
	l.errors = append(l.errors, x.errors...)
}

// findSecrets finds the secret strings in options. The attribute @secret() marks a field and all its descendants, in a
// driver's schema or in the matrix. in is the path within the options, as in plan.Broker.Secret.
func (l *loader) findSecrets(b *plan.Broker, v cue.Value, path, in string, marked bool) {
	if attribute := v.Attribute("secret"); !marked && attribute.Err() == nil {
		marked = true
		b.Secret = append(b.Secret, in)
	}
	if text, err := v.String(); err == nil {
		l.secrets = append(l.secrets, plan.SecretsOf(path, text, marked)...)
	} else if items, err := v.List(); err == nil {
		for items.Next() {
			l.findSecrets(b, items.Value(), path, in, marked)
		}
	} else if fields, err := v.Fields(); err == nil {
		for fields.Next() {
			if at := fields.Selector(); at.IsString() { // an invalid matrix may have other kinds of fields
				l.findSecrets(b, fields.Value(), join(path, at.Unquoted()),
					strings.TrimPrefix(in+"."+at.Unquoted(), "."), marked)
			}
		}
	}
}

// readAxes reads the field axes.
func (l *loader) readAxes() {
	it, err := l.at("axes").Fields()
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
			a.values = append(a.values, l.readValue(a.name, list.Value(), fmt.Sprintf("%s[%d]", path, i)))
		}
		if len(a.values) == 0 {
			l.add(a.place, path, "it has no values; give at least one, or remove the axis")
			continue
		}
		l.space.axes = append(l.space.axes, a)
	}
}

func (l *loader) readValue(axis string, v cue.Value, path string) value {
	out := value{place: place(v), keep: true}
	before := len(l.errors)
	text, err := v.MarshalJSON()
	if err == nil {
		out.json, out.text = text, plan.Coordinate{Value: text}.Text()
	}
	name, noText := v.String()
	switch _, known := l.brokers[name]; {
	case axis != "broker" || err != nil:
		var x validator
		x.validate(l.axisSchema(axis), v, path)
		l.errors = append(l.errors, x.errors...)
	case !known || noText != nil:
		l.add(place(v), path, noBroker(l.brokers, show(v), name))
	}
	out.bad = err != nil || len(l.errors) > before
	return out
}

// axisSchema returns the schema of the field that a standard axis sets. For other axes it returns a schema that allows
// everything.
func (l *loader) axisSchema(name string) cue.Value {
	paths := standardAxes()[name]
	if paths == nil {
		return l.ctx.CompileString("_")
	}
	schema := lookupDefinition(l.schema, "#Cell")
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
		l.add(l.at("axes").Pos(), "axes",
			fmt.Sprintf("they have more than %d combinations; shorten some", maxCombinations))
	}
	if n := len(l.space.axes); n > plan.MaxAxes {
		l.add(l.at("axes").Pos(), "axes", fmt.Sprintf("there are %d axes, and the maximum is %d; remove some", n, plan.MaxAxes))
	}
	if size, longest := l.space.longest(); size > plan.MaxCoordinates {
		l.add(longest.place, "axes", fmt.Sprintf("the names and values of one combination have up to %d bytes, and the maximum is %d; "+
			"shorten this value, or give it a name in an axis", size, plan.MaxCoordinates))
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
			l.add(v.place, fmt.Sprintf("%s[%d]", join("axes", first.name), i), v.text+" is duplicated; remove one")
		}
		known[key] = true
	}
}

// readZips reads and checks the field zip.
func (l *loader) readZips() [][]string {
	var out [][]string
	used := map[string]bool{}
	for i, v := range elements(l.at("zip")) {
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
				l.checkAxis(name, x.Pos(), path)
				continue
			case used[name]:
				l.add(x.Pos(), path, fmt.Sprintf("axis %q is in another zip; name it once", name))
				continue
			}
			used[name] = true
			n := len(l.space.axes[a].values)
			sizes = append(sizes, fmt.Sprintf("%s has %d", name, n))
			equal, length = equal && (length < 0 || n == length), n
			names = append(names, name)
		}
		if !equal {
			l.add(v.Pos(), path, "zipped axes need the same number of values: "+strings.Join(sizes, ", "))
			l.unzipped = true
			continue
		}
		out = append(out, names)
	}
	return out
}

// checkAxisNames reports references axis.NAME to unknown axes, in the template and in definitions that it may use.
func (l *loader) checkAxisNames() {
	for _, decl := range l.syntax.Decls {
		if f, ok := decl.(*ast.Field); ok && slices.Contains([]string{"brokers", "axes", "tables", "skip"},
			labelOf(f)) {
			continue
		}
		ast.Walk(decl, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			id, ok := sel.X.(*ast.Ident)
			if !ok || id.Name != "axis" {
				return true
			}
			_, isLet := id.Node.(*ast.LetClause)
			if _, isFor := id.Scope.(*ast.ForClause); isLet || isFor {
				return true // another variable with this name
			}
			if name, _, err := ast.LabelName(sel.Sel); err == nil {
				l.checkAxis(name, sel.Pos(), "cell")
			}
			return true
		}, nil)
	}
}

// checkAxis reports an error unless the matrix has an axis, which may be invalid.
func (l *loader) checkAxis(name string, pos token.Pos, path string) {
	if !l.root.LookupPath(cue.MakePath(cue.Str("axes"), cue.Str(name))).Exists() {
		l.add(pos, path, l.space.noAxis(name))
	}
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
		l.add(a.place, join("axes", a.name), msg)
	}
}

// readSkip reads the field skip.
func (l *loader) readSkip() {
	for i, v := range elements(l.at("skip")) {
		if v.Validate() != nil {
			continue // reported by the validation
		}
		path := fmt.Sprintf("skip[%d]", i)
		it, err := v.Fields()
		if err != nil || !hasFields(v) {
			l.add(v.Pos(), path,
				show(v)+" is no pattern; give a struct of axes, as in {mode: \"confirm-each\", threads: >3}")
			continue
		}
		pos := v.Pos()
		p := pattern{text: show(v), place: fmt.Sprintf("%s:%d:%d", filepath.Base(pos.Filename()), pos.Line(),
			pos.Column()), fits: map[int][]bool{}}
		ok := true
		for it.Next() {
			ok = l.readSkipField(p, it.Selector().Unquoted(), it.Value(), path) && ok
		}
		if ok {
			l.skip = append(l.skip, p)
		}
	}
}

func (l *loader) readSkipField(p pattern, name string, v cue.Value, path string) bool {
	a := l.space.find(name)
	if a < 0 {
		l.checkAxis(name, v.Pos(), path)
		return false
	}
	values := elements(l.root.LookupPath(cue.MakePath(cue.Str("axes"), cue.Str(name))))
	fits := make([]bool, len(values))
	for i, x := range values {
		fits[i] = v.Subsume(x) == nil
	}
	p.fits[a] = fits
	// A value that the axis of the file does not have is a mistake. A narrowed axis may lack it.
	if v.IsConcrete() && !slices.Contains(fits, true) && len(l.source.narrow.Set) == 0 && !l.source.narrow.Quick {
		l.add(place(v), join(path, name), noValue(strings.TrimSuffix(strings.TrimPrefix(show(v), `"`), `"`), name, l.space.axes[a].texts()))
		return false
	}
	return true
}

// readFilter applies --filter.
func (l *loader) readFilter() {
	wanted := map[int][]bool{}
	for _, filter := range l.source.narrow.Filter {
		name, list, ok := strings.Cut(filter, "=")
		report := func(msg string) { l.errors = append(l.errors, Error{File: "--filter " + filter, Message: msg}) }
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
			text = strings.TrimSpace(text)
			if !slices.Contains(texts, text) {
				report(noValue(text, name, texts))
			}
			for i := range texts { // zipped axes may have equal values
				wanted[a][i] = wanted[a][i] || texts[i] == text
			}
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

// readGroups collects the names of groups in the template.
func (l *loader) readGroups() {
	ast.Walk(l.syntax, func(n ast.Node) bool {
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
		l.add(l.space.axes[a].place, join("axes", groupAxis),
			"tables use this name for the groups of the cell; rename the axis")
	}
}

// checkTables checks the axes, groups and values of the tables.
func (l *loader) checkTables() {
	for i, t := range elements(l.at("tables")) {
		path := fmt.Sprintf("tables[%d]", i)
		shown := map[string]bool{}
		for _, part := range []string{"split", "rows", "columns"} {
			for _, x := range elements(t.LookupPath(cue.ParsePath(part))) {
				name, err := x.String()
				if err != nil {
					continue // reported by the validation
				}
				if shown[name] {
					l.add(x.Pos(), join(path, part), fmt.Sprintf("axis %q is duplicated in the table; remove one", name))
				}
				shown[name] = true
				if name != groupAxis || !l.groups.any() {
					l.checkAxis(name, x.Pos(), join(path, part))
				}
			}
		}
		values := t.LookupPath(cue.ParsePath("values"))
		for _, x := range elements(values) {
			if name, err := x.String(); err == nil && !l.isValue(name) {
				l.add(x.Pos(), join(path, "values"), l.noTableValue(name))
			}
		}
		if values.Exists() && values.Validate() == nil && len(elements(values)) == 0 {
			l.add(place(values), join(path, "values"),
				"it is empty; give at least one value, as in [\"publish.rate\"]")
		}
		headings, err := t.LookupPath(cue.ParsePath("headings")).Fields()
		for err == nil && headings.Next() { // others have no effect
			if name := headings.Selector().Unquoted(); l.space.find(name) < 0 && !l.isValue(name) &&
				(name != groupAxis || !l.groups.any()) {
				l.add(headings.Value().Pos(), join(path, "headings"),
					fmt.Sprintf("%q is neither an axis nor a value of the table; remove it", name))
			}
		}
		if best := l.checkBest(t, path); !best && len(shown) > 0 {
			l.checkHidden(t, path, shown)
		}
	}
}

// checkHidden reports axes that a table does not show, so that it would mix their values.
func (l *loader) checkHidden(t cue.Value, path string, shown map[string]bool) {
	for name := range shown {
		if l.space.find(name) < 0 && name != groupAxis {
			return // reported already; it may be a misspelt axis
		}
	}
	for _, group := range l.space.groups {
		names, kept, seen := []string{}, 0, false
		for _, a := range group {
			names = append(names, l.space.axes[a].name)
			seen = seen || shown[l.space.axes[a].name]
		}
		for _, v := range l.space.axes[group[0]].values {
			if v.keep {
				kept++
			}
		}
		if !seen && kept > 1 {
			l.add(t.Pos(), path,
				fmt.Sprintf("axis %s has %d values, but the table does not show it; name it in split, rows or columns",
					strings.Join(names, " or "), kept))
		}
	}
}

// checkBest checks a table of best cells. It reports whether the table is one.
func (l *loader) checkBest(t cue.Value, path string) bool {
	var chosen []string
	for _, which := range []string{"highest", "lowest"} {
		x := t.LookupPath(cue.ParsePath(which))
		name, err := x.String()
		if err != nil {
			continue // missing, or reported by the validation
		}
		chosen = append(chosen, which)
		switch {
		case !l.isValue(name):
			l.add(x.Pos(), join(path, which), l.noTableValue(name))
		case len(chosen) > 1:
			l.add(x.Pos(), join(path, which), "the table also has highest; use a second table for lowest")
		case len(elements(t.LookupPath(cue.ParsePath("columns")))) > 0:
			l.add(x.Pos(), join(path, which),
				"a table of best cells has no columns; name the axes in rows or split, or remove them")
		}
	}
	return len(chosen) > 0
}

func noTableValue(name string, metrics plan.Metrics) string {
	type family struct{ stem, suffix string } // values that differ only in their quantile or statistic
	var families []family
	of := map[family][]string{} // quantiles and statistics
	for _, v := range metrics.Values() {
		f, which := family{stem: v.Name}, ""
		if stem, q, _, is := plan.SplitQuantile(v.Name); is {
			f, which = family{stem + ".", strings.TrimPrefix(v.Name, stem+"."+q.Name)}, q.Name
		}
		if strings.HasPrefix(v.Name, "broker.") {
			f, which = family{stem: "broker.METRIC."}, v.Name[strings.LastIndex(v.Name, ".")+1:]
		}
		if of[f] == nil {
			families = append(families, f)
		}
		of[f] = append(of[f], which)
	}
	short := make([]string, len(families))
	for i, f := range families {
		which := of[f][0]
		if last := of[f][len(of[f])-1]; last != which {
			which += "…" + last
		}
		short[i] = f.stem + which + f.suffix
	}
	return fmt.Sprintf("unknown value %q", name) + plan.DidYouMean(name, metrics.Names()) +
		" (available: " + strings.Join(short, ", ") + ")"
}

// isValue reports whether tables can show a value with this name, of the cell or of a group.
func (l *loader) isValue(name string) bool {
	group, value := plan.SplitGroup(name)
	_, known := l.metrics.ValueNamed(value)
	return known && !strings.Contains(value, "/") && (group == "" || l.groups.has(group))
}

// noTableValue returns the message for a name that isValue rejects.
func (l *loader) noTableValue(name string) string {
	group, value := plan.SplitGroup(name)
	switch {
	case group == "" || l.groups.has(group):
		return noTableValue(value, l.metrics)
	case !l.groups.any():
		return fmt.Sprintf("%q is a value of a group, and the cell has no groups; use %q", name, value)
	}
	msg := fmt.Sprintf("unknown group %q", group)
	if near := plan.ClosestMatch(group, l.groups.names); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near+"/"+value)
	}
	return msg + " (available: " + strings.Join(l.groups.names, ", ") + ")"
}

// matrix returns the parts that the loader has read as a Matrix.
func (l *loader) matrix() *Matrix {
	m := &Matrix{source: l.source, refers: referred(l.syntax), space: l.space, skip: l.skip, brokers: l.brokers,
		drivers: map[string]func(json.RawMessage, drivers.Use) drivers.Declaration{}}
	for _, b := range l.brokers {
		if b == nil {
			continue
		}
		if d, err := drivers.Lookup(b.Driver); err == nil {
			m.drivers[b.Driver] = d.Info().Declare
		}
	}
	m.base = plan.Run{Version: plan.RecordFormat, Grace: plan.Duration(time.Minute), Source: l.record(),
		Axes: l.space.names(), Influx: l.influx(), Metrics: l.metrics}
	given := map[string]any{}
	for _, field := range []string{"name", "tables", "settle", "grace", "strict"} {
		if v := l.at(field); v.Exists() {
			given[field], _ = plainData(v)
		}
	}
	err := decode(given, &m.base) // was reported
	if n := len(m.base.Tables); n > plan.MaxTables {
		l.add(place(l.at("tables")), "tables", fmt.Sprintf("there are %d tables, and the maximum is %d; remove some", n,
			plan.MaxTables))
	}
	for i, t := range m.base.Tables {
		if beyond := t.Bounded(); err == nil && beyond != nil {
			l.add(place(elements(l.at("tables"))[i]), fmt.Sprintf("tables[%d]", i), fmt.Sprintf("it has %v", beyond))
		}
	}
	if err == nil && len(m.base.Tables) == 0 {
		rows := l.space.names()
		if l.groups.any() {
			rows = append(rows, groupAxis)
		}
		m.base.Tables = []plan.Table{{Rows: rows}} // Run adds the values
	}
	seed, err := l.at("order.random").Uint64()
	m.base.Order = plan.Order{Random: err == nil, Seed: seed}
	m.base.Repeat, m.base.Until = l.repeat()
	m.untilAt = place(l.at("repeat.until"))
	return m
}

// repeat returns the number of repetitions, or their maximum and the stop rule.
func (l *loader) repeat() (n int, until *plan.StopRule) {
	if n, err := l.at("repeat").Int64(); err == nil {
		return int(n), nil
	}
	text, err := l.at("repeat.until").String()
	if err != nil { // errors were reported, or until is missing
		return 1, nil
	}
	u, err := rules.ParseStopRule(text, l.metrics)
	if err != nil {
		l.add(place(l.at("repeat.until")), "repeat.until", err.Error())
	}
	maximum, missing := l.at("repeat.max").Int64()
	if err != nil || missing != nil {
		return 1, nil // errors were reported
	}
	if minimum := sampling.MinRepetitions(u); int(maximum) < minimum {
		l.add(place(l.at("repeat.max")), "repeat.max",
			fmt.Sprintf("%d repetitions can never end early: an interval at %g %% needs %d; give at least %d (recommended: %d), or a lower confidence: %q",
				maximum, 100*u.Confidence, minimum, minimum, 2*minimum, "ci < 5% at 80%"))
	}
	return int(maximum), &u
}

// influx returns the InfluxDB target, or nil.
func (l *loader) influx() *plan.Influx {
	v := l.at("influx")
	var i plan.Influx
	if !v.Exists() || v.Decode(&i) != nil { // errors were reported
		return nil
	}
	l.secrets = append(l.secrets, i.Secrets()...)
	return &i
}

// record returns the source of the matrix, including its secrets.
func (l *loader) record() plan.Source {
	sum := sha256.Sum256(l.source.text)
	n := l.source.narrow
	s := plan.Source{File: filepath.Base(l.source.file), Path: l.source.file, SHA256: hex.EncodeToString(sum[:]),
		Text: string(l.source.text), Quick: n.Quick, Set: slices.Clone(n.Set), Filter: slices.Clone(n.Filter)}
	if path, err := filepath.Abs(l.source.file); err == nil {
		s.Path = path
	}
	return s
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
	examine := func(combo []int) {
		for _, f := range w.evaluate(combo).errs {
			found.add(f, m.space.name(combo))
		}
	}
	examine(first)
	for _, group := range groups {
		for i := range l.space.axes[group[0]].values {
			combo := slices.Clone(first)
			bad := false
			for _, a := range group {
				combo[a] = i
				bad = bad || l.space.axes[a].values[i].bad
			}
			if !bad && !slices.Equal(combo, first) {
				examine(combo)
			}
		}
	}
	l.errors = append(l.errors, found.errs()...)
}
