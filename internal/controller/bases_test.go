package controller_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	past "lockstep/internal/history"
	"lockstep/internal/plan"
	"lockstep/internal/report"
	"lockstep/internal/runs"
	"lockstep/internal/schedule"
	"lockstep/internal/wire"
	"lockstep/test/wiretest"
)

// A schedule's run takes the baseline of the controller's folder; what rules say of it is in the schedule's history and in the record.
func TestRulesOfSchedulesHaveTheControllersBaseline(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		copies := t.TempDir()
		l := newScheduleLab(t, "a1", "a2")
		l.stop()
		l.wg.Wait()
		l.config.Copies = copies
		l.control()
		l.await(2)
		l.add("nightly", func(d *schedule.Definition) {
			d.Matrix.Text = strings.Replace(tiny, "axis: _", "axis: _\n\trequire: \"send.rate no worse than baseline by 99.9% at 80%\"", 1) + "repeat: 4\n"
		})
		l.clock().advance(time.Hour)
		first := l.schedule("nightly", "the first run", entries(1)).History[0]
		if text := strings.Join(first.Problems, "\n"); first.State != schedule.Done || len(first.Problems) != 2 || !strings.Contains(text, `inconclusive: mode=confirm-window: send.rate no worse`) ||
			!strings.Contains(text, `there is no baseline "tiny"`) {
			t.Fatalf("without a baseline: %+v", first)
		}
		l.state(first.Run, func(s wire.RunState) bool { return s.Copied })
		if err := past.Of(copies).SetBaseline(plan.Baseline{Name: "tiny", Run: first.Run, Matrix: "tiny"}); err != nil {
			t.Fatal(err)
		}
		var last schedule.Entry
		for n := 2; n <= 6; n++ {
			l.clock().advance(time.Hour)
			last = l.schedule("nightly", fmt.Sprintf("run %d", n), entries(n)).History[n-1]
			want := fmt.Sprintf("the run-to-run spread is unknown: %d earlier runs, and 5 are needed", n-1)
			if text := strings.Join(last.Problems, "\n"); last.State != schedule.Done || (n < 6) != strings.Contains(text, want) || n == 6 && text != "" {
				t.Errorf("run %d: %+v", n, last)
			}
			l.state(last.Run, func(s wire.RunState) bool { return s.Copied })
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
		if base.Run != first.Run || len(base.Cells) != 2 || len(base.Cells[0].Repetitions) != 4 || base.Cells[0].Repetitions[0]["send.rate"].Number == 0 || base.Cells[0].Spreads["send.rate"].Runs != 5 {
			t.Errorf("the plan has %+v", base)
		}
		for i := range outcomes { // as if it had become slower since
			v := outcomes[i].Values["send.rate"]
			v.Number /= 1e6
			outcomes[i].Values["send.rate"] = v
		}
		if all := report.Rulings(record.Plan(), outcomes); report.Failed(all)[report.Violated] != 2 || !strings.Contains(all[0].Why, "-100 % against run "+first.Run) {
			t.Errorf("a thousandth of the rate: %v", all)
		}
	})
}
