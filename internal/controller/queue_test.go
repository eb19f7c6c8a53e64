package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

func TestCancelKeepsWhatWasMeasuredAndResumeRunsTheRest(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		run := newRun(nil, longCell)
		cancelled := false
		w := l.run(run, nil, func(p controller.Progress) {
			if p.Kind == liveMetrics && p.N == 2 && !cancelled {
				cancelled = true
				if err := l.client.Cancel(t.Context(), run.ID, "me@here"); err != nil {
					t.Error(err)
				}
			}
		})
		if w.end.Reason != wire.EndInterrupted || w.end.Detail != "run was cancelled by me@here" ||
			len(w.outcomes()) != 1 {
			t.Fatalf("got end %+v, %d outcomes, want interrupted, 1", w.end, len(w.outcomes()))
		}
		dir, err := runs.Open(w.root, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		second := run.Tasks()[1].ID
		if dir.Done(second) {
			t.Error("the interrupted task has an outcome, want none: it must be repeated")
		}
		if text, err := os.ReadFile(dir.Dir() + "/tasks/" + second + "/snapshots.jsonl"); err != nil || len(text) == 0 {
			t.Errorf("snapshots of the interrupted task: got %d bytes, error %v, want some", len(text), err)
		}

		again := run
		again.Cells = append([]plan.Cell(nil), run.Cells...)
		w = l.runInto(w.root, again, []string{run.Tasks()[0].ID}, func(p controller.Progress) {
			if p.Kind == liveMetrics {
				_ = l.client.Cancel(t.Context(), run.ID, "")
			}
		})
		started := 0
		for _, p := range w.events {
			if p.Kind == wire.TaskStarted {
				started++
			}
		}
		if w.end.Reason != wire.EndInterrupted || w.end.Ran != 0 || started == 0 {
			t.Errorf("resumed run: got end %+v, %d started tasks, want only the second task", w.end,
				started)
		}
	})
}

func TestResumeSkipsFinishedTasks(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		run := newRun(nil, nil, nil)
		tasks := run.Tasks()
		w := l.run(run, []string{tasks[0].ID, tasks[2].ID}, nil)
		if all := w.outcomes(); len(all) != 1 || all[0].Task != tasks[1].ID || w.end.Ran != 1 {
			t.Errorf("got outcomes %+v, end %+v, want only the second task", all, w.end)
		}
		w = l.runInto(w.root, run, nil, nil)
		if w.end.Ran != 2 {
			t.Errorf("second submission: got %d executed tasks, want 2: the control plane has one outcome of three",
				w.end.Ran)
		}
	})
}

func TestCancelOfAQueuedRun(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		first, second := newRun(longCell), newRun(nil)
		l.run(first, nil, func(p controller.Progress) {
			if p.Kind != wire.TaskStarted {
				return
			}
			if err := l.client.Submit(t.Context(), wire.Submission{Run: second}); err != nil {
				t.Error(err)
			}
			for _, id := range []string{second.ID, first.ID} {
				if err := l.client.Cancel(t.Context(), id, "me@here"); err != nil {
					t.Error(err)
				}
			}
		})
		end, err := controller.Record(t.Context(), l.client, second.ID, t.TempDir(), nil, nil)
		if err != nil || end.Reason != wire.EndInterrupted || end.Ran != 0 ||
			end.Detail != "run was cancelled by me@here" {
			t.Errorf("queued run that was cancelled: got end %+v, error %v, want interrupted, no executed task", end,
				err)
		}
	})
}

func TestLossesAreExact(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		w := l.run(newRun(func(c *plan.Cell) {
			c.Broker.Options = json.RawMessage(`{"name":"lossy","lose":1000,"duplicate":500}`)
		}), nil, nil)
		o := w.outcomes()[0]
		if o.Ledger.Sent != 4000 || o.Ledger.Lost != 4 || o.Ledger.Duplicated != 4 || o.Verdict != plan.Invalid {
			// of each publisher's 2000 messages, 1000 and 2000 are lost, and 500 and 1500 are duplicated
			t.Errorf("got %s, %+v, want invalid, 4000 sent, 4 lost, 4 duplicated", o.Verdict, o.Ledger)
		}
	})
}

