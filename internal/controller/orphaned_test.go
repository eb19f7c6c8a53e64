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

// counted is the loopback driver with a list of declared topologies.
type counted struct{ drivers.Driver }

var declared sync.Map // names of topologies

func init() {
	loopback, err := drivers.Lookup("loopback")
	if err != nil {
		panic(err)
	}
	drivers.Register(counted{loopback})
}

func (c counted) Info() drivers.Info {
	info := c.Driver.Info()
	info.Name = "counted"
	return info
}

func (c counted) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	s, err := c.Driver.Open(ctx, options, env)
	return countedSession{s}, err
}

type countedSession struct{ drivers.Session }

func (s countedSession) Setup(ctx context.Context, t drivers.Topology) error {
	declared.Store(t.Name, true)
	return s.Session.Setup(ctx, t)
}

func (s countedSession) Teardown(ctx context.Context, t drivers.Topology) error {
	err := s.Session.Teardown(ctx, t)
	if err == nil {
		declared.Delete(t.Name)
	}
	return err
}

// stands returns the topologies that are declared for a run.
func stands(run plan.Run) (names []string) {
	declared.Range(func(name, _ any) bool {
		if strings.Contains(name.(string), run.ID) {
			names = append(names, name.(string))
		}
		return true
	})
	return names
}

// The next leader finds no such run in the queue. The agents would work on it until its deadline, in half a minute.
func TestAgentsWhoseRunIsGoneAreFreeInSeconds(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		run := aRun(func(c *plan.Cell) {
			long(c)
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
		until(t, 20*time.Second, func() bool { return busy() == 4 && len(stands(run)) == 1 }, "the task did not begin")
		l.crash()
		l.unqueue(run.ID)
		l.control()
		until(t, 40*time.Second, func() bool { return busy() == 0 },
			"agents still work on an attempt that no controller leads")
		if left := stands(run); left != nil {
			t.Errorf("%q is left at the broker", left)
		}
		if w := l.run(aRun(nil), nil, nil); w.end.Failed != 0 || w.end.Ran != 1 {
			t.Errorf("the next run: %+v", w.end)
		}
	})
}

func until(t *testing.T, limit time.Duration, is func() bool, otherwise string) {
	t.Helper()
	for deadline := time.Now().Add(limit); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}

// A process that replaces a killed one at once is another agent of the task: the part of the killed one is lost, once.
func TestAnAgentThatIsStartedAgainAtOnceGetsIn(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		var old *labAgent
		var again, lost int
		w := l.run(aRun(long, nil), nil, func(p controller.Progress) {
			switch {
			case p.Kind == liveMetrics && old == nil:
				old = l.agents["a2"]
				l.kill("a2")
				l.start("a2")
			case p.Kind == wire.AgentLost:
				lost++
			}
		})
		select {
		case <-old.done:
		case <-time.After(30 * time.Second):
			t.Error("the former process did not end")
		}
		all := w.outcomes()
		if len(all) != 2 || w.end.Reason != wire.EndDone || lost != 1 {
			t.Fatalf("%d outcomes, %d agents lost, %+v; want 2 and 1", len(all), lost, w.end)
		}
		first := firstAttempt(t, w, all[0].Task)
		for _, a := range first.Agents {
			if a.Agent == "a2" {
				again++
			}
			if a.Lost != (a.Agent == "a2") {
				t.Errorf("agent %s of the first task: lost %v", a.Agent, a.Lost)
			}
		}
		if again != 1 || len(first.Agents) != 4 {
			t.Errorf("the first attempt counts a2 %d times, and %d agents", again, len(first.Agents))
		}
		if o := all[0]; o.Verdict != plan.Valid || kindsOf(o.FailedAttempts) != "agent-lost" {
			t.Errorf("the first task is %s %v after %+v: want it repeated with the new process", o.Verdict, o.Reasons,
				o.FailedAttempts)
		}
		if o := all[1]; o.Verdict != plan.Valid || o.Agents[1].Agent != "a2" || o.Agents[1].Lost {
			t.Errorf("the next task is %s %v with %+v: want it with the new process", o.Verdict, o.Reasons, o.Agents)
		}
	})
}

// Two processes with the same name replace each other. The rejected one ends, and is listed with the reason.
func TestARefusedAgentIsListedWithItsReason(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1")
		first := l.await(1)[0].Instance
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
				t.Errorf("the refused process ended with %v", err)
			}
		case <-ctx.Done():
			t.Fatal("neither was refused")
		}
		agents := l.await(2)
		if agents[0].Refused != "" || agents[0].Instance == first {
			t.Errorf("the one that is taken is listed as %+v", agents[0])
		}
		if r := agents[1]; r.Agent != "a1" || !strings.Contains(r.Refused, "duplicate agent name") || r.Host == "" {
			t.Errorf("the refused one is listed as %+v", r)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the other one ended with %v", err)
		}
		if w := fmt.Sprint(agents[1].Labels); w != "map[]" {
			t.Errorf("labels %s of a refused agent are kept", w)
		}
	})
}
