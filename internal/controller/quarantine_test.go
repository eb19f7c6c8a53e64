package controller_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// awaitInFlight waits until a leader with a later epoch has stored this task as in flight, and returns its epoch.
func (l *localFleet) awaitInFlight(run, what string, after uint64) (epoch uint64) {
	l.t.Helper()
	waitFor(l.t.(*testing.T), time.Minute, func() bool {
		s, err := l.client.RunState(l.t.Context(), run)
		epoch = s.Epoch
		return err == nil && s.InFlight == what && s.Epoch > after
	}, what+" was not in flight in time")
	return epoch
}

// crashTwice crashes two controllers in succession with the same task in flight.
func (l *localFleet) crashTwice(run, what string) {
	l.t.Helper()
	epoch := uint64(0)
	for range 2 {
		epoch = l.awaitInFlight(run, what, epoch)
		l.crashController()
		l.startController()
	}
}

// logHook calls fail when a message is logged.
type logHook struct {
	slog.Handler
	message string
	call    func()
}

func (f logHook) Enabled(context.Context, slog.Level) bool { return true }
func (f logHook) WithAttrs([]slog.Attr) slog.Handler       { return f }

func (f logHook) Handle(_ context.Context, r slog.Record) error {
	if r.Message == f.message {
		f.call()
	}
	return nil
}

// stopController stops the controller and waits for its end.
func (l *localFleet) stopController() {
	l.cancelController()
	l.controllers.Wait()
}

// awaitEnd waits until a run has ended.
func (l *localFleet) awaitEnd(run string) (s wire.RunState) {
	l.t.Helper()
	waitFor(l.t.(*testing.T), 2*time.Minute, func() bool {
		var err error
		s, err = l.client.RunState(l.t.Context(), run)
		return err == nil && s.Run != "" && s.Over()
	}, "the run did not end in time")
	return s
}

// A run is quarantined if two controllers crashed with the same task of it in flight. Other runs continue.
func TestARunIsQuarantinedWhenControllersFailAtOneTask(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		run, next := newRun(nil, longCell), newRun(nil)
		l.submit(run)
		l.submit(next)
		task := run.Tasks()[1].ID
		l.crashTwice(run.ID, task)
		s := l.awaitEnd(run.ID)
		if s.State != string(wire.EndQuarantined) || s.Done != 1 ||
			!strings.Contains(s.Detail, "with repetition 1 of cell "+run.Tasks()[1].Cell.Name()+" (task "+task+
				") in flight (epochs ") || strings.ContainsAny(s.Detail, "[]") {
			t.Errorf("state of the ended run: got %+v", s)
		}
		p, err := controller.Pull(t.Context(), l.client, run.ID, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		kept, err := runs.Open("", p.Dir)
		if err != nil {
			t.Fatal(err)
		}
		timeline, err := kept.Timeline()
		if end, ended := runs.EndOf(timeline); err != nil || !ended || end.Text != s.State || end.Detail != s.Detail {
			t.Errorf("end of the run in a copy: got %+v, %v, error %v, want %s: %s", end, ended, err, s.State, s.Detail)
		}
		if s := l.awaitEnd(next.ID); s.State != string(wire.EndDone) || s.Failed != 0 {
			t.Errorf("state of the next run: got %+v, want done, 0 failed", s)
		}
		w := l.runInto(t.TempDir(), run, []string{run.Tasks()[0].ID}, nil)
		if all := w.outcomes(); w.end.Reason != wire.EndDone || len(all) != 2 || all[1].Verdict != plan.Valid {
			t.Errorf("resumed run: got end %+v, %d outcomes, want done, 2 outcomes", w.end, len(all))
		}
	})
}

// A run is quarantined if two controllers crashed before its first task.
func TestARunIsQuarantinedWhenControllersFailBeforeItsFirstTask(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t) // no agents: the run waits for them
		run := newRun(nil)
		l.submit(run)
		l.awaitState(run.ID, waits)
		l.crashController()
		for _, name := range []string{"a1", "a2", "a3", "a4"} {
			l.startAgent(name)
		}
		for range 2 {
			l.config.Log = slog.New(logHook{l.log().Handler(), "run started", func() { l.leaderConn.Close() }})
			l.startController()
			l.controllers.Wait()
		}
		l.config.Log = nil
		l.startController()
		if s := l.awaitEnd(run.ID); s.State != string(wire.EndQuarantined) ||
			!strings.Contains(s.Detail, "before its next task") {
			t.Errorf("state of the ended run: got %+v", s)
		}
	})
}

