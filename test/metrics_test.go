package test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/sink"
)

// planted is an invented run of two cells, with the values of their repetitions.
type planted struct {
	run      plan.Run
	outcomes []plan.Outcome
}

// repetition is the result of a task. The default verdict is valid.
type repetition struct {
	rate, p99, bound, lost float64
	verdict                plan.Verdict
}

// plantedValues are the values that are compared between panels and tables.
var plantedValues = []string{"publish.rate", "e2e.p99", "lost"}

// plant creates a run of some days ago, with the repetitions of its cells.
func plant(matrix string, days int, cells ...[]repetition) planted {
	started := time.Now().UTC().Add(-time.Duration(days)*24*time.Hour - 2*time.Hour).Truncate(time.Second)
	x := planted{run: plan.Run{ID: fmt.Sprintf("%s-%02d-%s", started.Format("20060102-150405"), days, matrix),
		Name: matrix, Repeat: len(cells[0]), Started: started,
		Axes: []string{"broker", "threads"}, Tables: []plan.Table{{Rows: []string{"threads"}, Values: plantedValues}}}}
	for i := range cells {
		threads := i + 1
		x.run.Cells = append(x.run.Cells, plan.Cell{ID: fmt.Sprintf("cell%d", threads), Index: i,
			Workload: plan.Default(), Broker: plan.Broker{Name: "planted", Driver: "loopback"},
			Coordinates: []plan.Coordinate{{Axis: "broker", Value: json.RawMessage(`"planted"`)},
				{Axis: "threads", Value: json.RawMessage(fmt.Sprint(threads))}}})
	}
	for n, task := range x.run.Tasks() {
		r := cells[task.Cell.Index][task.Repetition-1]
		if r.verdict == "" {
			r.verdict = plan.Valid
		}
		o := plan.Outcome{Version: plan.RecordFormat, Run: x.run.ID, Task: task.ID, Cell: task.Cell.ID,
			Repetition: task.Repetition, Verdict: r.verdict,
			Values: map[string]plan.Value{"publish.rate": {Number: r.rate}, "e2e.p99": {Number: r.p99, Bound: r.bound},
				"lost": {Number: r.lost}},
			Agents: []plan.AgentPart{{Agent: "a1"}}, Started: started,
			Ended: started.Add(time.Duration(n+1) * time.Minute), Measured: plan.Duration(time.Second)}
		if r.verdict != plan.Valid {
			o.Reasons = []string{"planted"}
		}
		x.outcomes = append(x.outcomes, o)
	}
	return x
}

// write writes the run's points with the sink, with their times.
func (i influx) write(x planted) {
	i.t.Helper()
	s := i.sink()
	s.Begin(x.run)
	for n, task := range x.run.Tasks() {
		s.Outcome(x.outcomes[n], sink.Start{Task: task, Attempt: 1})
	}
	s.End(x.run.Started.Add(time.Hour), "done")
	err := s.Drain(i.t.Context())
	if d := s.Close(i.t.Context()); err != nil || d.Written != d.Points {
		i.t.Fatalf("what was planted is not written: %+v, %v", d, err)
	}
}

// metrics returns the numbers of the run's tables, by cell and value.
func (x planted) metrics(t *testing.T) map[string]map[string]report.Field {
	t.Helper()
	all := map[string]map[string]report.Field{}
	for _, table := range report.Build(x.run, x.outcomes) {
		for _, row := range table.Rows {
			for _, c := range x.run.Cells {
				if threads := c.Coordinates[1].Text(); row[len(table.Axes)-1].Text != threads {
					continue
				}
				all[c.Name()] = map[string]report.Field{}
				for _, f := range row[len(table.Axes):] {
					all[c.Name()][f.Value] = f
				}
			}
		}
	}
	if len(all) != len(x.run.Cells) {
		t.Fatalf("the tables show %d cells of %d", len(all), len(x.run.Cells))
	}
	return all
}

// panel runs the queries of a panel.
func (g *grafana) panel(board, title string) []map[string]any {
	g.t.Helper()
	for _, p := range dashboardOf(g.t, "../dashboards/"+board+".json").Panels {
		if p.Title == title {
			a := g.ask(g.fill(p.Targets[0].Query))
			if a.err != nil {
				g.t.Fatalf("%s, %s: %v\n%s", board, title, a.err, g.fill(p.Targets[0].Query))
			}
			return a.rows
		}
	}
	g.t.Fatalf("%s has no panel %q", board, title)
	return nil
}

// same compares a column of a panel's rows with the tables, by cell.
func (g *grafana) same(what string, rows []map[string]any, cell, column string, want map[string]report.Field) {
	g.t.Helper()
	if len(rows) != len(want) {
		g.t.Errorf("%s has %d rows, want %d: %v", what, len(rows), len(want), rows)
	}
	for _, r := range rows {
		f, known := want[fmt.Sprint(r[cell])]
		got, is := r[column].(float64)
		if !known || !is || f.Number == nil || math.Abs(got-*f.Number) > 1e-9**f.Number {
			g.t.Errorf("%s: %s of %v is %v, in the tables %s", what, column, r[cell], r[column], f.Text)
		}
	}
}

func of(all map[string]map[string]report.Field, value string) map[string]report.Field {
	one := map[string]report.Field{}
	for cell, values := range all {
		one[cell] = values[value]
	}
	return one
}

