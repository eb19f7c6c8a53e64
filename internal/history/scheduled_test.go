package history

import (
	"math"
	"testing"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/plan"
)

// withPublishRate sets the publish rate of cells to a level, and changes that of cell 1.
func withPublishRate(n int, change float64) func(cell, repetition int, o *plan.Outcome) {
	return func(cell, repetition int, o *plan.Outcome) {
		rate := 1000 + float64((n*7+cell*5+repetition*3)%11)
		if cell == 1 {
			rate *= change
		}
		o.Values["publish.rate"] = plan.Value{Number: rate}
	}
}

// Manual runs of a part of the matrix, and runs from other hosts, do not count for the window of alarms.
func TestWindowOfAlarmsCountsScheduledRuns(t *testing.T) {
	for name, manualRun := range map[string]func(root string, n int){
		"no manual runs":   func(string, int) {},
		"one of six cells": func(root string, n int) { scheduledRun(t, root, n, 1, 1, withPublishRate(n, 1)) },
		"the slower cell":  func(root string, n int) { scheduledRun(t, root, n, 2, 1, withPublishRate(n, 0.8)) },
		"other host":       func(root string, n int) { scheduledRun(t, root, n, 6, 1, onOtherHost(withPublishRate(n, 1))) },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for n := range 20 {
				change := 1.0
				if n >= 18 {
					change = 0.8
				}
				scheduledRun(t, root, n, 6, 1, withPublishRate(n, change))
			}
			for n := 20; n < 24; n++ {
				manualRun(root, n)
			}
			s := Of(root)
			refresh(t, s)
			alarms := 0
			for _, x := range trendsOf(t, s).Series {
				for _, c := range x.Changes {
					if !c.Alarm || x.Points[c.At].Run != "run-0018" || x.Cell.Name() != "mode=m1" {
						t.Errorf("cell %s: got change %+v, want only an alarm of mode=m1 at run-0018", x.Cell.Name(), c)
					}
					alarms++
				}
			}
			if alarms != 1 {
				t.Errorf("got %d alarms, want 1", alarms)
			}
		})
	}
}

// Runs with a client-bound value are not points of its level, so they cause no alarm.
func TestFlaggedRunsAreNoPointsOfTheLevel(t *testing.T) {
	for flag, want := range map[plan.Flag]int{"": 1, plan.ClientBound: 0} {
		root := t.TempDir()
		for n := range 20 {
			change := 1.0
			if n >= 18 {
				change = 0.8
			}
			scheduledRun(t, root, n, 6, 1, func(cell, repetition int, o *plan.Outcome) {
				withPublishRate(n, change)(cell, repetition, o)
				if rate := o.Values["publish.rate"]; n >= 18 && cell == 1 && flag != "" {
					rate.Flags = []plan.Flag{flag}
					o.Values["publish.rate"] = rate
				}
			})
		}
		s := Of(root)
		refresh(t, s)
		alarms := 0
		for _, x := range trendsOf(t, s).Series {
			for _, c := range x.Changes {
				if c.Alarm {
					alarms++
				}
			}
		}
		if alarms != want {
			t.Errorf("two slow runs with flag %q: got %d alarms, want %d", flag, alarms, want)
		}
	}
}

func onOtherHost(set func(cell, repetition int, o *plan.Outcome)) func(cell, repetition int, o *plan.Outcome) {
	return func(cell, repetition int, o *plan.Outcome) {
		set(cell, repetition, o)
		o.Agents[0].Host = "laptop"
	}
}

