package all

import (
	"regexp"
	"strings"
	"testing"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// TestOptionsAreDocumented: every option of every driver has a comment, which "ctl drivers NAME" prints. One comment
// may document several options that follow each other, or the fields of a struct, if it contains their names.
func TestOptionsAreDocumented(t *testing.T) {
	for _, name := range drivers.Names() {
		d, err := drivers.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if missing := undocumented(t, d.Info().Schema); len(missing) > 0 {
			t.Errorf("options of driver %s without a comment: %v", name, missing)
		}
	}
	found := undocumented(t, `// Options.
#Options: {
	// user and password are those of the broker.
	user: string
	password: string
	token: string
	// Limits of a queue: its length.
	limits: {length: int, bytes: int}
}
`)
	if got := strings.Join(found, " "); got != "token limits.bytes" {
		t.Errorf("of a schema that lacks token and limits.bytes, %q are found", got)
	}
}

// undocumented returns the paths of the fields of all definitions of a schema that no comment names.
func undocumented(t *testing.T, schema string) (paths []string) {
	t.Helper()
	file, err := parser.ParseFile("schema.cue", schema, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var walk func(decls []ast.Decl, prefix, comment string)
	walk = func(decls []ast.Decl, prefix, comment string) {
		for _, decl := range decls {
			field, is := decl.(*ast.Field)
			if !is {
				continue
			}
			name, _, err := ast.LabelName(field.Label)
			if err != nil {
				continue // a pattern
			}
			own := ""
			for _, group := range ast.Comments(field) {
				if group.Doc {
					own += group.Text()
				}
			}
			if own != "" {
				comment = own
			} else if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).MatchString(comment) {
				paths = append(paths, prefix+name)
			}
			if inner, is := field.Value.(*ast.StructLit); is {
				walk(inner.Elts, prefix+name+".", comment)
			}
		}
	}
	for _, decl := range file.Decls {
		field, is := decl.(*ast.Field)
		if !is {
			continue
		}
		name, _, err := ast.LabelName(field.Label)
		definition, whole := field.Value.(*ast.StructLit)
		if err == nil && strings.HasPrefix(name, "#") {
			if !whole {
				t.Fatalf("%s is no plain struct: add its form to this test", name)
			}
			walk(definition.Elts, "", "")
		}
	}
	return paths
}
