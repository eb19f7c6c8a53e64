package matrix

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/ast/astutil"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"example.org/lockstep/lockstep/schema"
)

// source is a matrix file with its changes from the command line. It can be built in any number of contexts.
type source struct {
	file   string
	text   []byte
	narrow Narrow
}

// parse parses the file, sets its tag, and replaces the fields of --set. Positions are those of the file.
func (s source) parse() (*ast.File, Errors) {
	f, err := parser.ParseFile(s.file, s.text, parser.ParseComments)
	if err != nil {
		return nil, cueErrors(s.file, err)
	}
	if !setTag(f, quickTag, s.narrow.Quick) && s.narrow.Quick {
		return nil, Errors{{File: "--quick", Message: s.file +
			" has no short form; omit --quick, or make the matrix depend on " +
			"_quick: *false | bool @tag(quick,type=bool)"}}
	}
	var errs Errors
	for _, set := range s.narrow.Set {
		path, value, wrong := parseSet(set)
		if wrong != "" {
			errs = append(errs, Error{File: setFile + set, Message: wrong})
			continue
		}
		f.Decls = merge(f.Decls, path, value)
	}
	unbind(f)
	return f, errs
}

// quickTag is the CUE tag of the short form of a matrix.
const quickTag = "quick"

// setTag unifies the fields that have the attribute @tag(name) with a value, as cue -t does. It reports whether there
// are any.
func setTag(f *ast.File, name string, value bool) (found bool) {
	ast.Walk(f, func(n ast.Node) bool {
		field, is := n.(*ast.Field)
		if !is {
			return true
		}
		for _, a := range field.Attrs {
			key, body := a.Split()
			if tag, _, _ := strings.Cut(body, ","); key == "tag" && strings.TrimSpace(tag) == name {
				found = true
				field.Value = ast.NewBinExpr(token.AND, field.Value, ast.NewBool(value))
			}
		}
		return true
	}, nil)
	return found
}

func parseSet(set string) (path []string, value ast.Expr, wrong string) {
	left, right, ok := strings.Cut(set, "=")
	if !ok || strings.TrimSpace(right) == "" {
		return nil, nil, "write it as path=value, as in axes.threads=[1,5]"
	}
	p := cue.ParsePath(strings.TrimSpace(left))
	if p.Err() != nil || len(p.Selectors()) == 0 {
		return nil, nil, fmt.Sprintf("%q is not the path of a field, as in axes.threads", left)
	}
	for _, sel := range p.Selectors() {
		if sel.LabelType() != cue.StringLabel {
			return nil, nil,
				fmt.Sprintf("%s in the path is not the name of a field; set the whole list or struct that contains it",
					sel)
		}
		path = append(path, sel.Unquoted())
	}
	value, err := parser.ParseExpr(setFile+set, right)
	if err != nil {
		return nil, nil, fmt.Sprintf("%q is not a CUE value (%s); put text into double quotes, as in %s='\"…\"'",
			right, plain(errors.Errors(err)[0]), left)
	}
	if !onlyFields(value) {
		return nil, nil, fmt.Sprintf("%q contains more than fields with values, which replace those of the file one by one; "+
			"change the file instead", right)
	}
	return path, value, ""
}

// onlyFields reports whether merge can set all of a value: its structs have only plain fields without attributes.
func onlyFields(value ast.Expr) bool {
	lit, ok := value.(*ast.StructLit)
	return !ok || !slices.ContainsFunc(lit.Elts, func(d ast.Decl) bool {
		field, ok := d.(*ast.Field)
		return !ok || labelOf(field) == "" || field.Constraint != token.ILLEGAL || len(field.Attrs) > 0 || !onlyFields(field.Value)
	})
}

// merge replaces the field at path by value. A struct replaces field by field, anything else as a whole.
func merge(decls []ast.Decl, path []string, value ast.Expr) []ast.Decl {
	if lit, ok := value.(*ast.StructLit); ok && (len(lit.Elts) > 0 || len(path) == 0) {
		for _, d := range lit.Elts {
			if field, ok := d.(*ast.Field); ok {
				decls = merge(decls, append(path[:len(path):len(path)], labelOf(field)), field.Value)
			}
		}
		return decls
	}
	done := false
	decls = replace(decls, path, value, &done)
	if !done {
		decls = append(decls, newField(path, value))
	}
	return decls
}

// replace replaces the first field at path by value, and removes the others.
func replace(decls []ast.Decl, path []string, value ast.Expr, done *bool) []ast.Decl {
	var out []ast.Decl
	for _, d := range decls {
		switch x := d.(type) {
		case *ast.Field:
			if labelOf(x) != path[0] {
				break
			}
			if len(path) > 1 {
				x.Value = within(x.Value, path[1:], value, done)
				break
			}
			if *done {
				continue
			}
			x.Value, *done = value, true
		case *ast.EmbedDecl:
			x.Expr = within(x.Expr, path, value, done)
		case *ast.Comprehension:
			was := *done // a conditional field does not replace an unconditional one
			x.Value = within(x.Value, path, nil, &was)
		}
		if field, ok := d.(*ast.Field); ok && field.Value == nil {
			continue
		}
		out = append(out, d)
	}
	return out
}

