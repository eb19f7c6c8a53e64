package matrix

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/parser"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/schema"
)

func schemaValue(t *testing.T) cue.Value {
	t.Helper()
	v := cuecontext.New().CompileString(schema.Source)
	if v.Err() != nil {
		t.Fatal(v.Err())
	}
	return v
}

// The defaults that the schema documents are those of plan.Default.
func TestDefaultsAreThePlans(t *testing.T) {
	tree := clone(defaults()["#Cell"])
	normalise(tree)
	delete(tree, "require") // not part of the workload
	want := generic(t, plan.Default())
	want["publishers"].(map[string]any)["rate"] = 0.0 // a plan omits it if it is 0
	want["publishers"].(map[string]any)["count"] = 0.0
	want["topology"].(map[string]any)["existing"] = ""
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

// durations normalises durations: "60s" and "1m0s" are equal.
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
	got := defaultsOf(lookupDefinition(schemaIn(cuecontext.New()), "#Matrix"))
	for field, want := range map[string]any{"repeat": 1.0, "order": "interleaved", "settle": "0s", "grace": "60s",
		"strict": false} {
		if got[field] != want {
			t.Errorf("%s is %v by default in the schema, want %v", field, got[field], want)
		}
	}
	run := expand(t, `name: "x", brokers: b: driver: "fake"`, Narrow{})
	if run.Repeat != 1 || run.Order.Random || run.Settle != 0 || run.Grace.String() != "1m0s" || run.Strict {
		t.Errorf("a run of nothing but defaults is %+v", run)
	}
}

// decodedInto lists the definitions whose values are decoded by their JSON names, with the Go types. The code that
// reads a definition converts the fields that only one of the two has.
var decodedInto = map[string]struct {
	into             any
	inSchema, inType []string
}{
	"#Broker":     {into: plan.Broker{}, inType: []string{"name", "secret"}},
	"#Process":    {into: plan.Process{}},
	"#Influx":     {into: plan.Influx{}},
	"#Cell":       {into: plan.Workload{}, inSchema: []string{"axis", "broker", "latency", "require", "retry", "sideBySide"}},
	"#Publishers": {into: plan.Publishers{}},
	"#Stage":      {into: plan.Stage{}},
	"#Lifetime":   {into: plan.Lifetime{}},
	"#Batch":      {into: plan.Batch{}},
	"#Consumers":  {into: plan.Consumers{}},
	"#Spread":     {into: plan.DurationDist{}},
	"#Topology":   {into: plan.Topology{}},
	"#Churn":      {into: plan.Churn{}},
	"#Message":    {into: plan.Message{}, inType: []string{"sizes"}},
	"#SizeRange":  {into: plan.SizeShare{}, inType: []string{"weight"}},
	"#SizeShare":  {into: plan.SizeShare{}, inSchema: []string{"size"}},
	"#Payload":    {into: plan.Payload{}},
	"#Keys":       {into: plan.Keys{}},
	"#Steady":     {into: plan.Steady{}, inType: []string{"auto"}},
	"#Search":     {into: plan.Search{}},
	"#Fault":      {into: plan.Fault{}},
	"#Retry":      {into: plan.Retry{}},
	"#Rule":       {into: plan.Rule{}, inSchema: []string{"value", "min", "max", "regression"}},
	"#Group":      {into: plan.Group{}, inType: []string{"copiesBody", "guarantees", "inProcess", "label", "name", "redeliverAfter", "resilience"}},
	"#Network":    {into: plan.Network{}},
	"#Drain":      {into: plan.Drain{}},
	"#Table":      {into: plan.Table{}},
	"#Target":     {into: plan.Target{}, inType: []string{"name"}},
	"#Command":    {into: Command{}},
	"#Hook":       {into: plan.Hook{}, inType: []string{"name"}},
}

// TestTypesMatchTheSchema: encoding/json ignores a field that the Go type lacks.
func TestTypesMatchTheSchema(t *testing.T) {
	byHand := []string{"#Matrix", "#Axes", "#Repeat", "#Random", "#Faults", "#Drivers", "#Hooks"}
	definitions, err := schemaValue(t).Fields(cue.Definitions(true))
	if err != nil {
		t.Fatal(err)
	}
	for definitions.Next() {
		name := definitions.Selector().String()
		if definitions.Value().IncompleteKind() != cue.StructKind || slices.Contains(byHand, name) {
			continue
		}
		decoded, listed := decodedInto[name]
		if !listed {
			t.Errorf("%s is not compared with a Go type: add it to decodedInto", name)
			continue
		}
		ofSchema, ofType := append(fieldNames(definitions.Value()), decoded.inType...), slices.Clone(decoded.inSchema)
		for _, f := range reflect.VisibleFields(reflect.TypeOf(decoded.into)) {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			ofType = append(ofType, cmp.Or(tag, strings.ToLower(f.Name)))
		}
		slices.Sort(ofSchema)
		slices.Sort(ofType)
		if !slices.Equal(ofSchema, ofType) {
			t.Errorf("%s has the fields\n%v\nand %T has\n%v", name, ofSchema, decoded.into, ofType)
		}
	}
}

// Every field has a comment, which ctl explain prints.
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

func TestSchemaText(t *testing.T) {
	text := Schema()
	if _, err := parser.ParseFile("schema.cue", text, parser.ParseComments); err != nil {
		t.Errorf("the schema as printed is not CUE: %v", err)
	}
	for _, want := range []string{"#Publishers", "Publish mode.", `"driver fake"`, "// Copies.", "replicas"} {
		if !strings.Contains(text, want) {
			t.Errorf("the schema as printed lacks %q", want)
		}
	}
	if want := fmt.Sprintf("int & >=%d &", plan.MinMessageSize); !strings.Contains(schema.Source, want) {
		t.Errorf("the schema does not contain %q, the bound of message.size", want)
	}
}
