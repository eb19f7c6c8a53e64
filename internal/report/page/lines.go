package page

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"example.org/lockstep/lockstep/internal/report/chart"
)

// scaleOfNumbers is the positions of an axis's values if all of them are numbers or durations. Otherwise values is nil.
type scaleOfNumbers struct {
	values []float64
	kind   chart.Kind
	note   string
}

// minApart is the minimum distance of two values, as a part of the axis.
const minApart = 0.04

// ascending sorts the values of an axis if they are numbers or durations.
func ascending(texts []string) []string {
	s := scaleOf(texts)
	if s.values == nil {
		return texts
	}
	order := make([]int, len(texts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.values[a], s.values[b]) })
	return permuted(texts, order)
}

// scaleOf chooses the scale of an axis: linear if the values are far enough apart, else logarithmic, else evenly
// spaced. note names a scale that is not linear.
func scaleOf(texts []string) scaleOfNumbers {
	var s scaleOfNumbers
	for _, text := range texts {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			d, err := time.ParseDuration(text)
			if err != nil {
				return scaleOfNumbers{}
			}
			x = d.Seconds()
		}
		s.values = append(s.values, x)
	}
	switch {
	case apart(s.values, func(x float64) float64 { return x }):
		s.kind = chart.Linear
	case apart(s.values, math.Log10):
		s.kind, s.note = chart.Log, " (log)"
	default:
		s.kind, s.note = chart.Ordinal, " (evenly spaced)"
	}
	return s
}

// apart reports whether values ascend after f, each by at least minApart of their range.
func apart(values []float64, f func(float64) float64) bool {
	first, last := f(values[0]), f(values[len(values)-1])
	for i := range values[1:] {
		step := f(values[i+1]) - f(values[i])
		if !(step >= minApart*(last-first)) || step <= 0 || math.IsInf(step, 0) {
			return false
		}
	}
	return true
}
