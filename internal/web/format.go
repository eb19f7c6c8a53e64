package web

import (
	"html/template"
	"time"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// functions are the functions of the templates.
var functions = template.FuncMap{
	"when":      when,
	"ago":       ago,
	"dash":      display.Dash,
	"number":    wholeNumber,
	"state":     stateClass,
	"latencies": latencies,
	"full":      func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
}

// when formats a time in UTC.
func when(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return display.Time(t)
}

// ago formats the time since t.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return display.Elapsed(now.Sub(t)) + " ago"
}

// wholeNumber formats a number without decimals.
func wholeNumber(x float64) string { return display.Decimals(x, 0) }

// stateClass returns the CSS class of a run's state.
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
