package web

import (
	"cmp"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/report"
	"lockstep/internal/wire"
)

// functions are those of templates.
var functions = template.FuncMap{
	"when":   when,
	"ago":    ago,
	"dash":   func(text string) string { return cmp.Or(text, "–") },
	"words":  strings.Fields,
	"add":    func(a, b int) int { return a + b },
	"number": grouped,
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

// short is a duration in its greatest two units.
func short(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

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

// grouped is a whole number with commas between thousands.
func grouped(n float64) string {
	text := strconv.FormatFloat(n, 'f', 0, 64)
	sign, digits := "", text
	if strings.HasPrefix(text, "-") {
		sign, digits = "-", text[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

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
