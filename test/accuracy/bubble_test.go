package accuracy

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/engine"
	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	_ "example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// measured is the outcome of a cell, with its merged record and workload.
type measured struct {
	plan.Outcome
	merge *record.Merged
	work  plan.Workload
}

// in runs a cell on loopback in a synctest bubble, where time is exact. One engine executes all roles. Its record is
// judged as usual.
func in(t *testing.T, options string, change func(*plan.Workload)) measured {
	t.Helper()
	return inDriver(t, "loopback", options, change)
}

func inDriver(t *testing.T, driver, options string, change func(*plan.Workload)) measured {
	t.Helper()
	task := taskOf(change)
	return judged(task, play(t, driver, options, whole(task)))
}

// taskOf returns the only task of a cell.
func taskOf(change func(*plan.Workload)) plan.Task {
	w := plan.Default()
	w.Publishers.MaxInFlight, w.Warmup, w.Consumers.Batch = 100_000, plan.Duration(time.Second), 1
	change(&w)
	return plan.Task{Run: "truth", ID: "truth-r1", Cell: plan.Cell{ID: "truth", Workload: w}, Repetition: 1}
}

// judged judges a task of two agents on one clock. An agent without a record had no role.
func judged(task plan.Task, agents ...record.Snapshot) measured {
	return judgedBy(task, judge.Facts{}, agents...)
}

// judgedBy is judged with facts of the controller. A record that names its agent is that of an observer.
func judgedBy(task plan.Task, facts judge.Facts, agents ...record.Snapshot) measured {
	m := record.NewMerged()
	name := func(i int) string { return string(rune('a' + i)) }
	for i := range 2 {
		facts.Agents = append(facts.Agents, plan.AgentPart{Agent: name(i), Index: i, Host: "h", Clock: "one",
			Phase: plan.PhaseTeardown})
	}
	for i, s := range agents {
		s.Agent = cmp.Or(s.Agent, name(i))
		m.Add(s)
	}
	return measured{judge.Judge(task, m, facts), m, task.Cell.Workload}
}

// whole returns the assignment of a task with all publishers and consumers on one agent.
func whole(task plan.Task) plan.Assignment {
	w := task.Cell.Workload
	publishers, consumers := w.Publishers.Nodes*w.Publishers.Threads, w.Consumers.Nodes*w.Consumers.Threads
	return plan.Assignment{Task: task, Publishers: plan.Share{Count: publishers, Total: publishers},
		Consumers: plan.Share{Count: consumers, Total: consumers}}
}

// play executes an agent's share of a task in a new bubble, and returns its record.
func play(t *testing.T, driver, options string, part plan.Assignment) (s record.Snapshot) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { s = inBubble(t, driver, options, part) })
	return s
}

func inBubble(t *testing.T, driver, options string, part plan.Assignment) record.Snapshot {
	d, err := drivers.Lookup(driver)
	if err != nil {
		t.Fatal(err)
	}
	task := part.Task
	var e *engine.Engine
	session, err := d.Open(t.Context(), schematest.Fill(t, d, options), drivers.Env{Log: slog.New(slog.DiscardHandler),
		Event: func(k drivers.EventKind, detail string) { e.Event(k, detail) }})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	e, err = engine.New(engine.Config{Session: session, Log: slog.New(slog.DiscardHandler), Assignment: part})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return session.Setup(t.Context(), engine.Topology(task)) },
		func() error { return e.ConnectConsumers(t.Context()) },
		func() error { return e.ConnectPublishers(t.Context()) },
		func() error { return e.Run(t.Context(), clock.Now()+int64(time.Second)) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Minute) // virtual time, for all deliveries
	synctest.Wait()
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := session.Teardown(t.Context(), engine.Topology(task)); err != nil {
		t.Fatal(err)
	}
	p := e.Take(true)
	return record.Snapshot{Windows: p.Windows, Sets: p.Sets, Events: p.Events, LastSend: p.LastSend,
		LastConfirm:  p.LastConfirm,
		LastDelivery: p.LastDelivery, Skew: p.Skew, Gaps: p.Gaps, Busiest: p.Busiest, Final: true,
		Host: record.HostSample{At: int64(task.Cell.Workload.Measure), AgentCPU: 1, HostCPU: 1, HostCores: 4}}
}

// number returns a value that must exist. For a quantile of few samples, it returns the quantile of the samples.
func (m measured) number(t *testing.T, name string) float64 {
	t.Helper()
	v, has := m.Values[name]
	if !has || v.NA != "" {
		t.Errorf("%s is not there: %s", name, v.NA)
	}
	if v.Sample > 0 {
		return v.Sample
	}
	return v.Number
}

// quantiles compares every quantile of a latency with the known samples, within one bucket of the histogram.
func (m measured) quantiles(t *testing.T, truth, latency string, sorted []time.Duration) {
	t.Helper()
	for _, q := range plan.Quantiles() {
		want := quantile(sorted, q.Q)
		name := latency + "." + q.Name
		check(t, row{truth: truth, value: name, want: want, got: m.number(t, name), bound: bucket(want),
			unit: plan.Seconds})
	}
}

// count compares an exact count.
func (m measured) count(t *testing.T, truth, name string, want float64) {
	t.Helper()
	check(t, row{truth: truth, value: name, want: want, got: m.number(t, name), unit: plan.Count})
}

// flagged checks whether a value has a flag.
func (m measured) flagged(t *testing.T, truth, value string, flag plan.Flag, want bool) {
	t.Helper()
	number := map[bool]float64{true: 1}
	check(t, row{truth: truth, value: value + " (" + string(flag) + ")", want: number[want],
		got: number[slices.Contains(m.Values[value].Flags, flag)]})
}

// warned checks whether a warning contains a text.
func (m measured) warned(t *testing.T, truth, text string, want bool) {
	t.Helper()
	number := map[bool]float64{true: 1}
	check(t, row{truth: truth, value: "(warning: " + text + ")", want: number[want],
		got: number[slices.ContainsFunc(m.Warnings, func(w string) bool { return strings.Contains(w, text) })]})
}
