package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/internal/plan"
	"lockstep/internal/results"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden compares what people read with a file that a person has looked at.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with -update)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from what was printed before; got:\n%s\nwant:\n%s", path, got, want)
	}
}

func raw(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func at(broker, mode string, threads int, latency string) []plan.Coordinate {
	return []plan.Coordinate{{Axis: "broker", Value: raw(broker)}, {Axis: "mode", Value: raw(mode)},
		{Axis: "threads", Value: raw(threads)}, {Axis: "latency", Value: raw(latency)}}
}

func outcome(c plan.Cell, repetition int, values map[string]plan.Value) plan.Outcome {
	return plan.Outcome{Run: "r1", Task: fmt.Sprintf("%s-r%d", c.ID, repetition), Cell: c.ID, Index: c.Index, Repetition: repetition,
		Verdict: plan.Valid, Values: values}
}

// study is a run with everything in it that tables have to show: two brokers with unlike confirms, repetitions, flags, exclusions,
// failures and a broken promise.
func study() (plan.Run, []plan.Outcome) {
	run := plan.Run{ID: "r1", Name: "async-vs-sync", Repeat: 3, Axes: []string{"broker", "mode", "threads", "latency"}}
	var outcomes []plan.Outcome
	labels := map[string]string{"nats": "stored in memory by one server", "rabbit": "quorum, majority written"}
	for _, broker := range []string{"nats", "rabbit"} {
		for _, mode := range []string{"fire-and-forget", "confirm-window", "confirm-each", "connection-per-message"} {
			for _, threads := range []int{1, 5} {
				for _, latency := range []string{"0ms", "50ms"} {
					here := at(broker, mode, threads, latency)
					switch {
					case broker == "nats" && mode == "connection-per-message":
						run.Excluded = append(run.Excluded, plan.Excluded{Coordinates: here, Kind: "n/a", Reason: "driver nats keeps one connection"})
						continue
					case mode == "connection-per-message" && latency == "50ms":
						run.Excluded = append(run.Excluded, plan.Excluded{Coordinates: here, Kind: "skipped", Reason: "skip pattern 1"})
						continue
					}
					c := plan.Cell{ID: fmt.Sprintf("c%02d", len(run.Cells)), Index: len(run.Cells), Coordinates: here, Label: labels[broker],
						Broker: plan.Broker{Name: broker}, Workload: plan.Default()}
					c.Workload.Publishers.Mode = mode
					run.Cells = append(run.Cells, c)
					outcomes = append(outcomes, studied(c, threads, latency)...)
				}
			}
		}
	}
	run.Tables = []plan.Table{
		{Title: "Send rates", Split: []string{"broker"}, Rows: []string{"mode", "threads"}, Columns: []string{"latency"}, Values: []string{"send.rate"}},
		{Rows: []string{"broker", "mode", "threads", "latency"}, Values: []string{"throughput", "send.p99", "processing.p99", "lost", "agent.cpu", "broker.rss"}},
	}
	return run, outcomes
}

func studied(c plan.Cell, threads int, latency string) []plan.Outcome {
	base := map[string]float64{"fire-and-forget": 60_000, "confirm-window": 41_234, "confirm-each": 2_345.6, "connection-per-message": 98.76}
	rate := base[c.Workload.Publishers.Mode] * float64(threads)
	send := plan.Value{Number: 0.00085}
	switch c.Workload.Publishers.Mode {
	case "fire-and-forget":
		send = plan.Value{NA: results.NAFireAndForget}
	case "connection-per-message":
		send = plan.Value{NA: results.NANoConfirms}
	}
	if latency == "50ms" && send.NA == "" {
		send.Number, rate = 0.0512, 19*float64(threads)
	}
	var all []plan.Outcome
	for r := 1; r <= 3; r++ {
		factor := []float64{1, 1.01, 0.5}[r-1] // the median is the first
		o := outcome(c, r, map[string]plan.Value{
			"send.rate": {Number: rate * factor}, "throughput": {Number: rate * factor}, "receive.rate": {Number: rate * factor},
			"send.p99": send, "processing.p99": {Number: 1.2345}, "lost": {}, "agent.cpu": {Number: 1.25}, "broker.rss": {Number: 220_200_960},
		})
		all = append(all, o)
	}
	return happen(c, all)
}

// happen makes some cells go wrong.
func happen(c plan.Cell, all []plan.Outcome) []plan.Outcome {
	switch name := (&cell{cell: c, place: placeOf(c.Coordinates)}).name(); name {
	case "broker=nats mode=fire-and-forget threads=5 latency=0ms": // receivers too slow in all, flagged twice in one
		for i := range all {
			all[i].Values["throughput"] = plan.Value{Number: 300_000, Flags: []plan.Flag{plan.Backlog}}
			all[i].Values["receive.rate"] = plan.Value{Number: 90_000, Flags: []plan.Flag{plan.Backlog}}
			all[i].Values["processing.p99"] = plan.Value{NA: results.NABacklog, Flags: []plan.Flag{plan.Backlog}}
		}
		all[1].Values["throughput"] = plan.Value{Number: 300_000, Flags: []plan.Flag{plan.Backlog, plan.ClientBound}}
		all[1].Values["send.rate"] = plan.Value{Number: 300_000, Flags: []plan.Flag{plan.ClientBound}}
	case "broker=rabbit mode=confirm-window threads=5 latency=0ms": // one lost messages that were confirmed
		all[1].Verdict, all[1].Reasons = plan.Invalid, []string{"broken promise: 3 messages that the broker had confirmed were lost"}
		all[1].Values["send.rate"] = plan.Value{Number: 1}
	case "broker=rabbit mode=confirm-each threads=5 latency=0ms": // all did
		for i := range all {
			all[i].Verdict, all[i].Reasons = plan.Invalid, []string{"broken promise: 1 message was received after a later one"}
		}
	case "broker=rabbit mode=confirm-each threads=5 latency=50ms": // none worked
		for i := range all {
			all[i].Verdict, all[i].Reasons = plan.Unknown, []string{"the task failed: connect to 10.0.0.9:5672: connection refused"}
			all[i].Values = map[string]plan.Value{}
		}
	case "broker=rabbit mode=fire-and-forget threads=1 latency=0ms": // lost in one, unpromised
		all[2].Values["lost"] = plan.Value{Number: 1234}
	case "broker=rabbit mode=fire-and-forget threads=5 latency=50ms": // one agent lost, one not run
		all[0].Verdict, all[0].Reasons = plan.Unknown, []string{"agent a2 lost in phase measure; at least 7 messages unknown"}
		return all[:2]
	case "broker=rabbit mode=connection-per-message threads=5 latency=0ms": // not run at all
		return nil
	}
	return all
}

func TestGoldenTables(t *testing.T) {
	run, outcomes := study()
	files, err := Files(run, outcomes)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		golden(t, name, text)
	}
	tables := Build(run, outcomes)
	for _, width := range []int{100, 60, 34} {
		var text bytes.Buffer
		if err := Text(&text, tables, width); err != nil {
			t.Fatal(err)
		}
		golden(t, fmt.Sprintf("tables-%d.txt", width), text.Bytes())
	}
	golden(t, "problems.txt", []byte(strings.Join(append(Problems(run, outcomes), Summary(run, outcomes)), "\n")+"\n"))
}

