package controller_test

import (
	"encoding/json"
	"strings"
	"testing"

	"lockstep/internal/controller"
	"lockstep/internal/plan"
	"lockstep/test/wiretest"
)

// Before the first task each broker is contacted once. The tasks of an unreachable broker have no attempt and are not
// retried. The other tasks run.
func TestUnreachableBrokers(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		l.await(4)
		unreachable := func(name string) func(*plan.Cell) {
			return func(c *plan.Cell) {
				c.Broker.Name, c.Broker.Driver = name, "faulty"
				c.Broker.Options, _ = json.Marshal(map[string]string{"fail": "open", "url": "amqp://me:hunter2@127.0.0.1:1"})
			}
		}
		run := aRun(unreachable("one"), unreachable("two"), nil,
			both(unreachable("one"), retrying(2, plan.FailedConnect), func(c *plan.Cell) { c.Workload.Consumers.Prefetch = 7 }))
		run.Repeat = 2
		var lines []string
		w := l.run(run, nil, func(p controller.Progress) {
			if p.Kind == controller.BrokerUnreachable {
				lines = append(lines, p.Detail)
			}
		})
		want := []string{
			"broker one: open session on agent a1: dial amqp://me:***@127.0.0.1:1: connection refused; start the broker, or correct its options in the matrix",
			"broker two: open session on agent a1: dial amqp://me:***@127.0.0.1:1: connection refused; start the broker, or correct its options in the matrix",
		}
		if strings.Join(lines, "\n") != strings.Join(want, "\n") {
			t.Errorf("reported:\n%s\nwant:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
		if got, want := w.kinds(), "accepted unreachable unreachable outcome outcome started outcome outcome "+
			"outcome outcome started outcome outcome end"; got != want {
			t.Errorf("the follower received %q, want %q", got, want)
		}
		for i, o := range w.outcomes() {
			if reachable := i%4 == 2; reachable != (o.Verdict == plan.Valid) || reachable != (o.Failure == "") ||
				len(o.FailedAttempts) > 0 || !reachable && o.Failure != plan.FailedUnreachable {
				t.Errorf("task %d: %s, failure %q, after %v", i, o.Verdict, o.Failure, o.FailedAttempts)
			}
		}
		if w.end.Failed != 6 {
			t.Errorf("ended with %+v, want 6 failed tasks", w.end)
		}
		if open := faultyOpen.Load(); open != 0 {
			t.Errorf("%d sessions were left open", open)
		}
	})
}
