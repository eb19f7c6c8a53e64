package report

import (
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// mixed is a run of one cell with only "small" and one with both groups, whose "bulk" lost a message, and an n/a
// combination.
func mixed() (plan.Run, []plan.Outcome) {
	group := func(name string) plan.Group {
		d := plan.Default()
		return plan.Group{Name: name, Publishers: d.Publishers, Consumers: d.Consumers, Topology: d.Topology,
			Message: d.Message, Label: "kept by " + name}
	}
	run := plan.Run{ID: "r1", Name: "mixed", Repeat: 1, Axes: []string{"bulk"}}
	for i, groups := range [][]plan.Group{{group("small")}, {group("bulk"), group("small")}} {
		w := plan.Default()
		w.Groups = groups
		run.Cells = append(run.Cells, plan.Cell{ID: string(rune('a' + i)), Index: i,
			Coordinates: []plan.Coordinate{{Axis: "bulk", Value: raw(i)}}, Workload: w})
	}
	run.Excluded = []plan.Excluded{{Coordinates: []plan.Coordinate{{Axis: "bulk", Value: raw(2)}}, Kind: kindNA,
		Reason: "group bulk: too much"}}
	values := func(rate, p99 float64) map[string]plan.Value {
		return map[string]plan.Value{"publish.rate": {Number: rate}, "consume.rate": {Number: rate},
			"throughput": {Number: rate}, "publish.p99": {Number: p99}}
	}
	alone := plan.Outcome{Cell: "a", Repetition: 1, Verdict: plan.Valid, Values: values(100, 0.001),
		Groups: []plan.GroupOutcome{{Name: "small", Verdict: plan.Valid, Values: values(100, 0.001)}}}
	both := plan.Outcome{Cell: "b", Repetition: 1, Verdict: plan.Invalid, Reasons: []string{"group bulk: lost one"},
		Values: values(1100, 0.5), Groups: []plan.GroupOutcome{
			{Name: "bulk", Verdict: plan.Invalid, Reasons: []string{"lost one"}, Values: values(1000, 0.5)},
			{Name: "small", Verdict: plan.Valid, Values: values(100, 0.25)}}}
	return run, []plan.Outcome{alone, both}
}

// shown returns the rows of the tables as lines.
func shown(t *testing.T, run plan.Run, outcomes []plan.Outcome) string {
	t.Helper()
	var b strings.Builder
	for _, table := range Build(run, outcomes) {
		for _, row := range table.Rows {
			if len(row) != len(table.Head) {
				t.Fatalf("a row of %d fields below %q", len(row), table.Head)
			}
			for _, f := range row {
				b.WriteString(f.Full() + " | ")
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func TestGroupsInTables(t *testing.T) {
	run, outcomes := mixed()
	for name, c := range map[string]struct {
		tables []plan.Table
		want   string
	}{
		"none given": {nil,
			"0 | small | 100 | 100 | 1.00 ms | \n1 | small | 100 | 100 | 250 ms | \n1 | bulk | 1,000 invalid | 1,000 invalid | 500 ms invalid | \n2 | small | n/a | n/a | n/a | \n2 | bulk | n/a | n/a | n/a | \n"},
		"beside each other": {[]plan.Table{{Rows: []string{"bulk"},
			Values: []string{"bulk/publish.rate", "small/publish.p99", "small/throughput"}}},
			"0 | – | 1.00 ms | 100 | \n1 | 1,000 invalid | 250 ms invalid | 100 invalid | \n2 | n/a | n/a | n/a | \n"},
		"as columns": {[]plan.Table{{Rows: []string{"bulk"}, Columns: []string{"group"},
			Values: []string{"publish.p99"}}},
			"0 | 1.00 ms | · | \n1 | 250 ms | 500 ms invalid | \n2 | n/a | n/a | \n"},
		"best": {[]plan.Table{{Lowest: "small/publish.p99", Values: []string{"small/publish.p99"}}},
			"0 | 1.00 ms | \n"},
		"best of groups": {[]plan.Table{{Rows: []string{"group"}, Highest: "publish.p99",
			Values: []string{"publish.p99"}}}, "small | 1 | 250 ms | \nbulk | – | – | \n"},
	} {
		run.Tables = c.tables
		if got := shown(t, run, outcomes); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// With side-by-side brokers, a stand-in in one group does not exclude the broker of the other.
func TestGroupsHaveBrokersOfTheirOwn(t *testing.T) {
	run, outcomes := mixed()
	run.Tables = []plan.Table{{Rows: []string{"group"}, Highest: "publish.rate", Values: []string{"publish.rate"}}}
	outcomes[1].Verdict, outcomes[1].Subject = plan.Valid, plan.Subject{Product: "FerretDB", StandIn: "MongoDB"}
	for i, s := range []plan.Subject{outcomes[1].Subject, {Product: "RabbitMQ"}} {
		outcomes[1].Groups[i].Verdict, outcomes[1].Groups[i].Subject = plan.Valid, &s
	}
	got := shown(t, run, outcomes[1:])
	if !strings.Contains(got, "small | 1 | 100 |") || !strings.Contains(got, "bulk | – | –") {
		t.Errorf("rows: got %s, want a number for small alone", got)
	}
}

// The steps of a search show lower bounds and error bounds.
func TestStepsShowBounds(t *testing.T) {
	for want, v := range map[string]plan.Value{"> 30.0 s": {Number: 30, Over: 7},
		"1.80 ms ± 0.3": {Number: 0.0018, Bound: 0.0003}} {
		f := stepField(nil, plan.Step{Values: map[string]plan.Value{"e2e.p99": v}}, "e2e.p99")
		if f.Full() != want {
			t.Errorf("step: got %q, want %q", f.Full(), want)
		}
	}
}