func TestTablesDoNotDependOnTheOrderOfOutcomes(t *testing.T) {
	run, outcomes := study()
	want, err := Files(run, outcomes)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(outcomes)
	slices.Reverse(run.Cells)
	got, err := Files(run, outcomes)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !bytes.Equal(got[name], want[name]) {
			t.Errorf("%s depends on the order in which tasks ended", name)
		}
	}
}

func TestEveryFormatHasEveryField(t *testing.T) {
	run, outcomes := study()
	files, err := Files(run, outcomes)
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	for _, table := range Build(run, outcomes) {
		for _, row := range table.Rows {
			if len(row) != len(table.Head) {
				t.Errorf("table %q: a row has %d fields, the heading %d", table.Title, len(row), len(table.Head))
			}
			fields += len(row) - len(table.Axes)
		}
	}
	lines, err := csv.NewReader(bytes.NewReader(files["tables.csv"])).ReadAll()
	if err != nil {
		t.Fatalf("the CSV cannot be read again: %v", err)
	}
	if len(lines)-1 != fields {
		t.Errorf("the CSV has %d lines for %d fields", len(lines)-1, fields)
	}
	var again []Table
	if err := json.Unmarshal(files["tables.json"], &again); err != nil || len(again) != 3 {
		t.Errorf("the JSON gives %d tables (%v), want 3", len(again), err)
	}
}

