package web

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"lockstep/internal/display"
	"lockstep/internal/plan"
	"lockstep/internal/report"
	"lockstep/internal/wire"
)

// functions are those of templates.
var functions = template.FuncMap{
	"when":   when,
	"ago":    ago,
	"dash":   display.Dash,
	"words":  strings.Fields,
	"add":    func(a, b int) int { return a + b },
	"number": wholeNumber,
	"took":   took,
	"state":  stateClass,
	"full":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"left":   func(t report.Table, i int) bool { return i < len(t.Axes) },
	"offset": offset,
	"points": func(n *float64) string { return strconv.FormatFloat(*n, 'f', -1, 64) },
}

// when is a time as pages show it.
func when(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

// ago is how long ago a time was.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return short(now.Sub(t)) + " ago"
}

// short is a duration for pages.
func short(d time.Duration) string { return display.Elapsed(d) }

// offset is how far a clock is from the controller's.
func offset(o *wire.Offset) string {
	return fmt.Sprintf("%.3f ms ± %.3f", float64(o.Offset)/1e6, float64(o.Bound)/1e6)
}

// took is how long a run has run.
func took(r wire.RunState, now time.Time) string {
	if r.Started.IsZero() {
		return "–"
	}
	to := r.Ended
	if to.IsZero() {
		to = now
	}
	return short(to.Sub(r.Started))
}

// wholeNumber formats a number without decimals.
func wholeNumber(x float64) string { return display.Decimals(x, 0) }

// stateClass is how a run's state is coloured; the word is beside it.
func stateClass(r wire.RunState) string {
	switch {
	case r.State == wire.StateQueued:
		return "idle"
	case r.State == wire.StateRunning:
		return "active"
	case r.State != string(wire.EndDone):
		return string(plan.Invalid)
	case r.Failed > 0:
		return string(plan.Unknown)
	}
	return string(plan.Valid)
}