// within replaces the field at path in the struct literals of an expression. A nil value only removes the field.
func within(x ast.Expr, path []string, value ast.Expr, done *bool) ast.Expr {
	switch x := x.(type) {
	case *ast.StructLit:
		x.Elts = replace(x.Elts, path, value, done)
		if !*done && value != nil {
			x.Elts, *done = append(x.Elts, newField(path, value)), true
		}
		return x
	case *ast.BinaryExpr:
		if x.Op == token.AND {
			if _, lit := x.X.(*ast.StructLit); lit {
				x.X = within(x.X, path, value, done)
				x.Y = within(x.Y, path, value, done)
			} else {
				x.Y = within(x.Y, path, value, done)
				x.X = within(x.X, path, value, done)
			}
			return x
		}
	case *ast.ParenExpr:
		x.X = within(x.X, path, value, done)
		return x
	case *ast.Ident, *ast.SelectorExpr, *ast.IndexExpr:
		if *done || value == nil {
			return x
		}
		*done = true
		return &ast.BinaryExpr{X: x, Op: token.AND, Y: ast.NewStruct(newField(path, value))}
	}
	if *done || value == nil {
		return x
	}
	*done = true
	return ast.NewStruct(newField(path, value))
}

// newField returns the nested field path: value.
func newField(path []string, value ast.Expr) *ast.Field {
	for i := len(path) - 1; i > 0; i-- {
		value = ast.NewStruct(&ast.Field{Label: ast.NewStringLabel(path[i]), Value: value})
	}
	return &ast.Field{Label: ast.NewStringLabel(path[0]), Value: value}
}

// labelOf returns the name of a field; "" if it is computed or a pattern.
func labelOf(f *ast.Field) string {
	name, _, _ := ast.LabelName(f.Label)
	return name
}

// unbind removes the resolution of identifiers after fields were moved. Building resolves them again.
func unbind(f *ast.File) {
	f.Unresolved = nil
	ast.Walk(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			id.Node, id.Scope = nil, nil
		}
		return true
	}, nil)
}

// instance returns the file as a CUE instance that can import the schema and the standard packages of CUE.
func instance(f *ast.File) *build.Instance {
	c := build.NewContext()
	inst := c.NewInstance("", func(_ token.Pos, path string) *build.Instance {
		if path != schema.Path {
			return nil
		}
		p := c.NewInstance("", nil)
		p.PkgName = "schema"
		text, err := parser.ParseFile(schemaFile, schema.Source, parser.ParseComments)
		if err != nil {
			panic(err) // the schema is embedded: a bug
		}
		_ = p.AddSyntax(text)
		_ = p.Complete()
		return p
	})
	_ = inst.AddSyntax(f) // building reports the error
	_ = inst.Complete()
	return inst
}

// build compiles the file. Undefined names are reported and replaced by "_", so that other errors are found too. The
// value does not exist if the file cannot be evaluated.
func (s source) build(ctx *cue.Context) (cue.Value, *ast.File, Errors) {
	f, errs := s.parse()
	if f == nil {
		return cue.Value{}, nil, errs
	}
	v := ctx.BuildInstance(instance(f))
	if lost := danglingNames(v.Err()); len(lost) > 0 {
		errs = append(errs, cueErrors(s.file, v.Err())...)
		astutil.Apply(f, nil, func(c astutil.Cursor) bool {
			if id, ok := c.Node().(*ast.Ident); ok && lost[id.Pos().String()] {
				c.Replace(&ast.Ident{NamePos: id.Pos(), Name: "_"})
			}
			return true
		})
		unbind(f)
		v = ctx.BuildInstance(instance(f))
	}
	if err := v.Err(); err != nil && v.Source() == nil && !v.LookupPath(cue.ParsePath("name")).Exists() &&
		len(errors.Errors(err)) > 0 && !hasFields(v) {
		return cue.Value{}, f, append(errs, cueErrors(s.file, err)...)
	}
	return v, f, errs
}

func danglingNames(err error) map[string]bool {
	lost := map[string]bool{}
	for _, e := range errors.Errors(err) {
		if reference.MatchString(message(e)) {
			lost[e.Position().String()] = true
		}
	}
	return lost
}

// referred returns the axes that a file refers to as axis.NAME. It returns nil if the file uses axis in any other way.
func referred(f *ast.File) map[string]bool {
	names, fine, ok := map[string]bool{}, map[ast.Node]bool{}, true
	ast.Walk(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			name, _, err := ast.LabelName(n.Sel)
			if id, is := n.X.(*ast.Ident); is && id.Name == "axis" && err == nil {
				names[name], fine[id] = true, true
				return name != "axis"
			}
		case *ast.Field:
			if top, is := n.Value.(*ast.Ident); is && top.Name == "_" && labelOf(n) == "axis" {
				fine[n.Label] = true
			}
		case *ast.Ident:
			ok = ok && (n.Name != "axis" || fine[n])
		}
		return true
	}, nil)
	if !ok {
		return nil
	}
	return names
}
