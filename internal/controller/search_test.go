package controller_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// A search whose controller crashes after each step, or during each step, has the same steps and result as one without
// crashes.
func TestSearchContinuesAfterATakeover(t *testing.T) {
	var want *plan.SearchResult
	wiretest.InVirtualTime(t, func(t *testing.T) { want = runDisturbedSearch(t, "", 0) })
	if want.Capacity < 200 || !want.Sure || len(want.Steps) < 8 {
		t.Fatalf("search without a crash: got %+v, want a sure capacity of at least 200, 8 steps", want)
	}
	for _, x := range []struct {
		kind  wire.EventKind
		after time.Duration
	}{{wire.StepEnded, time.Second}, {wire.TaskStarted, 500 * time.Millisecond}} {
		t.Run(string(x.kind), func(t *testing.T) {
			wiretest.InVirtualTime(t, func(t *testing.T) {
				got := runDisturbedSearch(t, x.kind, x.after)
				// Attempts differ in agents, names and times, but not in the load and its results.
				if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(plan.Step{}, "Attempt", "Values")); diff != "" {
					t.Errorf("the search differs from one without crashes (-without +with crashes):\n%s",
						diff)
				}
			})
		})
	}
}

// searchCell changes a cell to search the capacity of a broker.
func searchCell(c *plan.Cell) {
	loopbackOptions(c, map[string]any{"rate": 600})
	c.Workload.Publishers.Count, c.Workload.Measure = 0, plan.Duration(2*time.Second)
	c.Workload.Search = &plan.Search{For: plan.SearchRate, While: "lost == 0", From: 200, Max: 2000, Within: 0.1,
		Step: plan.Duration(time.Second), Repeats: 2, Steps: 20}
}

// A search whose agents leave ends with its completed steps and the reason. A search that never had its agents has no
// result.
func TestASearchEndsWithoutItsAgents(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		w := l.run(newRun(searchCell, searchCell), nil, func(p controller.Progress) {
			if p.Kind == wire.TaskStarted && strings.HasPrefix(p.Detail, "step 3:") {
				l.agents["a1"].stop()
			}
		})
		all := w.outcomes()
		if len(all) != 2 {
			t.Fatalf("got %d outcomes, end %+v, want 2", len(all), w.end)
		}
		if s := all[0].Search; s == nil || s.Sure || len(s.Steps) != 3 || !strings.Contains(s.Why, "3 available") {
			t.Errorf("search: got %+v, want three steps and the shortage of agents", s)
		}
		if text := strings.Join(all[1].Reasons, "; "); all[1].Search != nil || all[1].Verdict != plan.Unknown ||
			!strings.Contains(text, "3 available") {
			t.Errorf("second search: got %s, reasons %q, search %+v, want unknown, the shortage of agents, nil",
				all[1].Verdict, text, all[1].Search)
		}
	})
}

// runDisturbedSearch executes a search. Its controller is crashed some time after an event of this kind in each step.
func runDisturbedSearch(t *testing.T, kind wire.EventKind, after time.Duration) *plan.SearchResult {
	l := newLocalFleetOn(t, wire.ServerConfig{Shared: true}, "a1", "a2", "a3", "a4")
	run := newRun(searchCell)
	run.Settle = plan.Duration(2 * time.Second)
	events := subscribe(t, l.natsConn(), "lockstep.events."+run.ID+".event")
	l.submit(run)
	done, started := map[string]bool{}, 0
	for {
		var e wire.RunEvent
		awaitMessage(t, events, func(m *nats.Msg) bool {
			e = wire.RunEvent{}
			if err := json.Unmarshal(m.Data, &e); err != nil {
				t.Error(err)
			}
			if e.Kind == wire.TaskStarted {
				started++
			}
			return e.Kind == kind || e.Kind == wire.RunEnded
		})
		if e.Kind == wire.RunEnded {
			break
		}
		step := e.Detail
		if e.Step != nil {
			step = fmt.Sprint(e.Step.Attempt)
		}
		if !done[step] && len(done) < 20 {
			done[step] = true
			time.Sleep(after)
			l.crashController()
			l.startController()
		}
	}
	w := l.runInto(t.TempDir(), run, nil, nil) // nothing is left to execute: the record is read
	o := w.outcomes()[0]
	if o.Search == nil || kind != "" && len(done) < 8 {
		t.Fatalf("got %d steps with a crash, outcome %s: %q, want at least 8, a search", len(done), o.Verdict,
			o.Reasons)
	}
	again := 0
	if kind == wire.TaskStarted {
		again = len(done)
	}
	if started != len(o.Search.Steps)+again || len(o.FailedAttempts) != again {
		t.Errorf("got %d attempts for %d steps, %d failed, want %d failed", started, len(o.Search.Steps),
			len(o.FailedAttempts), again)
	}
	return o.Search
}
