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

// auto makes a cell whose warm-up ends when its load is steady. The broker reaches its full speed after the time slow
// (see loopback's slowStart).
func auto(slow string) func(*plan.Cell) {
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

// The measurement begins after the load is steady, in the same second on all agents. Earlier data is cut, and the
// record alone shows where.
func TestWarmupEndsWhenSteady(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		live := map[bool]int{}
		run := aRun(auto("4s"))
		w := l.run(run, nil, func(p controller.Progress) {
			if p.Kind == liveMetrics && p.Entry.Snapshot.Agent == "a1" { // one snapshot per second
				live[p.Entry.Snapshot.Begin == 0 || sinceBegin(p) < 0]++
			}
		})
		if len(w.outcomes()) != 1 {
			t.Fatalf("the run ended with %+v", w.end)
		}
		o := w.outcomes()[0]
		if o.Verdict != plan.Valid {
			t.Fatalf("%s: %v", o.Verdict, o.Reasons)
		}
		t.Logf("cut %v, warnings %v", o.Cut, o.Warnings)
		if o.Cut.D()%time.Second != 0 || o.Cut.D() < 8*time.Second ||
			o.Values["warmup.cut"].Number != o.Cut.D().Seconds() {
			t.Errorf("cut %v, value %+v: want at least the 4 s of the slow start, 4 s of 5 to see that it is over, and the 2 s that it lies ahead", o.Cut, o.Values["warmup.cut"])
		}
		if live[true] < 5 || live[false] == 0 {
			t.Errorf("%d times live in warm-up, %d times in the measurement", live[true], live[false])
		}
		if o.Measured.D() != 1500*time.Millisecond {
			t.Errorf("measured %v, want 1.5s", o.Measured)
		}
		if v := o.Values["publish.p99"]; v.Number > 0.15 {
			t.Errorf("send p99 %v: the slow start is in it", v.Number)
		}
		if v := o.Values["topology.first"]; v.NA != "" || v.Number < 0.2 || v.Number > 0.25 {
			t.Errorf("the first delivery was %v s (%s) after the start, want the 200 ms of the slow start", v.Number, v.NA)
		}
		if v := o.Values["topology.declare"]; v.NA != "" {
			t.Errorf("no time of the declaration: %s", v.NA)
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
			t.Errorf("judged from disk: %+v\nstored: %+v", again, stored[0])
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
				t.Errorf("window %d is measured, and before the measurement", win.Index)
			}
		}
		if due != 1500 {
			t.Errorf("%d were due in the measurement, want 1500", due)
		}
	})
}

// A load that never becomes steady is measured after the maximum time, and the outcome names the unsteady series.
func TestWarmupOfWhatNeverGetsSteady(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		w := l.run(aRun(func(c *plan.Cell) {
			auto("60s")(c)
			c.Workload.Steady.Max = plan.Duration(8 * time.Second)
		}), nil, nil)
		o := w.outcomes()[0]
		t.Logf("cut %v, warnings %v", o.Cut, o.Warnings)
		if o.Verdict != plan.Valid || o.Cut.D() < 10*time.Second || o.Cut.D() > 20*time.Second {
			t.Errorf("%s %v after a cut of %v", o.Verdict, o.Reasons, o.Cut)
		}
		for _, name := range []string{"publish.rate", "publish.p50", "consume.rate"} {
			if flags := o.Values[name].Flags; !slices.Contains(flags, plan.NotSteady) {
				t.Errorf("%s has flags %v", name, flags)
			}
		}
		if len(o.Warnings) == 0 || !strings.Contains(strings.Join(o.Warnings, "\n"), "not-steady: after") {
			t.Errorf("warnings %q", o.Warnings)
		}
	})
}

// An agent that is killed during an automatic warm-up ends the task as in any warm-up. Nothing counts as measured.
func TestAgentLostInAutoWarmup(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		killed := false
		w := l.run(aRun(auto("60s")), nil, func(p controller.Progress) {
			if p.Kind == liveMetrics && !killed {
				killed = true
				l.kill("a2")
			}
		})
		o := firstAttempt(t, w, w.outcomes()[0].Task)
		if o.Verdict != plan.Unknown || !strings.Contains(strings.Join(o.Reasons, " "), "a2 was lost in warm-up") {
			t.Errorf("%s: %v", o.Verdict, o.Reasons)
		}
		if v := o.Values["publish.rate"]; v.NA == "" {
			t.Errorf("publish rate %+v, and nothing was measured", v)
		}
		if w.end.Reason != wire.EndDone {
			t.Errorf("the run ended with %+v", w.end)
		}
	})
}
