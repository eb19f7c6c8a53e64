package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestWorkloadsAreBounded proves that products of values are limited, also if each value is within its own limit.
func TestWorkloadsAreBounded(t *testing.T) {
	const day = Duration(24 * time.Hour)
	for name, x := range map[string]struct {
		change func(*Workload)
		want   string // empty: accepted
	}{
		"default":        {func(*Workload) {}, ""},
		"half a day":     {func(w *Workload) { w.Measure = day / 2 }, ""},
		"a million":      {func(w *Workload) { w.Publishers.Threads, w.Publishers.MaxInFlight = 100, 10_000 }, ""},
		"large messages": {func(w *Workload) { w.Message.Size = 1 << 20 }, ""},
		"without window": {func(w *Workload) {
			w.Publishers.Mode, w.Publishers.MaxInFlight = "fire-and-forget",
				100_000_000
		}, ""},
		"a year":   {func(w *Workload) { w.Measure = 366 * day }, "8784h0m0s of measure: want 0 to 24h0m0s"},
		"a day":    {func(w *Workload) { w.Measure = day }, ""},
		"two days": {func(w *Workload) { w.Measure, w.Warmup = day, day }, "tasks of up to 48h"},
		"connect":  {func(w *Workload) { w.Connect = day }, "tasks of up to 96h"},
		"steady": {func(w *Workload) { w.Steady = Steady{Auto: true, Max: 1<<63 - 1} },
			"of maximum of steady: want 0 to 24h"},
		"step of search": {func(w *Workload) { w.Search = &Search{Step: 2 * day} },
			"of step of the search: want 0 to 24h"},
		"steps of search": {func(w *Workload) { w.Search = &Search{Steps: 1 << 30} },
			"steps of the search: want 0 to 1000"},
		"maxInFlight": {func(w *Workload) { w.Publishers.MaxInFlight = 100_000_000 },
			"100000000 messages in flight per agent (threads × max in flight or batch): want at most 10000000"},
		"threads": {func(w *Workload) { w.Publishers.Threads = 100_000 },
			"100000000 messages in flight per agent"},
		"batch": {func(w *Workload) {
			w.Publishers.Mode, w.Publishers.Batch.Max = "confirm-batch",
				100_000_000
		}, "messages in flight per agent"},
		"bytes": {func(w *Workload) { w.Message.Size = 100 << 20 },
			"104857600000 bytes in flight per agent"},
		"all": {func(w *Workload) { w.Publishers.Nodes, w.Publishers.Threads = 10_000, 101 },
			"1010000 publishers (nodes × threads): want at most 1000000"},
		"pairs": {func(w *Workload) { w.Publishers.Nodes, w.Topology.Subscriptions = 10_000, 1001 },
			"10010000 pairs of a publisher and a consumer"},
		"churn":       {func(w *Workload) { w.Topology.Churn.Rate = 10_000 }, ""},
		"fast churn":  {func(w *Workload) { w.Topology.Churn.Rate = 10_001 }, "10001 bindings per second"},
		"empty churn": {func(w *Workload) { w.Topology.Churn = Churn{Rate: 1} }, "want all above 0"},
		"greatest": {func(w *Workload) {
			w.Publishers.Nodes, w.Publishers.Threads, w.Publishers.MaxInFlight, w.Message.Size = 10_000, 100_000,
				100_000_000, 104_857_600
			w.Consumers.Threads, w.Topology.Subscriptions, w.Measure, w.Connect = 100_000, 10_000, day, day
		}, "1000000000000000000 pairs"},
	} {
		w := Default()
		x.change(&w)
		err := Run{Repeat: 1, Cells: []Cell{{ID: "c", Workload: w}}}.Bounded()
		if x.want == "" && err != nil || x.want != "" &&
			(err == nil || !strings.Contains(err.Error(), x.want) || !strings.HasPrefix(err.Error(), "cell c ")) {
			t.Errorf("%s: %v: want %q", name, err, x.want)
		}
	}
}

// TestTimesOfRecordsAreBounded covers the time for which a broker may withhold messages, which its driver declares.
func TestTimesOfRecordsAreBounded(t *testing.T) {
	task := Task{Cell: Cell{Workload: Default(), RedeliverAfter: Duration(1<<63 - 1)}}
	if limit := RecordLimit(task); limit > 2*maxTaskTime {
		t.Errorf("a task's record may have times up to %v", limit)
	}
}

