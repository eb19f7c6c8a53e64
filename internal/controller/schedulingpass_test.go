package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/agent"
	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// smallRun returns a run of cells that need two agents each.
func smallRun(lasts time.Duration, broker string, on plan.Labels) plan.Run {
	return newRun(func(c *plan.Cell) {
		w := &c.Workload
		w.Publishers.Nodes, w.Consumers.Nodes = 1, 1
		w.Publishers.On, w.Consumers.On = on, on
		w.Publishers.Count, w.Publishers.Rate, w.Measure = 0, 200, plan.Duration(lasts)
		if broker != "" {
			c.Broker.Options = json.RawMessage(fmt.Sprintf(`{"name":%q}`, broker))
		}
	})
}

// submit submits runs in this order.
func (l *localFleet) submit(runs ...plan.Run) {
	l.t.Helper()
	for _, run := range runs {
		if err := l.client.Submit(l.t.Context(), wire.Submission{Run: run}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// follow waits for the ends of runs, and returns the received events of each.
func (l *localFleet) follow(runs ...plan.Run) []followedRun {
	l.t.Helper()
	all := make([]followedRun, len(runs))
	var wg sync.WaitGroup
	for i, run := range runs {
		root := l.t.TempDir()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(l.t.Context(), 90*time.Second)
			defer cancel()
			w := followedRun{root: root, id: run.ID}
			end, err := controller.Record(ctx, l.client, run.ID, root, func(p controller.Progress) {
				if p.Kind != "" {
					w.events = append(w.events, p)
				}
			}, nil)
			if err != nil {
				l.t.Error(err)
			}
			w.end = end
			all[i] = w
		})
	}
	wg.Wait()
	return all
}

// taskTimes returns the times of the only task of a run.
func (w followedRun) taskTimes(t *testing.T) (from, to time.Time) {
	t.Helper()
	all := w.outcomes()
	if w.end.Reason != wire.EndDone || w.end.Failed != 0 || len(all) != 1 {
		t.Fatalf("run %s: got end %+v, %d outcomes, events %s, want done, 1 outcome", w.id, w.end, len(all), w.kinds())
	}
	return all[0].Started, all[0].Ended
}

// awaitState waits until a run is in the required state.
func (l *localFleet) awaitState(run string, want func(wire.RunState) bool) wire.RunState {
	l.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		runs, err := l.client.Runs(l.t.Context())
		var is wire.RunState
		for _, r := range runs {
			if r.Run == run {
				is = r
			}
		}
		if err == nil && want(is) {
			return is
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("run %s did not reach the required state: got %+v, error %v", run, is, err)
		}
	}
}

func running(s wire.RunState) bool { return s.State == wire.StateRunning }

func waits(s wire.RunState) bool { return s.State == wire.StateQueued && s.Waiting != "" }

func TestParallelRuns(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		l.awaitAgents(4)
		first, second := smallRun(20*time.Second, "", nil), smallRun(time.Second, "", nil)
		l.submit(first)
		one := l.awaitState(first.ID, func(s wire.RunState) bool { return running(s) && len(s.Agents) == 2 })
		l.submit(second)
		two := l.awaitState(second.ID, func(s wire.RunState) bool { return running(s) && len(s.Agents) == 2 })
		if got := strings.Join(append(one.Agents, two.Agents...), " "); got != "a1 a2 a3 a4" {
			t.Errorf("agents of the runs: got %v and %v, want two each", one.Agents, two.Agents)
		}
		l.follow(second)[0].taskTimes(t) // it ends while the first one continues
		l.awaitState(first.ID, running)
		if err := l.client.Cancel(t.Context(), first.ID, ""); err != nil {
			t.Fatal(err)
		}
		if w := l.follow(first)[0]; w.end.Reason != wire.EndInterrupted {
			t.Errorf("end of the cancelled run: got %+v, want interrupted", w.end)
		}
	})
}

func TestCancellingOneRunLeavesTheOtherAlone(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		l.awaitAgents(4)
		first, second := smallRun(20*time.Second, "", nil), smallRun(3*time.Second, "", nil)
		l.submit(first, second)
		l.awaitState(first.ID, running)
		l.awaitState(second.ID, running)
		if err := l.client.Cancel(t.Context(), first.ID, ""); err != nil {
			t.Fatal(err)
		}
		all := l.follow(first, second)
		if all[0].end.Reason != wire.EndInterrupted {
			t.Errorf("end of the cancelled run: got %+v, want interrupted", all[0].end)
		}
		all[1].taskTimes(t)
		if o := all[1].outcomes()[0]; o.Verdict != plan.Valid {
			t.Errorf("task of the other run: got %s %v, want valid", o.Verdict, o.Reasons)
		}
	})
}

