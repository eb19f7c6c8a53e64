package report

import (
	"math"
	"strconv"
	"strings"

	"lockstep/internal/plan"
)

// Format writes a number of a unit as tables do.
func Format(unit plan.Unit, x float64) string { return format(unit, x) }

// Show writes a value of an outcome as tables do: its number with its unit and how far it may be off, or why there is none.
func Show(info plan.ValueInfo, v plan.Value) string {
	if v.NA != "" {
		return explain(v.NA)
	}
	return strings.TrimSpace(show(info, v) + " " + plusMinus(v.Number, v.Bound))
}

// show writes a value as format does, but for what is known by a bound only: a latency below the resolution, and a quantile that is more than its number
// (plan.Value.Over).
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
		return decimals(hours, 0) + " h"
	}
	if seconds >= 1 {
		return decimals(seconds, 0) + " s"
	}
	return decimals(seconds*1e6, 0) + " µs"
}

// format writes a number with its unit, if that is not in the heading, to three significant digits; numbers from 100 on in full.
func format(unit plan.Unit, x float64) string {
	switch unit {
	case plan.Seconds:
		return duration(x)
	case plan.Bytes:
		return memory(x)
	case plan.BytesRate:
		return memory(x) + "/s"
	case plan.Cores:
		return decimals(x, 2) + " cores"
	case plan.Ratio:
		return decimals(100*x, 1) + " %"
	case plan.Count:
		if x == math.Trunc(x) {
			return decimals(x, 0)
		}
		return decimals(x, 1)
	}
	return significant(x)
}

// significant writes x to three significant digits, but never rounds what is before the decimal point.
func significant(x float64) string {
	switch size := math.Abs(round3(x)); {
	case size == 0:
		return "0"
	case size >= 100:
		return decimals(x, 0)
	case size >= 10:
		return decimals(x, 1)
	case size >= 1:
		return decimals(x, 2)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// round3 rounds to three significant digits, so that 999.9 is written in the next unit.
func round3(x float64) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', 2, 64), 64)
	if err != nil {
		return x
	}
	return y
}

func duration(x float64) string {
	for _, u := range []struct {
		least float64
		name  string
	}{{1, " s"}, {1e-3, " ms"}, {1e-6, " µs"}, {1e-9, " ns"}} {
		if round3(math.Abs(x)) >= u.least {
			return significant(x/u.least) + u.name
		}
	}
	return "0 s"
}

// plusMinus writes how far the truth may be from a duration x, either way, after it: rounded up to two significant digits, and in x's unit
// unless it is too small for that. Nothing where the value has no bound.
func plusMinus(x, bound float64) string {
	if bound <= 0 {
		return ""
	}
	for _, least := range []float64{1, 1e-3, 1e-6} {
		if round3(math.Abs(x)) >= least && bound >= least/100 {
			return "± " + strconv.FormatFloat(roundUp(bound/least), 'g', -1, 64)
		}
		if round3(math.Abs(x)) >= least {
			break
		}
	}
	return "± " + duration(roundUp(bound))
}

// roundUp rounds up to two significant digits.
func roundUp(x float64) float64 {
	scale := math.Pow(10, math.Floor(math.Log10(x))-1)
	up := math.Ceil(x/scale-1e-9) * scale
	if y, err := strconv.ParseFloat(strconv.FormatFloat(up, 'e', 1, 64), 64); err == nil {
		return y
	}
	return up
}

func memory(x float64) string {
	units := []string{" B", " KiB", " MiB", " GiB", " TiB"}
	i := 0
	for ; i < len(units)-1 && math.Abs(x) >= 1023.5; i++ {
		x /= 1024
	}
	return significant(x) + units[i]
}

// decimals writes x with n decimals and commas between thousands.
func decimals(x float64, n int) string {
	text := strconv.FormatFloat(x, 'f', n, 64)
	whole, rest, _ := strings.Cut(text, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if n > 0 {
		whole += "." + rest
	}
	return sign + whole
}
