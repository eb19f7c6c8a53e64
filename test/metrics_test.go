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

// fakeRun is a generated run of two cells, with the values of their repetitions.
type fakeRun struct {
	run      plan.Run
	outcomes []plan.Outcome
}

// repetition is the result of a task. The default verdict is valid.
type repetition struct {
	rate, p99, bound, lost float64
	verdict                plan.Verdict
}

// comparedValues are the values that are compared between panels and tables.
var comparedValues = []string{"publish.rate", "e2e.p99", "lost"}

// newFakeRun creates a run of some days ago, with the repetitions of its cells.
func newFakeRun(matrix string, days int, cells ...[]repetition) fakeRun {
	started := time.Now().UTC().Add(-time.Duration(days)*24*time.Hour - 2*time.Hour).Truncate(time.Second)
	x := fakeRun{run: plan.Run{ID: fmt.Sprintf("%s-%02d-%s", started.Format("20060102-150405"), days, matrix),
		Name: matrix, Repeat: len(cells[0]), Started: started,
		Axes: []string{"broker", "threads"}, Tables: []plan.Table{{Rows: []string{"threads"}, Values: comparedValues}}}}
	for i := range cells {
		threads := i + 1
		x.run.Cells = append(x.run.Cells, plan.Cell{ID: fmt.Sprintf("cell%d", threads), Index: i,
			Workload: plan.Default(), Broker: plan.Broker{Name: "fake", Driver: "loopback"},
			Coordinates: []plan.Coordinate{{Axis: "broker", Value: json.RawMessage(`"fake"`)},
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
			o.Reasons = []string{"generated"}
		}
		x.outcomes = append(x.outcomes, o)
	}
	return x
}

// writeRun writes the run's points with the sink, with their times.
func (i influx) writeRun(x fakeRun) {
	i.t.Helper()
	s := i.sink()
	s.Begin(x.run)
	for n, task := range x.run.Tasks() {
		s.Outcome(x.outcomes[n], sink.Start{Task: task, Attempt: 1})
	}
	s.End(x.run.Started.Add(time.Hour), "done")
	err := s.Drain(i.t.Context())
	if d := s.Close(i.t.Context()); err != nil || d.Written != d.Points {
		i.t.Fatalf("delivery of the generated run: got %+v, %v, want all points written", d, err)
	}
}

// metrics returns the numbers of the run's tables, by cell and value.
func (x fakeRun) metrics(t *testing.T) map[string]map[string]report.Field {
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
		t.Fatalf("cells in the tables: got %d, want %d", len(all), len(x.run.Cells))
	}
	return all
}

// panel runs the queries of a panel.
func (g *grafana) panel(board, title string) []map[string]any {
	g.t.Helper()
	for _, p := range dashboardOf(g.t, "../dashboards/"+board+".json").Panels {
		if p.Title == title {
			a := g.query(g.fill(p.Targets[0].Query))
			if a.err != nil {
				g.t.Fatalf("%s, %s: %v\n%s", board, title, a.err, g.fill(p.Targets[0].Query))
			}
			return a.rows
		}
	}
	g.t.Fatalf("dashboard %s: got no panel %q, want one", board, title)
	return nil
}

// checkColumn compares a column of a panel's rows with the tables, by cell.
func (g *grafana) checkColumn(what string, rows []map[string]any, cell, column string, want map[string]report.Field) {
	g.t.Helper()
	if len(rows) != len(want) {
		g.t.Errorf("%s: rows: got %d, want %d: %v", what, len(rows), len(want), rows)
	}
	for _, r := range rows {
		f, known := want[fmt.Sprint(r[cell])]
		got, is := r[column].(float64)
		if !known || !is || f.Number == nil || math.Abs(got-*f.Number) > 1e-9**f.Number {
			g.t.Errorf("%s: %s of %v: got %v, want %s as in the tables", what, column, r[cell], r[column], f.Text)
		}
	}
}

func columnOf(all map[string]map[string]report.Field, value string) map[string]report.Field {
	one := map[string]report.Field{}
	for cell, values := range all {
		one[cell] = values[value]
	}
	return one
}

// TestDashboardsShowTheTables proves that dashboards show the same values per cell as the tables of the runs, for any
// results of repetitions, and that they show an increase from zero.
func TestDashboardsShowTheTables(t *testing.T) {
	db := sharedInflux(t)
	matrix := fmt.Sprintf("fake%d", time.Now().UnixNano())
	calm := []repetition{{rate: 100, p99: 0.010}, {rate: 200, p99: 0.050}, {rate: 300, p99: 0.060},
		{rate: 1000, p99: 0.070}}
	broken := []repetition{{rate: 100, p99: 0.020, bound: 0.002}, {rate: 110, p99: 0.040, bound: 0.004},
		{rate: 900, p99: 9, lost: 7, verdict: plan.Invalid}, {rate: 1, p99: 99, verdict: plan.Unknown}}
	var scheduledRuns []fakeRun
	for days := 7; days > 0; days-- {
		scheduledRuns = append(scheduledRuns, newFakeRun(matrix, days, calm, broken))
	}
	worse := slices.Clone(calm)
	for i := range worse {
		worse[i].lost, worse[i].rate = 5, 2*worse[i].rate
	}
	guarantees := []repetition{{rate: 50, p99: 0.5, lost: 3, verdict: plan.Invalid},
		{rate: 70, p99: 0.7, lost: 4, verdict: plan.Invalid}, {rate: 1, verdict: plan.Unknown},
		{rate: 2, verdict: plan.Unknown}}
	last := newFakeRun(matrix, 0, worse, guarantees)
	for _, x := range append(scheduledRuns, last) {
		db.writeRun(x)
	}
	before := scheduledRuns[len(scheduledRuns)-1]
	g := &grafana{t: t, db: db, from: time.Now().Add(-10 * 24 * time.Hour), to: time.Now().Add(time.Minute),
		interval: time.Second}
	g.checkRunDashboards(before)
	g.checkRunDashboards(last)
	g.checkCompareDashboard(before, last)
	g.checkTrendDashboard(append(scheduledRuns, last))
}

func (g *grafana) checkRunDashboards(x fakeRun) {
	g.t.Helper()
	metrics := x.metrics(g.t)
	g.chosen = map[string][]string{"run": {x.run.ID}, "broker": {"fake"}, "axis": {"axis_threads"},
		"value": {"e2e.p99"}}
	g.checkColumn("Rates", g.panel("run", "Rates"), "name", "publish.rate", columnOf(metrics, "publish.rate"))
	rows := g.panel("run", "Latency")
	g.checkColumn("Latency", rows, "name", "e2e.p99", columnOf(metrics, "e2e.p99"))
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
	g.checkColumn("by axis", rows, "x", series, byThreads)
}

func (g *grafana) checkCompareDashboard(before, after fakeRun) {
	g.t.Helper()
	for _, value := range comparedValues {
		g.chosen = map[string][]string{"before": {before.run.ID}, "after": {after.run.ID}, "value": {value}}
		wantBefore, wantAfter := columnOf(before.metrics(g.t), value), columnOf(after.metrics(g.t), value)
		rows := g.panel("compare", "${value}: change")
		g.checkColumn("change", rows, "cell", "before", wantBefore)
		g.checkColumn("change", rows, "cell", "after", wantAfter)
		for _, r := range rows {
			cell := fmt.Sprint(r["cell"])
			if want := wantBefore[cell].Bound; r["bound_before"] != want {
				g.t.Errorf("change of %s: bound_before of %s: got %v, want %v as in the tables", value, cell,
					r["bound_before"], want)
			}
			change, is := r["change"].(float64)
			if zero := *wantBefore[cell].Number == 0; is == zero {
				g.t.Errorf("change of %s: change of %s: got %v from %v, want a number unless the value was 0", value,
					cell, r["change"], r["before"])
			} else if want := (*wantAfter[cell].Number / *wantBefore[cell].Number - 1) * 100; !zero &&
				math.Abs(change-want) > 1e-6 {
				g.t.Errorf("change of %s: change of %s: got %v %%, want %v %%", value, cell, change, want)
			}
		}
	}
}

func (g *grafana) checkTrendDashboard(scheduledRuns []fakeRun) {
	g.t.Helper()
	last := scheduledRuns[len(scheduledRuns)-1]
	var cells []string
	for _, c := range last.run.Cells {
		cells = append(cells, c.ID)
	}
	for _, value := range comparedValues {
		g.chosen = map[string][]string{"matrix": {last.run.Name}, "cell": cells, "value": {value}, "worse": {"10"}}
		drawn := g.panel("trend", "${value} over scheduled runs")
		for _, x := range scheduledRuns {
			rows := slices.DeleteFunc(slices.Clone(drawn),
				func(r map[string]any) bool { return !r["_time"].(time.Time).Equal(x.outcomes[0].Ended) })
			g.checkColumn(value+" of "+x.run.ID, rows, "name", "_value", columnOf(x.metrics(g.t), value))
		}
		got := []string{}
		for _, r := range g.panel("trend", "Worse than the seven runs before") {
			got = append(got, fmt.Sprintf("%v %v", strings.TrimPrefix(fmt.Sprint(r["run"]), last.run.ID), r["name"]))
		}
		slices.Sort(got)
		first, second := " "+last.run.Cells[0].Name(), " "+last.run.Cells[1].Name()
		want := map[string][]string{"publish.rate": {second}, "e2e.p99": {second}, "lost": {first, second}}[value]
		if !slices.Equal(got, want) {
			g.t.Errorf("regressions of %s, without the id of the last run: got %q, want %q", value, got, want)
		}
	}
}
