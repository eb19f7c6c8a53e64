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

// view is what live metrics show of a run: the same entries at the same times make the same frames.
type view struct{ *runview.State }

func newView(s wire.Submission) view {
	v := view{runview.New(s.Run)}
	v.Had(s.Done, s.Numbers)
	return v
}

// heading says what is run.
func (v *view) heading() string {
	tasks := "tasks"
	if v.Pace.Tasks() == 1 {
		tasks = "task"
	}
	return fmt.Sprintf("%s: %s%d %s, about %v, run %s", v.Run.Name, atMost(v.Pace.AtMost()), v.Pace.Tasks(), tasks,
		v.Pace.Planned().Round(time.Second), v.Run.ID)
}

// atMost is what stands before a number of tasks where there may be fewer.
func atMost(open bool) string {
	if open {
		return "at most "
	}
	return ""
}

// phase is the phase of an attempt, in words, and how much of its load's time is over, 0 … 1.
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
			return fmt.Sprintf("measuring, %v, until all is sent", since.Truncate(time.Second)), over
		}
		return fmt.Sprintf("measuring, %v of %v", since.Truncate(time.Second), measure), over
	case runview.Draining:
		return "draining", 1
	case runview.Abandoned:
		return "its controller was lost; its agents end it", 0
	}
	return "connecting", 0
}

// counted reports whether publishers stop after a count.
func counted(w plan.Workload) bool {
	return slices.ContainsFunc(w.Parts(), func(p plan.Workload) bool { return p.Publishers.Count > 0 })
}

// nameOf is the task of an attempt and, of a search, its step.
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
