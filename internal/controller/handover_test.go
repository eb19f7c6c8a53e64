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

// stopped executes a run. Its first controller is stopped during the first attempt, and ends. Another one continues.
func (l *lab) stopped(run plan.Run, then func()) watched {
	l.leave()
	stop := make(chan struct{})
	l.config.Stop = stop
	l.control()
	l.config.Stop = nil
	asked := false
	return l.run(run, nil, func(p controller.Progress) {
		if p.Kind == liveMetrics && !asked {
			asked = true
			close(stop)
			then()
			l.wg.Wait()
			l.control()
		}
	})
}

// A controller that is stopped finishes the task in flight, starts no other, and hands over.
func TestAControllerHandsOverBetweenTasks(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		w := l.stopped(aRun(long, long), func() {})
		if got, want := w.kinds(), "accepted task outcome taken-over task outcome end"; got != want {
			t.Errorf("the follower saw %q, want %q", got, want)
		}
		for _, o := range w.outcomes() {
			if o.Verdict != plan.Valid || len(o.FailedAttempts) > 0 {
				t.Errorf("%s: %s %q after %+v", o.Task, o.Verdict, o.Reasons, o.FailedAttempts)
			}
		}
		for _, p := range w.events {
			if p.Kind == wire.TakenOver && !strings.Contains(p.Detail, "no task was in flight") {
				t.Errorf("the next controller took over: %s", p.Detail)
			}
		}
	})
}

// It hands over a search between two steps.
func TestAControllerHandsOverBetweenStepsOfASearch(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		w := l.stopped(aRun(func(c *plan.Cell) {
			c.Workload.Publishers.Count = 0
			c.Workload.Search = &plan.Search{For: plan.SearchRate, While: "lost == 0", From: 1000, Max: 2000,
				Within: 0.5, Step: plan.Duration(3 * time.Second), Repeats: 1, Steps: 5}
		}), func() {})
		o := w.outcomes()[0]
		if started := strings.Count(w.kinds(), "task"); o.Search == nil || len(o.Search.Steps) < 2 ||
			started != len(o.Search.Steps) || len(o.FailedAttempts) > 0 {
			t.Errorf("%d attempts for %+v, after %+v", started, o.Search, o.FailedAttempts)
		}
		if !strings.Contains(w.kinds(), "taken-over") {
			t.Errorf("no takeover: %s", w.kinds())
		}
	})
}

// A controller that is stopped at once abandons the task in flight, and the next controller repeats it.
func TestAControllerThatHandsOverCanBeStopped(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		w := l.stopped(aRun(long), func() { l.stop() })
		if got, want := w.kinds(), "accepted task interrupted taken-over task outcome end"; got != want ||
			w.end.Reason != wire.EndDone {
			t.Errorf("the follower saw %q, want %q; %+v", got, want, w.end)
		}
	})
}
