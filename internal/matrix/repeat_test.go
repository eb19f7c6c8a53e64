package matrix

import (
	"strings"
	"testing"
)

const repeating = `name: "u"
brokers: a: {driver: "fake", options: {}}
axes: threads: [1, 2]
cell: {
	axis: _
	consumers: nodes: 0
	require: RULE
}
repeat: REPEAT
tables: [{rows: ["threads"], values: ["publish.rate"]}]
`

func TestRepeatUntil(t *testing.T) {
	fill := func(rule, repeat string) []byte {
		return []byte(strings.NewReplacer("RULE", rule, "REPEAT", repeat).Replace(repeating))
	}
	run := expand(t, string(fill(`"publish.rate no worse than baseline by 5%"`,
		`{until: "ci(publish.p99) < 5%", max: 12}`)), Narrow{})
	if u := run.Until; u == nil || run.Repeat != 12 || u.Value != "publish.p99" {
		t.Errorf("it repeats %d times, until %+v", run.Repeat, u)
	}
	if lowest, highest := Rounds(run); lowest != 6 || highest != 12 {
		t.Errorf("%d to %d rounds", lowest, highest)
	}
	for _, x := range []struct {
		rule, repeat string
		wants        []string
	}{
		{`"e2e.p99 no worse than baseline by 5%"`, `{until: "ci(e2e.p99) < 5%", max: 12}`,
			[]string{"u.cue:9:17: repeat.until: e2e.p99 never has a number in this cell: there are no consumers",
				`u.cue:7:11: cell.require: "e2e.p99 no worse than baseline by 5%": e2e.p99 never has a number`}},
		{`"no worse than baseline"`, `{until: "soon", max: 500}`,
			[]string{`u.cue:9:17: repeat.until: "soon" is no condition`, "repeat.max: 500 is not valid here",
				`"no worse than baseline": it names no value`}},
		{`[]`, `{until: "ci < 5%", max: 5}`,
			[]string{"repeat.max: 5 repetitions can never end early: an interval at 95 % needs 6"}},
		{`[]`, `{until: "ci < 5%"}`, []string{"max is missing"}},
	} {
		_, err := Load("u.cue", fill(x.rule, x.repeat), Narrow{})
		for _, want := range x.wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: %v; want %q", x.rule, x.repeat, err, want)
			}
		}
	}
}
