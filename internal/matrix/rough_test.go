package matrix

import (
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
)

const roughSchema = `
#Options: {
	lose: *0 | int & >=0
	positions: *[] | [...(int & >=0)]
	delay: *"0s" | _#spread
	stalls: [...{at!: _#duration, for!: _#duration}]
	urls?: [string, ...string]
}
// a time, or {most} or {median, sigma}. What it is for is another sentence.
_#spread: _#duration | {most!: _#duration} | {median!: _#duration, sigma!: >=0 & <=10}
// a time like "2ms"
_#duration: =~"^[0-9]+(ms|s)$"
`

// What a rule cannot hold of a driver's schema is CUE's to decide: what is right is not called wrong because of another fault beside it, and what
// is wrong is said with what may stand there.
func TestOptionsThatNoRuleHolds(t *testing.T) {
	ctx := cuecontext.New()
	schema := ctx.CompileString(roughSchema).LookupPath(cue.ParsePath("#Options"))
	if schema.Err() != nil {
		t.Fatal(schema.Err())
	}
	for options, want := range map[string]string{
		`delay: {median: "1ms", sigma: 1}, positions: [1, 3], urls: ["a"], stalls: [{at: "1s", for: "2s"}]`: "",
		`delay: "3ms", lose: -1`:      `o.lose: -1 is not valid here; give a whole number, at least 0`,
		`delay: {median: "1ms"}`:      `o.delay: {median: "1ms"} is not valid here; give a time, or {most} or {median, sigma}`,
		`delay: "3"`:                  `o.delay: "3" is not valid here; give a time, or {most} or {median, sigma}`,
		`stalls: [{at: "1s"}]`:        `o.stalls[0]: for is missing; give a time like "2ms"`,
		`positions: [1, "x"]`:         `o.positions: [1, "x"] is not valid here; give a value *[] | [...uint]`,
		`urls: [], stalls: [{at: 1}]`: `o.urls: [] is not valid here; give a list that is not empty; o.stalls[0].at: 1 is not valid here; give a time like "2ms"; o.stalls[0]: for is missing; give a time like "2ms"`,
	} {
		c := checker{}
		c.check(compile(schema), ctx.CompileString("{"+options+"}"), "o")
		var got []string
		for _, f := range c.faults {
			got = append(got, f.Path+": "+f.Message)
		}
		if got := strings.Join(got, "; "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", options, got, want)
		}
	}
}
