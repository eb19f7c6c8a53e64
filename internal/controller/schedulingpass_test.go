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

// small returns a run of cells that need two agents each.
func small(lasts time.Duration, broker string, on plan.Labels) plan.Run {
	return aRun(func(c *plan.Cell) {
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
func (l *lab) submit(runs ...plan.Run) {
	l.t.Helper()
	for _, run := range runs {
		if err := l.client.Submit(l.t.Context(), wire.Submission{Run: run}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// follow waits for the ends of runs, and returns the received events of each.
func (l *lab) follow(runs ...plan.Run) []watched {
	l.t.Helper()
	all := make([]watched, len(runs))
	var wg sync.WaitGroup
	for i, run := range runs {
		root := l.t.TempDir()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(l.t.Context(), 90*time.Second)
			defer cancel()
			w := watched{root: root, id: run.ID}
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

// span returns the times of the only task of a run.
func (w watched) span(t *testing.T) (from, to time.Time) {
	t.Helper()
	all := w.outcomes()
	if w.end.Reason != wire.EndDone || w.end.Failed != 0 || len(all) != 1 {
		t.Fatalf("run %s ended with %+v after %s", w.id, w.end, w.kinds())
	}
	return all[0].Started, all[0].Ended
}

// state waits until a run is in the required state.
func (l *lab) state(run string, want func(wire.RunState) bool) wire.RunState {
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
			l.t.Fatalf("run %s stands as %+v, %v", run, is, err)
		}
	}
}

func running(s wire.RunState) bool { return s.State == wire.StateRunning }

func waits(s wire.RunState) bool { return s.State == wire.StateQueued && s.Waiting != "" }

func TestParallelRuns(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		l.await(4)
		first, second := small(20*time.Second, "", nil), small(time.Second, "", nil)
		l.submit(first)
		one := l.state(first.ID, func(s wire.RunState) bool { return running(s) && len(s.Agents) == 2 })
		l.submit(second)
		two := l.state(second.ID, func(s wire.RunState) bool { return running(s) && len(s.Agents) == 2 })
		if got := strings.Join(append(one.Agents, two.Agents...), " "); got != "a1 a2 a3 a4" {
			t.Errorf("the runs have %v and %v, want two agents each", one.Agents, two.Agents)
		}
		l.follow(second)[0].span(t) // it ends while the first one continues
		l.state(first.ID, running)
		if err := l.client.Cancel(t.Context(), first.ID, ""); err != nil {
			t.Fatal(err)
		}
		if w := l.follow(first)[0]; w.end.Reason != wire.EndInterrupted {
			t.Errorf("the cancelled run ended with %+v", w.end)
		}
	})
}

func TestCancellingOneRunLeavesTheOtherAlone(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		l.await(4)
		first, second := small(20*time.Second, "", nil), small(3*time.Second, "", nil)
		l.submit(first, second)
		l.state(first.ID, running)
		l.state(second.ID, running)
		if err := l.client.Cancel(t.Context(), first.ID, ""); err != nil {
			t.Fatal(err)
		}
		all := l.follow(first, second)
		if all[0].end.Reason != wire.EndInterrupted {
			t.Errorf("the cancelled run ended with %+v", all[0].end)
		}
		all[1].span(t)
		if o := all[1].outcomes()[0]; o.Verdict != plan.Valid {
			t.Errorf("the other run's task is %s %v", o.Verdict, o.Reasons)
		}
	})
}

func TestRunsOfOneBrokerFollowEachOther(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		l.await(4)
		first, second := small(2*time.Second, "shared", nil), small(time.Second, "shared", nil)
		l.submit(first)
		l.state(first.ID, running)
		l.submit(second)
		if s := l.state(second.ID, waits); s.Waiting != "broker loop, used by run "+first.ID {
			t.Errorf("it waits for %q", s.Waiting)
		}
		all := l.follow(first, second)
		_, ended := all[0].span(t)
		if began, _ := all[1].span(t); began.Before(ended) {
			t.Errorf("the second began at %v, before the first ended at %v", began, ended)
		}
	})
}

func TestOneRunAfterTheOther(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		l.stop()
		l.wg.Wait()
		l.config.MaxParallelRuns = 1
		l.control()
		l.await(4)
		first, second := small(2*time.Second, "", nil), small(time.Second, "", nil)
		l.submit(first)
		l.state(first.ID, running)
		l.submit(second)
		if s := l.state(second.ID, waits); !strings.HasPrefix(s.Waiting, "a free slot: at most 1") {
			t.Errorf("it waits for %q", s.Waiting)
		}
		all := l.follow(first, second)
		_, ended := all[0].span(t)
		if began, _ := all[1].span(t); began.Before(ended) {
			t.Errorf("the second began at %v, before the first ended at %v", began, ended)
		}
	})
}

// TestWhoWaitsLongerHasFirstClaim submits a run that needs all agents after one that uses two of them. A third run,
// which could use the other two, runs after it.
func TestWhoWaitsLongerHasFirstClaim(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		l.await(4)
		first, all, last := small(2*time.Second, "", nil), aRun(nil), small(time.Second, "", nil)
		l.submit(first)
		l.state(first.ID, running)
		l.submit(all, last)
		if s := l.state(all.ID, waits); s.Waiting != "2 more agents, used by run "+first.ID {
			t.Errorf("it waits for %q", s.Waiting)
		}
		if s := l.state(last.ID, waits); s.Waiting != "2 more agents, used by run "+first.ID+", reserved for run "+
			all.ID {
			t.Errorf("it waits for %q", s.Waiting)
		}
		seen := l.follow(first, all, last)
		_, ended := seen[1].span(t)
		if began, _ := seen[2].span(t); began.Before(ended) {
			t.Errorf("the last began at %v, before the one ahead of it ended at %v", began, ended)
		}
	})
}