// TestAssignmentsAreChecked proves that an agent rejects shares that do not fit its workload, and messages without an
// envelope.
func TestAssignmentsAreChecked(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*Assignment)
		want   string // empty: accepted
	}{
		"whole":    {func(*Assignment) {}, ""},
		"protocol": {func(a *Assignment) { a.Protocol++ }, "install the same release"},
		"workload": {func(a *Assignment) { a.Task.Cell.Workload.Measure = -1 }, "of measure: want 0"},
		"more":     {func(a *Assignment) { a.Publishers.Count = 2 }, "2 publishers: want 0 to 1"},
		"all":      {func(a *Assignment) { a.Publishers.Total = 2 }, "2 publishers of all agents: want 1 to 1"},
		"beyond":   {func(a *Assignment) { a.Publishers.First = 1 }, "1 first publisher: want 0 to 0"},
		"negative": {func(a *Assignment) { a.Consumers.Count = -1 }, "-1 consumers: want 0 to 1"},
		"no queue": {func(a *Assignment) { a.Task.Cell.Workload.Topology.Queues = 0 }, "0 queues: want at least 1"},
		"no envelope": {func(a *Assignment) { a.Task.Cell.Workload.Message.Size = 63 },
			"63 bytes of a message: want at least 64"},
	} {
		w := Default()
		a := Assignment{Protocol: Protocol, Publishers: Share{Count: 1, Total: 1}, Task: Task{Cell: Cell{Workload: w}}}
		x.change(&a)
		if err := a.Check(); x.want == "" && err != nil || x.want != "" &&
			(err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s: %v: want %q", name, err, x.want)
		}
	}
}

