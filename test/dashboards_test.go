package test

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/sink"
)

// dashboardMatrix is the name of the matrix. oddValue is a value of an axis with characters that break queries and
// pages which do not escape them.
const (
	dashboardMatrix = "shown"
	oddValue        = `1 KB "quoted" </script> 📊 \o/ ${run}`
)

// runForDashboards runs a matrix whose points the dashboards show, and returns its run.
func runForDashboards(t *testing.T, env []string, brokers, threads string) *runs.Run {
	t.Helper()
	dir := t.TempDir()
	amqp, err := url.Parse(variable(t, "LOCKSTEP_RABBITMQ_URL"))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`package matrix
name: %[1]q
brokers: {
	rabbit: {driver: "rabbitmq", options: {url: %[2]q, management: %[3]q, prometheus: [%[8]q]}, process: port: %[4]s}
	fake: {driver: "loopback", options: name: "shown"}
}
axes: {
	broker:  %[7]s
	threads: %[5]s
	shape:   ["64 B", %[6]q]
}
cell: {
	axis: _
	publishers: {mode: "confirm-window", rate: 400, threads: axis.threads} // p99 requires 1,000 samples
	message: size: {"64 B": 64, %[6]q: 1024}[axis.shape]
	warmup: "1s", measure: "3s"
	retry: {on: ["agent-lost", "connect", "timeout", "run"], max: 3}
	if axis.broker == "rabbit" {faults: [{kind: "slow", latency: "2ms", at: "1s", for: "1s"}]} // an event
}
repeat: 2
tables: [{split: ["broker"], rows: ["threads"], columns: ["shape"], values: ["publish.rate", "consume.rate"]}]
`, dashboardMatrix, variable(t, "LOCKSTEP_RABBITMQ_URL"), variable(t, "LOCKSTEP_RABBITMQ_MANAGEMENT"), amqp.Port(),
		threads, oddValue, brokers, variable(t, "LOCKSTEP_RABBITMQ_PROMETHEUS"))
	ctl := startWith(t, env, dir, "ctl", "run", writeMatrix(t, dir, text))
	if code := ctl.ExitCode(); code != 0 && code != 3 { // 3: an outcome is unknown
		t.Fatalf("ctl run: got exit code %d, want 0 or 3:\n%s", code, ctl.Output())
	}
	return readRecord(t, dir, ctl).run
}

// writeRemark writes a finding of a digest.
func (i influx) writeRemark(run *runs.Run, kind, text string) {
	i.t.Helper()
	s := i.sink()
	s.Remark(run.Plan(), []sink.Remark{{Kind: kind, Text: text}})
	if d := s.Close(i.t.Context()); d.Written != 1 {
		i.t.Fatalf("delivery of the remark: got %+v, want 1 point written", d)
	}
}

// writeEarlierRuns writes earlier scheduled runs: copies of the run's outcomes, one per day, and slower ones on the
// last day before it.
func (i influx) writeEarlierRuns(run *runs.Run, scheduledRuns int) {
	i.t.Helper()
	outcomes, err := run.Outcomes()
	if err != nil {
		i.t.Fatal(err)
	}
	for scheduledRun := scheduledRuns; scheduledRun > 0; scheduledRun-- {
		p, past := run.Plan(), -24*time.Hour*time.Duration(scheduledRun)
		p.ID, p.Started = p.Started.Add(past).Format("20060102-150405")+"-scheduled", p.Started.Add(past)
		s := i.sink()
		s.Begin(p)
		for n, task := range p.Tasks() {
			o := outcomes[n]
			o.Run, o.Started, o.Ended = p.ID, o.Started.Add(past), o.Ended.Add(past)
			rate := o.Values["publish.rate"]
			o.Values = map[string]plan.Value{"publish.rate": rate, "e2e.p99": o.Values["e2e.p99"]}
			if scheduledRun == 1 {
				rate.Number *= 0.7
				o.Values["publish.rate"], o.Verdict, o.Reasons = rate, plan.Invalid, []string{"generated"}
			}
			s.Outcome(o, sink.Start{Task: task, Attempt: 1})
		}
		s.End(p.Started.Add(time.Hour), "done")
		if d := s.Close(i.t.Context()); d.Dropped > 0 {
			i.t.Fatalf("delivery of an earlier run: got %+v, want no dropped points", d)
		}
	}
}