// Crashes with different tasks in flight, and orderly stops, do not count.
func TestARunIsNotQuarantinedForDifferentTasksOrOrderlyStops(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		run := newRun(longCell, longCell, longCell)
		l.submit(run)
		epoch := uint64(0)
		for _, task := range run.Tasks() {
			for _, end := range []func(){l.crashController, l.stopController, l.stopController} {
				epoch = l.awaitInFlight(run.ID, task.ID, epoch)
				end()
				l.startController()
			}
		}
		if s := l.awaitEnd(run.ID); s.State != string(wire.EndDone) || s.Done != 3 || s.Failed != 0 ||
			s.InFlight != "" ||
			s.Crashes != nil {
			t.Errorf("state of the ended run: got %+v", s)
		}
	})
}

// Crashes while a run waits for a lost agent do not count, and the next controller continues the run.
func TestARunThatWaitsForAgentsIsTakenOver(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		run := newRun(nil, longCell)
		run.Grace = plan.Duration(2 * time.Minute)
		l.submit(run)
		epoch := l.awaitInFlight(run.ID, run.Tasks()[1].ID, 0)
		l.killAgent("a2")
		epoch--
		for range 3 {
			epoch = l.awaitInFlight(run.ID, "", epoch)
			time.Sleep(10 * time.Second)
			l.crashController()
			l.startController()
		}
		l.startAgent("a5")
		if s := l.awaitEnd(run.ID); s.State != string(wire.EndDone) || s.Done != 2 || s.Failed != 0 {
			t.Errorf("state of the ended run: got %+v", s)
		}
	})
}

// The name of a task in the reason has no secrets, although the leader has the submission with all secrets.
func TestTheReasonOfAQuarantineHasNoSecrets(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		run := newRun(func(c *plan.Cell) {
			c.Broker.Options = json.RawMessage(`{"name":"canary"}`)
			c.Broker.Secret = []string{"name"}
			c.Coordinates = []plan.Coordinate{{Axis: "password", Value: json.RawMessage(`"canary"`)}}
			longCell(c)
		})
		l.submit(run)
		l.crashTwice(run.ID, run.Tasks()[0].ID)
		if s := l.awaitEnd(run.ID); s.State != string(wire.EndQuarantined) || strings.Contains(s.Detail, "canary") ||
			!strings.Contains(s.Detail, "of cell password=*** (task ") {
			t.Errorf("state of the ended run: got %+v, want quarantined, with password=***", s)
		}
	})
}

// A task does not begin before its mark is stored: otherwise a crash with it in flight would not be counted. The same
// holds for the end of a run, which copies of it follow.
func TestNoTaskBeginsWithoutItsMark(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleetOn(t, wire.ServerConfig{Shared: true}, "a1", "a2", "a3", "a4")
		js := l.jetstream()
		states, err := js.Stream(t.Context(), "KV_LOCKSTEP_STATE")
		if err != nil {
			t.Fatal(err)
		}
		cfg := states.CachedInfo().Config
		limit := func(bytes int64) {
			cfg.MaxBytes = bytes
			if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
				t.Error(err)
			}
		}
		usual, run := cfg.MaxBytes, newRun(nil, nil)
		run.Settle = plan.Duration(time.Second)
		for full, since := range map[wire.EventKind]int{controller.TaskEnded: 1, wire.TaskStarted: 2} {
			run.ID += "x"
			var space time.Time
			w := l.run(run, nil, func(p controller.Progress) {
				if p.Kind == full && p.N == since { // for a minute
					limit(1)
					space = time.Now().Add(time.Minute)
					time.AfterFunc(time.Minute, func() { limit(usual) })
				}
				if p.Kind == wire.TaskStarted && p.N != since && time.Now().Before(space) {
					t.Errorf("start of task %d: got it before its mark was stored", p.N)
				}
			})
			if w.end.Reason != wire.EndDone || w.end.Ran != 2 || w.end.Failed > 0 {
				t.Errorf("end of the run: got %+v, want done, 2 tasks, 0 failed", w.end)
			}
			if s := l.awaitEnd(run.ID); s.State != string(wire.EndDone) || s.Done != 2 || time.Now().Before(space) {
				t.Errorf("state of the ended run: got %+v, want done, 2 tasks, stored when there is space", s)
			}
		}
	})
}
