package controller_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/test/wiretest"
)

const unreachableURL = "amqp://me:hunter2@127.0.0.1:10"

// Before the first task each broker is contacted once. The tasks of an unreachable broker have no attempt and are not
// retried. The other tasks run. One line names brokers that have the same address.
func TestUnreachableBrokers(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		l.awaitAgents(4)
		broken := func(name, fail, port string) func(*plan.Cell) {
			return func(c *plan.Cell) {
				c.Broker.Name, c.Broker.Driver = name, "unreachable"
				c.Broker.Options, _ = json.Marshal(map[string]string{"fail": fail,
					"url": unreachableURL + port})
			}
		}
		reached := unreachableAt(unreachableURL + "3")
		prefetch := func(c *plan.Cell) { c.Workload.Consumers.Prefetch = 7 }
		run := newRun(broken("one", "open", "1"), broken("two", "open", "2"), nil, broken("reached", "setup", "3"),
			allOf(broken("one", "open", "1"), withRetry(2, plan.FailedConnect), prefetch), broken("alias", "open", "1"))
		run.Repeat = 2
		var lines []string
		w := l.run(run, nil, func(p controller.Progress) {
			if p.Kind == wire.BrokerUnreachable {
				lines = append(lines, p.Detail)
			}
		})
		const fix = ": connection refused; start the broker, or correct its options in the matrix"
		want := "broker alias, one: open session on agent a1: dial amqp://me:***@127.0.0.1:101" + fix + "\n" +
			"broker two: open session on agent a1: dial amqp://me:***@127.0.0.1:102" + fix
		if got := strings.Join(lines, "\n"); got != want {
			t.Errorf("events of unreachable brokers: got\n%s\nwant\n%s", got, want)
		}
		const round = " outcome outcome task outcome task outcome outcome outcome"
		if got, want := w.kinds(), "accepted unreachable unreachable"+round+round+" end"; got != want {
			t.Errorf("events: got %q, want %q", got, want)
		}
		failures := []plan.FailureKind{plan.FailedUnreachable, plan.FailedUnreachable, "", plan.FailedConnect,
			plan.FailedUnreachable, plan.FailedUnreachable}
		for i, o := range w.outcomes() {
			want := failures[i%len(failures)]
			if (o.Verdict == plan.Valid) != (want == "") || o.Failure != want || len(o.FailedAttempts) > 0 {
				t.Errorf("task %d: got verdict %s, failure %q, failed attempts %v, want failure %q, no failed attempts",
					i, o.Verdict, o.Failure, o.FailedAttempts, want)
			}
		}
		if w.end.Failed != 10 {
			t.Errorf("end of the run: got %+v, want 10 failed tasks", w.end)
		}
		// the contact of "reached", and the four agents of each of its two tasks
		if opened, open := reached.opened.Load(), reached.open.Load(); opened != 9 || open != 0 {
			t.Errorf("got %d opened sessions, %d still open, want 9, 0", opened, open)
		}
	})
}

// An agent that leaves during the contact has no result: another agent makes the contact.
func TestAgentLeavesDuringContact(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4", "a5")
		l.awaitAgents(5)
		slow := func(c *plan.Cell) { c.Broker.Driver = "slow-to-open" }
		left := make(chan struct{})
		go func() {
			defer close(left)
			<-slowOpening
			l.killAgent("a1")
		}()
		w := l.run(newRun(slow), nil, nil)
		<-left
		if all := w.outcomes(); len(all) != 1 || all[0].Verdict != plan.Valid || all[0].Agents[0].Agent != "a2" {
			t.Errorf("got events %s, outcomes %+v, want one valid outcome with a2 as the first agent", w.kinds(), all)
		}
	})
}

// slowOpening receives a value when the driver slow-to-open opens its first session.
var (
	slowOpening = make(chan struct{}, 1)
	slowOpened  atomic.Bool
)

type slowToOpen struct{ drivers.Driver }

func init() {
	loopback, err := drivers.Lookup("loopback")
	if err != nil {
		panic(err)
	}
	drivers.Register(slowToOpen{loopback})
}

func (d slowToOpen) Info() drivers.Info {
	info := d.Driver.Info()
	info.Name = "slow-to-open"
	return info
}

func (d slowToOpen) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	if slowOpened.Swap(true) {
		return d.Driver.Open(ctx, options, env)
	}
	slowOpening <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}
