package controller_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// autoWarmup changes a cell so that its warm-up ends when its load is steady. The broker reaches its full speed after
// the time slow (see slowStart of loopback).
func autoWarmup(slow string) func(*plan.Cell) {
	return func(c *plan.Cell) {
		w := &c.Workload
		w.Publishers.Count, w.Publishers.Mode, w.Publishers.Rate = 0, "confirm-window", 1000
		w.Measure = plan.Duration(1500 * time.Millisecond)
		w.Steady = plan.Steady{Auto: true, Min: plan.Duration(time.Second), Max: plan.Duration(25 * time.Second)}
		var options map[string]any
		_ = json.Unmarshal(c.Broker.Options, &options)
		options["confirmDelay"] = "20ms"
		if slow != "" {
			options["slowStart"] = map[string]any{"for": slow, "extra": "200ms"}
		}
		c.Broker.Options, _ = json.Marshal(options)
	}
}

// The measurement begins after the load is steady, in the same second on all agents. Earlier data is cut. The record
// contains all information for that.
func TestWarmupEndsWhenSteady(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		live := map[bool]int{}
		run := newRun(autoWarmup("4s"))
		w := l.run(run, nil, func(p controller.Progress) {
			if p.Kind == liveMetrics && p.Entry.Snapshot.Agent == "a1" { // one snapshot per second
				live[p.Entry.Snapshot.Begin == 0 || sinceBegin(p) < 0]++
			}
		})
		if len(w.outcomes()) != 1 {
			t.Fatalf("got %d outcomes, end %+v, want 1", len(w.outcomes()), w.end)
		}
		o := w.outcomes()[0]
		if o.Verdict != plan.Valid {
			t.Fatalf("got verdict %s, want valid: %v", o.Verdict, o.Reasons)
		}
		t.Logf("cut %v, warnings %v", o.Cut, o.Warnings)
		if o.Cut.D()%time.Second != 0 || o.Cut.D() < 8*time.Second ||
			o.Values["warmup.cut"].Number != o.Cut.D().Seconds() {
			// 4 s of the slow start and 4 of the 5 s in which the load must be steady
			t.Errorf("cut: got %v, value %+v, want whole seconds, at least 8 s", o.Cut, o.Values["warmup.cut"])
		}
		if live[true] < 5 || live[false] == 0 {
			t.Errorf("live metrics: got %d in the warm-up, %d in the measurement, want at least 5, 1", live[true],
				live[false])
		}
		if o.Measured.D() != 1500*time.Millisecond {
			t.Errorf("duration of the measurement: got %v, want 1.5s", o.Measured)
		}
		if v := o.Values["publish.p99"]; v.Number > 0.15 {
			t.Errorf("publish.p99: got %v s, want at most 0.15 s: without the slow start", v.Number)
		}
		if v := o.Values["topology.first"]; v.NA != "" || v.Number < 0.2 || v.Number > 0.25 {
			t.Errorf("topology.first: got %v s (%s), want 0.2 s: that of the slow start", v.Number, v.NA)
		}
		if v := o.Values["topology.declare"]; v.NA != "" {
			t.Errorf("topology.declare: got not available: %s", v.NA)
		}
		dir, err := runs.Open(w.root, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		again, err := dir.Rejudge(o.Task)
		if err != nil {
			t.Fatal(err)
		}
		stored, _ := dir.Outcomes()
		if !reflect.DeepEqual(again, stored[0]) {
			t.Errorf("new judgement: got %+v\nwant %+v", again, stored[0])
		}
		m, err := dir.Record(o.Task)
		if err != nil {
			t.Fatal(err)
		}
		due := int64(0) // due in the measurement, the same for all agents
		for _, win := range m.Windows() {
			if win.Measured {
				due += win.Counts[record.Sent] + win.Counts[record.Unsent]
			}
			if win.Measured && win.Index < 0 {
				t.Errorf("window %d: got measured, but it is before the measurement", win.Index)
			}
		}
		if due != 1500 {
			t.Errorf("due in the measurement: got %d, want 1500", due)
		}
	})
}

// A load that never becomes steady is measured after the maximum time, and the outcome names the unsteady series.
func TestWarmupWithoutASteadyLoad(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		w := l.run(newRun(func(c *plan.Cell) {
			autoWarmup("60s")(c)
			c.Workload.Steady.Max = plan.Duration(8 * time.Second)
		}), nil, nil)
		o := w.outcomes()[0]
		t.Logf("cut %v, warnings %v", o.Cut, o.Warnings)
		if o.Verdict != plan.Valid || o.Cut.D() < 10*time.Second || o.Cut.D() > 20*time.Second {
			t.Errorf("got %s %v, cut %v, want valid, 10 to 20 s", o.Verdict, o.Reasons, o.Cut)
		}
		for _, name := range []string{"publish.rate", "publish.p50", "consume.rate"} {
			if flags := o.Values[name].Flags; !slices.Contains(flags, plan.NotSteady) {
				t.Errorf("flags of %s: got %v, want %s", name, flags, plan.NotSteady)
			}
		}
		if len(o.Warnings) == 0 || !strings.Contains(strings.Join(o.Warnings, "\n"), "not-steady: after") {
			t.Errorf("warnings: got %q, want \"not-steady: after\"", o.Warnings)
		}
	})
}

// An agent that is killed during an automatic warm-up ends the task as in any warm-up. Nothing counts as measured.
func TestAgentLostInAutoWarmup(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		killed := false
		w := l.run(newRun(autoWarmup("60s")), nil, func(p controller.Progress) {
			if p.Kind == liveMetrics && !killed {
				killed = true
				l.killAgent("a2")
			}
		})
		o := firstAttempt(t, w, w.outcomes()[0].Task)
		if o.Verdict != plan.Unknown || !strings.Contains(strings.Join(o.Reasons, " "), "a2 was lost in warm-up") {
			t.Errorf("got %s: %v, want unknown because a2 was lost in warm-up", o.Verdict, o.Reasons)
		}
		if v := o.Values["publish.rate"]; v.NA == "" {
			t.Errorf("publish rate without a measurement: got %+v, want not available", v)
		}
		if w.end.Reason != wire.EndDone {
			t.Errorf("end of the run: got %+v, want done", w.end)
		}
	})
}
