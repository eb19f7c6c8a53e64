// Package stats implements the statistics of repeated measurements. It computes medians and their accuracy, tests
// whether two samples differ and by how much, and corrects for many tests. It assumes nothing about distributions
// unless stated. Results are deterministic: nothing is random.
//
// Functions do not modify their arguments and are safe for concurrent use. They treat numbers as exact. Samples must
// contain finite numbers. Functions document their results for empty samples.
package stats

import (
	"math"
	"slices"
)

// Sorted returns a sorted copy.
func Sorted(xs []float64) []float64 {
	sorted := slices.Clone(xs)
	slices.Sort(sorted)
	return sorted
}

// Median returns the middle number, or the mean of the two middle numbers; NaN for an empty sample.
func Median(xs []float64) float64 { return middle(Sorted(xs)) }

func middle(sorted []float64) float64 {
	n := len(sorted)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return sorted[n/2]
	}
	return sorted[n/2-1] + (sorted[n/2]-sorted[n/2-1])/2
}

// Mean returns the arithmetic mean; NaN for an empty sample.
func Mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

// mad returns the median absolute deviation from the median, times 1.4826. For a normal distribution it estimates the
// standard deviation. It is 0 for fewer than two numbers.
func mad(xs []float64) float64 {
	if len(xs) < 2 {
		return 0
	}
	m := Median(xs)
	off := make([]float64, len(xs))
	for i, x := range xs {
		off[i] = math.Abs(x - m)
	}
	return 1.4826 * Median(off)
}

// Deviation returns the sample standard deviation; 0 for fewer than two numbers.
func Deviation(xs []float64) float64 {
	if len(xs) < 2 {
		return 0
	}
	mean, squares := Mean(xs), 0.0
	for _, x := range xs {
		squares += square(x - mean)
	}
	return math.Sqrt(squares / float64(len(xs)-1))
}

func square(x float64) float64 { return x * x }

// Interval is a confidence interval. Confidence is the one that the samples permit, which may be lower than the
// requested one.
type Interval struct {
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Confidence float64 `json:"confidence"` // 0: nothing is known
}

// Holds reports whether the interval has at least this confidence.
func (i Interval) Holds(confidence float64) bool { return i.Confidence >= confidence-1e-12 }

// Contains reports whether x is in the interval.
func (i Interval) Contains(x float64) bool { return i.Low <= x && x <= i.High }

// half returns half the width of the interval.
func (i Interval) half() float64 { return (i.High - i.Low) / 2 }
