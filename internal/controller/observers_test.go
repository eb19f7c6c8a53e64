package controller_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/agent"
	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/test/wiretest"
)

// startObserver starts an agent that observes this process, which contains the loopback broker.
func (l *localFleet) startObserver(name string) {
	l.startAgentWith(name, func(cfg *agent.Config) {
		cfg.Observes = map[string]plan.Processes{"loopback": {{PID: os.Getpid()}}}
	})
}

// pairCell changes a cell to have one publisher and one consumer.
func pairCell(measure time.Duration) func(*plan.Cell) {
	return func(c *plan.Cell) {
		w := &c.Workload
		w.Publishers.Nodes, w.Publishers.Count, w.Publishers.Rate, w.Consumers.Nodes = 1, 0, 500, 1
		w.Measure = plan.Duration(measure)
	}
}

func notObserved(o plan.Outcome) bool {
	return slices.ContainsFunc(o.Warnings, func(w string) bool {
		return strings.HasPrefix(w,
			"not observed: broker loop by agent o: ")
	})
}

func TestObserversReportBrokerMetrics(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a", "b")
		l.startObserver("o")
		l.awaitAgents(3)
		// the second cell follows at once: an observer needs no pause
		for _, o := range l.run(newRun(pairCell(2*time.Second), pairCell(2*time.Second)), nil, nil).outcomes() {
			if o.Verdict != plan.Valid || notObserved(o) || len(o.Agents) != 2 {
				t.Errorf("got %s %v, warnings %q, agents %+v, want valid, observed, 2 agents", o.Verdict, o.Reasons,
					o.Warnings, o.Agents)
			}
			for _, name := range []string{"broker.rss.mean", "broker.rss.p50", "broker.rss.max"} {
				if v := o.Values[name]; v.NA != "" || v.Number <= 0 {
					t.Errorf("%s with an observer: got %+v, want a positive number", name, v)
				}
			}
			// in virtual time, the process may use less CPU than the kernel counts
			for _, name := range []string{"broker.cpu.mean", "broker.disk.read.mean", "broker.disk.write.max",
				"broker.net.in.mean", "broker.net.out.p50"} {
				if v := o.Values[name]; v.NA != "" || v.Number < 0 {
					t.Errorf("%s of this process: got %+v, want a number", name, v)
				}
			}
		}
	})
}

func TestLostObserverIsAWarning(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a", "b")
		l.startObserver("o")
		l.awaitAgents(3)
		killed := false
		w := l.run(newRun(pairCell(3*time.Second)), nil, func(p controller.Progress) {
			if p.Kind == liveMetrics && sinceBegin(p) > time.Second && !killed {
				killed = true
				l.killAgent("o")
			}
		})
		o := w.outcomes()[0]
		if o.Verdict != plan.Valid || !notObserved(o) {
			t.Errorf("lost observer: got %s %v, warnings %q, want valid and a warning", o.Verdict, o.Reasons,
				o.Warnings)
		}
		l.awaitAgents(2)
		o = l.run(newRun(pairCell(time.Second)), nil, nil).outcomes()[0]
		if v := o.Values["broker.rss.max"]; o.Verdict != plan.Valid || !notObserved(o) || v.NA == "" {
			t.Errorf("missing observer: got %s %v, warnings %q, rss %+v, want valid, a warning, no rss",
				o.Verdict, o.Reasons, o.Warnings, v)
		}
	})
}