// A change of level is part of the run-to-run spread until a later run becomes the baseline.
func TestBaselineRestartsTheSpread(t *testing.T) {
	root := t.TempDir()
	var all []plan.Run
	for n := range 12 {
		change := 1.0
		if n >= 6 {
			change = 0.7
		}
		all = append(all, scheduledRun(t, root, n, 2, 1, withPublishRate(n, change)))
	}
	s := Of(root)
	refresh(t, s)
	spread := func(like int) (int, float64) {
		next := plan.Run{ID: "next", Started: firstStart.AddDate(0, 0, 12)}
		compared := []compare.Recorded{{Run: all[like]}, {Run: next}}
		of, err := s.SpreadsOf(compared, []string{"publish.rate"})
		if err != nil {
			t.Fatal(err)
		}
		got := of(all[like].Cells[1].ID, "publish.rate")
		if got.Relative == nil {
			t.Fatalf("spread: got %+v, want a relative one", got)
		}
		return got.Runs, *got.Relative
	}
	if runs, relative := spread(6); runs != 12 || relative < 0.15 {
		t.Errorf("without a baseline: got a spread of %.3f of %d runs, want at least 0.15 of 12: both levels", relative,
			runs)
	}
	if err := s.SetBaseline(plan.Baseline{Name: "nightly", Run: "run-0006"}); err != nil {
		t.Fatal(err)
	}
	for _, like := range []int{6, 11} {
		if runs, relative := spread(like); runs != 6 || relative > 0.01 || math.IsNaN(relative) {
			t.Errorf("run %d: got a spread of %.3f of %d runs, want at most 0.01 of 6: the new level", like, relative,
				runs)
		}
	}
}

// A backlog in one of three repetitions is a status of its own. Like a flag, it counts from its second run on.
func TestBacklogInAMinorityOfRepetitions(t *testing.T) {
	root := t.TempDir()
	for n := range 12 {
		scheduledRun(t, root, n, 1, 3, func(_, repetition int, o *plan.Outcome) {
			if n >= 10 && repetition == 2 {
				o.Values["publish.rate"] = plan.Value{Number: 990, Flags: []plan.Flag{plan.Backlog}}
			}
		})
	}
	s := Of(root)
	refresh(t, s)
	x := trendsOf(t, s).Series[0]
	newest := x.Points[11]
	c, changed := x.Status(newest)
	if !changed || c.Status != SomeBacklog || c.Runs != 2 || newest.Usable != 3 {
		t.Errorf("status: got %+v, changed %v, want %v for 2 runs", c, changed, SomeBacklog)
	}
	x.Points = x.Points[:11]
	if c, changed := x.Status(x.Points[10]); changed {
		t.Errorf("status after one run: got %+v, want unchanged", c)
	}
}

// A latency that a backlog hides is the worst of its run.
func TestBacklogIsTheWorstOfARun(t *testing.T) {
	fast, slow := plan.Value{Number: 1}, plan.Value{Number: 3}
	backlog := plan.Value{NA: string(plan.Backlog), Flags: []plan.Flag{plan.Backlog}}
	for _, c := range []struct {
		values []plan.Value
		number float64
		usable int
		status string
	}{
		{[]plan.Value{fast, backlog, slow}, 3, 2, SomeBacklog},
		{[]plan.Value{fast, fast, backlog, slow}, 2, 3, SomeBacklog},
		{[]plan.Value{backlog, fast, backlog}, 0, 0, string(plan.Backlog)},
		{[]plan.Value{backlog, backlog}, 0, 0, string(plan.Backlog)},
		{[]plan.Value{fast, backlog}, 0, 0, string(plan.Backlog)},
	} {
		var repetitions []plan.HistoryPoint
		for _, v := range c.values {
			repetitions = append(repetitions, plan.HistoryPoint{Run: "r", Verdict: plan.Valid, Value: v})
		}
		if p := newPoints(repetitions)[0]; p.Number != c.number || p.Usable != c.usable || p.Status != c.status {
			t.Errorf("%+v: got number %g of %d, status %q; want %g of %d, %q", c.values, p.Number, p.Usable, p.Status,
				c.number, c.usable, c.status)
		}
	}
}

// TestAStatusThatReturns proves that a status that earlier runs had is reported again if it lasts longer than by
// chance.
func TestAStatusThatReturns(t *testing.T) {
	backlog := string(plan.Backlog)
	points := make([]Point, 30)
	for range 4 {
		points = append(points, Point{Status: backlog})
	}
	points = append(points, Point{})
	for runs := 1; runs <= 6; runs++ {
		points = append(points, Point{Status: backlog})
		c, changed := Series{Points: points}.Status(points[len(points)-1])
		if want := runs >= 4; changed != want || c.Runs != runs || c.Before != "" {
			t.Errorf("backlog in 4 of 35 runs, then in %d runs: got %+v, reported %t, want %t", runs, c, changed, want)
		}
	}
}
