package matrix

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"

	"lockstep/internal/plan"
)

// checker holds a value against a rule and collects the faults.
type checker struct {
	faults Faults
	// partial leaves out what is not settled yet, and required fields: for the template before it is filled.
	partial bool
	// open are the paths of values that are not settled, where partial.
	open []string
	// home suggests where a field belongs that is not known where it stands: path of a field by its name.
	home map[string]string
}

// unsettled marks a place in the result of a check whose value is not settled.
type unsettled struct{}

// check returns v as plain data (string, float64, bool, []any, map[string]any), as far as it is right.
func (c *checker) check(r *rule, v cue.Value, path string) any {
	if d, ok := v.Default(); ok {
		v = d
	}
	if r.any {
		return c.anything(v, path)
	}
	if known, right := r.asked(v); known && right && v.Kind()&(cue.StructKind|cue.ListKind) != 0 {
		return c.anything(v, path) // what a rule that does not hold all of the schema finds there would be no fault
	}
	switch kind := v.Kind(); kind {
	case cue.StructKind:
		return c.object(r, v, path)
	case cue.ListKind:
		return c.list(r, v, path)
	case cue.BottomKind:
		return c.bottom(r, v, path)
	default:
		return c.scalar(r, v, path)
	}
}

// bottom handles what has no concrete value: a struct with a mistake inside, something unsettled, or a mistake, which
// the check of the evaluation reports.
func (c *checker) bottom(r *rule, v cue.Value, path string) any {
	if v.Validate() != nil {
		if r.object != nil && hasFields(v) {
			return c.object(r, v, path)
		}
		return unsettled{}
	}
	if v.IncompleteKind() == cue.StructKind && r.object != nil {
		return c.object(r, v, path)
	}
	c.open = append(c.open, path)
	if v.IncompleteKind() == cue.TopKind && r.object != nil && isBare(v) {
		return map[string]any{} // named, to be referred to, and nothing set
	}
	if !c.partial {
		c.add(place(v), path, explainOpen(v, r.allowed()))
	}
	return unsettled{}
}

func hasFields(v cue.Value) bool {
	it, err := v.Fields()
	return err == nil && it.Next()
}

// anything takes whatever there is, if it is settled.
func (c *checker) anything(v cue.Value, path string) any {
	if path == "cell.axis" {
		return nil // we filled it ourselves
	}
	var out any
	if err := v.Validate(cue.Concrete(true)); err != nil {
		c.open = append(c.open, path)
		if !c.partial && v.Validate() == nil {
			c.add(place(v), path, explainOpen(v, ""))
		}
		return unsettled{}
	}
	if err := v.Decode(&out); err != nil {
		return unsettled{}
	}
	return out
}

func (c *checker) object(r *rule, v cue.Value, path string) any {
	if r.object == nil {
		c.wrong(r, v, path)
		return unsettled{}
	}
	out := map[string]any{}
	it, err := v.Fields()
	if err != nil {
		c.add(place(v), path, explain(err))
		return out
	}
	for it.Next() {
		name := it.Selector().Unquoted()
		f, known := r.object.fields[name]
		switch {
		case known:
			out[name] = c.check(f.rule, it.Value(), join(path, name))
		case r.object.rest != nil:
			out[name] = c.check(r.object.rest, it.Value(), join(path, name))
		default:
			c.add(it.Value().Pos(), join(path, name), c.unknown(name, path, r.object))
		}
	}
	if !c.partial {
		c.missing(r.object, out, v, path)
	}
	return out
}

func (c *checker) missing(o *object, have map[string]any, v cue.Value, path string) {
	for _, name := range o.names {
		if _, ok := have[name]; !ok && o.fields[name].required {
			f := o.fields[name]
			c.add(place(v), path, fmt.Sprintf("%s is missing; give %s", name, f.rule.allowed()))
		}
	}
}

