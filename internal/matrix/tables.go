package matrix

import (
	"fmt"
	"strings"

	"cuelang.org/go/cue"

	"example.org/lockstep/lockstep/internal/plan"
)

// checkTables checks the axes, groups and values of the tables.
func (l *loader) checkTables() {
	for i, t := range elements(l.doc.root.LookupPath(cue.ParsePath("tables"))) {
		path := fmt.Sprintf("tables[%d]", i)
		shown := map[string]bool{}
		for _, part := range []string{"split", "rows", "columns"} {
			for _, x := range elements(t.LookupPath(cue.ParsePath(part))) {
				l.checkTableAxis(x, join(path, part), shown)
			}
		}
		values := t.LookupPath(cue.ParsePath("values"))
		for _, x := range elements(values) {
			if name, err := x.String(); err == nil && !l.isValue(name) {
				l.doc.add(x.Pos(), join(path, "values"), l.noTableValue(name))
			}
		}
		if values.Exists() && values.Validate() == nil && len(elements(values)) == 0 {
			l.doc.add(place(values), join(path, "values"),
				"it is empty; give at least one value, as in [\"publish.rate\"]")
		}
		l.checkHeadings(t, path)
		if best := l.checkBest(t, path); !best && len(shown) > 0 {
			l.checkHidden(t, path, shown)
		}
	}
}

func (l *loader) checkTableAxis(x cue.Value, path string, shown map[string]bool) {
	name, err := x.String()
	if err != nil {
		return // reported by the validation
	}
	if shown[name] {
		l.doc.add(x.Pos(), path, fmt.Sprintf("axis %q is duplicated in the table; remove one", name))
	}
	shown[name] = true
	if !l.doc.root.LookupPath(cue.MakePath(cue.Str("axes"), cue.Str(name))).Exists() &&
		(name != groupAxis || !l.groups.any()) {
		l.doc.add(x.Pos(), path, l.space.noAxis(name))
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
			l.doc.add(t.Pos(), path,
				fmt.Sprintf("axis %s has %d values, but the table does not show it; name it in split, rows or columns",
					strings.Join(names, " or "), kept))
		}
	}
}

// checkHeadings reports headings for unknown names, which would have no effect.
func (l *loader) checkHeadings(t cue.Value, path string) {
	it, err := t.LookupPath(cue.ParsePath("headings")).Fields()
	if err != nil {
		return // missing, or reported by the validation
	}
	for it.Next() {
		if name := it.Selector().Unquoted(); l.space.find(name) < 0 && !l.isValue(name) &&
			(name != groupAxis || !l.groups.any()) {
			l.doc.add(it.Value().Pos(), join(path, "headings"), fmt.Sprintf("%q is neither an axis nor a value of the table; remove it", name))
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
			l.doc.add(x.Pos(), join(path, which), l.noTableValue(name))
		case len(chosen) > 1:
			l.doc.add(x.Pos(), join(path, which), "the table also has highest; use a second table for lowest")
		case len(elements(t.LookupPath(cue.ParsePath("columns")))) > 0:
			l.doc.add(x.Pos(), join(path, which),
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

// tables returns the tables of the matrix, or a default table.
func (l *loader) tables() []plan.Table {
	var out []plan.Table
	if err := l.doc.root.LookupPath(cue.ParsePath("tables")).Decode(&out); err == nil && len(out) > 0 {
		return out
	}
	rows := l.space.names()
	if l.groups.any() {
		rows = append(rows, groupAxis)
	}
	return []plan.Table{{Rows: rows, Values: []string{"publish.rate", "consume.rate", "publish.p50", "publish.p99",
		"e2e.p50", "e2e.p99"}}}
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
