package controller_test

import (
	"context"
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

// inFlight waits until a leader after the given epoch has stored what is in flight, and returns its epoch.
func (l *lab) inFlight(run, what string, after uint64) (epoch uint64) {
	l.t.Helper()
	until(l.t.(*testing.T), time.Minute, func() bool {
		s, err := l.client.RunState(l.t.Context(), run)
		epoch = s.Epoch
		return err == nil && s.InFlight == what && s.Epoch > after
	}, what+" is not in flight")
	return epoch
}

// crashTwice crashes two controllers in succession with the same part of a run in flight.
func (l *lab) crashTwice(run, what string) {
	l.t.Helper()
	epoch := uint64(0)
	for range 2 {
		epoch = l.inFlight(run, what, epoch)
		l.crash()
		l.control()
	}
}

// failing calls fail when a message is logged.
type failing struct {
	slog.Handler
	message string
	fail    func()
}

func (f failing) Enabled(context.Context, slog.Level) bool { return true }
func (f failing) WithAttrs([]slog.Attr) slog.Handler       { return f }

func (f failing) Handle(_ context.Context, r slog.Record) error {
	if r.Message == f.message {
		f.fail()
	}
	return nil
}

// leave stops the controller in order.
func (l *lab) leave() {
	l.stop()
	l.wg.Wait()
}

// ended waits until a run has ended.
func (l *lab) ended(run string) (s wire.RunState) {
	l.t.Helper()
	until(l.t.(*testing.T), 2*time.Minute, func() bool {
		var err error
		s, err = l.client.RunState(l.t.Context(), run)
		return err == nil && s.Run != "" && s.Over()
	}, "the run does not end")
	return s
}

// A run is quarantined if two controllers crashed with the same task of it in flight. Other runs continue.
func TestARunIsQuarantinedWhenControllersFailAtOneTask(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		run, next := aRun(nil, long), aRun(nil)
		l.submit(run)
		l.submit(next)
		task := run.Tasks()[1].ID
		l.crashTwice(run.ID, task)
		s := l.ended(run.ID)
		if s.State != string(wire.EndQuarantined) || s.Done != 1 ||
			!strings.Contains(s.Detail, "with repetition 1 of cell "+run.Tasks()[1].Cell.Name()+" (task "+task+
				") in flight (epochs ") || strings.ContainsAny(s.Detail, "[]") {
			t.Errorf("the run ended as %+v", s)
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
			t.Errorf("a copy has its end as %+v, %v, %v", end, ended, err)
		}
		if s := l.ended(next.ID); s.State != string(wire.EndDone) || s.Failed != 0 {
			t.Errorf("the next run ended as %+v", s)
		}
		w := l.runInto(t.TempDir(), run, []string{run.Tasks()[0].ID}, nil)
		if all := w.outcomes(); w.end.Reason != wire.EndDone || len(all) != 2 || all[1].Verdict != plan.Valid {
			t.Errorf("resumed: %+v, %d outcomes", w.end, len(all))
		}
	})
}

// A run is quarantined if two controllers crashed before its first task.
func TestARunIsQuarantinedWhenControllersFailBeforeItsFirstTask(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t) // no agents: the run waits for them
		run := aRun(nil)
		l.submit(run)
		l.state(run.ID, waits)
		l.crash()
		for _, name := range []string{"a1", "a2", "a3", "a4"} {
			l.start(name)
		}
		for range 2 {
			l.config.Log = slog.New(failing{l.log().Handler(), "run started", func() { l.leads.Close() }})
			l.control()
			l.wg.Wait()
		}
		l.config.Log = nil
		l.control()
		if s := l.ended(run.ID); s.State != string(wire.EndQuarantined) ||
			!strings.Contains(s.Detail, "before its next task") {
			t.Errorf("the run ended as %+v", s)
		}
	})
}

// Crashes with different tasks in flight do not count, and neither do orderly stops.
func TestARunIsNotQuarantinedForDifferentTasksOrOrderlyStops(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		run := aRun(long, long, long)
		l.submit(run)
		epoch := uint64(0)
		for _, task := range run.Tasks() {
			for _, end := range []func(){l.crash, l.leave, l.leave} {
				epoch = l.inFlight(run.ID, task.ID, epoch)
				end()
				l.control()
			}
		}
		if s := l.ended(run.ID); s.State != string(wire.EndDone) || s.Done != 3 || s.Failed != 0 || s.InFlight != "" ||
			s.Crashes != nil {
			t.Errorf("the run ended as %+v", s)
		}
	})
}

// Crashes while a run waits for a lost agent do not count, and the next controller continues the run.
func TestARunThatWaitsForAgentsIsTakenOver(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		run := aRun(nil, long)
		run.Grace = plan.Duration(2 * time.Minute)
		l.submit(run)
		epoch := l.inFlight(run.ID, run.Tasks()[1].ID, 0)
		l.kill("a2")
		epoch--
		for range 3 {
			epoch = l.inFlight(run.ID, "", epoch)
			time.Sleep(10 * time.Second)
			l.crash()
			l.control()
		}
		l.start("a5")
		if s := l.ended(run.ID); s.State != string(wire.EndDone) || s.Done != 2 || s.Failed != 0 {
			t.Errorf("the run ended as %+v", s)
		}
	})
}
