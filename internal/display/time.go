package display

import (
	"fmt"
	"time"
)

// Took formats the time from a start to an end, or to now if there is no end yet; "–" without a start.
func Took(started, ended, now time.Time) string {
	if started.IsZero() {
		return "–"
	}
	if ended.IsZero() {
		ended = now
	}
	return Elapsed(ended.Sub(started))
}

// Elapsed formats a duration in whole seconds, as matrices write it: "1m30s"; from two days on in whole hours: "2d4h".
// A negative one is "0s".
func Elapsed(d time.Duration) string {
	d = max(0, d).Round(time.Second)
	if hours := int(d.Hours()); hours >= 48 {
		return fmt.Sprintf("%dd%dh", hours/24, hours%24)
	}
	return d.String()
}
