package truth

import (
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/engine"
	"lockstep/internal/judge"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
	_ "lockstep/pkg/drivers/loopback"
)

// measured is what came of a cell.
type measured struct {
	plan.Outcome
	merge *record.Merge
	work  plan.Workload
}

// in runs a cell on loopback in a synctest bubble, where time is exact: one engine plays all of it, and what it recorded is judged as ever.
func in(t *testing.T, options string, change func(*plan.Workload)) (m measured) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { m = play(t, options, change) })
	return m
}

func play(t *testing.T, options string, change func(*plan.Workload)) measured {
	d, err := drivers.Lookup("loopback")
	if err != nil {
		t.Fatal(err)
	}
	w := plan.Default()
	w.Publishers.Window, w.Warmup, w.Consumers.Batch = 100_000, plan.Duration(time.Second), 1
	change(&w)
	cell := plan.Cell{ID: "truth", Workload: w}
	task := plan.Task{Run: "truth", ID: "truth-r1", Cell: cell, Repetition: 1}
	var e *engine.Engine
	session, err := d.Open(t.Context(), json.RawMessage(options), drivers.Env{Log: slog.New(slog.DiscardHandler),
		Event: func(k drivers.EventKind, detail string) { e.Event(k, detail) }})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	publishers, consumers := w.Publishers.Nodes*w.Publishers.Threads, w.Consumers.Nodes*w.Consumers.Threads
	e, err = engine.New(engine.Config{Session: session, Log: slog.New(slog.DiscardHandler), Assignment: plan.Assignment{Task: task,
		Publishers: plan.Share{Count: publishers, Total: publishers}, Consumers: plan.Share{Count: consumers, Total: consumers}}})
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
	time.Sleep(time.Minute) // the bubble's: all that comes has come
	synctest.Wait()
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := session.Teardown(t.Context(), engine.Topology(task)); err != nil {
		t.Fatal(err)
	}
	p := e.Take(true)
	m := record.NewMerge()
	m.Add(record.Snapshot{Agent: "a", Windows: p.Windows, Sets: p.Sets, Events: p.Events, LastSend: p.LastSend, LastConfirm: p.LastConfirm,
		LastReceipt: p.LastReceipt, Skew: p.Skew, Gaps: p.Gaps, Final: true})
	part := func(i int) plan.AgentPart {
		return plan.AgentPart{Agent: string(rune('a' + i)), Index: i, Host: "h", Clock: "one", Phase: plan.PhaseTeardown}
	}
	return measured{judge.Judge(task, m, judge.Facts{Agents: []plan.AgentPart{part(0), part(1)}}), m, w}
}

// number is a value that has to be there; of a quantile of few samples it is that of the samples.
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

// quantiles compares every quantile of a latency with those of the samples that it must have had, to one bucket of the histogram.
func (m measured) quantiles(t *testing.T, truth, latency string, sorted []time.Duration) {
	t.Helper()
	for _, q := range plan.Quantiles() {
		want := quantile(sorted, q.Q)
		name := latency + "." + q.Name
		check(t, row{truth: truth, value: name, want: want, got: m.number(t, name), bound: bucket(want), unit: plan.Seconds})
	}
}

// count compares exact counts.
func (m measured) count(t *testing.T, truth, name string, want float64) {
	t.Helper()
	check(t, row{truth: truth, value: name, want: want, got: m.number(t, name), unit: plan.Count})
}
