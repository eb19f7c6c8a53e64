package matrix

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/parser"

	"lockstep/internal/plan"
)

func schemaValue(t *testing.T) cue.Value {
	t.Helper()
	v := cuecontext.New().CompileString(schemaSource)
	if v.Err() != nil {
		t.Fatal(v.Err())
	}
	return v
}

// The schema documents defaults that the code takes from plan.Default: were they to differ, the documentation would lie.
func TestDefaultsAreThePlans(t *testing.T) {
	cell := schemaValue(t).LookupPath(cue.ParsePath("#Cell"))
	text, err := cell.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	normalise(tree)
	delete(tree, "labels")
	delete(tree, "contenders") // made into groups
	delete(tree, "require")    // no part of the workload
	want := generic(t, plan.Default())
	want["publishers"].(map[string]any)["rate"] = 0.0 // left out of a plan where it is 0
	want["publishers"].(map[string]any)["count"] = 0.0
	want["network"].(map[string]any)["bandwidth"] = 0.0
	same(t, "", durations(tree), durations(want))
}

func generic(t *testing.T, x any) map[string]any {
	t.Helper()
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

// durations writes durations alike: "60s" and "1m0s" are one.
func durations(x any) any {
	switch x := x.(type) {
	case map[string]any:
		for k := range x {
			x[k] = durations(x[k])
		}
	case string:
		var d plan.Duration
		if d.UnmarshalText([]byte(x)) == nil {
			return d.String()
		}
	}
	return x
}

func same(t *testing.T, path string, got, want any) {
	t.Helper()
	g, isMap := got.(map[string]any)
	w, wasMap := want.(map[string]any)
	if !isMap || !wasMap {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("cell%s: the schema's default is %v, the plan's %v", path, got, want)
		}
		return
	}
	for k := range w {
		same(t, path+"."+k, g[k], w[k])
	}
	for k := range g {
		if _, ok := w[k]; !ok {
			t.Errorf("cell%s.%s is in the schema and not in the plan", path, k)
		}
	}
}

func TestRunDefaults(t *testing.T) {
	v := schemaValue(t).LookupPath(cue.ParsePath("#Matrix"))
	for field, want := range map[string]string{"repeat": "1", "order": `"interleaved"`, "settle": `"0s"`, "grace": `"60s"`, "strict": "false"} {
		d, _ := v.LookupPath(cue.ParsePath(field)).Default()
		if got, _ := d.MarshalJSON(); string(got) != want {
			t.Errorf("%s is %s by default in the schema, want %s", field, got, want)
		}
	}
	run := expand(t, `name: "x", brokers: b: driver: "fake"`, Narrow{})
	if run.Repeat != 1 || run.Order.Random || run.Settle != 0 || run.Grace.String() != "1m0s" || run.Strict {
		t.Errorf("a run of nothing but defaults is %+v", run)
	}
}

// ctl schema prints the comments; a field without one is a field that nobody can know how to use.
func TestEveryFieldHasAComment(t *testing.T) {
	it, err := schemaValue(t).Fields(cue.Definitions(true))
	if err != nil {
		t.Fatal(err)
	}
	for it.Next() {
		if comment(it.Value()) == "" {
			t.Errorf("%s has no comment", it.Selector())
		}
		if it.Value().IncompleteKind() != cue.StructKind {
			continue
		}
		fields, err := it.Value().Fields(cue.Optional(true))
		if err != nil {
			t.Fatal(err)
		}
		for fields.Next() {
			if len(comment(fields.Value())) < 8 {
				t.Errorf("%s.%s has no comment", it.Selector(), fields.Selector())
			}
		}
	}
}

// Cells are checked by rules and not by CUE; were the two to disagree, the schema that people read would not hold.
func TestRulesAgreeWithCUE(t *testing.T) {
	ctx := cuecontext.New()
	var probes []cue.Value
	for _, text := range strings.Fields(`-1 0 1 2 63 64 100 10000 10001 65535 65536 100000000 104857601 1000000001 1e30 0.5 -0.5 true false
		"" "any" "leader" "0" "12" "999999" "wait" "each" "every" "confirm-each" "round-robin" "shared" "0s" "0" "5ms" "-5ms" "1.5s" "1m30s" "5" "s" "0.0s" "1h0m"
		[] [1] ["a"] {} {least:1,most:2} {least:0,most:2} {x:1} null "10.0.0.1:80" "a:b" "a_b" "-a" "interleaved" {random:3} {random:-1}`) {
		probes = append(probes, ctx.CompileString(text))
	}
	compared := 0
	var walk func(path string, r *rule)
	walk = func(path string, r *rule) {
		if r.rough {
			t.Errorf("%s uses more of CUE than a rule can hold", path)
		}
		if r.object != nil {
			for _, name := range r.object.names {
				walk(path+"."+name, r.object.fields[name].rule)
			}
		}
		if r.any || len(r.arms) == 0 {
			return
		}
		v := r.value
		for _, p := range probes {
			c := checker{}
			c.check(r, p, "x")
			byRule := len(c.faults) == 0
			byCUE := v.Unify(p).Validate(cue.Concrete(true)) == nil
			if byRule != byCUE {
				t.Errorf("%s: %v is allowed by the rule: %v, by CUE: %v", path, p, byRule, byCUE)
			}
			compared++
		}
	}
	walk("#Matrix", matrixRule())
	if compared < 2000 {
		t.Errorf("only %d comparisons: the walk does not reach the fields", compared)
	}
}

func TestSchemaText(t *testing.T) {
	text := Schema()
	if _, err := parser.ParseFile("schema.cue", text, parser.ParseComments); err != nil {
		t.Errorf("the schema as printed is not CUE: %v", err)
	}
	for _, want := range []string{"#Publishers", "How they send.", `"driver fake"`, "// Copies.", "replicas"} {
		if !strings.Contains(text, want) {
			t.Errorf("the schema as printed lacks %q", want)
		}
	}
	if MinMessage != 64 || !strings.Contains(schemaSource, "int & >=64 &") {
		t.Error("MinMessage and the schema's bound of message.size differ")
	}
}
