package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lockstep/internal/controller"
	"lockstep/internal/live"
	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// view is what live figures show of a run. It knows only what it is told, and what time it is: the same events make the same frames.
type view struct {
	run      plan.Run
	pace     *live.Pace
	verdicts map[plan.Verdict]int // of what ended since
	current  *inFlight
	note     string // what the run waits for
}

// inFlight is the task that is under way.
type inFlight struct {
	started controller.Progress
	at      time.Time // when it was told of
	live    *live.Figures
	liveAt  time.Time
}

func newView(s wire.Submission) view {
	v := view{run: s.Run, verdicts: map[plan.Verdict]int{}, pace: live.NewPace(s.Run)}
	for _, task := range s.Done {
		v.pace.Done(task)
	}
	v.pace.Known(s.Numbers)
	return v
}

// show takes what happens in the run.
func (v *view) show(e controller.Progress, now time.Time) {
	switch e.Kind {
	case controller.RunAccepted:
		if v.run.ID == "" && e.Run != nil {
			*v = newView(wire.Submission{Run: *e.Run})
		}
	case controller.TaskStarted:
		t := &inFlight{started: e, at: now}
		if e.At.Before(now) && !e.At.IsZero() { // it is told of late to one who joins
			t.at = e.At
		}
		if c := v.current; c != nil && c.started.Task.ID == e.Task.ID { // another step of a search, or another try
			t.at = c.at
		}
		v.current, v.note = t, ""
	case controller.LiveFigures:
		if v.current != nil {
			v.current.live, v.current.liveAt = &e.Live, now
		}
	case controller.TaskEnded:
		v.ended(e.Outcome)
	case controller.TaskInterrupted:
		v.current = nil
	case controller.WaitingAgents:
		v.note = e.Detail
	}
}

func (v *view) ended(o plan.Outcome) {
	v.pace.Ended(o)
	v.verdicts[o.Verdict]++
	if v.current != nil && v.current.started.Task.ID == o.Task {
		v.current = nil
	}
}

// heading says what is run.
func (v *view) heading() string {
	tasks := "tasks"
	if v.pace.Tasks() == 1 {
		tasks = "task"
	}
	return fmt.Sprintf("%s: %s%d %s, about %v, run %s", v.run.Name, atMost(v.pace.AtMost()), v.pace.Tasks(), tasks, v.pace.Planned().Round(time.Second), v.run.ID)
}

// atMost is what stands before a number of tasks where there may be fewer.
func atMost(open bool) string {
	if open {
		return "at most "
	}
	return ""
}

// underWay is the task in flight, and since when.
func (v *view) underWay(now time.Time) (task string, since time.Duration) {
	if c := v.current; c != nil {
		return c.started.Task.ID, now.Sub(c.at)
	}
	return "", 0
}

// left is how long the rest takes.
func (v *view) left(now time.Time) time.Duration { return v.pace.Left(v.underWay(now)) }

// part is how much of the run's time is over, 0 … 1.
func (v *view) part(now time.Time) float64 { return v.pace.Part(v.underWay(now)) }

// phase is where the task is, how far, in words, and as a part of its load's time, 0 … 1.
func (t *inFlight) phase(now time.Time) (words string, part float64) {
	w := t.started.Task.Cell.Workload
	if t.live == nil {
		return "connecting", 0
	}
	if t.live.Since == -1 {
		return "warm-up, until the load is steady", 0
	}
	since := t.live.Since + min(max(0, now.Sub(t.liveAt)), 2*time.Second) // snapshots come once a second
	warmup, measure := w.Warmup.D(), w.Measure.D()
	switch {
	case since < 0:
		return fmt.Sprintf("warm-up, %v to go", (-since).Round(time.Second)), max(0, float64(warmup+since)/float64(warmup+measure))
	case since < measure && counted(w):
		return fmt.Sprintf("measuring, %v, until all is sent", since.Truncate(time.Second)), float64(warmup+since) / float64(warmup+measure)
	case since < measure:
		return fmt.Sprintf("measuring, %v of %v", since.Truncate(time.Second), measure), float64(warmup+since) / float64(warmup+measure)
	}
	return "draining", 1
}

// counted tells whether publishers stop after a count.
func counted(w plan.Workload) bool {
	return slices.ContainsFunc(w.Parts(), func(p plan.Workload) bool { return p.Publishers.Count > 0 })
}

// name is the task and, of a search, the step that is under way.
func (t *inFlight) name() string {
	parts := []string{t.started.Task.Cell.Name()}
	if t.started.Task.Repetition > 1 {
		parts = append(parts, fmt.Sprintf("repetition %d", t.started.Task.Repetition))
	}
	if t.started.Detail != "" {
		parts = append(parts, t.started.Detail)
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}