// TestDashboardsAnswer runs every query of every dashboard, with variables filled in as in Grafana, on a real InfluxDB
// after a real run. Each must return data that Grafana can show.
func TestDashboardsAnswer(t *testing.T) {
	parallel(t)
	db := sharedInflux(t)
	begin := time.Now()
	before, after := runForDashboards(t, db.env(), `["rabbit"]`, "[1, 2]"), runForDashboards(t, db.env(),
		`["rabbit", "fake"]`, "[1]")
	db.writeEarlierRuns(after, 10)
	db.writeRemark(after, "worse", "generated")
	picks := map[string]map[string]string{
		"live":    {"run": after.Plan().ID, "metric": "erlang_processes"},
		"run":     {"run": after.Plan().ID},
		"broker":  {"run": before.Plan().ID, "broker": "rabbit", "axis": "axis_threads", "value": "consume.rate"},
		"compare": {"after": after.Plan().ID, "before": before.Plan().ID},
		"trend":   {"matrix": dashboardMatrix},
	}
	outcomes, err := before.Outcomes()
	if err != nil {
		t.Fatal(err)
	}
	// RabbitMQ needed more than 3 s to respond
	unknown := func(o plan.Outcome) bool { return o.Values["broker.memory.p50"].NA != "" }
	mayBeEmpty := map[string]bool{"Memory of the broker by ${axis}": !slices.ContainsFunc(outcomes,
		func(o plan.Outcome) bool { return !unknown(o) })}
	g := &grafana{t: t, db: db, mayBeEmpty: mayBeEmpty, from: begin.Add(-time.Minute), to: time.Now().Add(time.Minute),
		interval: time.Second}
	table := &strings.Builder{}
	w := tabwriter.NewWriter(table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "dashboard\tpanel\tquery\ttables\trows\ttook")
	files, err := filepath.Glob("../dashboards/*.json")
	if err != nil || len(files) != len(picks) {
		t.Fatalf("dashboards: got %d, %v, want %d", len(files), err, len(picks))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if name == "trend" {
			g.from = begin.Add(-30 * 24 * time.Hour)
		}
		d := dashboardOf(t, file)
		g.chooseVariables(d, picks[name])
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				g.runQuery(w, name, p.Title, p.Type, q)
			}
		}
		for _, a := range d.Annotations.List {
			if a.Target.Query != "" {
				g.runQuery(w, name, "mark: "+a.Name, "marks", a.Target)
			}
		}
		g.from = begin.Add(-time.Minute)
	}
	w.Flush()
	t.Logf("\n%s", table)
}

// runQuery runs one query and adds a row to the table.
func (g *grafana) runQuery(w *tabwriter.Writer, board, title, kind string, q dashboardQuery) {
	begin := time.Now()
	flux := g.fill(q.Query)
	a := g.query(flux)
	elapsed := time.Since(begin).Round(time.Millisecond)
	fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%v\n", board, title, q.RefID, a.tables, len(a.rows), elapsed)
	switch {
	case a.err != nil:
		g.t.Errorf("%s, %s: %v\n%s", board, title, a.err, flux)
	case len(a.rows) == 0 && g.mayBeEmpty[title]:
	case len(a.rows) == 0:
		g.t.Errorf("%s, %s: got no rows, want at least 1\n%s", board, title, flux)
	case a.problem != "":
		g.t.Errorf("%s, %s: got a result that Grafana cannot show: %s\n%s", board, title, a.problem, flux)
	case a.tables > 1 && (kind == "table" || kind == "barchart"):
		g.t.Errorf("%s, %s: got %d tables, want 1, because a %s panel shows one\n%s", board, title, a.tables, kind,
			flux)
	}
}
