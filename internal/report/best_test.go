package report

import (
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// contest is a run of two brokers on one additional axis, with the rates of each cell. A rate of 0 failed.
func contest(rates map[string][]float64, best func(*plan.Table)) []Table {
	run := plan.Run{Name: "contest", Repeat: 1, Axes: []string{"broker", "threads"}}
	var outcomes []plan.Outcome
	for _, broker := range []string{"a", "b"} {
		for i, rate := range rates[broker] {
			c := plan.Cell{ID: broker + string(rune('0'+i)), Index: len(run.Cells), Label: "on " + broker,
				Workload: plan.Default(),
				Coordinates: []plan.Coordinate{{Axis: "broker", Value: raw(broker)},
					{Axis: "threads", Value: raw(i + 1)}}}
			run.Cells = append(run.Cells, c)
			o := outcome(c, 1, map[string]plan.Value{"consume.rate": {Number: rate}, "sent": {Number: float64(i)}})
			if rate == 0 {
				o.Verdict, o.Reasons = plan.Unknown, []string{"no broker"}
			}
			outcomes = append(outcomes, o)
		}
	}
	table := plan.Table{Rows: []string{"broker"}, Values: []string{"consume.rate", "sent"}}
	best(&table)
	run.Tables = []plan.Table{table}
	return Build(run, outcomes)
}

func TestTablesOfBestCells(t *testing.T) {
	rates := map[string][]float64{"a": {10, 0, 30, 30}, "b": {5, 4}}
	for _, x := range []struct {
		best func(*plan.Table)
		want []string
	}{
		// of equal cells the first
		{func(t *plan.Table) { t.Highest = "consume.rate" }, []string{"a 3 30.0 2", "b 1 5.00 0"}},
		// a failed cell is not the lowest
		{func(t *plan.Table) { t.Lowest = "consume.rate" }, []string{"a 1 10.0 0", "b 2 4.00 1"}},
	} {
		tables := contest(rates, x.best)
		if len(tables) != 1 {
			t.Fatalf("%d tables, want one", len(tables))
		}
		var got []string
		for _, row := range tables[0].Rows {
			var texts []string
			for _, f := range row {
				texts = append(texts, f.Text)
			}
			got = append(got, strings.Join(texts, " "))
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("rows %q, want %q", got, x.want)
		}
		if head := strings.Join(tables[0].Head, ","); head != "broker,threads,Consume msg/s,Sent" {
			t.Errorf("head %q: want the axis that tells where the best is", head)
		}
	}
}

func TestNoBestCellIsSaid(t *testing.T) {
	tables := contest(map[string][]float64{"a": {0, 0}, "b": {1}}, func(t *plan.Table) { t.Highest = "consume.rate" })
	row := tables[0].Rows[0]
	if row[1].Text != "–" || row[2].Text != "failed" || row[2].Number != nil {
		t.Errorf("row %+v: want that every cell failed", row)
	}
}

// A row in which no cell has the value shows no other numbers of any cell, and no cell that broke a guarantee.
func TestNoBestCellShowsNoNumbers(t *testing.T) {
	run := plan.Run{Name: "contest", Repeat: 1, Axes: []string{"broker", "threads"},
		Tables: []plan.Table{{Rows: []string{"broker"}, Lowest: "e2e.p95",
			Values: []string{"e2e.p95", "consume.rate"}}}}
	for _, broken := range []bool{false, true} {
		run.Cells = nil
		var outcomes []plan.Outcome
		for i := range 2 {
			c := plan.Cell{ID: string(rune('0' + i)), Index: i, Workload: plan.Default(),
				Coordinates: []plan.Coordinate{{Axis: "broker", Value: raw("a")}, {Axis: "threads", Value: raw(i + 1)}}}
			run.Cells = append(run.Cells, c)
			o := outcome(c, 1, map[string]plan.Value{"e2e.p95": {NA: "backlog"}, "consume.rate": {Number: 500}})
			if broken {
				o.Verdict, o.Reasons, o.Values["e2e.p95"] = plan.Invalid, []string{"3 lost"}, plan.Value{Number: 0.001}
			}
			outcomes = append(outcomes, o)
		}
		row := Build(run, outcomes)[0].Rows[0]
		latency, rate := row[2], row[3]
		if latency.Number != nil || rate.Number != nil || rate.Text != "–" ||
			!broken && !slices.Contains(latency.Flags, plan.Backlog) ||
			broken && len(latency.Notes) == 0 {
			t.Errorf("broken=%v: row %+v, want why there is no best cell, and no numbers", broken, row)
		}
	}
}

// If a server accepts a write concern without honouring it, its confirms mean something else than the label states.
// That is reported.
func TestWhatIsNotHonouredIsSaid(t *testing.T) {
	c := plan.Cell{ID: "c", Label: "w:majority", Workload: plan.Default()}
	run := plan.Run{Name: "x", Repeat: 1, Cells: []plan.Cell{c}, Tables: []plan.Table{{Values: []string{"sent"}}}}
	o := outcome(c, 1, map[string]plan.Value{"sent": {Number: 1}})
	o.Subject.Settings = map[string]string{"w": "majority: not honoured by this server: it stands alone", "j": "true"}
	want := Fact{"Confirm", "w:majority (w majority: not honoured by this server: it stands alone)"}
	if facts := Facts(run, []plan.Outcome{o}); !slices.Contains(facts, want) {
		t.Errorf("facts %q, want %q", facts, want)
	}
}

// A cell with a flag is the best only if all cells have one.
func TestFlaggedCellsAreNotTheBest(t *testing.T) {
	const none, client, host = plan.Flag(""), plan.ClientBound, plan.SharedHost
	for _, c := range []struct {
		flags []plan.Flag
		want  string // threads
	}{
		{[]plan.Flag{none, none, none}, "3"},
		{[]plan.Flag{none, none, client}, "2"},
		{[]plan.Flag{client, none, client}, "2"},
		{[]plan.Flag{client, client, client}, "3"},
		{[]plan.Flag{none, none, host}, "3"}, // a property of the run, which is stated above the tables
		{[]plan.Flag{none, host, client}, "2"},
	} {
		var cells []*cell
		for i, flag := range c.flags {
			v := plan.Value{Number: float64(10 * (i + 1))}
			if flag != none {
				v.Flags = []plan.Flag{flag}
			}
			o := with("consume.rate", v)
			o.Verdict = plan.Valid
			cells = append(cells, &cell{cell: plan.Cell{ID: string(rune('1' + i))}, outcomes: []plan.Outcome{o}})
		}
		if got := best(cells, "consume.rate", func(x, y float64) bool { return x > y }); got.cell.ID != c.want {
			t.Errorf("flags %q: the best is %s, want %s", c.flags, got.cell.ID, c.want)
		}
	}
}

// The broker and its stand-in are in the facts, and only the broker in a ranking.
func TestStandInsAreNotRanked(t *testing.T) {
	run := plan.Run{Name: "contest", Repeat: 1, Axes: []string{"broker"}, Tables: []plan.Table{
		{Rows: []string{"broker"}, Highest: "consume.rate", Values: []string{"consume.rate"}},
		{Rows: []string{}, Highest: "consume.rate", Values: []string{"consume.rate"}}}}
	var outcomes []plan.Outcome
	for i, broker := range []string{"real", "test"} {
		c := plan.Cell{ID: broker, Index: i, Workload: plan.Default(), Label: "majority",
			Broker: plan.Broker{Name: broker}, Coordinates: []plan.Coordinate{{Axis: "broker", Value: raw(broker)}}}
		run.Cells = append(run.Cells, c)
		o := outcome(c, 1, map[string]plan.Value{"consume.rate": {Number: float64(1 + i)}})
		o.Subject = []plan.Subject{{Product: "MongoDB"}, {Product: "FerretDB", StandIn: "MongoDB"}}[i]
		outcomes = append(outcomes, o)
	}
	tables := Build(run, outcomes)
	var each []string
	for _, row := range tables[0].Rows {
		each = append(each, row[0].Text+" "+row[1].Text)
	}
	if want := []string{"real 1.00", "test –"}; !slices.Equal(each, want) {
		t.Errorf("best of each broker: %q, want %q", each, want)
	}
	if want := "not ranked: a stand-in for MongoDB"; len(tables[0].Notes) != 1 || tables[0].Notes[0] != want {
		t.Errorf("notes %q, want %q", tables[0].Notes, want)
	}
	if best := tables[1].Rows[0]; best[0].Text != "real" {
		t.Errorf("best of all: %+v, want the real broker", best)
	}
	if !strings.HasSuffix(tables[0].Remarks[0], "; stand-ins are not ranked") {
		t.Errorf("remarks %q", tables[0].Remarks)
	}
	facts := factsOf(run, outcomes)
	if want := "FerretDB, a stand-in for MongoDB (test) | MongoDB (real)"; facts["Broker"] != want {
		t.Errorf("brokers %q, want %q", facts["Broker"], want)
	}
	if want := "majority (stand-in for MongoDB) (broker=test)"; !strings.Contains(facts["Confirm"], want) {
		t.Errorf("confirms %q, want %q in them", facts["Confirm"], want)
	}
}

// A value that is shorter than the shortest that can be measured is the lowest, and is shown as such.
func TestUpperBoundIsTheLowest(t *testing.T) {
	bound, long := plan.Value{NA: "< 20 ms"}, plan.Value{Number: 3}
	for want, values := range map[string][][]plan.Value{
		"2": {{long}, {bound, bound, bound}, {long, bound, long}},
		"3": {{long}, {long, long, bound}, {bound, bound, long}},
	} {
		var cells []*cell
		for i, repetitions := range values {
			c := &cell{cell: plan.Cell{ID: string(rune('1' + i))}}
			for _, v := range repetitions {
				o := with("gap.delivery", v)
				o.Verdict = plan.Valid
				c.outcomes = append(c.outcomes, o)
			}
			cells = append(cells, c)
		}
		if got := best(cells, "gap.delivery", func(x, y float64) bool { return x < y }); got.cell.ID != want {
			t.Errorf("the best is %s, want %s", got.cell.ID, want)
		}
	}
}
