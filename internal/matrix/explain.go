package matrix

import (
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/parser"

	"example.org/lockstep/lockstep/schema"
)

// Field describes a field of a matrix.
type Field struct {
	Type    string // in CUE
	Default string // empty: there is none
	Doc     string
}

// Explain returns the description of a field by its path, such as "publishers.maxInFlight". A path starts at the top
// level of a matrix or in its cell template. known is false if there is no such field.
func Explain(path string) (f Field, known bool) {
	defs := definitions()
	for _, start := range []string{"#Matrix", "#Cell"} {
		field := find(defs, defs[start], strings.Split(path, "."))
		if field == nil {
			continue
		}
		var doc []string
		for _, group := range ast.Comments(field) {
			if group.Doc {
				doc = append(doc, strings.Fields(group.Text())...)
			}
		}
		f.Doc = strings.Join(doc, " ")
		if text, err := format.Node(field.Value); err == nil {
			f.Type = string(text)
		}
		for _, a := range field.Attrs {
			if key, body := a.Split(); key == "default" {
				f.Default = body
			}
		}
		return f, true
	}
	return f, false
}

// Siblings returns the paths of all fields beside the field with a path, which need not exist itself.
func Siblings(path string) (paths []string) {
	defs := definitions()
	parent := path[:strings.LastIndexByte(path, '.')+1]
	for _, start := range []string{"#Matrix", "#Cell"} {
		within := defs[start]
		if parent != "" {
			field := find(defs, within, strings.Split(strings.TrimSuffix(parent, "."), "."))
			if field == nil {
				continue
			}
			within = field.Value
		}
		for _, field := range fieldsOf(defs, within) {
			if name := labelOf(field); name != "" {
				paths = append(paths, parent+name)
			}
		}
	}
	return paths
}

// definitions returns the definitions of the schema by name.
func definitions() map[string]ast.Expr {
	file, err := parser.ParseFile("schema.cue", schema.Source, parser.ParseComments)
	if err != nil {
		return nil // a test parses the schema
	}
	defs := map[string]ast.Expr{}
	for _, d := range file.Decls {
		if field, is := d.(*ast.Field); is {
			defs[labelOf(field)] = field.Value
		}
	}
	return defs
}

// fieldsOf returns the fields in the structs of an expression, and of definitions that it refers to.
func fieldsOf(defs map[string]ast.Expr, within ast.Expr) (fields []*ast.Field) {
	ast.Walk(within, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.Ident:
			if d, is := defs[x.Name]; is && d != within {
				fields = append(fields, fieldsOf(defs, d)...)
			}
		case *ast.StructLit:
			for _, e := range x.Elts {
				if field, is := e.(*ast.Field); is {
					fields = append(fields, field)
				}
			}
			return false
		}
		return true
	}, nil)
	return fields
}

// find returns the field with a path below an expression. A field for any name ([string]) matches every name but the
// last.
func find(defs map[string]ast.Expr, within ast.Expr, names []string) *ast.Field {
	for _, field := range fieldsOf(defs, within) {
		_, any := field.Label.(*ast.ListLit)
		switch {
		case !any && labelOf(field) != names[0]:
		case len(names) > 1:
			if found := find(defs, field.Value, names[1:]); found != nil {
				return found
			}
		case !any:
			return field
		}
	}
	return nil
}
