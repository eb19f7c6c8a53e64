package matrix

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/parser"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/schema"
)

// schemaFile is the file name of the schema in positions. No file of a user has this name.
const schemaFile = schema.Path + "/schema.cue"

// schemaIn returns the schema, compiled in a context.
func schemaIn(ctx *cue.Context) cue.Value {
	v := ctx.CompileString(schema.Source, cue.Filename(schemaFile))
	if v.Err() != nil {
		panic("matrix: schema.cue: " + v.Err().Error()) // the schema is embedded: a bug
	}
	return v
}

func lookupDefinition(schema cue.Value, name string) cue.Value {
	return schema.LookupPath(cue.ParsePath(name))
}

// defaults returns the defaults of the fields of a cell, a search and a fault, by definition, from attributes in the
// schema. They are not CUE defaults: a group must inherit missing fields from the cell. A value that is not concrete
// must also be an error instead of being replaced by a default. Durations are formatted as in a plan.
var defaults = sync.OnceValue(func() map[string]map[string]any {
	all, schema := map[string]map[string]any{}, schemaIn(cuecontext.New())
	for _, name := range []string{"#Cell", "#Search", "#Fault"} {
		all[name] = defaultsOf(lookupDefinition(schema, name))
		normaliseDurations(all[name])
	}
	return all
})

// withDefaults returns a struct with the defaults of a definition for its missing fields.
func withDefaults(definition string, given map[string]any) map[string]any {
	return overlay(clone(defaults()[definition]), given)
}

// normaliseDurations formats the durations in a tree as a plan does: "60s" becomes "1m0s".
func normaliseDurations(tree map[string]any) {
	for k, v := range tree {
		switch v := v.(type) {
		case map[string]any:
			normaliseDurations(v)
		case string:
			if d, err := time.ParseDuration(v); err == nil {
				tree[k] = plan.Duration(d).String()
			}
		}
	}
}

func defaultsOf(schema cue.Value) map[string]any {
	all := map[string]any{}
	it, err := schema.Fields(cue.Optional(true))
	for err == nil && it.Next() {
		name, v := it.Selector().Unquoted(), it.Value()
		if a := v.Attribute("default"); a.Err() == nil {
			all[name], _ = plainData(cuecontext.New().CompileString(a.Contents()))
		} else if v.IncompleteKind() == cue.StructKind && len(requiredFields(v)) == 0 {
			if fields := defaultsOf(v); len(fields) > 0 {
				all[name] = fields
			}
		}
	}
	return all
}

// standardAxes returns the axes that set fields of the cell by their names, with the paths of these fields.
var standardAxes = sync.OnceValue(func() map[string][]string {
	axes := map[string][]string{}
	it, err := lookupDefinition(schemaIn(cuecontext.New()), "#Axes").Fields(cue.Optional(true))
	for err == nil && it.Next() {
		if sets := it.Value().Attribute("sets"); sets.Err() == nil {
			axes[it.Selector().Unquoted()] = strings.Split(sets.Contents(), ",")
		}
	}
	return axes
})

// Schema returns the whole schema as CUE, with comments and the options of all registered drivers.
func Schema() string {
	var b strings.Builder
	b.WriteString(schema.Source)
	for _, name := range drivers.Names() {
		d, err := drivers.Lookup(name)
		if err != nil {
			continue
		}
		info := d.Info()
		fmt.Fprintf(&b, "\n// Driver %q: %s\n%s", name, strings.Join(strings.Fields(info.Doc), " "),
			nested(name, info.Schema))
	}
	b.WriteString("\n// The values that tables can show, and their units:\n//\n")
	for _, v := range plan.Metrics(nil).Join(drivers.Metrics()...).Values() {
		fmt.Fprintf(&b, "//\t%-20s %-6s %s\n", v.Name, v.Unit, v.Doc)
	}
	return b.String()
}

// nested wraps a driver's schema into a struct, so that equal names of several drivers do not conflict.
func nested(name, schema string) string {
	f, err := parser.ParseFile(name+"/schema.cue", schema, parser.ParseComments)
	if err != nil {
		return "// its schema is invalid: " + strings.Join(strings.Fields(err.Error()), " ") + "\n"
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
