// Package display formats numbers, counts, texts and tables for people. All output of Lockstep uses these formats.
package display

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Decimals formats x with n decimals and commas between thousands: "1,234.5".
func Decimals(x float64, n int) string {
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

// Significant formats x with three significant digits, for columns: "12.0", "1,235". It keeps all digits before the
// decimal point.
func Significant(x float64) string {
	switch size := math.Abs(round3(x)); {
	case size == 0:
		return "0"
	case size >= 100:
		return Decimals(x, 0)
	case size >= 10:
		return Decimals(x, 1)
	case size >= 1:
		return Decimals(x, 2)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// Number formats x like Significant but without trailing zeros, for sentences: "12", "19.5", "1,235".
func Number(x float64) string {
	if math.Abs(x) < 100 {
		return strconv.FormatFloat(x, 'g', 3, 64)
	}
	return Decimals(x, 0)
}

// round3 rounds to three significant digits, so that 999.9 gets the next unit.
func round3(x float64) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', 2, 64), 64)
	if err != nil {
		return x
	}
	return y
}

// Seconds formats a duration of x seconds with three significant digits: "12.3 ms".
func Seconds(x float64) string {
	for _, u := range []struct {
		min  float64
		name string
	}{{1, " s"}, {1e-3, " ms"}, {1e-6, " µs"}, {1e-9, " ns"}} {
		if round3(math.Abs(x)) >= u.min {
			return Significant(x/u.min) + u.name
		}
	}
	return "0 s"
}

// PlusMinus formats how far a duration of x seconds may be off, in either direction: "± 0.31". It rounds up to two
// significant digits and uses the unit of x, unless the bound is too small for it. It returns "" without a bound.
func PlusMinus(x, bound float64) string {
	if bound <= 0 {
		return ""
	}
	for _, unit := range []float64{1, 1e-3, 1e-6} {
		if round3(math.Abs(x)) < unit {
			continue
		}
		if bound >= unit/100 {
			return "± " + strconv.FormatFloat(roundUp(bound/unit), 'g', -1, 64)
		}
		break
	}
	return "± " + Seconds(roundUp(bound))
}

// RoundUp formats x, which must be above 0, rounded up to two significant digits: "0.31".
func RoundUp(x float64) string { return strconv.FormatFloat(roundUp(x), 'f', -1, 64) }

// roundUp rounds up to two significant digits.
func roundUp(x float64) float64 {
	scale := math.Pow(10, math.Floor(math.Log10(x))-1)
	up := math.Ceil(x/scale-1e-9) * scale
	if y, err := strconv.ParseFloat(strconv.FormatFloat(up, 'e', 1, 64), 64); err == nil {
		return y
	}
	return up
}

// Bytes formats a size in binary units with three significant digits: "1.50 GiB".
func Bytes(x float64) string {
	units := []string{" B", " KiB", " MiB", " GiB", " TiB"}
	i := 0
	for ; i < len(units)-1 && math.Abs(x) >= 1023.5; i++ {
		x /= 1024
	}
	return Significant(x) + units[i]
}

// Percent formats a part of at least 0: "3.7 %", from 10 % without decimals.
func Percent(part float64) string {
	if x := 100 * part; x < 9.95 {
		return Decimals(x, 1) + " %"
	}
	return Decimals(100*part, 0) + " %"
}

// Change formats a relative change with its sign: "+3.7 %". Changes from tenfold on are factors: "×12.0". A change from
// zero has no ratio.
func Change(part float64) string {
	switch {
	case math.IsInf(part, 0) || math.IsNaN(part):
		return "from zero"
	case part >= 9:
		return "×" + Significant(part+1)
	case math.Abs(part) < 0.0005:
		return "0 %"
	case part > 0:
		return "+" + Percent(part)
	}
	return "-" + Percent(-part)
}

// Count formats a number of things: "1 cell", "2,411 cells".
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return Decimals(float64(n), 0) + " " + thing
}

// AtMost returns the prefix of a number that may be an upper bound.
func AtMost(bound bool) string {
	if bound {
		return "at most "
	}
	return ""
}

// Time formats a time in UTC, in whole seconds: "2006-01-02 15:04:05 UTC".
func Time(t time.Time) string { return t.UTC().Format(time.DateTime + " UTC") }

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
