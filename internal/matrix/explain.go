package matrix

import (
	"slices"
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
	names := strings.Split(path, ".")
	for _, start := range []string{"#Matrix", "#Cell"} {
		if field := find(defs, defs[start], names); field != nil {
			return describe(field), true
		}
	}
	return f, false
}

// Siblings returns the paths of all fields beside the field with a path, which need not exist itself.
func Siblings(path string) (paths []string) {
	defs := definitions()
	names := strings.Split(path, ".")
	parents := names[:len(names)-1]
	for _, start := range []string{"#Matrix", "#Cell"} {
		within := defs[start]
		if len(parents) > 0 {
			field := find(defs, within, parents)
			if field == nil {
				continue
			}
			within = field.Value
		}
		for _, name := range childNames(defs, within) {
			paths = append(paths, strings.Join(append(slices.Clone(parents), name), "."))
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
			if name, _, err := ast.LabelName(field.Label); err == nil {
				defs[name] = field.Value
			}
		}
	}
	return defs
}

// childNames returns the names of the fields of an expression, and of definitions that it refers to.
func childNames(defs map[string]ast.Expr, within ast.Expr) (names []string) {
	ast.Walk(within, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.Ident:
			if d, is := defs[x.Name]; is && d != within {
				names = append(names, childNames(defs, d)...)
			}
		case *ast.StructLit:
			for _, e := range x.Elts {
				if field, is := e.(*ast.Field); is {
					if name, _, err := ast.LabelName(field.Label); err == nil {
						names = append(names, name)
					}
				}
			}
			return false
		}
		return true
	}, nil)
	return names
}

// find returns the field with a path below an expression, through definitions that the expression refers to. A field
// for any name ([string]) matches every name.
func find(defs map[string]ast.Expr, within ast.Expr, names []string) (found *ast.Field) {
	ast.Walk(within, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.Ident:
			if d, is := defs[x.Name]; is && d != within && found == nil {
				found = find(defs, d, names)
			}
		case *ast.StructLit:
			for _, e := range x.Elts {
				field, is := e.(*ast.Field)
				if !is || found != nil {
					continue
				}
				name, _, err := ast.LabelName(field.Label)
				_, any := field.Label.(*ast.ListLit)
				switch {
				case !any && (err != nil || name != names[0]):
				case len(names) > 1:
					found = find(defs, field.Value, names[1:])
				case !any:
					found = field
				}
			}
			return false
		}
		return found == nil
	}, nil)
	return found
}

func describe(field *ast.Field) Field {
	var f Field
	var doc []string
	for _, group := range ast.Comments(field) {
		if group.Doc {
			doc = append(doc, strings.Join(strings.Fields(group.Text()), " "))
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
	return f
}
