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

// stuck is the driver counted, whose first teardowns fail, as many as the option "stuck" says.
type stuck struct{ drivers.Driver }

func init() {
	loopback, err := drivers.Lookup("loopback")
	if err != nil {
		panic(err)
	}
	drivers.Register(stuck{counted{loopback}})
}

func (d stuck) Info() drivers.Info {
	info := d.Driver.Info()
	info.Name = "stuck"
	return info
}

func (d stuck) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	var o struct{ Name string }
	if err := json.Unmarshal(options, &o); err != nil {
		return nil, err
	}
	failures := &failuresOnce
	if strings.HasSuffix(o.Name, "-1") {
		failures = &failuresAlways
	}
	s, err := d.Driver.Open(ctx, options, env)
	return stuckSession{s, failures}, err
}

// The failed teardowns that are left to the brokers of the only run.
var failuresOnce, failuresAlways atomic.Int64

type stuckSession struct {
	drivers.Session
	failures *atomic.Int64
}

func (s stuckSession) Teardown(ctx context.Context, t drivers.Topology) error {
	if s.failures.Add(-1) >= 0 {
		return errors.New("the broker is busy")
	}
	return s.Session.Teardown(ctx, t)
}

// Another agent tears down if the first one fails. If several fail, the outcome names what may be left.
func TestAnotherAgentTearsDown(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		failuresOnce.Store(1)
		failuresAlways.Store(1000)
		l := newLab(t, "a1", "a2", "a3", "a4")
		on := func(c *plan.Cell) { c.Broker.Driver = "stuck" }
		run := aRun(on, on)
		w := l.run(run, nil, nil)
		all := w.outcomes()
		if len(all) != 2 || w.end.Failed != 0 {
			t.Fatalf("%d outcomes, end %+v", len(all), w.end)
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
			t.Errorf("one failed teardown: it failed on %s, something is left: %v", agents, left)
		}
		if agents, left := failed(all[1]); agents != "a1 a2 a3 " || !left {
			t.Errorf("each teardown fails: it failed on %s, something is left: %v", agents, left)
		}
		if names := stands(run); len(names) != 1 {
			t.Errorf("%q is left at the brokers, want only the topology of the second task", names)
		}
	})
}