// TestMetricsOfRunsAreChecked proves that a run from another program has valid declarations of metrics.
func TestMetricsOfRunsAreChecked(t *testing.T) {
	run := Run{Repeat: 1, Metrics: Metrics{{Name: "segments", Unit: "count", Doc: "d"}}}
	if err := run.Bounded(); err != nil {
		t.Error(err)
	}
	for want, metrics := range map[string]Metrics{`the run has an invalid metric "segments": invalid unit`: {{Name: "segments",
		Doc: "d"}}, "the run has 1001 metrics": make(Metrics, maxMetrics+1)} {
		run.Metrics = metrics
		if err := run.Bounded(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestRunsAreBounded covers the fields of runs that have no counterpart in a workload. Files, paths and tables have
// names of cells, groups and axes.
func TestRunsAreBounded(t *testing.T) {
	const size = 1 << 21
	long := strings.Repeat("a", size)
	cell := func(change func(*Cell)) func(*Run) { return func(r *Run) { change(&r.Cells[0]) } }
	group := func(name string) func(*Run) {
		return cell(func(c *Cell) { c.Workload.Groups = []Group{{Name: "ok"}, {Name: name}} })
	}
	at := func(n, bytes int) (all []Coordinate) {
		for i := range n {
			all = append(all, Coordinate{Axis: fmt.Sprint(i), Value: json.RawMessage("1")})
		}
		if n > 0 {
			all[0].Value = json.RawMessage(long[:bytes])
		}
		return all
	}
	table := func(change func(*Table)) func(*Run) {
		return func(r *Run) { r.Tables = make([]Table, 2); change(&r.Tables[1]) }
	}
	const form = `with the name %q: want up to 100 letters, digits, ".", "_" and "-"`
	for name, x := range map[string]struct {
		change func(*Run)
		want   string // empty: accepted
	}{
		"as it is":        {func(*Run) {}, ""},
		"long cell":       {cell(func(c *Cell) { c.ID = long[:100] }), ""},
		"longer cell":     {cell(func(c *Cell) { c.ID = long }), fmt.Sprintf(form, long[:80])},
		"empty cell":      {cell(func(c *Cell) { c.ID = "" }), fmt.Sprintf(form, "")},
		"folder":          {cell(func(c *Cell) { c.ID = "a/b" }), fmt.Sprintf(form, "a/b")},
		"parent":          {cell(func(c *Cell) { c.ID = "x/../../y" }), fmt.Sprintf(form, "x/../../y")},
		"dot":             {cell(func(c *Cell) { c.ID = "." }), fmt.Sprintf(form, ".")},
		"NUL":             {cell(func(c *Cell) { c.ID = "a\x00" }), fmt.Sprintf(form, "a\x00")},
		"group":           {group("x/../../y"), fmt.Sprintf(form, "x/../../y")},
		"empty group":     {group(""), fmt.Sprintf(form, "")},
		"broker":          {cell(func(c *Cell) { c.Broker.Name = long[:200] }), ""},
		"long broker":     {cell(func(c *Cell) { c.Broker.Name = long }), "a broker with a name of 2097152 bytes: want at most 200"},
		"coordinates":     {cell(func(c *Cell) { c.Coordinates = at(20, 1900) }), ""},
		"many axes":       {cell(func(c *Cell) { c.Coordinates = at(21, 1) }), "a combination with 21 axes, "},
		"long value":      {cell(func(c *Cell) { c.Coordinates = at(1, size) }), "have 2097153 bytes: want at most 20 and 2000"},
		"excluded":        {func(r *Run) { r.Excluded = []Excluded{{Coordinates: at(1, size)}} }, "a combination with 1 axes"},
		"reason":          {func(r *Run) { r.Excluded = []Excluded{{Reason: long}} }, "a reason of 2097152 bytes: want at most 2000"},
		"many excluded":   {func(r *Run) { r.Excluded = make([]Excluded, 100_001) }, "the run has 100001 excluded combinations"},
		"axes":            {func(r *Run) { r.Axes = make([]string, 21) }, "the run has 21 axes: want at most 20"},
		"baselines":       {func(r *Run) { r.Bases = make([]Base, 101) }, "the run has 101 baselines: want at most 100"},
		"many tables":     {func(r *Run) { r.Tables = make([]Table, 101) }, "the run has 101 tables: want at most 100"},
		"values":          {table(func(t *Table) { t.Values = make([]string, 100) }), ""},
		"many values":     {table(func(t *Table) { t.Values = make([]string, 101) }), "table 2 of the run has 101 values"},
		"rows":            {table(func(t *Table) { t.Rows, t.Split = make([]string, 20), make([]string, 2) }), "has 22 axes: want at most 21"},
		"title":           {table(func(t *Table) { t.Title = long }), "has a text of 2097152 bytes: want at most 200"},
		"heading":         {table(func(t *Table) { t.Headings = map[string]string{"a": long} }), "has a text of 2097152 bytes"},
		"name of a value": {table(func(t *Table) { t.Values = []string{long} }), "has a text of 2097152 bytes"},
		"options":         {cell(func(c *Cell) { c.Broker.Options = json.RawMessage(long) }), "bytes of options and addresses"},
		"InfluxDB":        {func(r *Run) { r.Influx = &Influx{URL: long} }, "bytes of options and addresses"},
	} {
		r := Run{Repeat: 1, Cells: []Cell{{ID: "c", Workload: Default()}}}
		x.change(&r)
		err := r.Bounded()
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s: Bounded: got error %.300v, want %q", name, err, x.want)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: Bounded: got an error of %d bytes, want at most 1000", name, len(err.Error()))
		}
	}
}

// TestLimitErrorsHaveNoSecrets covers axes whose values are secrets.
func TestLimitErrorsHaveNoSecrets(t *testing.T) {
	r := Run{Repeat: 1, Cells: []Cell{{ID: "c", Workload: Default(),
		Coordinates: []Coordinate{{Axis: "password", Value: json.RawMessage(`"canary"`)}, {Axis: "n", Value: json.RawMessage("1")}},
		Broker:      Broker{Name: "b", Options: json.RawMessage(`{"password":"canary"}`), Secret: []string{"password"}}}}}
	r.Cells[0].Workload.Measure = -1
	err := r.Bounded()
	if err == nil || !strings.HasPrefix(err.Error(), "cell c (password=*** n=1) has -1ns of measure") {
		t.Errorf("Bounded of an invalid cell: got error %v, want it with password=***", err)
	}
}

// TestReadersCheckNames proves that no reader gets names that lead out of the folder of a run.
func TestReadersCheckNames(t *testing.T) {
	r := Run{Version: RecordFormat, Repeat: 1, Cells: []Cell{{ID: "c", Workload: Default()}}}
	for _, name := range []string{"ok", "x/../../y"} {
		r.Cells[0].Workload.Groups = []Group{{Name: name}}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadRun(strings.NewReader(string(text)), MaxDocument); (err == nil) != (name == "ok") {
			t.Errorf("ReadRun with the group %q: got error %v", name, err)
		}
	}
}
