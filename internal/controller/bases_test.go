package controller_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// The run of a schedule uses the baseline of the control plane. The result of its rule is in the schedule's history and
// in the record.
func TestRulesOfSchedulesHaveTheBaselineOfTheControlPlane(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		copies := t.TempDir()
		l := newScheduleFleet(t, "a1", "a2")
		l.cancelController()
		l.controllers.Wait()
		l.config.Copies = copies
		l.startController()
		l.awaitAgents(2)
		l.addSchedule("nightly", func(d *schedule.Definition) {
			rule := "axis: _\n\trequire: \"publish.rate no worse than baseline by 99.9% at 80%\""
			d.Matrix.Text = strings.NewReplacer(`, "confirm-each"`, "", "axis: _", rule).Replace(tiny) + "repeat: 4\n"
		})
		l.clock.advance(time.Hour)
		first := l.awaitSchedule("nightly", "the first run", hasEntries(1)).History[0]
		if text := strings.Join(first.Problems, "\n"); first.State != schedule.Done || len(first.Problems) != 1 ||
			!strings.Contains(text, `inconclusive: mode=confirm-window: publish.rate no worse`) ||
			!strings.Contains(text,
				`there is no baseline "tiny" on the control plane (list those of a folder with ctl history baseline list --context local --runs DIR): ctl history baseline set RUN`) {
			t.Fatalf("without a baseline: got %+v, want done with one inconclusive rule", first)
		}
		l.awaitState(first.Run, func(s wire.RunState) bool { return s.Copied })
		if _, err := l.client.SetBaseline(t.Context(), wire.BaselineQuery{Run: first.Run, By: "me@host"}); err != nil {
			t.Fatal(err)
		}
		var last schedule.Entry
		for n := 2; n <= 6; n++ {
			l.clock.advance(time.Hour)
			last = l.awaitSchedule("nightly", fmt.Sprintf("run %d", n), hasEntries(n)).History[n-1]
			want := fmt.Sprintf("the run-to-run spread is unknown: %d of 5 earlier runs", n-1)
			if text := strings.Join(last.Problems, "\n"); last.State != schedule.Done ||
				(n < 6) != strings.Contains(text, want) || n == 6 && text != "" {
				t.Errorf("run %d: got %+v, want done, and %q only before run 6", n, last, want)
			}
			l.awaitState(last.Run, func(s wire.RunState) bool { return s.Copied })
		}
		record, err := runs.Open(copies, last.Run)
		if err != nil {
			t.Fatal(err)
		}
		outcomes, err := record.Outcomes()
		if err != nil {
			t.Fatal(err)
		}
		base := record.Plan().BaseOf("tiny")
		if base.Run != first.Run || len(base.Cells) != 1 || len(base.Cells[0].Repetitions) != 4 ||
			base.Cells[0].Repetitions[0]["publish.rate"].Number == 0 ||
			base.Cells[0].Spreads["publish.rate"].Runs != 5 {
			t.Errorf("baseline in the plan: got %+v, want run %s with one cell, 4 repetitions and a spread of 5 runs",
				base, first.Run)
		}
		for i := range outcomes { // simulate a slower run
			v := outcomes[i].Values["publish.rate"]
			v.Number /= 1e6
			outcomes[i].Values["publish.rate"] = v
		}
		if all := report.Rulings(record.Plan(), outcomes); report.Failed(all)[report.Violated] != 1 ||
			!strings.Contains(all[0].Why, "-100 % against run "+first.Run) {
			t.Errorf("rulings of a slower run: got %v, want one violated", all)
		}
	})
}

// runWithBaselineRule returns a run whose rule compares its only cell with a baseline. All these runs have the same
// matrix.
func runWithBaselineRule() plan.Run {
	return newRun(func(c *plan.Cell) {
		c.Require = []plan.Rule{{Text: "lost no worse than baseline by 5%"}} // a rate may have flags on a busy machine
		c.Workload.Publishers.Count, c.Workload.Publishers.Rate = 100, 200
	})
}

// runWithRule executes a run and returns its plan and its only ruling.
func (l *localFleet) runWithRule(run plan.Run) (plan.Run, report.Ruling) {
	l.t.Helper()
	w := l.run(run, nil, nil)
	record, err := runs.Open(w.root, w.id)
	if err != nil {
		l.t.Fatal(err)
	}
	all := report.Rulings(record.Plan(), w.outcomes())
	if w.end.Failed > 0 || len(all) != 1 {
		l.t.Fatalf("run %s: got end %+v, rulings %v, want no failed task, one ruling", w.id, w.end, all)
	}
	return record.Plan(), all[0]
}

// deleteRecords deletes the records of runs from the control plane, as a leader does to free space.
func (l *localFleet) deleteRecords(runs ...string) {
	l.t.Helper()
	js, err := jetstream.New(l.natsConn())
	if err != nil {
		l.t.Fatal(err)
	}
	for _, run := range runs {
		for _, stream := range []string{"LOCKSTEP_SNAPSHOTS_", "LOCKSTEP_EVENTS_"} {
			if err := js.DeleteStream(l.t.Context(), stream+run); err != nil &&
				!errors.Is(err, jetstream.ErrStreamNotFound) {
				l.t.Fatal(err)
			}
		}
	}
}

// replaceController crashes the controller and starts another one with an empty folder.
func (l *localFleet) replaceController() {
	l.t.Helper()
	l.crashController()
	l.config.Copies = l.t.TempDir()
	l.startController()
}

