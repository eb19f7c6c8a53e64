package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
)

// fortyRows writes the record of a run whose first table has 40 rows and whose second has 20: with backlogs, a broker
// that cannot be reached, and a lost message. One ceiling of the load generator is not measured.
func fortyRows(t *testing.T) *runs.Run {
	t.Helper()
	run := plan.Run{Version: plan.RecordFormat, ID: "20260102-150405-modes-3f9c", Name: "modes", Repeat: 1,
		Source:  plan.Source{File: "modes.cue"},
		Started: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC), Axes: []string{"broker", "mode", "threads"},
		Tables: []plan.Table{
			{Rows: []string{"broker", "mode", "threads"},
				Values: []string{"publish.rate", "consume.rate", "publish.p50", "publish.p99", "e2e.p99"}},
			{Title: "Publish rates", Rows: []string{"broker", "mode"}, Columns: []string{"threads"}, Values: []string{"publish.rate"}},
		}}
	brokers := []string{"kafka", "nats", "rabbitmq-classic", "rabbitmq-quorum"}
	modes := []string{"fire-and-forget", "confirm-window", "confirm-batch", "confirm-each", "connection-per-message-confirm"}
	for i, mode := range modes {
		for _, threads := range []int{1, 4} {
			ceiling := plan.Ceiling{Load: plan.LoadShape{Mode: mode, Size: 100, Nodes: 1, Threads: threads}}
			if threads == 1 || mode != "connection-per-message-confirm" { // the other one is not measured
				ceiling.Limits = &plan.Limits{Rate: 6_300_000 / float64(i+1), Publish: 900, EndToEnd: 83_000}
			}
			run.Ceilings = append(run.Ceilings, ceiling)
		}
	}
	for _, broker := range brokers {
		for _, mode := range modes {
			for _, threads := range []int{1, 4} {
				c := plan.Cell{ID: fmt.Sprintf("c%02d", len(run.Cells)), Index: len(run.Cells), Workload: plan.Default(),
					Label: "disk", Broker: plan.Broker{Name: broker, Driver: "loopback", Options: []byte("{}")}}
				for i, value := range []any{broker, mode, threads} {
					text, err := json.Marshal(value)
					if err != nil {
						t.Fatal(err)
					}
					c.Coordinates = append(c.Coordinates, plan.Coordinate{Axis: run.Axes[i], Value: text})
				}
				c.Workload.Publishers.Mode = mode
				run.Cells = append(run.Cells, c)
			}
		}
	}
	record, err := runs.Create("runs", run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { record.Close() })
	for i, task := range run.Tasks() {
		rate := []float64{480_000, 90_000, 76_000, 15_000, 1_800}[i/2%5] * float64(1+i%2)
		o := plan.Outcome{Version: plan.RecordFormat, Run: run.ID, Task: task.ID, Cell: task.Cell.ID, Index: i, Repetition: 1,
			Verdict: plan.Valid, Measured: plan.Duration(10 * time.Second),
			Subject: plan.Subject{Product: strings.ToUpper(task.Cell.Broker.Name), Version: "1.2"},
			Agents:  []plan.AgentPart{{Agent: "load-1", Host: "load-1"}},
			Values: map[string]plan.Value{"publish.rate": {Number: rate}, "consume.rate": {Number: rate},
				"publish.p50": {Number: 20 / rate}, "publish.p99": {Number: 200 / rate}, "e2e.p99": {Number: 400 / rate}}}
		switch {
		case task.Cell.Broker.Name == "kafka":
			o.Verdict, o.Failure = plan.Unknown, plan.FailedUnreachable
			o.Reasons = []string{"broker kafka: open session on agent load-1: connect to Kafka at 127.0.0.1:9092: connection refused"}
			o.Values = nil
		case task.Cell.Workload.Publishers.Mode == "fire-and-forget":
			o.Values["publish.p50"], o.Values["publish.p99"] = plan.Value{NA: judge.NAFireAndForget}, plan.Value{NA: judge.NAFireAndForget}
			o.Values["consume.rate"] = plan.Value{Number: rate / 10, Flags: []plan.Flag{plan.Backlog}}
			o.Values["e2e.p99"] = plan.Value{NA: judge.NABacklog, Flags: []plan.Flag{plan.Backlog}}
		case i == 39:
			o.Verdict, o.Reasons = plan.Invalid, []string{"3 of 61,204 confirmed messages were lost"}
		}
		if err := record.Finish(o); err != nil {
			t.Fatal(err)
		}
	}
	return record
}

// A terminal gets the first table of a run with many rows, in its width, and the command that prints the others. Pipes
// and files get all tables, and so does a terminal with --all. With --quiet, only problems and paths are printed.
func TestTablesOfManyRows(t *testing.T) {
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir()) // the output has the path of the record
	record := fortyRows(t)
	for name, x := range map[string]struct {
		columns int
		shown   amount
	}{"80": {80, mainResults}, "100": {100, mainResults}, "160": {160, mainResults}, "100-all": {100, allResults}, "pipe": {0, mainResults},
		"quiet": {100, onlyProblems}} {
		var out strings.Builder
		code, err := writeResults(&out, x.columns, record, x.shown, "")
		if err != nil || code != ExitFailedCells {
			t.Errorf("%s: code %d, %v", name, code, err)
		}
		golden(t, filepath.Join(testdata, "results-"+name+".txt"), out.String())
	}
}

// TestMatrixPath proves that a suggested command finds the matrix from the working directory.
func TestMatrixPath(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "sub", "m.cue")
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o644),
		os.WriteFile(filepath.Join(dir, "bundle.zip"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ from, path, want string }{
		{dir, file, "sub/m.cue"},
		{filepath.Join(dir, "sub"), file, "m.cue"},
		{t.TempDir(), file, file},
		{dir, filepath.Join(dir, "missing.cue"), "m.cue"},
		{dir, "", "m.cue"},
		{dir, filepath.Join(dir, "bundle.zip"), "m.cue"},
	} {
		t.Chdir(x.from)
		if got := matrixPath(plan.Source{File: "m.cue", Path: x.path}); got != x.want {
			t.Errorf("matrix %q from %s: got %q, want %q", x.path, x.from, got, x.want)
		}
	}
}

// TestFleetFlags proves that a suggested command repeats a run on its fleet, with the saved credentials if there are
// any, and without flags if that fleet is selected.
func TestFleetFlags(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	saved := contexts{Current: "bench", Contexts: map[string]fleetContext{"bench": {Server: "tls://bench:1"},
		"other": {Server: "tls://u:secret@other:1"}}}
	if err := saved.write(); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ server, context, run, want string }{
		{"", "", "tls://bench:1", ""},
		{"", "", "", " --context local"},
		{"", "", plan.Redact("tls://u:secret@other:1"), " --context other"},
		{"", "", "nats://third:1", " --server nats://third:1"},
		{"", "other", "tls://bench:1", " --context bench"},
		{"nats://third:1", "", "nats://third:1", ""},
		{"nats://third:1", "", "", " --context local"},
		{"", "local", "", ""},
	} {
		t.Setenv("LOCKSTEP_SERVER", x.server)
		t.Setenv("LOCKSTEP_CONTEXT", x.context)
		if got, err := fleetFlags(x.run); got != x.want || err != nil {
			t.Errorf("run on %q with %q and %q: got %q (%v), want %q", x.run, x.server, x.context, got, err, x.want)
		}
	}
}
