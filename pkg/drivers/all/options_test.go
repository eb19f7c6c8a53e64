package all

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// TestOptionsMatchTheirSchemas: every driver decodes all fields of its schema, and no others.
func TestOptionsMatchTheirSchemas(t *testing.T) {
	for _, name := range drivers.Names() {
		t.Run(name, func(t *testing.T) {
			d, err := drivers.Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			schema := cuecontext.New().CompileString(d.Info().Schema).LookupPath(cue.ParsePath("#Options"))
			for _, options := range samples(t, schema) {
				text, err := json.Marshal(options)
				if err != nil {
					t.Fatal(err)
				}
				// Other errors are about combinations of options.
				for _, rejected := range d.Info().Declare(text, drivers.Use{}).Rejections {
					if strings.Contains(rejected, "json: ") {
						t.Errorf("%s: %s", text, rejected)
					}
				}
			}
			inSchema, inGo := schemaFields(t, schema, ""), goFields(t, parseTypes(t, filepath.Join("..", name)), "options", "")
			slices.Sort(inSchema)
			slices.Sort(inGo)
			if !slices.Equal(inSchema, inGo) {
				t.Errorf("the fields of #Options are\n%v\nand those of the Go type are\n%v", inSchema, inGo)
			}
		})
	}
}

// TestTLSIsTheSameForAllDrivers: every driver with a network has the option tls of package kit.
func TestTLSIsTheSameForAllDrivers(t *testing.T) {
	for _, name := range drivers.Names() {
		d, err := drivers.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if schema := d.Info().Schema; name != "loopback" &&
			(!strings.HasSuffix(schema, kit.Schema) || !strings.Contains(schema, "\ttls?: #TLS\n")) {
			t.Errorf("the schema of driver %s has not the option tls", name)
		}
	}
}

// TestTLSWithoutEffectIsRejected: settings of TLS for connections without it are an error of the matrix.
func TestTLSWithoutEffectIsRejected(t *testing.T) {
	const plain, half = "no url uses TLS", "give both"
	for _, c := range []struct{ driver, options, want string }{
		{"activemq", `{"url": "amqp://h", "tls": {}}`, plain},
		{"activemq", `{"url": "amqps://h", "tls": {"cert": "c"}}`, half},
		{"activemq", `{"url": "amqps://h", "tls": {}}`, ""},
		{"activemq", `{"url": "amqp://h", "jolokia": ["https://h"], "tls": {}}`, ""},
		{"artemis", `{"urls": ["amqp://h"], "tls": {}}`, plain},
		{"artemis", `{"urls": ["amqp://h", "amqps://h"], "tls": {"key": "k"}}`, half},
		{"artemis", `{"urls": ["amqp://h", "amqps://h"], "tls": {}}`, ""},
		{"eventstore", `{"url": "esdb://h?tls=false", "tls": {}}`, plain},
		{"eventstore", `{"url": "esdb://h", "tls": {"cert": "c"}}`, half},
		{"eventstore", `{"url": "esdb://h", "tls": {}}`, ""},
		{"kafka", `{"brokers": ["h:1"], "tls": {"cert": "c"}}`, half},
		{"kafka", `{"brokers": ["h:1"], "tls": {}}`, ""},
		{"mongodb", `{"url": "mongodb://h", "tls": {"cert": "c"}}`, half},
		{"mongodb", `{"url": "mongodb://h/?tlsInsecure=true"}`, "tls: {insecure: true}"},
		{"mongodb", `{"url": "mongodb://h", "tls": {}}`, ""},
		{"nats", `{"embedded": true, "tls": {}}`, plain},
		{"nats", `{"url": "nats://h", "tls": {"cert": "c"}}`, half},
		{"nats", `{"url": "nats://h", "tls": {}}`, ""},
		{"rabbitmq", `{"url": "amqp://h", "management": "http://h", "prometheus": ["http://h"], "tls": {}}`, plain},
		{"rabbitmq", `{"url": "amqps://h", "tls": {"key": "k"}}`, half},
		{"rabbitmq", `{"url": "amqps://h", "tls": {}}`, ""},
		{"rabbitmq", `{"url": "amqp://h", "management": "https://h", "tls": {}}`, ""},
		{"rabbitmq", `{"url": "amqp://h", "prometheus": ["https://h"], "tls": {}}`, ""},
		{"sqs", `{"endpoint": "http://h", "tls": {}}`, plain},
		{"sqs", `{"endpoint": "https://h", "tls": {"cert": "c"}}`, half},
		{"sqs", `{"region": "r", "tls": {}}`, ""},
	} {
		d, err := drivers.Lookup(c.driver)
		if err != nil {
			t.Fatal(err)
		}
		use := drivers.Use{Mode: drivers.ConfirmEach, Ack: drivers.AckEach, Prefetch: 1, Queues: 1, Subscriptions: 1,
			Bindings: 1, Publishers: 1, Consumers: 1, PublisherNode: drivers.AnyNode, ConsumerNode: drivers.AnyNode,
			QueueNode: drivers.AnyNode}
		rejected := strings.Join(d.Info().Declare(schematest.Fill(t, d, c.options), use).Rejections, "; ")
		if (rejected == "") != (c.want == "") || !strings.Contains(rejected, c.want) {
			t.Errorf("%s %s: rejected with %q, want %q", c.driver, c.options, rejected, c.want)
		}
	}
}

