package controller_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/sampling"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// untilKnown returns a run with adaptive repetitions. One cell always sends the same number of messages, and the number
// of the other one is that of a Poisson process.
func untilKnown(t *testing.T) plan.Run {
	t.Helper()
	until, err := rules.ParseStopRule("ci(sent) < 0.1%", nil)
	if err != nil {
		t.Fatal(err)
	}
	alone := func(count uint64, measure time.Duration) func(*plan.Cell) {
		return func(c *plan.Cell) {
			p := &c.Workload.Publishers
			p.Nodes, p.Count, p.MaxInFlight, c.Workload.Consumers.Nodes, c.Workload.Measure = 1, count, 10, 0,
				plan.Duration(measure)
		}
	}
	noisy := alone(0, 200*time.Millisecond)
	run := aRun(alone(100, 5*time.Second), func(c *plan.Cell) {
		noisy(c)
		c.Workload.Publishers.Arrivals = plan.ArrivalsPoisson
	})
	run.Repeat, run.Until = 8, &until
	return run
}

// repetitions returns the number of outcomes of each cell. A repeated outcome is an error.
func repetitions(t *testing.T, run plan.Run, all []plan.Outcome) (quiet, noisy int) {
	t.Helper()
	seen := map[string]bool{}
	for _, o := range all {
		quietCell := o.Cell == run.Cells[0].ID
		if seen[o.Task] || o.Verdict != plan.Valid {
			t.Errorf("outcome of %s: %s %v, seen before: %v", o.Task, o.Verdict, o.Reasons, seen[o.Task])
		}
		seen[o.Task] = true
		if quietCell {
			quiet++
		} else {
			noisy++
		}
	}
	return quiet, noisy
}

func TestACellIsRepeatedUntilItIsKnown(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1")
		run := untilKnown(t)
		w := l.run(run, nil, nil)
		if quiet, noisy := repetitions(t, run, w.outcomes()); w.end.Reason != wire.EndDone || quiet != 6 || noisy != 8 {
			t.Fatalf("%+v: the quiet cell was measured %d times, the noisy one %d: want 6 and 8", w.end, quiet, noisy)
		}
		first, last := w.events[slices.IndexFunc(w.events, started)],
			w.events[len(w.events)-1-slices.IndexFunc(reversed(w.events), started)]
		if first.N != 1 || first.Of != 16 || !first.AtMost || last.N != 14 || last.Of != 14 {
			t.Errorf("the first task is %d of %d (maximum: %v), the last %d of %d", first.N, first.Of, first.AtMost,
				last.N, last.Of)
		}
		state, err := l.client.RunState(t.Context(), run.ID)
		if err != nil || state.Tasks != 14 || state.Done != 14 || state.AtMost {
			t.Errorf("the state has %d of %d tasks (maximum: %v), %v", state.Done, state.Tasks, state.AtMost, err)
		}
		record, err := runs.Open(w.root, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		if n := record.Rounds().Tasks(); n != 14 || len(record.DoneTasks()) != 14 ||
			record.Rounds().Missed(run.Cells[1].ID) == "" {
			t.Errorf("its record has %d of %d tasks, and for the noisy cell %q", len(record.DoneTasks()), n,
				record.Rounds().Missed(run.Cells[1].ID))
		}
		if p, err := controller.Pull(t.Context(), l.client, run.ID, t.TempDir()); err != nil || !p.Complete() {
			t.Errorf("a copy of it: %+v, %v; want it to be complete", p, err)
		}
	})
}

func started(p controller.Progress) bool { return p.Kind == wire.TaskStarted }

func reversed[T any](all []T) []T {
	all = slices.Clone(all)
	slices.Reverse(all)
	return all
}

// A controller that takes over the run makes the same decisions as the previous one.
func TestWhoTakesOverRepeatsAsOften(t *testing.T) {
	t.Parallel()
	// the last task of the quiet cell before the decision, and the first of the noisy cell after it
	for _, at := range []int{11, 13} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			wiretest.InVirtualTime(t, func(t *testing.T) {
				l := newLab(t, "a1")
				run := untilKnown(t)
				task := run.Tasks()[at-1].ID
				if at == 13 {
					task = run.Tasks()[at].ID
				}
				reports := messages(t, l.foreigner(), "lockstep.agent.snapshot.>")
				killed := make(chan struct{})
				go func() {
					defer close(killed)
					next(t, reports, func(m *nats.Msg) bool {
						return strings.Contains(string(m.Data),
							`"task":"`+task+`"`)
					})
					l.crash()
					l.control()
				}()
				w := l.run(run, nil, nil)
				<-killed
				if quiet, noisy := repetitions(t, run, w.outcomes()); w.end.Reason != wire.EndDone || quiet != 6 ||
					noisy != 8 {
					t.Errorf("%+v: measured %d and %d times, want 6 and 8; %s", w.end, quiet, noisy, w.kinds())
				}
				if !slices.ContainsFunc(w.events,
					func(p controller.Progress) bool { return p.Kind == wire.TakenOver }) {
					t.Errorf("no takeover: %s", w.kinds())
				}
			})
		})
	}
}

// A run that is resumed on another control plane receives its earlier values, from which the required tasks follow.
func TestAResumedRunRepeatsAsOften(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		run := untilKnown(t)
		w := newLab(t, "a1").run(run, nil, nil)
		for _, task := range run.Tasks()[13:] { // the noisy cell has two to go
			if err := os.RemoveAll(filepath.Join(w.root, run.ID, "tasks", task.ID)); err != nil {
				t.Fatal(err)
			}
		}
		record, err := runs.Open(w.root, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		outcomes, err := record.Outcomes()
		numbers := sampling.Numbers(record.Plan(), outcomes)
		if done := record.DoneTasks(); err != nil || len(done) != 12 || record.Rounds().Tasks() != 14 ||
			!record.Rounds().Open() {
			t.Fatalf("%d tasks are done, with %d numbers, of %d; %v", len(done), len(numbers), record.Rounds().Tasks(),
				err)
		}
		l := newLab(t, "b1")
		if err := l.client.Submit(t.Context(), wire.Submission{Run: run, Done: record.DoneTasks(),
			Numbers: numbers}); err != nil {
			t.Fatal(err)
		}
		var tasks []string
		end, err := controller.Record(t.Context(), l.client, run.ID, w.root, func(p controller.Progress) {
			if p.Kind == controller.TaskEnded {
				tasks = append(tasks, p.Task.ID)
			}
		}, nil)
		if want := []string{run.Tasks()[13].ID, run.Tasks()[15].ID}; err != nil || end.Reason != wire.EndDone ||
			!slices.Equal(tasks, want) {
			t.Errorf("%+v, %v: it ran %v, want %v", end, err, tasks, want)
		}
		if again, err := runs.Open(w.root, run.ID); err != nil || again.Rounds().Tasks() != 14 ||
			len(again.DoneTasks()) != 14 {
			t.Errorf("the record is not complete: %v", err)
		}
	})
}
