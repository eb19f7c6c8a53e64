package matrix

import (
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

const requiring = `
name: "rules"
brokers: a: {driver: "fake", options: {}}
axes: threads: [1, 2]
cell: {
	axis: _
	REQUIRE
}
tables: [{rows: ["threads"], values: ["publish.rate"]}]
`

// A rule as data is the same rule as its text.
func TestRulesAsData(t *testing.T) {
	const data = `require: [{value: "e2e.p99", max: "\(axis.threads)s"}, {value: "publish.rate", min: 1000, max: 2e7},
		{value: "lost", max: 0, inconclusive: "pass"}, {value: "publish.p99", regression: "5%"}]`
	cells := expand(t, strings.Replace(requiring, "REQUIRE", data, 1), Narrow{}).Cells
	for i, max := range []string{"1s", "2s"} {
		want := []plan.Rule{{Text: "e2e.p99 <= " + max}, {Text: "publish.rate >= 1000 && publish.rate <= 20000000"},
			{Text: "lost <= 0", Inconclusive: "pass"}, {Text: "publish.p99 no worse than baseline by 5%"}}
		if got := cells[i].Require; !slices.Equal(got, want) {
			t.Errorf("cell %d requires %q", i, got)
		}
	}
}

// Rules belong to the cell, may depend on the combination, and do not affect the id.
func TestRequireIsNoPartOfTheWorkload(t *testing.T) {
	with := expand(t, strings.Replace(requiring, "REQUIRE",
		`require: ["lost == 0", {rule: "p99 < \(axis.threads)s", inconclusive: "pass"}, {rule: "rate > 1"}]`, 1),
		Narrow{}).Cells
	without := expand(t, strings.Replace(requiring, "REQUIRE", "", 1), Narrow{}).Cells
	if len(with) != 2 || len(without) != 2 {
		t.Fatalf("%d and %d cells", len(with), len(without))
	}
	for i, c := range with {
		if c.ID != without[i].ID {
			t.Errorf("cell %d has id %s with rules and %s without", i, c.ID, without[i].ID)
		}
		if want := []plan.Rule{{Text: "lost == 0"}, {Text: []string{"p99 < 1s", "p99 < 2s"}[i], Inconclusive: "pass"},
			{Text: "rate > 1"}}; !slices.Equal(c.Require, want) || without[i].Require != nil {
			t.Errorf("cell %d requires %q, and %q without rules", i, c.Require, without[i].Require)
		}
	}
}