// TestValuesThatSchemasReject: drivers do not check again what their schemas check.
func TestValuesThatSchemasReject(t *testing.T) {
	for _, c := range []struct {
		driver, option  string
		valid, rejected []string
	}{
		{"activemq", `"idleTimeout": %q`, []string{"100ms", "1s", "10m"}, []string{"0s", "99ms", "-1s", "soon"}},
		{"artemis", `"connectTimeout": %q`, []string{"100ms", "3s"}, []string{"0m", "99ms", "1h"}},
		{"eventstore", `"confirmTimeout": %q`, []string{"1ms", "100s", "10m"}, []string{"0s", "00ms", "-1s", "1"}},
		{"eventstore", `"messageTimeout": %q`, []string{"0s", "1m"}, []string{"-1s", "long"}},
		{"kafka", `"confirmTimeout": %q`, []string{"1000ms", "1s", "10m"}, []string{"999ms", "0s", "0m"}},
		{"kafka", `"brokers": [%q]`, []string{"h:1", "10.0.0.1:9092", "[::1]:9092"},
			[]string{"h", "h:", ":1", "a:b:1", "::1", "h:x"}},
		{"loopback", `"delay": %q`, []string{"0s", "1m30s"}, []string{"-1ms", "5"}},
		{"mongodb", `"wtimeout": %q`, []string{"1ms", "10s"}, []string{"0s", ""}},
		{"nats", `"ackWait": %q`, []string{"1ms", "30s"}, []string{"0s", "0ms"}},
		{"sqs", `"waitTime": %q`, []string{"0s", "20s"}, []string{"21s", "1500ms"}},
	} {
		d, err := drivers.Lookup(c.driver)
		if err != nil {
			t.Fatal(err)
		}
		ctx := cuecontext.New()
		schema := ctx.CompileString(d.Info().Schema).LookupPath(cue.ParsePath("#Options"))
		for i, value := range slices.Concat(c.valid, c.rejected) {
			text := fmt.Sprintf("{"+c.option+"}", value)
			if err := schema.Unify(ctx.CompileString(text)).Validate(); (err == nil) != (i < len(c.valid)) {
				t.Errorf("%s %s: %v", c.driver, text, err)
			}
		}
	}
}