func TestRunsOfOneBrokerFollowEachOther(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		l.awaitAgents(4)
		first, second := smallRun(2*time.Second, "shared", nil), smallRun(time.Second, "shared", nil)
		l.submit(first)
		l.awaitState(first.ID, running)
		l.submit(second)
		if s := l.awaitState(second.ID, waits); s.Waiting != "broker loop, used by run "+first.ID {
			t.Errorf("waiting: got %q", s.Waiting)
		}
		all := l.follow(first, second)
		_, ended := all[0].taskTimes(t)
		if begin, _ := all[1].taskTimes(t); begin.Before(ended) {
			t.Errorf("start of the second run: got %v, want after the end of the first at %v", begin, ended)
		}
	})
}

func TestMaximumParallelRuns(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		l.cancelController()
		l.controllers.Wait()
		l.config.MaxParallelRuns = 1
		l.startController()
		l.awaitAgents(4)
		first, second := smallRun(2*time.Second, "", nil), smallRun(time.Second, "", nil)
		l.submit(first)
		l.awaitState(first.ID, running)
		l.submit(second)
		if s := l.awaitState(second.ID, waits); !strings.HasPrefix(s.Waiting, "a free slot: at most 1") {
			t.Errorf("waiting: got %q", s.Waiting)
		}
		all := l.follow(first, second)
		_, ended := all[0].taskTimes(t)
		if begin, _ := all[1].taskTimes(t); begin.Before(ended) {
			t.Errorf("start of the second run: got %v, want after the end of the first at %v", begin, ended)
		}
	})
}

// TestEarlierRunsReserveAgents submits a run that needs all agents after one that uses two of them. A third run,
// which could use the other two, runs after it.
func TestEarlierRunsReserveAgents(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		l.awaitAgents(4)
		first, all, last := smallRun(2*time.Second, "", nil), newRun(nil), smallRun(time.Second, "", nil)
		l.submit(first)
		l.awaitState(first.ID, running)
		l.submit(all, last)
		if s := l.awaitState(all.ID, waits); s.Waiting != "2 more agents, used by run "+first.ID {
			t.Errorf("waiting: got %q", s.Waiting)
		}
		if s := l.awaitState(last.ID, waits); s.Waiting != "2 more agents, used by run "+first.ID+", reserved for run "+
			all.ID {
			t.Errorf("waiting: got %q", s.Waiting)
		}
		seen := l.follow(first, all, last)
		_, ended := seen[1].taskTimes(t)
		if begin, _ := seen[2].taskTimes(t); begin.Before(ended) {
			t.Errorf("start of the last run: got %v, want after the end of the earlier one at %v", begin, ended)
		}
	})
}

// TestTwoRunsInFlightAreTakenOver crashes the controller while two runs are executed and a third one waits.
func TestTwoRunsInFlightAreTakenOver(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		l.awaitAgents(4)
		first, second, third := smallRun(6*time.Second, "", nil), smallRun(6*time.Second, "", nil),
			smallRun(time.Second, "", nil)
		l.submit(first, second)
		one, two := l.awaitState(first.ID, running).Agents, l.awaitState(second.ID, running).Agents
		l.submit(third)
		l.awaitState(third.ID, waits)
		l.crashController()
		l.startController()
		all := l.follow(first, second, third)
		for i, had := range [][]string{one, two} {
			all[i].taskTimes(t)
			if got := l.awaitState(all[i].id, wire.RunState.Over); !strings.Contains(all[i].kinds(), "taken-over") {
				t.Errorf("run %s: got events %s, state %+v, want a takeover", all[i].id, all[i].kinds(), got)
			}
			var names []string
			for _, a := range all[i].outcomes()[0].Agents {
				names = append(names, a.Agent)
			}
			if strings.Join(names, " ") != strings.Join(had, " ") {
				t.Errorf("agents of run %s after the takeover: got %v, want %v", all[i].id, names, had)
			}
		}
		all[2].taskTimes(t)
	})
}

