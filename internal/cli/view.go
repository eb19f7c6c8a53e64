package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/runview"
	"lockstep/internal/wire"
)

// view is the state of a run that live metrics show. Frames depend only on its entries and their times.
type view struct{ *runview.State }

func newView(s wire.Submission) view {
	v := view{runview.New(s.Run)}
	v.AddDone(s.Done, s.Numbers)
	return v
}

// heading returns the line that announces the run.
func (v *view) heading() string {
	tasks := "tasks"
	if v.Pace.Tasks() == 1 {
		tasks = "task"
	}
	return fmt.Sprintf("%s: %s%d %s, about %v, run %s", v.Run.Name, atMost(v.Pace.AtMost()), v.Pace.Tasks(), tasks,
		v.Pace.Planned().Round(time.Second), v.Run.ID)
}

// atMost returns the prefix of a number of tasks that is an upper bound.
func atMost(open bool) string {
	if open {
		return "at most "
	}
	return ""
}

// phase returns the phase of an attempt as text, and the elapsed part of warm-up and measurement, from 0 to 1.
func phase(a *runview.Attempt, now time.Time) (words string, part float64) {
	w := a.Task.Cell.Workload
	warmup, measure := w.Warmup.D(), w.Measure.D()
	p, since := a.Phase(now)
	over := max(0, float64(warmup+since)/float64(warmup+measure))
	switch p {
	case runview.UntilSteady:
		return "warm-up, until the load is steady", 0
	case runview.WarmUp:
		return fmt.Sprintf("warm-up, %v to go", (-since).Round(time.Second)), over
	case runview.Measuring:
		if counted(w) {
			return fmt.Sprintf("measuring, %v, until all messages are sent", since.Truncate(time.Second)), over
		}
		return fmt.Sprintf("measuring, %v of %v", since.Truncate(time.Second), measure), over
	case runview.Draining:
		return "draining", 1
	case runview.Abandoned:
		return "its controller was lost; its agents stop it", 0
	}
	return "connecting", 0
}

// counted reports whether any publishers stop after a number of messages.
func counted(w plan.Workload) bool {
	return slices.ContainsFunc(w.Parts(), func(p plan.Workload) bool { return p.Publishers.Count > 0 })
}

// nameOf returns the cell and repetition of an attempt and, of a search, its step.
func nameOf(a *runview.Attempt) string {
	parts := []string{a.Task.Cell.Name()}
	if a.Task.Repetition > 1 {
		parts = append(parts, fmt.Sprintf("repetition %d", a.Task.Repetition))
	}
	if a.Started.Detail != "" {
		parts = append(parts, a.Started.Detail)
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}
