package matrix

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
)

// giveOne returns the fix for an invalid value.
func giveOne(schema cue.Value) string {
	if isTop(schema) {
		return "; give one value"
	}
	return "; give " + allowed(schema)
}

// allowed describes the values that a schema allows: by the comment of a scalar definition, or by its parts.
func allowed(schema cue.Value) string {
	var listed, others []string
	for _, a := range alternatives(schema) {
		_, doc := definition(a)
		switch kind := a.IncompleteKind(); {
		case doc != "" && kind&(cue.StructKind|cue.ListKind) == 0:
			others = appendNew(others, doc)
		case doc != "" && kind != cue.StructKind && kind != cue.ListKind: // several kinds, listed first
			first, _, _ := strings.Cut(doc, ". ")
			others = appendNew(others, strings.TrimSuffix(first, "."))
		case kind == cue.StructKind:
			fields := "name: …"
			if names := fieldNames(a); len(names) > 0 {
				fields = strings.Join(names, ", ")
			}
			others = appendNew(others, "a struct {"+fields+"}")
		case kind == cue.ListKind && len(elements(a)) > 0:
			others = appendNew(others, "a list that is not empty")
		case kind == cue.ListKind:
			others = appendNew(others, "a list")
		case a.IsConcrete():
			listed = appendNew(listed, show(a))
		default:
			others = appendNew(others, describeScalar(a))
		}
	}
	if len(listed) > 1 && len(others) == 0 {
		return "one of " + strings.Join(listed, ", ")
	}
	return strings.Join(append(listed, others...), ", or ")
}

// describeScalar describes a type with its bounds.
func describeScalar(schema cue.Value) string {
	words := map[cue.Kind]string{cue.IntKind: "a whole number", cue.StringKind: "a string",
		cue.BoolKind: "true or false"}
	text := words[schema.IncompleteKind()]
	if text == "" {
		text = "a number"
	}
	bounds := map[cue.Op]string{}
	for _, b := range conjuncts(schema) {
		if op, args := b.Expr(); len(args) == 1 {
			bounds[op] = show(args[0])
		}
	}
	from, to := bounds[cue.GreaterThanEqualOp], bounds[cue.LessThanEqualOp]
	if from != "" && to != "" {
		return text + " from " + from + " to " + to
	}
	if pattern := bounds[cue.RegexMatchOp]; pattern != "" {
		text += " that matches " + pattern
	}
	if other := bounds[cue.NotEqualOp]; other != "" {
		text += " other than " + other
	}
	var ends []string
	for _, b := range []struct {
		op   cue.Op
		word string
	}{{cue.GreaterThanEqualOp, "at least "}, {cue.GreaterThanOp, "above "}, {cue.LessThanEqualOp, "at most "},
		{cue.LessThanOp, "below "}} {
		if end := bounds[b.op]; end != "" {
			ends = append(ends, b.word+end)
		}
	}
	if len(ends) > 0 {
		text += ", " + strings.Join(ends, " and ")
	}
	return text
}

// choices returns the strings that a schema lists, for suggestions.
func choices(schema cue.Value) []string {
	var out []string
	for _, a := range alternatives(schema) {
		if s, err := a.String(); err == nil {
			out = appendNew(out, s)
		}
	}
	return out
}

// alternatives returns the operands of a disjunction, or the schema itself. A commented definition of scalars or of
// several kinds is a single alternative.
func alternatives(schema cue.Value) []cue.Value {
	if name, doc := definition(schema); name != "" {
		if kind := schema.IncompleteKind(); kind != cue.StructKind && kind != cue.ListKind && doc != "" {
			return []cue.Value{schema}
		}
	}
	return operands(cue.OrOp, schema, alternatives)
}

func conjuncts(schema cue.Value) []cue.Value { return operands(cue.AndOp, schema, conjuncts) }

func operands(of cue.Op, schema cue.Value, each func(cue.Value) []cue.Value) (out []cue.Value) {
	schema = unwrap(schema)
	op, args := schema.Expr()
	if op != of {
		return []cue.Value{schema}
	}
	for i, a := range args {
		includes := func(b cue.Value) bool { return !b.IsConcrete() && b.Subsume(a) == nil }
		if of == cue.OrOp && a.IsConcrete() && slices.ContainsFunc(args[i+1:], includes) {
			continue // a default value
		}
		out = append(out, each(a)...)
	}
	return out
}

// unwrap removes a default that the rest of a schema includes. CUE represents the rest as an expression with one
// operand.
func unwrap(v cue.Value) cue.Value {
	for {
		op, args := v.Expr()
		if op != cue.NoOp || len(args) != 1 || fmt.Sprint(args[0]) == fmt.Sprint(v) {
			return v
		}
		v = args[0]
	}
}

// definition returns the name and the comment of the definition that a value refers to.
func definition(v cue.Value) (name, doc string) {
	root, path := v.ReferencePath()
	sels := path.Selectors()
	if len(sels) == 0 || !sels[len(sels)-1].LabelType().IsDefinition() {
		return "", ""
	}
	return sels[len(sels)-1].String(), comment(root.LookupPath(path))
}

// comment returns the comment before a field or a definition, on one line.
func comment(v cue.Value) string {
	var lines []string
	for _, group := range v.Doc() {
		lines = append(lines, strings.Fields(group.Text())...)
	}
	return strings.Join(lines, " ")
}

// fieldNames returns the names of the fields that a schema declares, in its order.
func fieldNames(schema cue.Value) (names []string) {
	it, err := schema.Fields(cue.Optional(true))
	for err == nil && it.Next() {
		names = append(names, it.Selector().Unquoted())
	}
	return names
}

// requiredFields returns the names of the required fields of a struct.
func requiredFields(schema cue.Value) (names []string) {
	it, err := schema.Fields(cue.Optional(true))
	for err == nil && it.Next() {
		if it.FieldType()&cue.RequiredConstraint != 0 {
			names = append(names, it.Selector().Unquoted())
		}
	}
	return names
}

// openFields returns the names of the regular fields of a schema that have no concrete value, neither in schema nor in
// whole. whole is a struct unified with the schema.
func openFields(schema, whole cue.Value) (names []string) {
	open := func(v cue.Value) bool { return v.Exists() && v.Validate(cue.Concrete(true)) != nil }
	it, err := schema.Fields()
	for err == nil && it.Next() {
		if open(it.Value()) && open(whole.LookupPath(cue.MakePath(it.Selector()))) {
			names = append(names, it.Selector().Unquoted())
		}
	}
	return names
}

// show formats a value on one line of at most 80 characters.
func show(v cue.Value) string {
	if v.Kind() == cue.IntKind || v.Kind() == cue.FloatKind {
		if f, err := v.Float64(); err == nil {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
	}
	var b strings.Builder
	for line := range strings.Lines(fmt.Sprint(v)) {
		line = strings.Join(strings.Fields(line), " ")
		if so := b.String(); so != "" && line != "}" && line != "]" && !strings.HasSuffix(so, "{") &&
			!strings.HasSuffix(so, "[") {
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

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
