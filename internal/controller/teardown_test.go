package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/test/wiretest"
)

// failingTeardown is countingDriver with failing teardowns: one for the first broker of a run, all for the second.
type failingTeardown struct{ drivers.Driver }

func init() {
	loopback, err := drivers.Lookup("loopback")
	if err != nil {
		panic(err)
	}
	drivers.Register(failingTeardown{countingDriver{loopback}})
}

func (d failingTeardown) Info() drivers.Info {
	info := d.Driver.Info()
	info.Name = "stuck"
	return info
}

func (d failingTeardown) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	var o struct{ Name string }
	if err := json.Unmarshal(options, &o); err != nil {
		return nil, err
	}
	failures := &failuresOnce
	if strings.HasSuffix(o.Name, "-1") {
		failures = &failuresAlways
	}
	s, err := d.Driver.Open(ctx, options, env)
	return failingTeardownSession{s, failures}, err
}

// The numbers of teardowns that still fail, for the first and the second broker.
var failuresOnce, failuresAlways atomic.Int64

type failingTeardownSession struct {
	drivers.Session
	failures *atomic.Int64
}

func (s failingTeardownSession) Teardown(ctx context.Context, t drivers.Topology) error {
	if s.failures.Add(-1) >= 0 {
		return errors.New("the broker is busy")
	}
	return s.Session.Teardown(ctx, t)
}

// If the teardown of the first agent fails, another agent tears down. If several fail, the outcome names the objects
// that may remain.
func TestAnotherAgentTearsDown(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		failuresOnce.Store(1)
		failuresAlways.Store(1000)
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		on := func(c *plan.Cell) { c.Broker.Driver = "stuck" }
		run := newRun(on, on)
		w := l.run(run, nil, nil)
		all := w.outcomes()
		if len(all) != 2 || w.end.Failed != 0 {
			t.Fatalf("got %d outcomes, end %+v, want 2, 0 failed", len(all), w.end)
		}
		failed := func(o plan.Outcome) (agents string, left bool) {
			for _, e := range o.Events {
				if strings.Contains(e.Detail, "the broker is busy") {
					agents += e.Agent + " "
				}
				left = left || strings.Contains(e.Detail, "may be left on the broker")
			}
			return agents, left
		}
		if agents, left := failed(all[0]); agents != "a1 " || left {
			t.Errorf("one failing teardown: got failures on agents %q, leftovers reported: %v, want \"a1 \", false",
				agents, left)
		}
		if agents, left := failed(all[1]); agents != "a1 a2 a3 " || !left {
			t.Errorf("all teardowns fail: got failures on agents %q, leftovers reported: %v, want \"a1 a2 a3 \", true",
				agents, left)
		}
		if names := declaredTopologies(run); len(names) != 1 {
			t.Errorf("topologies at the brokers: got %q, want only that of the second task", names)
		}
	})
}
