package matrix

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"

	"example.org/lockstep/lockstep/internal/plan"
)

// validator validates values with a schema, using CUE. CUE stops at the first kind of error. If it rejects a struct or
// a list, the validator therefore validates each part. It finds all errors, each with its position and the allowed
// values.
type validator struct {
	errors Errors
	// template accepts values that are not concrete, and missing fields, because a combination may set them.
	template bool
	// templates are the top-level fields that are validated with template set.
	templates []string
	// fallback is the position for errors of values that are not in the file.
	fallback token.Pos
}

// validate collects the errors of v. v must be concrete without the schema's values, unless template is set.
func (x *validator) validate(schema, v cue.Value, path string) {
	concrete := cue.Concrete(!x.template)
	if v.Validate(concrete) != nil || schema.Unify(v).Validate(concrete) != nil {
		x.explain(schema, v, path)
	}
}

// explain validates the parts of v. If they have no errors, it reports v itself.
func (x *validator) explain(schema, v cue.Value, path string) {
	if d, ok := v.Default(); ok {
		v = d
	}
	before, kind := len(x.errors), kindOf(v)
	part := alternative(schema, kind)
	switch {
	case kind == cue.BottomKind:
		if err := v.Validate(); err != nil {
			x.evaluation(v, path, err)
		}
	case kind == cue.StructKind && part.Exists():
		x.fields(part, v, path)
	case kind == cue.ListKind && part.Exists():
		for i, e := range elements(v) {
			x.validate(lookup(part, cue.AnyIndex), e, fmt.Sprintf("%s[%d]", path, i))
		}
	}
	switch {
	case len(x.errors) > before:
	case (x.template || path == "" && x.templates != nil) && kind&(cue.StructKind|cue.ListKind) != 0 &&
		v.Validate() == nil && part.Exists():
		// all parts are valid, as far as they are known without a combination
	case kind == cue.StructKind && part.Exists() && v.Validate() != nil: // error in a hidden field
		x.evaluation(v, path, v.Validate())
	case kind == cue.StructKind && part.Exists():
		x.add(v, path, "this combination of fields is not valid"+giveOne(schema)) // a value may be long or secret
	case schema.Unify(v).Validate() != nil || kind != cue.BottomKind && schema.IncompleteKind()&kind == 0:
		x.add(v, path, wrongValue(v, schema))
	case !x.template:
		if err := v.Validate(cue.Concrete(true)); err != nil {
			x.evaluation(v, path, err)
			x.errors[len(x.errors)-1].Message += giveOne(schema)
		} else {
			x.add(v, path, wrongValue(v, schema))
		}
	}
}

// fields validates the fields of a struct, and reports unknown and missing ones.
func (x *validator) fields(schema, v cue.Value, path string) {
	it, err := v.Fields()
	if err != nil {
		x.evaluation(v, path, err)
		return
	}
	outer, given := x.template, []string{}
	for it.Next() {
		if err := it.Value().Err(); err != nil && strings.HasSuffix(err.Error(), notPresent) {
			continue // of a schema that the matrix embeds
		}
		name := it.Selector().Unquoted()
		given = append(given, name)
		sub := lookup(schema, cue.Str(name))
		if !sub.Exists() {
			x.errors = append(x.errors, errorAt(it.Value().Pos(), join(path, name), unknownField(schema, name, path)))
			continue
		}
		x.template = outer || path == "" && slices.Contains(x.templates, name)
		x.validate(sub, it.Value(), join(path, name))
		x.template = outer
	}
	if x.template {
		return
	}
	whole := schema.Unify(v)
	for _, name := range append(requiredFields(schema), openFields(schema, whole)...) {
		if !slices.Contains(given, name) {
			x.add(v, path, fmt.Sprintf("%s is missing; give %s", name, allowed(lookup(schema, cue.Str(name)))))
		}
	}
}

