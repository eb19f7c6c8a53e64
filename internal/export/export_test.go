package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"golang.org/x/perf/benchfmt"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/runs"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden compares with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

// lines returns a table's CSV rows by column.
func lines(t *testing.T, table Table, err error) []map[string]string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := CSV(&b, table); err != nil {
		t.Fatal(err)
	}
	all, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]string
	for _, line := range all[1:] {
		row := map[string]string{}
		for i, name := range all[0] {
			row[name] = line[i]
		}
		out = append(out, row)
	}
	return out
}

func TestValuesHaveARowForEachRepetition(t *testing.T) {
	run := recordedRun(t)
	table, err := Values(run)
	rows := lines(t, table, err)
	if len(rows) != 4 {
		t.Fatalf("%d rows, want 4", len(rows))
	}
	got := rows[0]
	for name, want := range map[string]string{"task": "c0ffee-r1", "repetition": "1", "axis.mode": "confirm-window",
		"axis.size": "-100", "broker": "rabbit", "product": "RabbitMQ",
		"verdict": "valid", "publish.rate": "1000", "publish.p50": "0.001000447", "group": "", "lost": "0"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if blind := rows[1]; blind["publish.p50"] != "" ||
		!strings.Contains(blind["missing"], "publish.p50:fire-and-forget") {
		t.Errorf("what is not there: publish.p50 is %q, missing %q", blind["publish.p50"], blind["missing"])
	}
	// of 2,000 samples
	if lower := strings.Fields(got["lower_bounds"]); !slices.Contains(lower, "publish.p99.9") ||
		slices.Contains(lower, "publish.p99") || got["publish.p99.9"] == "" {
		t.Errorf("lower bounds: got %q, want publish.p99.9 and not publish.p99", got["lower_bounds"])
	}
	if bench, _ := goBench(t, run, "all"); strings.Contains(bench, "publish-p99.9-ns") ||
		!strings.Contains(bench, "publish-p99-ns") {
		t.Errorf("Go benchmarks: got\n%s\nwant publish-p99-ns, and not publish-p99.9-ns, which is a lower bound", bench)
	}
	if failed := rows[3]; failed["verdict"] != "unknown" {
		t.Errorf("the task that failed is %q", failed["verdict"])
	}
}

func TestWindowsHaveARowForEachSecond(t *testing.T) {
	run := recordedRun(t)
	table, err := Windows(run)
	rows := lines(t, table, err)
	if len(rows) != 8 {
		t.Fatalf("%d rows, want 2 seconds of 4 repetitions", len(rows))
	}
	for name, want := range map[string]string{"second": "1", "start": "1", "length": "1", "measured": "true",
		"sent": "1000", "confirmed": "1000", "publish.count": "1000", "publish.max": "0.002", "backpressure.count": "0",
		"backpressure.p99": ""} {
		if got := rows[1][name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// A warm-up may be shorter than a second: 20 messages in 0.1 s are 200 per second.
func TestTheSecondInWhichTheWarmUpBeginsIsCut(t *testing.T) {
	w := plan.Default()
	w.Warmup, w.Measure = plan.Duration(100*time.Millisecond), plan.Duration(500*time.Millisecond)
	run, err := runs.Create(t.TempDir(), plan.Run{Version: plan.RecordFormat, ID: "run-1", Name: "short", Repeat: 1,
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Cells: []plan.Cell{{ID: "c0ffee", Workload: w,
			Broker: plan.Broker{Name: "b", Driver: "loopback", Options: json.RawMessage("{}")}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	task := run.Plan().Tasks()[0]
	log := record.NewCollector(500 * time.Millisecond)
	rec := log.Recorder()
	for i := range 120 {
		at := int64(i-20) * 5e6
		rec.Window(at, at >= 0).Counts[record.Sent]++
	}
	rec.Flush()
	s := record.Snapshot{Task: task.ID, Agent: "a", Seq: 1, At: 5e8, Clock: "1", Final: true}
	s.Windows, s.Sets = log.Take()
	if err := run.Append(task.ID, s); err != nil {
		t.Fatal(err)
	}
	m := record.NewMerged()
	m.Add(s)
	if err := run.Finish(judge.Judge(task, m, judge.Facts{})); err != nil {
		t.Fatal(err)
	}
	table, err := Windows(run)
	rows := lines(t, table, err)
	if len(rows) != 2 {
		t.Fatalf("%d rows: %v", len(rows), rows)
	}
	for i, want := range []map[string]string{{"second": "-1", "start": "-0.1", "length": "0.1", "sent": "20"},
		{"second": "0", "start": "0", "length": "0.5", "sent": "100"}} {
		for name, value := range want {
			if got := rows[i][name]; got != value {
				t.Errorf("row %d: %s is %q, want %q", i, name, got, value)
			}
		}
	}
}

// TestParquetEqualsCSV compares the Parquet file, read with the library's reader, with the CSV file.
func TestParquetEqualsCSV(t *testing.T) {
	run := recordedRun(t)
	for name, table := range map[string]func(*runs.Run) (Table, error){"values": Values, "windows": Windows} {
		x, err := table(run)
		want := lines(t, x, err)
		var b, again bytes.Buffer
		for _, to := range []*bytes.Buffer{&b, &again} {
			if err := Parquet(to, x); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(b.Bytes(), again.Bytes()) {
			t.Errorf("%s: the same record gave different bytes", name)
		}
		got := read(t, b.Bytes())
		if len(got) != len(want) {
			t.Fatalf("%s: %d rows, CSV has %d", name, len(got), len(want))
		}
		for i := range want {
			if d := cmp.Diff(want[i], got[i]); d != "" {
				t.Errorf("%s, row %d (-csv +parquet):\n%s", name, i, d)
			}
		}
	}
}

// read returns the values of a Parquet file in the format of CSV.
func read(t *testing.T, data []byte) []map[string]string {
	t.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	columns := f.Schema().Columns()
	var out []map[string]string
	for _, group := range f.RowGroups() {
		rows := group.Rows()
		buffer := make([]parquet.Row, 3)
		for {
			n, err := rows.ReadRows(buffer)
			for _, row := range buffer[:n] {
				line := map[string]string{}
				for _, v := range row {
					line[columns[v.Column()][0]] = shownAs(v)
				}
				out = append(out, line)
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		rows.Close()
	}
	return out
}

func shownAs(v parquet.Value) string {
	switch {
	case v.IsNull():
		return ""
	case v.Kind() == parquet.Double:
		return strconv.FormatFloat(v.Double(), 'g', -1, 64)
	case v.Kind() == parquet.Int64:
		return strconv.FormatInt(v.Int64(), 10)
	case v.Kind() == parquet.Boolean:
		return strconv.FormatBool(v.Boolean())
	}
	return string(v.ByteArray())
}

func goBench(t *testing.T, run *runs.Run, names ...string) (string, Left) {
	t.Helper()
	outcomes, err := run.Outcomes()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	left, err := GoBench(&b, run.Plan(), outcomes, names)
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), left
}

func TestGoBenchIsReadByBenchfmt(t *testing.T) {
	text, left := goBench(t, recordedRun(t))
	golden(t, "gobench.txt", []byte(text))
	if left.Invalid != 1 || left.Empty != 0 {
		t.Errorf("left out %+v, want the one that failed", left)
	}
	r := benchfmt.NewReader(strings.NewReader(text), "export")
	var names []string
	for r.Scan() {
		switch x := r.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Error(x)
		case *benchfmt.Result:
			names = append(names, x.Name.String())
			if _, parts := x.Name.Parts(); string(parts[1]) != "/size=-100" {
				t.Errorf("the name's parts are %q", parts)
			}
			if rate, has := x.Value("publish-msg/s"); !has || rate != 1000 {
				t.Errorf("%s: rate %v, %v", x.Name, rate, has)
			}
			if p99, has := x.Value("publish-p99-sec"); strings.Contains(x.Name.String(), "confirm") &&
				(!has || math.Abs(p99-0.00198) > 1e-5) {
				t.Errorf("%s: p99 is %v s, %v", x.Name, p99, has)
			}
			if len(x.Config) > 0 {
				t.Errorf("benchstat would split by %v", x.Config)
			}
		}
	}
	if err := r.Err(); err != nil || len(names) != 3 || names[0] != names[2] {
		t.Errorf("names %q, %v: repetitions have one name", names, err)
	}
	if u := r.Units().Get("publish-p99-sec", "better"); u == nil || u.Value != "lower" {
		t.Errorf("unit of publish.p99: %v", u)
	}
}

func TestGoBenchListsUnknownValues(t *testing.T) {
	_, err := GoBench(io.Discard, plan.Run{}, nil, []string{"publish.rat", "p99"})
	if err == nil || !strings.Contains(err.Error(), `"publish.rat"`) || !strings.Contains(err.Error(), `"p99"`) ||
		!strings.Contains(err.Error(), `did you mean "publish.rate"`) || len(err.Error()) > 300 ||
		!errors.Is(err, ErrUnknown) {
		t.Errorf("got %v", err)
	}
}

// TestBenchstatReadsGoBench runs benchstat in the version of go.mod.
func TestBenchstatReadsGoBench(t *testing.T) {
	run := recordedRun(t)
	text, _ := goBench(t, run)
	file := filepath.Join(t.TempDir(), "run.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "tool", "benchstat", file).CombinedOutput()
	if err != nil {
		t.Fatalf("benchstat: %v\n%s", err, out)
	}
	for _, want := range []string{"publish-msg/s", "publish-p99-sec", "1.000k", "1.98", "mode=confirm-window"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}

// Two runs with different versions of a broker are compared with each other, not listed separately.
func TestBenchstatComparesTwoRuns(t *testing.T) {
	run := recordedRun(t)
	outcomes, err := run.Outcomes()
	if err != nil {
		t.Fatal(err)
	}
	dir, before, after := t.TempDir(), run.Plan(), run.Plan()
	after.ID += "-later"
	write := func(name string, p plan.Run) string {
		var b bytes.Buffer
		if _, err := GoBench(&b, p, outcomes, nil); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	a := write("before.txt", before)
	for i := range outcomes {
		outcomes[i].Subject.Version = "4.2"
	}
	b := write("after.txt", after)
	out, err := exec.CommandContext(t.Context(), "go", "tool", "benchstat", a, b).CombinedOutput()
	if err != nil {
		t.Fatalf("benchstat: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "vs base") {
		t.Errorf("no comparison:\n%s", out)
	}
}

func TestOMB(t *testing.T) {
	run := recordedRun(t)
	outcomes, err := run.Outcomes()
	if err != nil {
		t.Fatal(err)
	}
	confirmed, err := OMB(run, outcomes[0])
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(confirmed, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "omb.json", append(text, '\n'))
	blind, err := OMB(run, outcomes[1])
	if err != nil {
		t.Fatal(err)
	}
	for name := range blind {
		if strings.HasPrefix(name, "publishLatency") || strings.HasPrefix(name, "aggregatedPublishLatency") {
			t.Errorf("fire-and-forget has %s", name)
		}
	}
}

// Unsent messages count with their age in the latency from the intended send time, of each period and of the whole
// measurement.
func TestOMBCountsUnsentMessages(t *testing.T) {
	log := record.NewCollector(time.Second)
	w := log.Recorder().Window(0, true)
	w.RecordN(record.EndToEnd, int64(time.Millisecond), 90)
	w.RecordN(record.UnsentAge, int64(5*time.Second), 10)
	s := record.Snapshot{Agent: "a", Seq: 1, At: int64(time.Second)}
	m := record.NewMerged()
	s.Windows = []record.Window{*w}
	m.Add(s)
	k := omb{out: map[string]any{}, m: m, o: plan.Outcome{Values: map[string]plan.Value{"e2e.p50": {Number: 0.001}}},
		measured: 1, subs: 2}
	k.latency("endToEndLatency", "EndToEndLatency", record.EndToEnd, "e2e.p50")
	if got := k.out["aggregatedEndToEndLatency99pct"].(float64); math.Abs(got-5000) > 5 {
		t.Errorf("p99 of the whole is %v ms, want 5,000", got)
	}
	if got := k.out["endToEndLatency99pct"].([]float64); len(got) != 1 || math.Abs(got[0]-5000) > 5 {
		t.Errorf("p99 of the periods is %v ms, want 5,000", got)
	}
}

// Duplicates are in neither the consume rate nor the backlog.
func TestOMBCountsDistinctMessages(t *testing.T) {
	w := record.Window{Index: 0, Length: int64(time.Second), Measured: true}
	w.Counts[record.Sent], w.Counts[record.Received], w.Counts[record.Unique] = 120, 150, 100
	m := record.NewMerged()
	m.Add(record.Snapshot{Agent: "a", Seq: 1, Windows: []record.Window{w}})
	k := omb{out: map[string]any{}, m: m, measured: 1, subs: 1}
	k.rates(plan.Default())
	if got := k.out["consumeRate"].([]float64); got[0] != 100 {
		t.Errorf("consume rate: got %v, want 100", got[0])
	}
	if got := k.out["backlog"].([]int64); got[0] != 20 {
		t.Errorf("backlog: got %v, want 20", got[0])
	}
}

// Periods begin when all agents run.
func TestOMBPeriodsBeginWhenAllAgentsRun(t *testing.T) {
	for _, x := range []struct {
		k    omb
		want string
	}{
		{omb{measured: 25}, "[0 10] [10 20]"},
		{omb{from: 3, measured: 25}, "[3 13] [13 23]"},
		{omb{from: 2, measured: 7.5}, "[2 10]"},
	} {
		var got []string
		x.k.periods(func(from, to int) { got = append(got, fmt.Sprint([]int{from, to})) })
		if got := strings.Join(got, " "); got != x.want {
			t.Errorf("measured from second %d, for %v s: got periods %s, want %s", x.k.from, x.k.measured, got, x.want)
		}
	}
}