func TestNoConsumersNoDrain(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2")
		begin := time.Now()
		w := l.run(newRun(func(c *plan.Cell) {
			c.Workload.Consumers.Nodes = 0
			c.Workload.Drain.Idle = plan.Duration(20 * time.Second)
		}), nil, nil)
		if o := w.outcomes()[0]; o.Verdict != plan.Valid || o.Ledger.Sent != 4000 || o.Ledger.Lost != 0 {
			t.Errorf("got %s %v, %+v, want valid, 4000 sent, 0 lost", o.Verdict, o.Reasons, o.Ledger)
		}
		if elapsed := time.Since(begin); elapsed > 3*time.Second { // 2 s of load, after a start time in the future
			t.Errorf("duration without consumers: got %v, want at most 3 s: no drain", elapsed)
		}
	})
}

func TestDrainIsCutByItsLimit(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		w := l.run(newRun(func(c *plan.Cell) {
			c.Broker.Options = json.RawMessage(`{"name":"slow","delay":"30s"}`)
			c.Workload.Drain = plan.Drain{Idle: plan.Duration(20 * time.Second),
				Timeout: plan.Duration(300 * time.Millisecond)}
		}), nil, nil)
		if o := w.outcomes()[0]; o.Ledger.Undrained != 4000 || o.Ledger.Lost != 0 {
			t.Errorf("got %+v, want 4000 undrained, 0 lost", o.Ledger)
		}
	})
}

func TestAgentsAreListed(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a2", "a1")
		agents := l.awaitAgents(2)
		if agents[0].Agent != "a1" || agents[0].Cores == 0 || agents[0].Clock == "" || agents[0].Seen.IsZero() {
			t.Errorf("agents: got %+v, want a1 first, with cores, clock and time", agents)
		}
	})
}

func TestTwoAgentsOfOneName(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1")
		l.awaitAgents(1)
		first := l.agents["a1"]
		l.startAgent("a1")
		second := l.agents["a1"]
		select {
		case err := <-first.done:
			first.done <- err
			if err == nil || !strings.Contains(err.Error(), `"a1"`) {
				t.Errorf("Serve of the older agent: got error %v, want one with the name", err)
			}
		case err := <-second.done:
			second.done <- err
			t.Errorf("the newer agent was rejected (%v), want the older one", err)
		case <-time.After(5 * time.Second):
			t.Error("none of two agents with the same name was rejected")
		}
		first.stop()
		<-first.done
		first.conn.Close()
	})
}

func TestUnknownRun(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := controller.Record(ctx, l.client, "nothing", t.TempDir(), nil, nil); err == nil ||
			errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("follow an unknown run: got error %v, want one before the deadline", err)
		}
	})
}

func TestFleetOverTheNetworkKeptOnDisk(t *testing.T) {
	t.Parallel()
	cfg := wire.ServerConfig{Listen: "127.0.0.1:0", Auth: wire.Auth{User: "bench", Password: "pw"}, Dir: t.TempDir()}
	l := newLocalFleetOn(t, cfg, "a1", "a2", "a3", "a4")
	run := newRun(nil, nil)
	w := l.run(run, nil, nil)
	for _, o := range w.outcomes() {
		if o.Verdict != plan.Valid || o.Ledger.Received != 4000 {
			t.Errorf("task %s: got %s %v, %+v, want valid, 4000 received", o.Task, o.Verdict, o.Reasons, o.Ledger)
		}
	}
	if w.end.Ran != 2 {
		t.Errorf("end of the run: got %+v, want 2 tasks", w.end)
	}
	// The record stays on the control plane: a later follower receives the same.
	copied, err := controller.Record(t.Context(), l.client, run.ID, t.TempDir(), nil, nil)
	if err != nil || copied != w.end {
		t.Errorf("end in a second copy: got %+v, error %v, want %+v", copied, err, w.end)
	}
}

func TestInvalidSubmissionsAreRejected(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1")
		none, endless, negative := newRun(nil), newRun(nil),
			newRun(func(c *plan.Cell) { c.Workload.Publishers.Nodes = -3 })
		none.Cells = nil
		endless.Repeat = 1 << 60
		for _, run := range []plan.Run{none, endless, negative} {
			if w := l.run(run, nil, nil); w.end.Reason != wire.EndRefused || w.end.Detail == "" {
				t.Errorf("%d cells, %d repetitions: got end %+v, want refused with the reason", len(run.Cells),
					run.Repeat, w.end)
			}
		}
	})
}

