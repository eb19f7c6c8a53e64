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
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/test/wiretest"
)

// countingDriver is the loopback driver with a list of declared topologies.
type countingDriver struct{ drivers.Driver }

var declared sync.Map // names of topologies

func init() {
	loopback, err := drivers.Lookup("loopback")
	if err != nil {
		panic(err)
	}
	drivers.Register(countingDriver{loopback})
}

func (c countingDriver) Info() drivers.Info {
	info := c.Driver.Info()
	info.Name = "counted"
	return info
}

func (c countingDriver) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	s, err := c.Driver.Open(ctx, options, env)
	return countingSession{s}, err
}

type countingSession struct{ drivers.Session }

func (s countingSession) Setup(ctx context.Context, t drivers.Topology) error {
	declared.Store(t.Name, true)
	return s.Session.Setup(ctx, t)
}

func (s countingSession) Teardown(ctx context.Context, t drivers.Topology) error {
	err := s.Session.Teardown(ctx, t)
	if err == nil {
		declared.Delete(t.Name)
	}
	return err
}

// declaredTopologies returns the topologies that are declared for a run.
func declaredTopologies(run plan.Run) (names []string) {
	declared.Range(func(name, _ any) bool {
		if strings.Contains(name.(string), run.ID) {
			names = append(names, name.(string))
		}
		return true
	})
	return names
}

// The next leader finds no such run in the queue. Without its response, the agents would continue the attempt until its
// deadline.
func TestAgentsOfARemovedRunBecomeIdle(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		run := newRun(func(c *plan.Cell) {
			longCell(c)
			c.Broker.Driver = "counted"
			c.Workload.Measure = plan.Duration(60 * time.Second)
		})
		if err := l.client.Submit(t.Context(), wire.Submission{Run: run}); err != nil {
			t.Fatal(err)
		}
		busy := func() (n int) {
			agents, err := l.client.Agents(t.Context())
			if err != nil || len(agents) != 4 { // no controller leads yet
				return -1
			}
			for _, a := range agents {
				if a.Attempt.Run == run.ID {
					n++
				}
			}
			return n
		}
		waitFor(t, 20*time.Second, func() bool { return busy() == 4 && len(declaredTopologies(run)) == 1 },
			"the task did not start on 4 agents")
		l.crashController()
		l.removeFromQueue(run.ID)
		l.startController()
		waitFor(t, 40*time.Second, func() bool { return busy() == 0 },
			"agents continue an attempt that no controller leads")
		if left := declaredTopologies(run); left != nil {
			t.Errorf("topologies at the broker: got %q, want none", left)
		}
		if w := l.run(newRun(nil), nil, nil); w.end.Failed != 0 || w.end.Ran != 1 {
			t.Errorf("end of the next run: got %+v, want 1 task, 0 failed", w.end)
		}
	})
}

func waitFor(t *testing.T, limit time.Duration, reached func() bool, failure string) {
	t.Helper()
	for deadline := time.Now().Add(limit); !reached(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(failure)
		}
	}
}

// A process that replaces a killed one at once is another agent of the task: the part of the killed one is lost, once.
func TestRestartedAgentJoinsTheRun(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		var old *localAgent
		var again, lost int
		w := l.run(newRun(longCell, nil), nil, func(p controller.Progress) {
			switch {
			case p.Kind == liveMetrics && old == nil:
				old = l.agents["a2"]
				l.killAgent("a2")
				l.startAgent("a2")
			case p.Kind == wire.AgentLost:
				lost++
			}
		})
		select {
		case <-old.done:
		case <-time.After(30 * time.Second):
			t.Error("the replaced process did not end")
		}
		all := w.outcomes()
		if len(all) != 2 || w.end.Reason != wire.EndDone || lost != 1 {
			t.Fatalf("got %d outcomes, %d lost agents, end %+v, want 2, 1", len(all), lost, w.end)
		}
		first := firstAttempt(t, w, all[0].Task)
		for _, a := range first.Agents {
			if a.Agent == "a2" {
				again++
			}
			if a.Lost != (a.Agent == "a2") {
				t.Errorf("agent %s of the first attempt: got lost %v, want %v", a.Agent, a.Lost, a.Agent == "a2")
			}
		}
		if again != 1 || len(first.Agents) != 4 {
			t.Errorf("first attempt: got a2 %d times, %d agents, want 1, 4", again, len(first.Agents))
		}
		if o := all[0]; o.Verdict != plan.Valid || failureKinds(o.FailedAttempts) != "agent-lost" {
			t.Errorf("first task: got %s %v, failed attempts %+v, want it repeated with the new process", o.Verdict,
				o.Reasons, o.FailedAttempts)
		}
		if o := all[1]; o.Verdict != plan.Valid || o.Agents[1].Agent != "a2" || o.Agents[1].Lost {
			t.Errorf("next task: got %s %v, agents %+v, want valid with the new process", o.Verdict, o.Reasons,
				o.Agents)
		}
	})
}

// Of two processes with the same name, the controller rejects the older one. It ends, and is listed with the reason.
func TestARefusedAgentIsListedWithItsReason(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1")
		first := l.awaitAgents(1)[0].Instance
		conn := l.connect()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		ended := make(chan error, 2)
		go func() {
			ended <- agent.Serve(ctx, wire.NewAgent(conn), agent.Config{Name: "a1", Dir: l.dir, Log: l.log()})
		}()
		a := l.agents["a1"]
		select {
		case err := <-a.done: // the replaced one sends heartbeats again
			a.done <- nil
			if err == nil || !strings.Contains(err.Error(), "duplicate agent name") {
				t.Errorf("Serve of the rejected process: got error %v, want \"duplicate agent name\"", err)
			}
		case <-ctx.Done():
			t.Fatal("no process was rejected")
		}
		agents := l.awaitAgents(2)
		if agents[0].Refused != "" || agents[0].Instance == first {
			t.Errorf("accepted agent in the list: got %+v, want the new instance", agents[0])
		}
		if r := agents[1]; r.Agent != "a1" || !strings.Contains(r.Refused, "duplicate agent name") || r.Host == "" {
			t.Errorf("rejected agent in the list: got %+v, want a1 with the reason and the host", r)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve of the accepted process: got error %v, want nil", err)
		}
		if w := fmt.Sprint(agents[1].Labels); w != "map[]" {
			t.Errorf("labels of the rejected agent: got %s, want none", w)
		}
	})
}
