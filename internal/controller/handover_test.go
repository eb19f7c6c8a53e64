package controller_test

import (
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// runWithHandover executes a run. Its first controller is stopped during the first attempt. When it has ended, another
// one is started.
func (l *localFleet) runWithHandover(run plan.Run, then func()) followedRun {
	l.stopController()
	stop := make(chan struct{})
	l.config.Stop = stop
	l.startController()
	l.config.Stop = nil
	asked := false
	return l.run(run, nil, func(p controller.Progress) {
		if p.Kind == liveMetrics && !asked {
			asked = true
			close(stop)
			then()
			l.controllers.Wait()
			l.startController()
		}
	})
}

// A controller that is stopped finishes the task in flight, starts no other, and hands over.
func TestAControllerHandsOverBetweenTasks(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		w := l.runWithHandover(newRun(longCell, longCell), func() {})
		if got, want := w.kinds(), "accepted task outcome taken-over task outcome end"; got != want {
			t.Errorf("events: got %q, want %q", got, want)
		}
		for _, o := range w.outcomes() {
			if o.Verdict != plan.Valid || len(o.FailedAttempts) > 0 {
				t.Errorf("task %s: got %s %q, failed attempts %+v, want valid, none", o.Task, o.Verdict, o.Reasons,
					o.FailedAttempts)
			}
		}
		for _, p := range w.events {
			if p.Kind == wire.TakenOver && !strings.Contains(p.Detail, "no task was in flight") {
				t.Errorf("takeover: got %q, want \"no task was in flight\"", p.Detail)
			}
		}
	})
}

// While a controller waits for the task in flight of one run, another run that it handed over can be cancelled. The
// next controller ends it.
func TestARunThatWasHandedOverCanBeCancelled(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8")
		l.stopController()
		stop := make(chan struct{})
		l.config.Stop = stop
		l.startController()
		l.config.Stop = nil
		long, short := newRun(longCell), newRun(nil, nil)
		if err := l.client.Submit(t.Context(), wire.Submission{Run: long}); err != nil {
			t.Fatal(err)
		}
		stopping := false
		w := l.run(short, nil, func(p controller.Progress) {
			switch {
			case p.Kind == liveMetrics && !stopping:
				stopping = true
				close(stop)
			case p.Kind == controller.TaskEnded:
				time.Sleep(time.Second) // the controller has handed over this run, and waits for the other one
				if err := l.client.Cancel(t.Context(), short.ID, "me@here"); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second) // the controller has read the cancellation
				if o, err := l.client.RunState(t.Context(), long.ID); err != nil || o.Over() {
					t.Errorf("state of the other run: got %+v, error %v, want a task in flight", o, err)
				}
				l.controllers.Wait()
				l.startController()
			}
		})
		if w.end.Reason != wire.EndInterrupted || w.end.Detail != "run was cancelled by me@here" ||
			len(w.outcomes()) != 1 {
			t.Errorf("got end %+v, %d outcomes, want interrupted by the cancellation, 1", w.end, len(w.outcomes()))
		}
	})
}

// A controller that is stopped hands over a search between two steps.
func TestAControllerHandsOverBetweenStepsOfASearch(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		w := l.runWithHandover(newRun(func(c *plan.Cell) {
			c.Workload.Publishers.Count = 0
			c.Workload.Search = &plan.Search{For: plan.SearchRate, While: "lost == 0", From: 1000, Max: 2000,
				Within: 0.5, Step: plan.Duration(3 * time.Second), Repeats: 1, Steps: 5}
		}), func() {})
		o := w.outcomes()[0]
		if started := strings.Count(w.kinds(), "task"); o.Search == nil || len(o.Search.Steps) < 2 ||
			started != len(o.Search.Steps) || len(o.FailedAttempts) > 0 {
			t.Errorf("got %d started attempts, search %+v, failed attempts %+v, want one attempt per step, none failed",
				started, o.Search, o.FailedAttempts)
		}
		if !strings.Contains(w.kinds(), "taken-over") {
			t.Errorf("events: got %s, want a takeover", w.kinds())
		}
	})
}

// A controller that is stopped at once abandons the task in flight, and the next controller repeats it.
func TestAControllerThatHandsOverCanBeStopped(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		w := l.runWithHandover(newRun(longCell), func() { l.cancelController() })
		if got, want := w.kinds(), "accepted task interrupted taken-over task outcome end"; got != want ||
			w.end.Reason != wire.EndDone {
			t.Errorf("events: got %q, end %+v, want %q", got, w.end, want)
		}
	})
}