// TestNothingIsLeftOnTheControlPlane proves that the memory of an embedded control plane does not grow with the number
// of tasks.
func TestNothingIsLeftOnTheControlPlane(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		run := newRun(nil, nil)
		run.Repeat = 3
		if w := l.run(run, nil, nil); w.end.Ran != 6 || w.end.Failed != 0 {
			t.Fatalf("end of the run: got %+v, want 6 tasks, 0 failed", w.end)
		}
		kept, err := wiretest.Stored(t.Context(), l.jetstream())
		if err != nil {
			t.Fatal(err)
		}
		attempts := 0 // whose snapshots are stored
		for subject := range kept {
			if strings.Contains(subject, ".queue.") {
				t.Errorf("%s is in the queue after the end of its run", subject)
			}
			if strings.Contains(subject, ".snapshot.") {
				attempts++
			}
		}
		if attempts > 1 {
			t.Errorf("attempts with stored snapshots: got %d, want at most 1", attempts)
		}
		if len(kept) == 0 {
			t.Error("got no stored messages, want some")
		}
	})
}

func TestAnotherControllerContinuesTheRun(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		run := newRun(nil, func(c *plan.Cell) {
			c.Workload.Publishers.Count, c.Workload.Publishers.Rate, c.Workload.Measure = 0, 1000,
				plan.Duration(2*time.Second)
		}, func(c *plan.Cell) { c.Workload.Message.Size = 500 })
		restarted := false
		w := l.run(run, nil, func(p controller.Progress) {
			if p.Kind == liveMetrics && p.N == 2 && !restarted {
				restarted = true
				l.cancelController()
				l.controllers.Wait()
				l.startController()
			}
		})
		if got, want := w.kinds(),
			"accepted task outcome task interrupted taken-over task outcome task outcome end"; got != want {
			t.Errorf("events: got %q, want %q: the task in flight is repeated", got,
				want)
		}
		all := w.outcomes()
		if len(all) != 3 || w.end.Reason != wire.EndDone {
			t.Fatalf("got %d outcomes, end %+v, want 3, done", len(all), w.end)
		}
		for i, o := range all {
			if o.Verdict != plan.Valid || i == 1 && o.Ledger.Sent > 2000 { // 1000 per second for 2 s
				t.Errorf("task %s: got %s %v, %d sent, want valid, only messages of one attempt", o.Task, o.Verdict,
					o.Reasons, o.Ledger.Sent)
			}
		}
	})
}

// TestRequestsWithoutALeader proves that a submission waits 30 s for a controller, and that all other requests fail at
// once.
func TestRequestsWithoutALeader(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		l.awaitAgents(4)
		l.cancelController()
		l.controllers.Wait()
		ctx, run := t.Context(), newRun(nil, nil)
		for what, request := range map[string]func() error{
			"runs":     func() error { _, err := l.client.Runs(ctx); return err },
			"agents":   func() error { _, err := l.client.Agents(ctx); return err },
			"pull":     func() error { _, err := controller.Pull(ctx, l.client, run.ID, t.TempDir()); return err },
			"cancel":   func() error { return l.client.Cancel(ctx, run.ID, "me@here") },
			"schedule": func() error { _, err := l.client.Schedules(ctx); return err },
			"history":  func() error { _, err := l.client.History(ctx, plan.HistoryQuery{}); return err },
		} {
			begin := time.Now()
			err := request()
			if elapsed := time.Since(begin); !errors.Is(err, wire.ErrNoController) ||
				strings.Contains(err.Error(), "\n") || elapsed > 0 {
				t.Errorf("%s without a leader: got error %v after %v, want wire.ErrNoController in one line at once",
					what, err, elapsed)
			}
		}
		begin := time.Now()
		err := l.client.Submit(ctx, wire.Submission{Run: run})
		if elapsed := time.Since(begin); !errors.Is(err, wire.ErrNoController) || elapsed != 30*time.Second {
			t.Errorf("submission without a leader: got error %v after %v, want wire.ErrNoController after 30 s", err,
				elapsed)
		}
		submitted := make(chan error, 1)
		go func() { submitted <- l.client.Submit(ctx, wire.Submission{Run: run}) }()
		time.Sleep(20 * time.Second)
		l.startController()
		if err := <-submitted; err != nil {
			t.Fatal(err)
		}
		end, err := controller.Record(ctx, l.client, run.ID, t.TempDir(), nil, nil)
		if err != nil || end.Reason != wire.EndDone {
			t.Errorf("end of the run: got %+v, error %v, want done", end, err)
		}
	})
}
