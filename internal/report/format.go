package report

import (
	"math"
	"strings"

	"lockstep/internal/display"
	"lockstep/internal/plan"
)

// Format writes a number of a unit as tables do.
func Format(unit plan.Unit, x float64) string { return format(unit, x) }

// Show writes a value of an outcome as tables do: its number with its unit and how far it may be off, or why there is
// none.
func Show(info plan.ValueInfo, v plan.Value) string {
	if v.NA != "" {
		return explain(v.NA)
	}
	return strings.TrimSpace(show(info, v) + " " + display.PlusMinus(v.Number, v.Bound))
}

// show writes a value as format does, but for what is known by a bound only: a latency below the resolution, and a
// quantile that is more than its number (plan.Value.Over).
func show(info plan.ValueInfo, v plan.Value) string {
	switch {
	case v.Over > 0 && v.Number >= 3600:
		return "> " + limit(v.Number)
	case v.Over > 0:
		return "> " + format(info.Unit, v.Number)
	case info.Latency() && v.Number < plan.Resolution && v.Number >= 0:
		return "< " + limit(plan.Resolution)
	}
	return format(info.Unit, v.Number)
}

// limit writes a whole number of hours, seconds or microseconds: "1 h", "1 µs".
func limit(seconds float64) string {
	if hours := seconds / 3600; hours >= 1 && hours == math.Trunc(hours) {
		return display.Decimals(hours, 0) + " h"
	}
	if seconds >= 1 {
		return display.Decimals(seconds, 0) + " s"
	}
	return display.Decimals(seconds*1e6, 0) + " µs"
}

// format writes a number with its unit, if that is not in the heading, to three significant digits; numbers from 100 on
// in full.
func format(unit plan.Unit, x float64) string {
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
	}
	return display.Significant(x)
}
