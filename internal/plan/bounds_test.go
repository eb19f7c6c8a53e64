package plan

import (
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
		err := Cell{ID: "c", Workload: w}.bounded()
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
