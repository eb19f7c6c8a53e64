package report

import (
	"math"
	"strings"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
)

// Show formats a value as in tables, with its unit and error bound. Without a number it returns the reason.
func Show(info plan.ValueInfo, v plan.Value) string {
	if v.NA != "" {
		return explain(v.NA)
	}
	return strings.TrimSpace(show(info, v) + " " + display.PlusMinus(v.Number, v.Bound))
}

// show formats a value like Format, with its sign.
func show(info plan.ValueInfo, v plan.Value) string {
	switch s := signOf(info, v); {
	case s == lowerBound && v.Number >= 3600:
		return string(s) + limit(v.Number)
	case s == belowResolution:
		return string(s) + limit(plan.Resolution)
	default:
		return string(s) + Format(info.Unit, v.Number)
	}
}

// limitSign precedes a number that is not known exactly.
type limitSign string

const (
	belowResolution limitSign = "< " // a latency; the resolution replaces the number
	lowerBound      limitSign = "> " // a quantile that is a lower bound (plan.Value.Over)
)

func signOf(info plan.ValueInfo, v plan.Value) limitSign {
	switch {
	case v.Over > 0:
		return lowerBound
	case info.Latency() && v.Number < plan.Resolution && v.Number >= 0:
		return belowResolution
	}
	return ""
}

// Latency formats a latency of at least 0 seconds. Below the resolution it is an upper bound.
func Latency(seconds float64) string {
	if seconds < plan.Resolution {
		return string(belowResolution) + limit(plan.Resolution)
	}
	return display.Seconds(seconds)
}

// limit formats whole hours, seconds or microseconds: "1 h", "1 µs".
func limit(seconds float64) string {
	if hours := seconds / 3600; hours >= 1 && hours == math.Trunc(hours) {
		return display.Decimals(hours, 0) + " h"
	}
	if seconds >= 1 {
		return display.Decimals(seconds, 0) + " s"
	}
	return display.Decimals(seconds*1e6, 0) + " µs"
}

// Format formats a number with three significant digits, and in full from 100 on. It includes the unit if headings do
// not.
func Format(unit plan.Unit, x float64) string {
	switch unit {
	case plan.Seconds:
		return display.Seconds(x)
	case plan.Bytes:
		return display.Bytes(x)
	case plan.BytesRate:
		return display.Bytes(x) + "/s"
	case plan.Cores:
		return display.Decimals(x, 2) + " cores"
	case plan.Ratio:
		return display.Decimals(100*x, 1) + " %"
	case plan.Count:
		if x == math.Trunc(x) {
			return display.Decimals(x, 0)
		}
		return display.Decimals(x, 1)
	case plan.PerSecond, plan.Text, "":
		return display.Significant(x)
	}
	text := display.Significant(x) // of a metric that only its driver declares
	if x == math.Trunc(x) {
		text = display.Decimals(x, 0)
	}
	return text + " " + string(unit)
}
