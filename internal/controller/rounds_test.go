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

// adaptiveRun returns a run with adaptive repetitions. The first cell always sends the same number of messages. The
// number of the second cell is that of a Poisson process.
func adaptiveRun(t *testing.T) plan.Run {
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
	run := newRun(alone(100, 5*time.Second), func(c *plan.Cell) {
		noisy(c)
		c.Workload.Publishers.Arrivals = plan.ArrivalsPoisson
	})
	run.Repeat, run.Until = 8, &until
	return run
}

// countRepetitions returns the number of outcomes of each cell. A repeated outcome is an error.
func countRepetitions(t *testing.T, run plan.Run, all []plan.Outcome) (constant, noisy int) {
	t.Helper()
	seen := map[string]bool{}
	for _, o := range all {
		constantCell := o.Cell == run.Cells[0].ID
		if seen[o.Task] || o.Verdict != plan.Valid {
			t.Errorf("outcome of %s: got %s %v, repeated: %v, want valid, false", o.Task, o.Verdict, o.Reasons,
				seen[o.Task])
		}
		seen[o.Task] = true
		if constantCell {
			constant++
		} else {
			noisy++
		}
	}
	return constant, noisy
}

func TestCellsAreRepeatedUntilTheStopRule(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1")
		run := adaptiveRun(t)
		w := l.run(run, nil, nil)
		if constant, noisy := countRepetitions(t, run, w.outcomes()); w.end.Reason != wire.EndDone || constant != 6 ||
			noisy != 8 {
			t.Fatalf("repetitions: got %d of the constant cell, %d of the noisy cell, want 6, 8; end %+v", constant,
				noisy, w.end)
		}
		first, last := w.events[slices.IndexFunc(w.events, isStart)],
			w.events[len(w.events)-1-slices.IndexFunc(reversed(w.events), isStart)]
		if first.N != 1 || first.Of != 16 || !first.AtMost || last.N != 14 || last.Of != 14 {
			t.Errorf("got first task %d of %d (maximum: %v), last %d of %d, want 1 of 16 (true), 14 of 14", first.N,
				first.Of, first.AtMost, last.N, last.Of)
		}
		state, err := l.client.RunState(t.Context(), run.ID)
		if err != nil || state.Tasks != 14 || state.Done != 14 || state.AtMost {
			t.Errorf("state of the run: got %d of %d tasks (maximum: %v), error %v, want 14 of 14 (false)", state.Done,
				state.Tasks, state.AtMost, err)
		}
		record, err := runs.Open(w.root, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		if n := record.Rounds().Tasks(); n != 14 || len(record.DoneTasks()) != 14 ||
			record.Rounds().Missed(run.Cells[1].ID) == "" {
			t.Errorf("record: got %d of %d tasks, reason %q for the noisy cell, want 14 of 14, a reason",
				len(record.DoneTasks()), n, record.Rounds().Missed(run.Cells[1].ID))
		}
		if p, err := controller.Pull(t.Context(), l.client, run.ID, t.TempDir()); err != nil || !p.Complete() {
			t.Errorf("pull: got %+v, error %v, want complete", p, err)
		}
	})
}

func isStart(p controller.Progress) bool { return p.Kind == wire.TaskStarted }

func reversed[T any](all []T) []T {
	all = slices.Clone(all)
	slices.Reverse(all)
	return all
}

// A controller that takes over the run makes the same decisions as the previous one.
func TestTakeoverKeepsTheNumberOfRepetitions(t *testing.T) {
	t.Parallel()
	// the last task of the constant cell before the decision, and the first of the noisy cell after it
	for _, at := range []int{11, 13} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			wiretest.InVirtualTime(t, func(t *testing.T) {
				l := newLocalFleet(t, "a1")
				run := adaptiveRun(t)
				task := run.Tasks()[at-1].ID
				if at == 13 {
					task = run.Tasks()[at].ID
				}
				reports := subscribe(t, l.natsConn(), "lockstep.agent.snapshot.>")
				killed := make(chan struct{})
				go func() {
					defer close(killed)
					awaitMessage(t, reports, func(m *nats.Msg) bool {
						return strings.Contains(string(m.Data),
							`"task":"`+task+`"`)
					})
					l.crashController()
					l.startController()
				}()
				w := l.run(run, nil, nil)
				<-killed
				if constant, noisy := countRepetitions(t, run, w.outcomes()); w.end.Reason != wire.EndDone ||
					constant != 6 ||
					noisy != 8 {
					t.Errorf("repetitions: got %d and %d, want 6 and 8; end %+v, events %s", constant, noisy, w.end,
						w.kinds())
				}
				if !slices.ContainsFunc(w.events,
					func(p controller.Progress) bool { return p.Kind == wire.TakenOver }) {
					t.Errorf("events: got %s, want a takeover", w.kinds())
				}
			})
		})
	}
}

// A run that is resumed on another control plane receives its earlier values, from which the required tasks follow.
func TestResumeKeepsTheNumberOfRepetitions(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		run := adaptiveRun(t)
		w := newLocalFleet(t, "a1").run(run, nil, nil)
		for _, task := range run.Tasks()[13:] { // two repetitions of the noisy cell remain
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
			t.Fatalf("got %d tasks with outcomes, %d numbers, %d planned tasks, error %v, want 12, some, 14", len(done),
				len(numbers), record.Rounds().Tasks(), err)
		}
		l := newLocalFleet(t, "b1")
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
			t.Errorf("executed tasks: got %v, want %v; end %+v, error %v", tasks, want, end, err)
		}
		if again, err := runs.Open(w.root, run.ID); err != nil || again.Rounds().Tasks() != 14 ||
			len(again.DoneTasks()) != 14 {
			t.Errorf("record of the resumed run: got an incomplete record, error %v", err)
		}
	})
}
