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

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden compares output with a reviewed file.
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
	for _, width := range []int{160, 100, 80, 34} {
		var text bytes.Buffer
		if err := writeText(&text, tables, width); err != nil {
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

// TestWidth proves that no line is wider than the terminal, except for long single words.
func TestWidth(t *testing.T) {
	run, outcomes := study()
	for _, width := range []int{40, 60, 80, 120, 200} {
		var text bytes.Buffer
		if err := writeText(&text, Build(run, outcomes), width); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(text.String(), "\n") {
			if display.Width(line) > width && len(strings.Fields(line)) > 1 {
				t.Errorf("at width %d a line has %d columns: %q", width, display.Width(line), line)
			}
		}
	}
}

// single returns the field of one value of a cell, and its table.
func single(t *testing.T, value string, edit func(*plan.Run), outcomes ...plan.Outcome) (Field, Table) {
	t.Helper()
	run := plan.Run{ID: "r1", Name: "one", Repeat: max(1, len(outcomes)), Axes: []string{"mode"},
		Cells: []plan.Cell{{ID: "c0", Coordinates: []plan.Coordinate{{Axis: "mode", Value: raw("x")}},
			Workload: plan.Default()}},
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
		t.Errorf("median is %v, want the mean of the valid 10 and 30", f.Number)
	}
	if f.Full() != "20 invalid" || f.Verdict != plan.Invalid || len(table.Notes) != 1 ||
		!strings.Contains(table.Notes[0], "1 of 3") {
		t.Errorf("an invalid repetition is not shown: %+v, notes %q", f, table.Notes)
	}
}

// A gap that is only known to be below a threshold ranks below every number in a median.
func TestMedianKnowsWhatIsLess(t *testing.T) {
	short, long, longer := with("gap.confirm", plan.Value{NA: "< 20 ms"}), with("gap.confirm", plan.Value{Number: 0.3}),
		with("gap.confirm", plan.Value{Number: 0.4})
	for want, outcomes := range map[string][]plan.Outcome{"< 20 ms": {long, short, short},
		"300 ms": {longer, short, long}, "400 ms": {longer, long, longer}} {
		if f, _ := single(t, "gap.confirm", nil, outcomes...); f.Text != want ||
			(f.Number == nil) != strings.HasPrefix(want, "<") {
			t.Errorf("%q, want %q", f.Text, want)
		}
	}
}

// TestFactsCountRepetitions proves that the facts of a run state the number of repetitions behind each median.
func TestFactsCountRepetitions(t *testing.T) {
	const load = "10.0 s, after a warm-up of 2.00 s"
	for _, x := range []struct {
		repeat, measured int
		want             string
	}{
		{9, 3, load + ", medians of the valid repetitions, 3 of 9"},
		{3, 3, load + ", medians of 3 repetitions"},
		{9, 0, load},
		{1, 1, load},
	} {
		run := plan.Run{Repeat: x.repeat, Cells: []plan.Cell{{ID: "c0", Workload: plan.Default()}}}
		var outcomes []plan.Outcome
		for i := range x.measured {
			outcomes = append(outcomes, plan.Outcome{Cell: "c0", Repetition: i + 1, Verdict: plan.Valid})
		}
		if facts := Facts(run, outcomes); !slices.Contains(facts, Fact{"Measurement", x.want}) {
			t.Errorf("%d of %d repetitions: %q, want %q", x.measured, x.repeat, facts, x.want)
		}
	}
}

// The median of an even number of values is the mean of the middle two, and a lower bound if one of them is. A note
// reports losses in some repetitions.
func TestMedianOfAnEvenNumber(t *testing.T) {
	f, _ := single(t, "publish.p99", nil, with("publish.p99", plan.Value{Number: 0.101}),
		with("publish.p99", plan.Value{Number: 0.001}))
	if f.Text != "51.0 ms" {
		t.Errorf("the median of 1 ms and 101 ms is %s", f.Text)
	}
	f, _ = single(t, "publish.p99", nil, with("publish.p99", plan.Value{Number: 0.101, Over: 3}),
		with("publish.p99", plan.Value{Number: 0.001}))
	if f.Text != "> 51.0 ms" {
		t.Errorf("the median of 1 ms and more than 101 ms is %s", f.Text)
	}
	f, table := single(t, "lost", nil, with("lost", plan.Value{Number: 3}), with("lost", plan.Value{Number: 0}))
	if f.Number == nil || *f.Number != 1.5 || !strings.Contains(strings.Join(table.Notes, "\n"),
		"repetitions: 3, 0") {
		t.Errorf("lost %v, notes %q: want 1.5, and a note of the 3", f.Number, table.Notes)
	}
}

// A latency that a backlog hides is the worst of all: the median does not describe only the repetitions that kept up.
func TestBacklogIsTheWorstLatency(t *testing.T) {
	fast, slow := with("e2e.p99", plan.Value{Number: 0.001}), with("e2e.p99", plan.Value{Number: 0.101})
	backlog := with("e2e.p99", plan.Value{NA: judge.NABacklog, Flags: []plan.Flag{plan.Backlog}})
	for _, c := range []struct {
		repetitions []plan.Outcome
		text        string
	}{
		{[]plan.Outcome{fast, backlog, slow}, "101 ms"},
		{[]plan.Outcome{fast, backlog, fast, slow}, "51.0 ms"},
		{[]plan.Outcome{fast, backlog}, "–"},
		{[]plan.Outcome{backlog, fast, backlog}, "–"},
		{[]plan.Outcome{backlog, backlog}, "–"},
	} {
		f, _ := single(t, "e2e.p99", nil, c.repetitions...)
		if f.Text != c.text || !slices.Equal(f.Flags, []plan.Flag{plan.Backlog}) {
			t.Errorf("%d repetitions: got %q with %v, want %q with backlog", len(c.repetitions), f.Text, f.Flags, c.text)
		}
	}
}

func TestSeveralSubscriptionsAreComparedOneByOne(t *testing.T) {
	o := plan.Outcome{Values: map[string]plan.Value{
		"throughput":   {Number: 1000, Flags: []plan.Flag{plan.Backlog}},
		"consume.rate": {Number: 1200},
	}}
	f, _ := single(t, "throughput", func(r *plan.Run) { r.Cells[0].Workload.Topology.Subscriptions = 3 }, o)
	if f.Text != "1,000 / 400" {
		t.Errorf("got %q: a subscription received 400/s of 1,000/s", f.Text)
	}
}

func TestSubscriptionsOfGroupsAreComparedOneByOne(t *testing.T) {
	for second, want := range map[float64]string{3000: "2,000", 1500: "2,000 / 1,500"} {
		values := func(rate float64) map[string]plan.Value {
			return map[string]plan.Value{"publish.rate": {Number: 1000}, "consume.rate": {Number: rate}}
		}
		o := plan.Outcome{
			Values: map[string]plan.Value{"throughput": {Number: 2000}, "publish.rate": {Number: 2000},
				"consume.rate": {Number: 3000 + second}},
			Groups: []plan.GroupOutcome{{Name: "a", Values: values(3000)}, {Name: "b", Values: values(second)}}}
		f, _ := single(t, "throughput", func(r *plan.Run) {
			for _, name := range []string{"a", "b"} {
				g := plan.Group{Name: name, Topology: r.Cells[0].Workload.Topology}
				g.Topology.Subscriptions = 3
				r.Cells[0].Workload.Groups = append(r.Cells[0].Workload.Groups, g)
			}
		}, o, plan.Outcome{Values: map[string]plan.Value{"throughput": {NA: "each group has its own"},
			"publish.rate": {NA: "each group has its own"}, "consume.rate": {NA: "each group has its own"}}, Groups: o.Groups})
		if f.Text != want {
			t.Errorf("the second group receives %v/s in three subscriptions: got %q, want %q", second, f.Text, want)
		}
	}
}

func TestThroughputWithoutConsumersIsTheSendRate(t *testing.T) {
	o := plan.Outcome{Values: map[string]plan.Value{"throughput": {Number: 1000},
		"consume.rate": {NA: judge.NANoConsumers}}}
	if f, _ := single(t, "throughput", nil, o); f.Text != "1,000" || f.Mark != "" {
		t.Errorf("got %q %q: nothing was received, so nothing can be balanced", f.Text, f.Mark)
	}
}

func TestAValueThatIsNotInTheRecordIsNoZero(t *testing.T) {
	f, table := single(t, "lost", nil, with("sent", plan.Value{Number: 1}))
	if f.Number != nil || f.Text != "–" || len(table.Notes) != 1 {
		t.Errorf("got %+v, notes %q: a missing value must not look like a number", f, table.Notes)
	}
	f, _ = single(t, "e2e.p99", nil, with("e2e.p99", plan.Value{Number: 0.001}), with("sent", plan.Value{Number: 1}))
	if f.Text != "1.00 ms" {
		t.Errorf("1 ms and a value that is not in the record: got %q, want 1.00 ms", f.Text)
	}
}

func TestAxesThatATableForgetsAreNotMixed(t *testing.T) {
	run, outcomes := study()
	run.Tables = []plan.Table{{Rows: []string{"mode"}, Columns: []string{"threads"}, Values: []string{"publish.rate"}}}
	tables := Build(run, outcomes)
	if want := []string{"mode", "broker", "latency"}; len(tables) != 1 || !slices.Equal(tables[0].Axes, want) {
		t.Fatalf("axes are %v, want %v: cells of different brokers and latencies would share a field", tables[0].Axes,
			want)
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
		Cells: []plan.Cell{{ID: "c", Coordinates: []plan.Coordinate{{Axis: "a",
			Value: json.RawMessage("{\n  \"min\": 1\n}")}}}}}
	if got := Build(run, nil)[0].Rows[0][0].Text; got != `{"min":1}` {
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
	if got, want := Summary(run, []plan.Outcome{o}), "1 task: 1 valid, 0 invalid, 0 failed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if p := Problems(run, nil); len(p) != 1 {
		t.Errorf("a task that was not run is no problem: %q", p)
	}
}

func TestALargeMatrixIsNotSlow(t *testing.T) {
	run := plan.Run{Repeat: 1, Tables: []plan.Table{{Rows: []string{"a"}, Columns: []string{"b"},
		Values: []string{"sent"}}}}
	var outcomes []plan.Outcome
	for i := range 10_000 {
		c := plan.Cell{ID: fmt.Sprint(i), Index: i,
			Coordinates: []plan.Coordinate{{Axis: "a", Value: raw(i / 10)}, {Axis: "b", Value: raw(i % 10)}}}
		run.Cells = append(run.Cells, c)
		outcomes = append(outcomes, outcome(c, 1, map[string]plan.Value{"sent": {Number: float64(i)}}))
	}
	table := Build(run, outcomes)[0]
	if len(table.Rows) != 1000 || *table.Rows[999][10].Number != 9999 {
		t.Errorf("%d rows, want 1000 with the last cell in the last field", len(table.Rows))
	}
}

func TestAMatrixWithoutAxesHasOneRow(t *testing.T) {
	run := plan.Run{Name: "one", Repeat: 1, Cells: []plan.Cell{{ID: "c0"}}}
	table := Build(run, []plan.Outcome{outcome(run.Cells[0], 1, map[string]plan.Value{"publish.rate": {Number: 5}})})[0]
	if len(table.Axes) != 0 || len(table.Rows) != 1 || table.Rows[0][0].Text != "5.00" {
		t.Errorf("got axes %v, rows %+v", table.Axes, table.Rows)
	}
}

func TestARunWithoutCellsHasNoTables(t *testing.T) {
	run := plan.Run{Name: "none", Repeat: 1, Tables: []plan.Table{{Rows: []string{"a"}, Values: []string{"sent"}}}}
	if tables := Build(run, nil); len(tables) != 0 {
		t.Errorf("got %d tables of nothing", len(tables))
	}
}

// A warning is printed once per cell, with the cell's name, for any repetitions.
func TestWarningsAreToldOnce(t *testing.T) {
	run := plan.Run{Repeat: 3, Axes: []string{"mode"},
		Cells: []plan.Cell{{ID: "c", Coordinates: []plan.Coordinate{{Axis: "mode", Value: []byte(`"each"`)}}}}}
	var outcomes []plan.Outcome
	for rep, warnings := range [][]string{{"late"}, nil, {"late", "cut"}} {
		outcomes = append(outcomes, plan.Outcome{Cell: "c", Repetition: rep + 1, Verdict: plan.Valid,
			Warnings: warnings})
	}
	got := Warnings(run, outcomes)
	if want := []string{"mode=each: late", "mode=each: cut"}; !slices.Equal(got, want) {
		t.Errorf("warnings %q, want %q", got, want)
	}
}
