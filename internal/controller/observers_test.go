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

// observer starts an agent that observes this process, which contains the loopback broker.
func (l *lab) observer(name string) {
	l.startWith(name, func(cfg *agent.Config) {
		cfg.Observes = map[string]plan.Processes{"loopback": {{PID: os.Getpid()}}}
	})
}

// pair makes a cell of one publisher and one consumer.
func pair(measure time.Duration) func(*plan.Cell) {
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

func TestAnObserverTellsOfTheBroker(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a", "b")
		l.observer("o")
		l.await(3)
		// the second one at once: an observer needs no pause
		for _, o := range l.run(aRun(pair(2*time.Second), pair(2*time.Second)), nil, nil).outcomes() {
			if o.Verdict != plan.Valid || notObserved(o) || len(o.Agents) != 2 {
				t.Errorf("%s %v, warnings %q, agents %+v", o.Verdict, o.Reasons, o.Warnings, o.Agents)
			}
			for _, name := range []string{"broker.cpu.mean", "broker.rss.mean", "broker.rss.p50", "broker.rss.max"} {
				if v := o.Values[name]; v.NA != "" || v.Number <= 0 {
					t.Errorf("%s is %+v, though an observer looks", name, v)
				}
			}
			for _, name := range []string{"broker.disk.read.mean", "broker.disk.write.max", "broker.net.in.mean",
				"broker.net.out.p50"} {
				if v := o.Values[name]; v.NA != "" || v.Number < 0 {
					t.Errorf("%s is %+v: a process may see its own", name, v)
				}
			}
		}
	})
}

func TestALostObserverIsARemark(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a", "b")
		l.observer("o")
		l.await(3)
		killed := false
		w := l.run(aRun(pair(3*time.Second)), nil, func(p controller.Progress) {
			if p.Kind == liveMetrics && sinceBegin(p) > time.Second && !killed {
				killed = true
				l.kill("o")
			}
		})
		o := w.outcomes()[0]
		if o.Verdict != plan.Valid || !notObserved(o) {
			t.Errorf("%s %v, warnings %q: want a valid task and a remark", o.Verdict, o.Reasons, o.Warnings)
		}
		l.await(2)
		o = l.run(aRun(pair(time.Second)), nil, nil).outcomes()[0]
		if v := o.Values["broker.rss.max"]; o.Verdict != plan.Valid || !notObserved(o) || v.NA == "" {
			t.Errorf("%s %v, warnings %q, rss %+v: want a valid task without the metrics of an observer that is away",
				o.Verdict, o.Reasons, o.Warnings, v)
		}
	})
}