// TestBaselinesOutliveTheirController proves that rules use the baseline after a takeover, although its record is
// deleted, and those earlier runs whose records are still on the control plane. The ruling states the number of
// available runs, and a fix if there are too few.
func TestBaselinesOutliveTheirController(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleetOn(t, wire.ServerConfig{Shared: true}, "a1", "a2", "a3", "a4")
		l.cancelController()
		l.controllers.Wait()
		l.config.Copies = t.TempDir()
		l.startController()
		var ids []string
		for n := range 7 {
			run, ruling := l.runWithRule(runWithBaselineRule())
			ids = append(ids, run.ID)
			if n == 0 {
				if ruling.Result != report.Inconclusive ||
					!strings.Contains(ruling.Why, `there is no baseline "test"`) {
					t.Errorf("without a baseline: got %v, want inconclusive", ruling)
				}
				a, err := l.client.SetBaseline(t.Context(), wire.BaselineQuery{Run: run.ID, By: "me@host"})
				if b := a.Baseline; err != nil || b.Name != "test" || b.Run != run.ID || b.By != "me@host" ||
					a.Note != "" {
					t.Fatalf("set the baseline: got %+v, error %v, want \"test\" of run %s, without a note", a, err,
						run.ID)
				}
			}
			l.awaitCopy(run.ID)
		}
		l.deleteRecords(ids[:3]...)
		l.replaceController()
		run, ruling := l.runWithRule(runWithBaselineRule())
		b := run.BaseOf("test")
		if b.Run != ids[0] || b.Available != 5 || b.Earlier != 7 || len(b.Cells) != 1 ||
			b.Cells[0].Spreads["lost"].Runs != 5 {
			t.Errorf("baseline after a takeover: got %+v, want run %s, 5 of 7 earlier runs", b, ids[0])
		}
		if ruling.Result != report.Met || !strings.HasSuffix(ruling.Why, "; 5 of 7 earlier runs available") {
			t.Errorf("ruling after a takeover: got %v, want met, with 5 of 7 earlier runs", ruling)
		}
		if a, err := l.client.History(t.Context(), plan.HistoryQuery{}); err != nil || a.Runs < 5 {
			t.Errorf("runs in the history of the new leader: got %d, error %v, want those that were not deleted",
				a.Runs, err)
		}

		l.awaitCopy(run.ID)
		l.deleteRecords(append(ids, run.ID)...)
		l.replaceController()
		_, ruling = l.runWithRule(runWithBaselineRule())
		const want = "lost: the run-to-run spread is unknown: 1 of 5 earlier runs; 1 of 8 earlier runs available; " +
			"run the matrix until there are enough, with this broker version and on these hosts, or copy the missing runs into the folder runs below the controller's --dir"
		if !ruling.Failed() || ruling.Why != want {
			t.Errorf("ruling without earlier runs: got %v", ruling)
		}
	})
}

// TestBaselinesOfTheControlPlane proves that a baseline replaces an earlier one of the same name, and is listed and
// removed by its name.
func TestBaselinesOfTheControlPlane(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleetOn(t, wire.ServerConfig{Shared: true}, "a1", "a2", "a3", "a4")
		set := func(name, run string) error {
			_, err := l.client.SetBaseline(t.Context(), wire.BaselineQuery{Name: name, Run: run})
			return err
		}
		first, _ := l.runWithRule(runWithBaselineRule())
		second, ruling := l.runWithRule(runWithBaselineRule())
		for _, err := range []error{set("", first.ID), set("release-4.0", first.ID), set("", second.ID)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		all, err := l.client.Baselines(t.Context())
		if err != nil || len(all) != 2 || all[0].Name != "release-4.0" || all[0].Run != first.ID ||
			all[1].Name != "test" || all[1].Run != second.ID {
			t.Errorf("baselines: got %+v, error %v, want release-4.0 and test", all, err)
		}
		if _, ruling = l.runWithRule(runWithBaselineRule()); !strings.Contains(ruling.Why, "start it with --dir") {
			t.Errorf("ruling of a controller without a folder: got %v, want \"start it with --dir\"", ruling)
		}
		if err := l.client.RemoveBaseline(t.Context(), "test"); err != nil {
			t.Error(err)
		}
		if err := l.client.RemoveBaseline(t.Context(), "test"); !errors.Is(err, wire.ErrNoBaseline) {
			t.Errorf("remove a baseline a second time: got error %v, want wire.ErrNoBaseline", err)
		}
		if all, err := l.client.Baselines(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("baselines after one was removed: got %+v, error %v, want one", all, err)
		}
		if err := set("a b", first.ID); err == nil || !strings.Contains(err.Error(), "no rule could name it") {
			t.Errorf("set a baseline whose name has a space: got error %v, want \"no rule could name it\"", err)
		}
		if err := set("", "never"); !errors.Is(err, wire.ErrNoRun) {
			t.Errorf("set a baseline of an unknown run: got error %v, want wire.ErrNoRun", err)
		}
		l.deleteRecords(first.ID)
		if err := set("", first.ID); !errors.Is(err, wire.ErrNoRun) ||
			!strings.Contains(err.Error(), "use a newer run") {
			t.Errorf("set a baseline of a run without a record: got error %v, want wire.ErrNoRun with a fix", err)
		}
		js := l.jetstream()
		s, err := js.Stream(t.Context(), "LOCKSTEP_EVENTS_"+second.ID)
		if err == nil {
			cfg := s.CachedInfo().Config
			cfg.MaxBytes = 1 << 20
			_, err = js.UpdateStream(t.Context(), cfg)
		}
		if err == nil {
			_, err = js.Publish(withDeadline(t, 5*time.Second), "lockstep.events."+second.ID+".event",
				[]byte("nonsense"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := set("", second.ID); err == nil || strings.Contains(err.Error(), "no copy") ||
			strings.Contains(err.Error(), "use a newer run") {
			t.Errorf("set a baseline of a run whose record cannot be read: got error %v, want the cause", err)
		}
	})
}