// decode converts plain data to the type of to, through JSON.
func decode(data, to any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// evaluation reports an error of a value that does not depend on the schema.
func (x *validator) evaluation(v cue.Value, path string, err error) {
	f := cueErrors("", err)[0]
	if f.File == "" || strings.Contains(err.Error(), "undefined field") {
		f = errorAt(x.place(v), path, f.Message)
	}
	if path != "" && !strings.HasPrefix(f.Path, path+".") || f.Path == "" {
		f.Path = path
	}
	x.errors = append(x.errors, f)
}

func (x *validator) add(v cue.Value, path, message string) {
	x.errors = append(x.errors, errorAt(x.place(v), path, message))
}

func (x *validator) place(v cue.Value) token.Pos {
	if pos := place(v); pos.IsValid() {
		return pos
	}
	return x.fallback
}

// place returns the position of a field's value, instead of that of its name.
func place(v cue.Value) token.Pos {
	pos := v.Pos()
	if f, ok := v.Source().(*ast.Field); ok && f.Value != nil {
		pos = f.Value.Pos()
	}
	if file := pos.Filename(); file != inheritedFile && file != schemaFile {
		return pos
	}
	if op, args := v.Expr(); op == cue.AndOp { // the matrix embeds the schema
		for _, a := range args {
			if pos := place(a); pos.IsValid() {
				return pos
			}
		}
	}
	return token.NoPos
}

// lookup returns the schema of a field or an element.
func lookup(schema cue.Value, sel cue.Selector) cue.Value {
	if isTop(schema) {
		return schema
	}
	if sel.LabelType() == cue.StringLabel {
		if f := schema.LookupPath(cue.MakePath(sel.Optional())); f.Exists() {
			return f
		}
		sel = cue.AnyString
	}
	return schema.LookupPath(cue.MakePath(sel))
}

// alternative returns the part of a schema that allows structs, or lists. The result does not exist if there is no such
// part, or more than one.
func alternative(schema cue.Value, kind cue.Kind) (found cue.Value) {
	if kind != cue.StructKind && kind != cue.ListKind || isTop(schema) {
		return schema
	}
	for _, a := range alternatives(schema) {
		switch {
		case a.IncompleteKind() != kind:
		case found.Exists():
			return cue.Value{}
		default:
			found = a
		}
	}
	return found
}

// isTop reports whether a schema allows everything.
func isTop(schema cue.Value) bool {
	op, _ := unwrap(schema).Expr()
	return op == cue.NoOp && schema.IncompleteKind() == cue.TopKind
}

func unknownField(schema cue.Value, name, path string) string {
	names, msg := fieldNames(schema), fmt.Sprintf("unknown field %q", name)
	if path == "" && name == "short" && slices.Contains(names, "cell") {
		return msg +
			"; the short form is a tag of CUE: declare _quick: *false | bool @tag(quick,type=bool), and write if _quick {…} in the fields"
	}
	if near := plan.ClosestMatch(name, names); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	} else if homes := homesOf(schema, name); (path == "cell" || path == "") && len(homes) > 0 {
		msg += fmt.Sprintf("; did you mean %s?", strings.Join(homes, " or "))
	}
	return msg + " (available: " + strings.Join(names, ", ") + ")"
}

// homesOf returns the paths of the fields with this name one level below.
func homesOf(schema cue.Value, name string) (homes []string) {
	for _, group := range fieldNames(schema) {
		for _, a := range alternatives(lookup(schema, cue.Str(group))) {
			if a.IncompleteKind() == cue.StructKind && slices.Contains(fieldNames(a), name) {
				homes = append(homes, group+"."+name)
			}
		}
	}
	return homes
}

func wrongValue(v, schema cue.Value) string {
	msg := show(v) + " is not valid here" + giveOne(schema)
	if s, err := v.String(); err == nil {
		msg += plan.DidYouMean(s, choices(schema))
	}
	return msg
}

// plainData converts v to string, float64, bool, []any and map[string]any. Parts that are not concrete become
// undetermined. ok is false for "_" and for errors.
func plainData(v cue.Value) (data any, ok bool) {
	if d, has := v.Default(); has {
		v = d
	}
	switch kindOf(v) {
	case cue.StructKind:
		fields := map[string]any{}
		it, err := v.Fields()
		for err == nil && it.Next() {
			if x, ok := plainData(it.Value()); ok {
				fields[it.Selector().Unquoted()] = x
			}
		}
		return fields, true
	case cue.ListKind:
		list := []any{}
		for _, e := range elements(v) {
			x, _ := plainData(e)
			list = append(list, x)
		}
		return list, true
	case cue.TopKind:
		return undetermined{}, !isTop(v)
	}
	if x, ok := scalar(v); ok {
		return x, true
	}
	return undetermined{}, true
}

// undetermined replaces a value that is not concrete in plain data.
type undetermined struct{}

// scalar returns the value of a concrete string, bool or number. Numbers are float64.
func scalar(v cue.Value) (any, bool) {
	switch v.Kind() {
	case cue.StringKind:
		s, err := v.String()
		return s, err == nil
	case cue.BoolKind:
		b, err := v.Bool()
		return b, err == nil
	case cue.IntKind, cue.FloatKind:
		f, err := v.Float64()
		return f, err == nil || strings.Contains(err.Error(), "rounded")
	}
	return nil, false
}

// kindOf returns the kind of a value, also if it is a struct or a list that contains an error.
func kindOf(v cue.Value) cue.Kind {
	kind := v.IncompleteKind()
	if kind != cue.BottomKind {
		return kind
	}
	if it, err := v.Fields(); err == nil && it.Next() {
		if it.Selector().Type() == cue.IndexLabel {
			return cue.ListKind
		}
		return cue.StructKind
	}
	return kind
}

func hasFields(v cue.Value) bool {
	it, err := v.Fields()
	return err == nil && it.Next()
}

// elements returns the elements of a list; none for other kinds.
func elements(v cue.Value) []cue.Value {
	if kindOf(v) != cue.ListKind {
		return nil
	}
	var out []cue.Value
	if it, err := v.List(); err == nil {
		for it.Next() {
			out = append(out, it.Value())
		}
	} else if it, err := v.Fields(); err == nil {
		for it.Next() {
			out = append(out, it.Value())
		}
	}
	return out
}

// join appends the name of a field to a path.
func join(path, name string) string {
	if !plainName.MatchString(name) {
		name = fmt.Sprintf("%q", name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}