// TestWidth holds every line to the terminal's width, but for single words that are longer.
func TestWidth(t *testing.T) {
	run, outcomes := study()
	for _, width := range []int{40, 60, 80, 120, 200} {
		var text bytes.Buffer
		if err := Text(&text, Build(run, outcomes), width); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(text.String(), "\n") {
			if runes(line) > width && len(strings.Fields(line)) > 1 {
				t.Errorf("at width %d a line has %d columns: %q", width, runes(line), line)
			}
		}
	}
}

// single is a table of one cell's value.
func single(t *testing.T, value string, edit func(*plan.Run), outcomes ...plan.Outcome) (Field, Table) {
	t.Helper()
	run := plan.Run{ID: "r1", Name: "one", Repeat: max(1, len(outcomes)), Axes: []string{"mode"},
		Cells:  []plan.Cell{{ID: "c0", Coordinates: []plan.Coordinate{{Axis: "mode", Value: raw("x")}}, Workload: plan.Default()}},
		Tables: []plan.Table{{Rows: []string{"mode"}, Values: []string{value}}}}
	if edit != nil {
		edit(&run)
	}
	for i := range outcomes {
		outcomes[i].Cell, outcomes[i].Repetition = "c0", i+1
		if outcomes[i].Verdict == "" {
			outcomes[i].Verdict = plan.Valid
		}
	}
	tables := Build(run, outcomes)
	if len(tables) != 1 || len(tables[0].Rows) != 1 {
		t.Fatalf("got %d tables, want one with one row", len(tables))
	}
	return tables[0].Rows[0][1], tables[0]
}

func with(name string, v plan.Value) plan.Outcome {
	return plan.Outcome{Values: map[string]plan.Value{name: v}}
}

func TestMedianIsOfValidRepetitionsOnly(t *testing.T) {
	bad := with("sent", plan.Value{Number: 1_000_000})
	bad.Verdict, bad.Reasons = plan.Invalid, []string{"broken"}
	f, table := single(t, "sent", nil, with("sent", plan.Value{Number: 10}), bad, with("sent", plan.Value{Number: 30}))
	if f.Number == nil || *f.Number != 20 {
		t.Errorf("median is %v, want that of the valid 10 and 30", f.Number)
	}
	if f.Mark != "invalid" || f.Verdict != plan.Invalid || len(table.Notes) != 1 || !strings.Contains(table.Notes[0], "1 of 3") {
		t.Errorf("an invalid repetition is not shown: %+v, notes %q", f, table.Notes)
	}
}

func TestSeveralSubscriptionsAreComparedOneByOne(t *testing.T) {
	o := plan.Outcome{Values: map[string]plan.Value{
		"throughput":   {Number: 1000, Flags: []plan.Flag{plan.Backlog}},
		"receive.rate": {Number: 1200},
	}}
	f, _ := single(t, "throughput", func(r *plan.Run) { r.Cells[0].Workload.Topology.Subscriptions = 3 }, o)
	if f.Text != "1,000 / 400" {
		t.Errorf("got %q: a subscription received 400/s of 1,000/s", f.Text)
	}
}

func TestThroughputWithoutConsumersIsTheSendRate(t *testing.T) {
	o := plan.Outcome{Values: map[string]plan.Value{"throughput": {Number: 1000}, "receive.rate": {NA: results.NANoConsumers}}}
	if f, _ := single(t, "throughput", nil, o); f.Text != "1,000" || f.Mark != "" {
		t.Errorf("got %q %q: nothing was received, so nothing can be balanced", f.Text, f.Mark)
	}
}