func TestRunsOfOneHostUnderTwoNamesFollowEachOther(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		l.awaitAgents(4)
		first, second := smallRun(2*time.Second, "localhost:5671", nil), smallRun(time.Second, "127.0.0.1:5672", nil)
		l.submit(first, second)
		all := l.follow(first, second)
		_, ended := all[0].taskTimes(t)
		if begin, _ := all[1].taskTimes(t); begin.Before(ended) {
			t.Errorf("start of the second run: got %v, want after the end of the first at %v", begin, ended)
		}
	})
}

// TestALargeRunDoesNotStarve lets a run wait for all agents. Smaller runs, of which two fit at a time, are submitted
// before each one ends.
func TestALargeRunDoesNotStarve(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		l.awaitAgents(4)
		first, second, large := smallRun(2*time.Second, "", nil), smallRun(3*time.Second, "", nil), newRun(nil)
		l.submit(first, second, large)
		later := []plan.Run{}
		for range 6 {
			run := smallRun(2*time.Second, "", nil)
			l.submit(run)
			later = append(later, run)
			time.Sleep(time.Second)
		}
		_, ended := l.follow(large)[0].taskTimes(t)
		for i, w := range l.follow(later...) {
			if begin, _ := w.taskTimes(t); begin.Before(ended) {
				t.Errorf("start of small run %d: got %v, want after the end of the earlier large run at %v", i,
					begin, ended)
			}
		}
	})
}

// TestARunWhoseAgentsAreMissingIsPassedOver submits a run that cannot start, although some agents and its broker are
// free, before one that needs all of these.
func TestARunWhoseAgentsAreMissingIsPassedOver(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2")
		l.stopController()
		l.config.MaxParallelRuns = 1
		l.startController()
		l.awaitAgents(2)
		missing, next := smallRun(time.Second, "shared", nil), smallRun(10*time.Second, "shared", nil)
		missing.Cells[0].Workload.Consumers.On = plan.Labels{"zone": "b"}
		l.submit(missing, next)
		want := "too few agents with matching labels: 2 available (a1 without labels, a2 without labels); " +
			"required: 1 for publishers (2 available), 1 for consumers with zone=b (0 available)"
		if s := l.awaitState(missing.ID, waits); s.Waiting != want {
			t.Errorf("waiting: got %q, want %q", s.Waiting, want)
		}
		l.awaitState(next.ID, running)
		all := l.follow(next, missing)
		_, ended := all[0].taskTimes(t)
		end := all[1].end
		if s := l.awaitState(missing.ID, wire.RunState.Over); end.Reason != wire.EndNoAgents || end.Detail != want ||
			s.Ended.Before(ended) {
			t.Errorf("run without agents: got end %+v at %v, want no-agents after the end of the other at %v", end,
				s.Ended, ended)
		}
	})
}

// A run whose agents arrive while other runs are executed starts after them.
func TestARunWhoseAgentsComeLaterIsExecuted(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2")
		l.awaitAgents(2)
		first, second := smallRun(10*time.Second, "shared", nil), smallRun(time.Second, "shared",
			plan.Labels{"zone": "b"})
		l.submit(first, second)
		l.awaitState(second.ID, waits)
		time.Sleep(5 * time.Second) // longer than the wait for a turn
		for _, name := range []string{"b1", "b2"} {
			l.startAgentWith(name, func(c *agent.Config) { c.Labels = map[string]string{"zone": "b"} })
		}
		l.awaitState(second.ID, func(s wire.RunState) bool { return s.Waiting == "broker loop, used by run "+first.ID })
		l.follow(second)[0].taskTimes(t)
	})
}

func TestWaitingRunsNameTheLabelsOfAgents(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1")
		zone := plan.Labels{"zone": "b"}
		for _, name := range []string{"b1", "b2"} {
			l.startAgentWith(name, func(c *agent.Config) { c.Labels = zone })
		}
		l.awaitAgents(3)
		first, second, third := smallRun(4*time.Second, "", zone), smallRun(time.Second, "", zone), newRun(nil)
		third.Cells[0].Workload.Publishers.Nodes, third.Cells[0].Workload.Consumers.Nodes = 1, 0
		l.submit(first)
		l.awaitState(first.ID, running)
		l.submit(second, third)
		if s := l.awaitState(second.ID, waits); s.Waiting != "2 more agents with zone=b, used by run "+first.ID {
			t.Errorf("waiting: got %q", s.Waiting)
		}
		_, ended := l.follow(third)[0].taskTimes(t) // it needs none of these agents
		if _, last := l.follow(first)[0].taskTimes(t); last.Before(ended) {
			t.Error("the third run ended after the first, want before: it needs other agents")
		}
	})
}
