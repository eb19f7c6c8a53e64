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

// matrixRule is the rule of a whole matrix. Rules that are not rough never touch CUE again and are safe to share.
var matrixRule = sync.OnceValue(func() *rule {
	v := cuecontext.New().CompileString(schemaSource, cue.Filename("schema.cue"))
	if v.Err() != nil {
		panic("matrix: schema.cue: " + v.Err().Error()) // embedded: a programmer's mistake
	}
	return compile(v.LookupPath(cue.ParsePath("#Matrix")))
})

func cellRule() *rule { return matrixRule().object.fields["cell"].rule }

// cellHomes gives the path of each field of a cell by its name, where there is only one of that name.
var cellHomes = sync.OnceValue(func() map[string]string {
	homes := map[string]string{}
	for _, group := range cellRule().object.names {
		if o := cellRule().object.fields[group].rule.object; o != nil {
			for _, name := range o.names {
				if homes[name] != "" {
					homes[name] += " or "
				}
				homes[name] += group + "." + name
			}
		}
	}
	return homes
})

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