// TestDashboardsShowTheTables proves that dashboards show the same values per cell as the tables of the runs, for any
// results of repetitions, and that they show an increase from zero.
func TestDashboardsShowTheTables(t *testing.T) {
	db := influxOf(t)
	matrix := fmt.Sprintf("planted%d", time.Now().UnixNano())
	calm := []repetition{{rate: 100, p99: 0.010}, {rate: 200, p99: 0.050}, {rate: 300, p99: 0.060},
		{rate: 1000, p99: 0.070}}
	broken := []repetition{{rate: 100, p99: 0.020, bound: 0.002}, {rate: 110, p99: 0.040, bound: 0.004},
		{rate: 900, p99: 9, lost: 7, verdict: plan.Invalid}, {rate: 1, p99: 99, verdict: plan.Unknown}}
	var scheduledRuns []planted
	for days := 7; days > 0; days-- {
		scheduledRuns = append(scheduledRuns, plant(matrix, days, calm, broken))
	}
	worse := slices.Clone(calm)
	for i := range worse {
		worse[i].lost, worse[i].rate = 5, 2*worse[i].rate
	}
	guarantees := []repetition{{rate: 50, p99: 0.5, lost: 3, verdict: plan.Invalid},
		{rate: 70, p99: 0.7, lost: 4, verdict: plan.Invalid}, {rate: 1, verdict: plan.Unknown},
		{rate: 2, verdict: plan.Unknown}}
	last := plant(matrix, 0, worse, guarantees)
	for _, x := range append(scheduledRuns, last) {
		db.write(x)
	}
	before := scheduledRuns[len(scheduledRuns)-1]
	g := &grafana{t: t, db: db, from: time.Now().Add(-10 * 24 * time.Hour), to: time.Now().Add(time.Minute),
		interval: time.Second}
	g.showsRun(before)
	g.showsRun(last)
	g.compares(before, last)
	g.remembers(append(scheduledRuns, last))
}

func (g *grafana) showsRun(x planted) {
	g.t.Helper()
	metrics := x.metrics(g.t)
	g.chosen = map[string][]string{"run": {x.run.ID}, "broker": {"planted"}, "axis": {"axis_threads"},
		"value": {"e2e.p99"}}
	g.same("Rates", g.panel("run", "Rates"), "name", "publish.rate", of(metrics, "publish.rate"))
	rows := g.panel("run", "Latency")
	g.same("Latency", rows, "name", "e2e.p99", of(metrics, "e2e.p99"))
	byThreads := map[string]report.Field{}
	for _, c := range x.run.Cells {
		byThreads[c.Coordinates[1].Text()] = metrics[c.Name()]["e2e.p99"]
	}
	rows = g.panel("broker", "${value} by ${axis}")
	series := ""
	for column := range rows[0] {
		if column != "x" && column != "result" && column != "table" {
			series = column
		}
	}
	g.same("by axis", rows, "x", series, byThreads)
}

func (g *grafana) compares(before, after planted) {
	g.t.Helper()
	for _, value := range plantedValues {
		g.chosen = map[string][]string{"before": {before.run.ID}, "after": {after.run.ID}, "value": {value}}
		old, young := of(before.metrics(g.t), value), of(after.metrics(g.t), value)
		rows := g.panel("compare", "${value}: change")
		g.same("change", rows, "cell", "before", old)
		g.same("change", rows, "cell", "after", young)
		for _, r := range rows {
			cell := fmt.Sprint(r["cell"])
			if want := old[cell].Bound; r["bound_before"] != want {
				g.t.Errorf("change of %s: %s is ± %v before, in the tables %v", value, cell, r["bound_before"], want)
			}
			change, is := r["change"].(float64)
			if zero := *old[cell].Number == 0; is == zero {
				g.t.Errorf("change of %s: %s from %v is %v", value, cell, r["before"], r["change"])
			} else if want := (*young[cell].Number / *old[cell].Number - 1) * 100; !zero &&
				math.Abs(change-want) > 1e-6 {
				g.t.Errorf("change of %s: %s is %v %%, want %v", value, cell, change, want)
			}
		}
	}
}

func (g *grafana) remembers(scheduledRuns []planted) {
	g.t.Helper()
	last := scheduledRuns[len(scheduledRuns)-1]
	var cells []string
	for _, c := range last.run.Cells {
		cells = append(cells, c.ID)
	}
	for _, value := range plantedValues {
		g.chosen = map[string][]string{"matrix": {last.run.Name}, "cell": cells, "value": {value}, "worse": {"10"}}
		drawn := g.panel("trend", "${value} over scheduled runs")
		for _, x := range scheduledRuns {
			rows := slices.DeleteFunc(slices.Clone(drawn),
				func(r map[string]any) bool { return !r["_time"].(time.Time).Equal(x.outcomes[0].Ended) })
			g.same(value+" of "+x.run.ID, rows, "name", "_value", of(x.metrics(g.t), value))
		}
		got := []string{}
		for _, r := range g.panel("trend", "Worse than the seven runs before") {
			got = append(got, fmt.Sprintf("%v %v", strings.TrimPrefix(fmt.Sprint(r["run"]), last.run.ID), r["name"]))
		}
		slices.Sort(got)
		first, second := " "+last.run.Cells[0].Name(), " "+last.run.Cells[1].Name()
		want := map[string][]string{"publish.rate": {second}, "e2e.p99": {second}, "lost": {first, second}}[value]
		if !slices.Equal(got, want) {
			g.t.Errorf("%s is marked in %q, want in the last run of %q", value, got, want)
		}
	}
}
