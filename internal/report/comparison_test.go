package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/plan"
)

// comparison compares two runs with everything that the report must show: a worse latency, a better rate, noise, a cell
// of one side only, an invalid one, flags, clocks, and a name with markup.
func comparison(t *testing.T) compare.Comparison {
	t.Helper()
	return comparisonOf(t, "20260102-a", "20260103-<b>")
}

// comparisonOf has additional sides, which differ from the second only by noise.
func comparisonOf(t *testing.T, ids ...string) compare.Comparison {
	t.Helper()
	var runs []compare.Recorded
	for side, id := range ids {
		run := plan.Run{ID: id, Name: "nightly", Repeat: 8, Axes: []string{"broker", "mode"},
			Started: time.Date(2026, 1, 2+side, 2, 0, 0, 0, time.UTC)}
		var outcomes []plan.Outcome
		for i, mode := range []string{"fast", "slow", "two", "alone", "broken"} {
			if mode == "alone" && side > 0 {
				continue
			}
			c := plan.Cell{ID: fmt.Sprintf("c%d", i), Index: i, Coordinates: at("rabbit", mode, 1, "0ms")[:2],
				Broker: plan.Broker{Name: "rabbit", Driver: "rabbitmq"}, Workload: plan.Default()}
			run.Cells = append(run.Cells, c)
			for k := range 8 {
				o := outcome(c, k+1, scheduledRuns(side, k, mode))
				o.Subject.Settings = map[string]string{"disk_free_limit": []string{"50MB", "1GB|2GB"}[min(side, 1)]}
				if mode == "broken" && side > 0 {
					o.Verdict, o.Reasons = plan.Invalid, []string{"broken guarantee: 3 messages lost"}
				}
				outcomes = append(outcomes, o)
			}
		}
		runs = append(runs, compare.Recorded{Run: run, Outcomes: outcomes})
	}
	c, err := compare.Compare(runs, compare.Options{Spread: func(string, string) plan.RunSpread {
		relative := 0.01
		return plan.RunSpread{Runs: 20, Repetitions: 8, Relative: &relative}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// scheduledRuns returns the values of a repetition.
func scheduledRuns(side, k int, mode string) map[string]plan.Value {
	jitter := 1 + 0.004*float64((k*5+side*3)%8)
	rate, p99 := 40_000*jitter, 0.0021*jitter
	far := plan.Value{Number: 0.0009 * jitter, Bound: 0.0003}
	switch {
	case mode == "slow" && side > 0:
		p99 *= 1.9
		far.Number *= 1.3
	case mode == "fast" && side > 0:
		rate *= 1.25
	case mode == "two" && k > 4:
		rate *= 0.6
	}
	values := map[string]plan.Value{"publish.rate": {Number: rate}, "publish.p99": {Number: p99}, "e2e.p99": far}
	if mode == "two" {
		values["publish.rate"] = plan.Value{Number: rate, Flags: []plan.Flag{plan.ClientBound}}
	}
	return values
}

func TestGoldenComparison(t *testing.T) {
	c, three := comparison(t), comparisonOf(t, "20260102-a", "20260103-b", "20260104-c")
	x := NewComparison(c)
	for name, write := range map[string]func(*bytes.Buffer) error{
		"comparison.txt":             func(b *bytes.Buffer) error { return x.Text(b, 0) },
		"comparison-80.txt":          func(b *bytes.Buffer) error { return x.Text(b, 80) },
		"comparison.md":              func(b *bytes.Buffer) error { return x.Markdown(b) },
		"comparison-three-sides.txt": func(b *bytes.Buffer) error { return NewComparison(three).Text(b, 0) },
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		golden(t, name, out.Bytes())
	}
}

func TestComparisonsSayTheSameInAllFormats(t *testing.T) {
	c := comparison(t)
	if n := c.Found(); n[compare.Better] != 1 || n[compare.Worse] != 1 || n[compare.Inconclusive] != 5 {
		t.Errorf("found %v", n)
	}
	var lines, whole bytes.Buffer
	if err := CompareCSV(&lines, c); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&lines).ReadAll()
	if err != nil {
		t.Fatalf("the CSV cannot be read again: %v", err)
	}
	counts := map[string]int{}
	for _, r := range rows[1:] {
		counts[r[len(r)-3]]++
	}
	if counts["worse"] != 1 || counts["better"] != 1 || counts["not compared"] != len(c.Left) {
		t.Errorf("the CSV has %v", counts)
	}
	if err := CompareJSON(&whole, c); err != nil {
		t.Fatal(err)
	}
	var again compare.Comparison
	if err := json.Unmarshal(whole.Bytes(), &again); err != nil || again.Found()[compare.Worse] != 1 {
		t.Errorf("the JSON cannot be read again: %v, %v", err, again.Found())
	}
	text := strings.Join(NewComparison(c).Found, "\n")
	if !strings.Contains(text, "worse: broker=rabbit mode=slow: publish.p99") ||
		!strings.Contains(text, "better: broker=rabbit mode=fast: publish.rate") {
		t.Errorf("found:\n%s", text)
	}
}

// Foreign names and texts cannot move the cursor. A finding also has the flags of its numbers.
func TestFoundLinesAreCleanAndSayFlags(t *testing.T) {
	c := comparison(t)
	evil := "\x1b]0;owned\x07"
	c.Sides[0].Name += evil
	c.Left[0].Reason += evil
	c.Differences[0].Values[0] += evil
	for v := range c.Values {
		for r := range c.Values[v].Rows {
			c.Values[v].Rows[r].Changes[0].Why += evil
			c.Values[v].Rows[r].Name += evil
			c.Values[v].Rows[r].Sides[1].Flags = []plan.Flag{plan.ClientBound}
		}
	}
	x := NewComparison(c)
	var out bytes.Buffer
	if err := x.Text(&out, 80); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\x07") {
		t.Errorf("control characters in\n%q", out.String())
	}
	for _, line := range x.Found {
		if !strings.HasSuffix(line, ", flagged client-bound") {
			t.Errorf("no flag in %q", line)
		}
	}
}

// An inconclusive comparison shows no p-value, because 1 would mean that the sides are equal. A note has the reason.
func TestInconclusiveHasAReasonAndNoP(t *testing.T) {
	c := comparison(t)
	c.Values[0].Rows[0].Changes[0].Finding, c.Values[0].Rows[0].Changes[0].Why = compare.Inconclusive,
		"2 of 5 earlier runs"
	table := NewComparison(c).Tables[0]
	if got := table.Rows[0][slices.Index(table.Head, "p")].Text; got != "–" ||
		!slices.Contains(table.Notes, "2 of 5 earlier runs") {
		t.Errorf("p is %q, the notes %q", got, table.Notes)
	}
}

func TestOneCellIsNotCells(t *testing.T) {
	x := NewComparison(compare.Comparison{Sides: []compare.Side{{Mark: "A", Cells: 1, Repetitions: 6}},
		Left: []compare.Left{{Cell: "a"}}})
	if !strings.Contains(x.Sides[0], ", 1 cell × 6") || !strings.HasSuffix(x.Summary, "; 1 cell not compared") {
		t.Errorf("%q, %q", x.Sides, x.Summary)
	}
}

// Along the only axis of a run, the one row has no coordinates.
func TestCSVOfTheOnlyCell(t *testing.T) {
	run := plan.Run{ID: "r", Repeat: 6, Axes: []string{"broker"}}
	var outcomes []plan.Outcome
	for i, broker := range []string{"rabbit", "kafka"} {
		c := plan.Cell{ID: broker, Index: i, Coordinates: at(broker, "", 1, "")[:1], Workload: plan.Default()}
		run.Cells = append(run.Cells, c)
		for k := range 6 {
			outcomes = append(outcomes, outcome(c, k+1, scheduledRuns(i, k, "fast")))
		}
	}
	c, err := compare.Compare([]compare.Recorded{{Run: run, Outcomes: outcomes}}, compare.Options{By: "broker"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := CompareCSV(&out, c); err != nil || !strings.Contains(out.String(), ",the only cell,rabbit,kafka,6,6,") {
		t.Errorf("%v:\n%s", err, &out)
	}
}

// TestSettingsOfOneSide proves that a comparison along an axis lists the settings that differ, and only counts those
// that one side does not have, such as the options of another driver. A comparison of runs lists all.
func TestSettingsOfOneSide(t *testing.T) {
	c := compare.Comparison{Sides: []compare.Side{{Mark: "kafka"}, {Mark: "rabbit"}}, Differences: []compare.Difference{
		{Of: "broker", What: "acks", Values: []string{"all", "–"}},
		{Of: "broker", What: "heartbeat", Values: []string{"–", "1m0s"}},
		{Of: "broker", What: "replicas", Values: []string{"1", "3"}},
		{Of: "workload", What: "publishers.count", Values: []string{"–", "5"}}}}
	for by, want := range map[string]string{
		"broker": "[[broker replicas 1 3] [workload publishers.count – 5]] [2 settings of brokers that not all sides have: see the JSON output]",
		"":       "[[broker acks all –] [broker heartbeat – 1m0s] [broker replicas 1 3] [workload publishers.count – 5]] []",
	} {
		c.By = by
		table := NewComparison(c).Besides[0]
		var rows [][]string
		for _, r := range table.Rows {
			var row []string
			for _, f := range r {
				row = append(row, f.Text)
			}
			rows = append(rows, row)
		}
		if got := fmt.Sprint(rows, " ", table.Remarks); got != want {
			t.Errorf("by %q: got %s, want %s", by, got, want)
		}
	}
}

// TestMedianBacklogHasNoNumber proves that the median of a side with a backlog in most repetitions is not that of the
// others.
func TestMedianBacklogHasNoNumber(t *testing.T) {
	for backlogs, want := range map[int]string{1: "1.00 s", 2: "–"} {
		s := compare.Sample{Backlog: backlogs}
		s.N, s.Median = 2, 1
		if got := sampleField(compare.Comparison{}, compare.Value{Unit: plan.Seconds}, s); got.Text != want {
			t.Errorf("%d repetitions with a backlog, 2 without: got %q, want %q", backlogs, got.Text, want)
		}
		line := changeLine(compare.Comparison{Sides: make([]compare.Side, 2)}, compare.Value{},
			compare.Row{Sides: []compare.Sample{s, s}}, 0, compare.Change{}, nil)
		if got := line[9:11]; slices.Contains(got, "1") == (want == "–") {
			t.Errorf("%d repetitions with a backlog, 2 without: medians in CSV: got %q", backlogs, got)
		}
	}
}