func (c *checker) unknown(name, path string, o *object) string {
	msg := fmt.Sprintf("there is no field %q here", name)
	if near := plan.Nearest(name, o.names); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	} else if home := c.home[name]; home != "" && strings.HasPrefix(path, "cell") {
		msg += fmt.Sprintf("; did you mean %s?", home)
	}
	return msg + " (there are: " + strings.Join(o.names, ", ") + ")"
}

func (c *checker) list(r *rule, v cue.Value, path string) any {
	if r.elem == nil {
		c.wrong(r, v, path)
		return unsettled{}
	}
	it, err := v.List()
	if err != nil {
		return unsettled{}
	}
	out, before := []any{}, len(c.faults)
	for i := 0; it.Next(); i++ {
		out = append(out, c.check(r.elem, it.Value(), fmt.Sprintf("%s[%d]", path, i)))
	}
	if known, right := r.asked(v); known && !right && len(c.faults) == before {
		c.wrong(r, v, path)
	}
	return out
}

func (c *checker) scalar(r *rule, v cue.Value, path string) any {
	x, ok := scalar(v)
	if !ok || !r.takes(v, x) {
		c.wrong(r, v, path)
		return unsettled{}
	}
	return x
}

// asked has CUE decide where only it knows, and it can be asked.
func (r *rule) asked(v cue.Value) (known, right bool) {
	//lint:ignore SA1019 the contexts are compared, not used: CUE's values of two contexts must not meet in two goroutines
	if !r.rough || v.Context() != r.value.Context() {
		return false, false
	}
	return true, r.value.Unify(v).Validate(cue.Concrete(true)) == nil
}

// takes tells whether a scalar is allowed.
func (r *rule) takes(v cue.Value, x any) bool {
	if known, right := r.asked(v); known {
		return right
	}
	return slices.ContainsFunc(r.arms, func(a arm) bool { return a.takes(v.Kind(), x) })
}

func (a arm) takes(kind cue.Kind, x any) bool {
	if len(a.equal) > 0 {
		return a.equal[0] == x
	}
	if slices.Contains(a.unequal, x) {
		return false
	}
	if a.kind&kind == 0 {
		return false
	}
	switch x := x.(type) {
	case float64:
		return (a.least == nil || x > *a.least || x == *a.least && !a.above) && (a.most == nil || x <= *a.most)
	case string:
		for _, re := range a.patterns {
			if !re.MatchString(x) {
				return false
			}
		}
		if a.duration {
			_, err := time.ParseDuration(x)
			return err == nil
		}
	}
	return true
}

// wrong reports a value that is not allowed, with what is.
func (c *checker) wrong(r *rule, v cue.Value, path string) {
	c.add(place(v), path, wrongValue(v, r))
}

func wrongValue(v cue.Value, r *rule) string {
	msg := fmt.Sprintf("%s is not valid here; give %s", show(v), r.allowed())
	if s, err := v.String(); err == nil {
		if near := plan.Nearest(s, r.choices()); near != "" {
			msg += fmt.Sprintf("; did you mean %q?", near)
		}
	}
	return msg
}

// show is a value on one short line.
func show(v cue.Value) string {
	var b strings.Builder
	for line := range strings.Lines(fmt.Sprint(v)) {
		line = strings.Join(strings.Fields(line), " ")
		if so := b.String(); so != "" && line != "}" && line != "]" && !strings.HasSuffix(so, "{") && !strings.HasSuffix(so, "[") {
			b.WriteString(", ")
		}
		b.WriteString(line)
	}
	text := b.String()
	if r := []rune(text); len(r) > 80 {
		text = string(r[:79]) + "…"
	}
	return text
}

func (c *checker) add(pos token.Pos, path, message string) {
	c.faults = append(c.faults, faultAt(pos, path, message))
}

// place is where the value of a field stands, rather than its name.
func place(v cue.Value) token.Pos {
	if f, ok := v.Source().(*ast.Field); ok && f.Value != nil {
		return f.Value.Pos()
	}
	return v.Pos()
}

func join(path, name string) string {
	if !plainName.MatchString(name) {
		name = fmt.Sprintf("%q", name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}
