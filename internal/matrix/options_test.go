package matrix

import (
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
)

const optionsSchema = `
#Options: {
	lose: *0 | int & >=0
	positions: *[] | [...(int & >=0)]
	delay: *"0s" | _#spread
	stalls: [...{at!: _#duration, for!: _#duration}]
	urls?: [string, ...string]
}
// a time, or {max} or {median, sigma}. What it is for is another sentence.
_#spread: _#duration | {max!: _#duration} | {median!: _#duration, sigma!: >=0 & <=10}
// a time like "2ms"
_#duration: =~"^[0-9]+(ms|s)$"
`

// TestErrorsOfOptions covers schemas of drivers, which use more features of CUE than the schema of matrices. A valid
// option is no error beside an invalid one.
func TestErrorsOfOptions(t *testing.T) {
	ctx := cuecontext.New()
	schema := ctx.CompileString(optionsSchema).LookupPath(cue.ParsePath("#Options"))
	if schema.Err() != nil {
		t.Fatal(schema.Err())
	}
	for options, want := range map[string]string{
		`delay: {median: "1ms", sigma: 1}, positions: [1, 3], urls: ["a"], stalls: [{at: "1s", for: "2s"}]`: "",
		`delay: "3ms", lose: -1`:      `o.lose: -1 is not valid here; give a whole number, at least 0`,
		`delay: {median: "1ms"}`:      `o.delay: {median: "1ms"} is not valid here; give a time, or {max} or {median, sigma}`,
		`delay: "3"`:                  `o.delay: "3" is not valid here; give a time, or {max} or {median, sigma}`,
		`stalls: [{at: "1s"}]`:        `o.stalls[0]: for is missing; give a time like "2ms"`,
		`positions: [1, "x"]`:         `o.positions[1]: "x" is not valid here; give a whole number, at least 0`,
		`lose: <5, delay: _`:          `o.lose: it is not concrete: <5; give a whole number, at least 0; o.delay: it is not concrete: _; give a time, or {max} or {median, sigma}`,
		`urls: [], stalls: [{at: 1}]`: `o.urls: [] is not valid here; give a list that is not empty; o.stalls[0].at: 1 is not valid here; give a time like "2ms"; o.stalls[0]: for is missing; give a time like "2ms"`,
	} {
		var x validator
		x.validate(schema, ctx.CompileString("{"+options+"}"), "o")
		var got []string
		for _, f := range x.errors {
			got = append(got, f.Path+": "+f.Message)
		}
		if got := strings.Join(got, "; "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", options, got, want)
		}
	}
}

// TestMissingOptions proves that regular fields of a driver's schema without a default are reported as missing, and
// that errors show no options.
func TestMissingOptions(t *testing.T) {
	ctx := cuecontext.New()
	schema := ctx.CompileString(`#Options: {
		brokers: [=~"^.+:[0-9]+$", ...]
		tls: {ca: *"" | string, key: string}
		acks: *"all" | "one"
		mode: *"plain" | "secret"
		if mode == "secret" {password: string}
		user: string
		name: user
	}`).LookupPath(cue.ParsePath("#Options"))
	for options, want := range map[string]string{
		`brokers: ["a:1"], tls: key: "k", user: "u"`:     "",
		`tls: key: "hidden", user: "u"`:                  "o: brokers is missing; give a list that is not empty",
		`brokers: ["a:1"], tls: ca: "hidden", user: "u"`: "o.tls: key is missing; give a string",
		`brokers: ["a:1"], tls: key: "k", mode: "plain"`: "o: user is missing; give a string; o: name is missing; give a string",
	} {
		var x validator
		x.validate(schema, ctx.CompileString("{"+options+"}"), "o")
		var got []string
		for _, f := range x.errors {
			got = append(got, f.Path+": "+f.Message)
		}
		if got := strings.Join(got, "; "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", options, got, want)
		}
	}
}

// TestMatrixThatImportsTheSchema proves that the schema adds no defaults to a matrix that refers to it, and that errors
// are the same as in other matrices.
func TestMatrixThatImportsTheSchema(t *testing.T) {
	const text = `package m

import "lockstep.test/schema"

schema.#Matrix
name: "x", brokers: b: driver: "fake"
axes: threads: [3]
cell: {publishers: maxInFlight: 50, groups: {x: {}, y: publishers: maxInFlight: 60}}
`
	w := expand(t, text, Narrow{}).Cells[0].Workload
	if x, y := w.Groups[0].Publishers, w.Groups[1].Publishers; x.MaxInFlight != 50 || x.Threads != 3 ||
		y.MaxInFlight != 60 || y.Threads != 3 {
		t.Errorf("groups inherit %+v and %+v", x, y)
	}
	for set, want := range map[string]string{
		"cell.publishers.rate=<10":                            "cell.publishers.rate: it is not concrete",
		"cell.publishers.rate=-1":                             "cell.publishers.rate: -1 is not valid here; give a ",
		"cell.publishers.maxInFligh=1":                        `cell.publishers.maxInFligh: unknown field "maxInFligh"; did you mean "maxInFlight"?`,
		`cell.publishers.mode="x"`:                            `cell.publishers.mode: "x" is not valid here; give one of "confirm-`,
		`cell.groups.x.publishers.at=1`:                       `cell.groups.x.publishers.at: unknown field "at"`,
		`cell.publishers={if true {rate: 100}}`:               "contains more than fields with values",
		`cell={publishers: {mode: "confirm-each", ["r"]: 1}}`: "contains more than fields with values",
		`brokers.b.options={storage: "file" @secret()}`:       "contains more than fields with values",
	} {
		if got := errorsText(t, text, Narrow{Set: []string{set}}); !strings.Contains(got, want) {
			t.Errorf("--set %s: %s\nwant %s", set, got, want)
		}
	}
}

// TestBrokersWithoutOptions proves that missing options are reported for each broker.
func TestBrokersWithoutOptions(t *testing.T) {
	ctx := cuecontext.New()
	l := loader{ctx: ctx}
	both := ctx.CompileString("a: {driver: \"d\"}\nb: {driver: \"d\"}", cue.Filename("m.cue"))
	for _, name := range []string{"a", "b"} {
		l.readOptions(&plan.Broker{Name: name}, drivers.Info{Name: "d", Schema: "#Options: url!: string"},
			both.LookupPath(cue.ParsePath(name)))
	}
	const want = "m.cue:1:4: brokers.a.options: url is missing; give a string\nm.cue:2:4: brokers.b.options: url is missing; give a string"
	if got := l.errors.Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
