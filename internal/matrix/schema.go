package matrix

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/parser"

	"lockstep/internal/plan"
	"lockstep/pkg/drivers"
)

//go:embed schema.cue
var schemaSource string

// schemaIn is the schema, compiled in a context.
func schemaIn(ctx *cue.Context) cue.Value {
	v := ctx.CompileString(schemaSource, cue.Filename("schema.cue"))
	if v.Err() != nil {
		panic("matrix: schema.cue: " + v.Err().Error()) // embedded: a programmer's mistake
	}
	return v
}

func lookupDefinition(schema cue.Value, name string) cue.Value {
	return schema.LookupPath(cue.ParsePath(name))
}

// cellDefaults are the defaults of a cell's fields, as the schema documents them. They are attributes, no defaults of CUE: a group inherits a field that it
// leaves out, and a value that is not concrete is an error rather than the default.
var cellDefaults = sync.OnceValue(func() map[string]any {
	return defaultsOf(lookupDefinition(schemaIn(cuecontext.New()), "#Cell"))
})

func defaultsOf(schema cue.Value) map[string]any {
	all := map[string]any{}
	it, err := schema.Fields(cue.Optional(true))
	for err == nil && it.Next() {
		name, v := it.Selector().Unquoted(), it.Value()
		if a := v.Attribute("default"); a.Err() == nil {
			all[name], _ = plainData(v.Context().CompileString(a.Contents()))
		} else if v.IncompleteKind() == cue.StructKind && len(requiredFields(v)) == 0 {
			if fields := defaultsOf(v); len(fields) > 0 {
				all[name] = fields
			}
		}
	}
	return all
}

// Schema is the whole schema with its comments, the options of every driver that there is here included. It is CUE.
func Schema() string {
	var b strings.Builder
	b.WriteString(schemaSource)
	for _, name := range drivers.Names() {
		d, err := drivers.Lookup(name)
		if err != nil {
			continue
		}
		info := d.Info()
		fmt.Fprintf(&b, "\n// Driver %q: %s\n%s", name, strings.Join(strings.Fields(info.Doc), " "), nested(name, info.Schema))
	}
	b.WriteString("\n// The values that tables can show, and their units:\n//\n")
	for _, v := range plan.Values() {
		fmt.Fprintf(&b, "//\t%-20s %-6s %s\n", v.Name, v.Unit, v.Doc)
	}
	return b.String()
}

// nested wraps a driver's schema into a struct of its own, so that what drivers name alike stays apart.
func nested(name, schema string) string {
	f, err := parser.ParseFile(name+"/schema.cue", schema, parser.ParseComments)
	if err != nil {
		return "// its schema has a mistake: " + strings.Join(strings.Fields(err.Error()), " ") + "\n"
	}
	var decls []any
	for _, d := range f.Decls {
		switch d.(type) {
		case *ast.Package, *ast.CommentGroup:
		default:
			decls = append(decls, d)
		}
	}
	text, err := format.Node(&ast.File{Decls: []ast.Decl{&ast.Field{
		Label: ast.NewString("driver " + name), Value: ast.NewStruct(decls...)}}})
	if err != nil {
		return schema
	}
	return string(text) + "\n"
}