func TestAValueThatIsNotInTheRecordIsNoZero(t *testing.T) {
	f, table := single(t, "lost", nil, with("sent", plan.Value{Number: 1}))
	if f.Number != nil || f.Text != "–" || len(table.Notes) != 1 {
		t.Errorf("got %+v, notes %q: a missing value must not look like a number", f, table.Notes)
	}
}

func TestAxesThatATableForgetsAreNotMixed(t *testing.T) {
	run, outcomes := study()
	run.Tables = []plan.Table{{Rows: []string{"mode"}, Columns: []string{"threads"}, Values: []string{"send.rate"}}}
	tables := Build(run, outcomes)
	if want := []string{"mode", "broker", "latency"}; len(tables) != 1 || !slices.Equal(tables[0].Axes, want) {
		t.Fatalf("axes are %v, want %v: cells of different brokers and latencies would share a field", tables[0].Axes, want)
	}
}

func TestZippedAxesNeedNotAllBeNamed(t *testing.T) {
	run := plan.Run{Name: "zip", Repeat: 1, Tables: []plan.Table{{Rows: []string{"a"}, Values: []string{"sent"}}}}
	for i := range 3 {
		run.Cells = append(run.Cells, plan.Cell{ID: fmt.Sprint(i), Index: i,
			Coordinates: []plan.Coordinate{{Axis: "a", Value: raw(i)}, {Axis: "b", Value: raw(10 * i)}}})
	}
	if got := Build(run, nil)[0].Axes; !slices.Equal(got, []string{"a"}) {
		t.Errorf("axes are %v, want a only: it tells all cells apart", got)
	}
}

func TestCoordinatesThatAreObjectsStayOnOneLine(t *testing.T) {
	run := plan.Run{Name: "o", Repeat: 1, Tables: []plan.Table{{Rows: []string{"a"}, Values: []string{"sent"}}},
		Cells: []plan.Cell{{ID: "c", Coordinates: []plan.Coordinate{{Axis: "a", Value: json.RawMessage("{\n  \"least\": 1\n}")}}}}}
	if got := Build(run, nil)[0].Rows[0][0].Text; got != `{"least":1}` {
		t.Errorf("got %q", got)
	}
}

func TestStrictRunsFailByFlags(t *testing.T) {
	run, outcomes := study()
	before := len(Problems(run, outcomes))
	run.Strict = true
	after := Problems(run, outcomes)
	want := "broker=nats mode=fire-and-forget threads=5 latency=0ms (repetition 2): flagged, and the matrix is strict: backlog client-bound"
	if len(after) <= before || !slices.Contains(after, want) {
		t.Errorf("strict adds no problem %q to\n%s", want, strings.Join(after, "\n"))
	}
}

func TestASuccessHasNoProblems(t *testing.T) {
	run := plan.Run{Repeat: 1, Cells: []plan.Cell{{ID: "c0"}}}
	o := outcome(run.Cells[0], 1, nil)
	if p := Problems(run, []plan.Outcome{o}); len(p) != 0 {
		t.Errorf("problems of a run without any: %q", p)
	}
	if got, want := Summary(run, []plan.Outcome{o}), "1 task: 1 valid, 0 invalid, 0 unknown"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if p := Problems(run, nil); len(p) != 1 {
		t.Errorf("a task that was not run is no problem: %q", p)
	}
}

func TestALargeMatrixIsNotSlow(t *testing.T) {
	run := plan.Run{Repeat: 1, Tables: []plan.Table{{Rows: []string{"a"}, Columns: []string{"b"}, Values: []string{"sent"}}}}
	var outcomes []plan.Outcome
	for i := range 10_000 {
		c := plan.Cell{ID: fmt.Sprint(i), Index: i, Coordinates: []plan.Coordinate{{Axis: "a", Value: raw(i / 10)}, {Axis: "b", Value: raw(i % 10)}}}
		run.Cells = append(run.Cells, c)
		outcomes = append(outcomes, outcome(c, 1, map[string]plan.Value{"sent": {Number: float64(i)}}))
	}
	table := Build(run, outcomes)[0]
	if len(table.Rows) != 1000 || *table.Rows[999][10].Number != 9999 {
		t.Errorf("%d rows, want 1000 with the last cell in the last field", len(table.Rows))
	}
}
