package judge

import (
	"fmt"
	"strconv"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// shortfall warns where fewer messages were sent inside the measurement than were due in it, and reports the cause. By
// count, the measurement lasts until all are sent. Of a task that failed or was stopped the cause is known.
func (j *judge) shortfall() {
	if !j.w.Publishers.Open() || j.span.byCount || j.f.Failure != "" || j.f.Cancelled {
		return
	}
	var due, failed, unsent float64 // whenever they were sent
	j.m.Range(func(w *record.Window) {
		if w.Measured {
			failed += float64(w.Counts[record.PublishErrors])
			unsent += float64(w.Counts[record.Unsent])
			due += float64(w.Counts[record.Sent] + w.Counts[record.PublishErrors] + w.Counts[record.Unsent])
		}
	})
	sent := j.counted(record.Sent)   // inside the measurement, whenever they were due
	if due-sent <= Tolerance*due+1 { // the measurement may cut off one
		return
	}
	lateness, blocked := j.m.Hist(record.Lateness).Quantile(0.99), j.m.Hist(record.Blocked).Quantile(0.99)
	why := fmt.Sprintf("publishers waited for the broker (blocked p99 %v)", roughly(blocked))
	if limitations := j.out.Limitations; len(limitations) > 0 && lateness > blocked {
		why = fmt.Sprintf("%s (lateness p99 %v, blocked p99 %v)", limitations[0].Flag, roughly(lateness), roughly(blocked))
	}
	if failed > 0 {
		why += fmt.Sprintf("; calls to publish that failed: %.0f", failed)
	}
	if unsent > 0 {
		why += fmt.Sprintf("; messages due and never sent: %.0f", unsent)
	}
	per := j.span.sending.Seconds()
	j.warn("asked for %s/s, sent %s/s: %s", grouped(due/per), grouped(sent/per), why)
}

// roughly is a latency for people, in three or four digits, if it can be told from nothing.
func roughly(ns int64) string {
	if float64(ns) < plan.Resolution*1e9 {
		return "below 1µs"
	}
	d, unit := time.Duration(ns), time.Duration(1)
	for d/unit >= 10_000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

// grouped is a number for people: 1,000 or 19.5.
func grouped(x float64) string {
	if x < 100 {
		return strconv.FormatFloat(x, 'g', 3, 64)
	}
	digits := strconv.FormatFloat(x, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