// samples returns values of every alternative of a schema. A struct is sampled whole, and with one field beside the
// required ones, for every value of that field. They have the right types and may be out of range.
func samples(t *testing.T, v cue.Value) (all []any) {
	t.Helper()
	if op, parts := cue.Dereference(v).Expr(); op == cue.OrOp {
		for _, part := range parts {
			all = append(all, samples(t, part)...)
		}
		return all
	}
	switch v.IncompleteKind() {
	case cue.StructKind:
		whole, required, each := map[string]any{}, map[string]any{}, map[string][]any{}
		for selector, field := range fieldsOf(t, v) {
			name := selector.Unquoted()
			each[name] = samples(t, field)
			whole[name] = each[name][0]
			if selector.ConstraintType() == cue.RequiredConstraint {
				required[name] = each[name][0]
			}
		}
		all = append(all, whole)
		for name, values := range each {
			for _, value := range values {
				one := maps.Clone(required)
				one[name] = value
				all = append(all, one)
			}
		}
	case cue.ListKind:
		if !element(v).Exists() {
			return []any{[]any{}}
		}
		for _, value := range samples(t, element(v)) {
			all = append(all, []any{value})
		}
	case cue.BoolKind:
		all = append(all, true)
	case cue.IntKind, cue.NumberKind:
		all = append(all, 1)
	case cue.StringKind:
		if text, err := v.String(); err == nil {
			all = append(all, text)
		} else {
			all = append(all, "1s") // also a duration
		}
	default:
		t.Fatalf("%v is %v: add its kind to this test", v, v.IncompleteKind())
	}
	return all
}

func fieldsOf(t *testing.T, v cue.Value) map[cue.Selector]cue.Value {
	t.Helper()
	it, err := v.Fields(cue.Optional(true))
	if err != nil {
		t.Fatal(err)
	}
	all := map[cue.Selector]cue.Value{}
	for it.Next() {
		all[it.Selector()] = it.Value()
	}
	return all
}

// element returns the schema of the elements of a list.
func element(list cue.Value) cue.Value {
	if first := list.LookupPath(cue.MakePath(cue.Index(0))); first.Exists() {
		return first
	}
	return list.LookupPath(cue.MakePath(cue.AnyIndex))
}

// schemaFields returns the paths of all fields. Fields that are not always structs have no fields of their own.
func schemaFields(t *testing.T, v cue.Value, prefix string) (paths []string) {
	t.Helper()
	if v.IncompleteKind() == cue.ListKind {
		v = element(v)
	}
	if v.IncompleteKind() != cue.StructKind {
		return nil
	}
	for selector, field := range fieldsOf(t, v) {
		path := prefix + selector.Unquoted()
		paths = append(append(paths, path), schemaFields(t, field, path+".")...)
	}
	return paths
}

// goTypes maps the names of the struct types of a package to their fields. Types with their own decoder have no fields.
type goTypes map[string][]*ast.Field

func parseTypes(t *testing.T, dir string) goTypes {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in %s: %v", dir, err)
	}
	types, decoders := goTypes{}, map[string]bool{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if s, isStruct := n.Type.(*ast.StructType); isStruct {
					types[n.Name.Name] = s.Fields.List
				}
			case *ast.FuncDecl:
				if n.Name.Name == "UnmarshalJSON" {
					_, decoded := typeName(n.Recv.List[0].Type)
					decoders[decoded] = true
				}
			}
			return true
		})
	}
	maps.DeleteFunc(types, func(name string, _ []*ast.Field) bool { return decoders[name] })
	return types
}

// typeName returns the package and the name of a type, of the elements of a slice, or of the target of a pointer.
func typeName(x ast.Expr) (pkg, name string) {
	switch x := x.(type) {
	case *ast.Ident:
		return "", x.Name
	case *ast.SelectorExpr:
		_, pkg = typeName(x.X)
		return pkg, x.Sel.Name
	case *ast.ArrayType:
		return typeName(x.Elt)
	case *ast.StarExpr:
		return typeName(x.X)
	}
	return "", ""
}

// goFields returns the paths of all fields of a type that have a JSON name.
func goFields(t *testing.T, types goTypes, name, prefix string) (paths []string) {
	t.Helper()
	for _, field := range types[name] {
		pkg, name := typeName(field.Type)
		switch {
		case len(field.Names) == 0: // embedded
			dir := filepath.Join("..", pkg)
			if pkg != "kit" {
				dir = filepath.Join("..", "internal", pkg)
			}
			paths = append(paths, goFields(t, parseTypes(t, dir), name, prefix)...)
		case field.Tag != nil:
			tag, err := strconv.Unquote(field.Tag.Value)
			if err != nil {
				t.Fatal(err)
			}
			own, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",") // without omitempty
			path := prefix + own
			within := types
			if pkg == "kit" {
				within = parseTypes(t, filepath.Join("..", pkg))
			}
			paths = append(append(paths, path), goFields(t, within, name, path+".")...)
		}
	}
	return paths
}
