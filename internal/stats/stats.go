// Package stats is the mathematics of repeated measurements: what their median is and how well it is known, whether two
// sets of repetitions differ, by how much, and how sure that is of many comparisons together. It assumes nothing about
// distributions but where it says so. It guarantees the same answer for the same input: nothing is drawn at random.
//
// Functions do not change their arguments, may be called from any goroutine, and treat numbers as exact. Samples hold
// finite numbers; one that is empty has no median, and functions say what they return then.
package stats

import (
	"math"
	"slices"
)

// Sorted returns a sorted copy.
func Sorted(xs []float64) []float64 { return slices.Sorted(slices.Values(xs)) }

// Median is the number in the middle, of an even number the mean of the two in the middle; NaN if there is none.
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

// Mean is the arithmetic mean of xs, NaN if there are none.
func Mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

// MAD is the median absolute deviation from the median, times 1.4826, so that it is the standard deviation of what is
// normal; 0 of less than two.
func MAD(xs []float64) float64 {
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

// Deviation is the sample standard deviation; 0 of less than two numbers.
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

// Interval is where a number is, with the confidence that Confidence says: what the samples can really give, not what
// was asked for.
type Interval struct {
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Confidence float64 `json:"confidence"` // 0: nothing is known
}

// Holds reports whether an interval is as sure as asked for.
func (i Interval) Holds(confidence float64) bool { return i.Confidence >= confidence-1e-12 }

// Contains reports whether x is in the interval.
func (i Interval) Contains(x float64) bool { return i.Low <= x && x <= i.High }

// Half is half the width of an interval.
func (i Interval) Half() float64 { return (i.High - i.Low) / 2 }