// TestTwoRunsInFlightAreTakenOver crashes the controller while two runs are executed and a third one waits.
func TestTwoRunsInFlightAreTakenOver(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		l.await(4)
		first, second, third := small(6*time.Second, "", nil), small(6*time.Second, "", nil),
			small(time.Second, "", nil)
		l.submit(first, second)
		one, two := l.state(first.ID, running).Agents, l.state(second.ID, running).Agents
		l.submit(third)
		l.state(third.ID, waits)
		l.crash()
		l.control()
		all := l.follow(first, second, third)
		for i, had := range [][]string{one, two} {
			all[i].span(t)
			if got := l.state(all[i].id, wire.RunState.Over); !strings.Contains(all[i].kinds(), "taken-over") {
				t.Errorf("no takeover of run %s: %s, %+v", all[i].id, all[i].kinds(), got)
			}
			var names []string
			for _, a := range all[i].outcomes()[0].Agents {
				names = append(names, a.Agent)
			}
			if strings.Join(names, " ") != strings.Join(had, " ") {
				t.Errorf("run %s ended on %v, and had %v", all[i].id, names, had)
			}
		}
		all[2].span(t)
	})
}

func TestRunsOfOneHostUnderTwoNamesFollowEachOther(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		l.await(4)
		first, second := small(2*time.Second, "localhost:5671", nil), small(time.Second, "127.0.0.1:5672", nil)
		l.submit(first, second)
		all := l.follow(first, second)
		_, ended := all[0].span(t)
		if began, _ := all[1].span(t); began.Before(ended) {
			t.Errorf("the second began at %v, before the first ended at %v", began, ended)
		}
	})
}

// TestALargeRunDoesNotStarve lets a run wait for all agents. Smaller runs, of which two fit at a time, are submitted
// before each one ends.
func TestALargeRunDoesNotStarve(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		l.await(4)
		first, second, large := small(2*time.Second, "", nil), small(3*time.Second, "", nil), aRun(nil)
		l.submit(first, second, large)
		later := []plan.Run{}
		for range 6 {
			run := small(2*time.Second, "", nil)
			l.submit(run)
			later = append(later, run)
			time.Sleep(time.Second)
		}
		_, ended := l.follow(large)[0].span(t)
		for i, w := range l.follow(later...) {
			if began, _ := w.span(t); began.Before(ended) {
				t.Errorf("small run %d began at %v, before the large one that was submitted first ended at %v", i,
					began, ended)
			}
		}
	})
}

// TestARunWhoseAgentsAreMissingIsPassedOver submits a run that cannot start, although some agents and its broker are
// free, before one that needs all of these.
func TestARunWhoseAgentsAreMissingIsPassedOver(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2")
		l.leave()
		l.config.MaxParallelRuns = 1
		l.control()
		l.await(2)
		missing, next := small(time.Second, "shared", nil), small(10*time.Second, "shared", nil)
		missing.Cells[0].Workload.Consumers.On = plan.Labels{"zone": "b"}
		l.submit(missing, next)
		want := "too few agents with matching labels: 2 available (a1 without labels, a2 without labels); " +
			"required: 1 for publishers (2 available), 1 for consumers with zone=b (0 available)"
		if s := l.state(missing.ID, waits); s.Waiting != want {
			t.Errorf("it waits for %q, want %q", s.Waiting, want)
		}
		l.state(next.ID, running)
		all := l.follow(next, missing)
		_, ended := all[0].span(t)
		end := all[1].end
		if s := l.state(missing.ID, wire.RunState.Over); end.Reason != wire.EndNoAgents || end.Detail != want ||
			s.Ended.Before(ended) {
			t.Errorf("it ended at %v with %+v, want no-agents after the other, which ended at %v", s.Ended, end, ended)
		}
	})
}

// A run whose agents arrive while other runs are executed starts after them.
func TestARunWhoseAgentsComeLaterIsExecuted(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2")
		l.await(2)
		first, second := small(10*time.Second, "shared", nil), small(time.Second, "shared", plan.Labels{"zone": "b"})
		l.submit(first, second)
		l.state(second.ID, waits)
		time.Sleep(5 * time.Second) // longer than the wait for a turn
		for _, name := range []string{"b1", "b2"} {
			l.startWith(name, func(c *agent.Config) { c.Labels = map[string]string{"zone": "b"} })
		}
		l.state(second.ID, func(s wire.RunState) bool { return s.Waiting == "broker loop, used by run "+first.ID })
		l.follow(second)[0].span(t)
	})
}

func TestWaitingRunsNameTheLabelsOfAgents(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1")
		zone := plan.Labels{"zone": "b"}
		for _, name := range []string{"b1", "b2"} {
			l.startWith(name, func(c *agent.Config) { c.Labels = zone })
		}
		l.await(3)
		first, second, third := small(4*time.Second, "", zone), small(time.Second, "", zone), aRun(nil)
		third.Cells[0].Workload.Publishers.Nodes, third.Cells[0].Workload.Consumers.Nodes = 1, 0
		l.submit(first)
		l.state(first.ID, running)
		l.submit(second, third)
		if s := l.state(second.ID, waits); s.Waiting != "2 more agents with zone=b, used by run "+first.ID {
			t.Errorf("it waits for %q", s.Waiting)
		}
		_, ended := l.follow(third)[0].span(t) // it needs none of these agents
		if _, last := l.follow(first)[0].span(t); last.Before(ended) {
			t.Error("the third run waited for the first")
		}
	})
}
