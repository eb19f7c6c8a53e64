package stats

import "math"

// MedianInterval is a confidence interval of the median of what a sample was drawn from, between two order statistics:
// sure whatever the distribution is (Thompson 1936). It is the narrowest symmetric one with the confidence asked for,
// or, where the sample is too small for that, all of the sample with what confidence that gives: see Interval.Holds and
// MinForMedian.
func MedianInterval(xs []float64, confidence float64) Interval {
	n := len(xs)
	if n == 0 {
		return Interval{}
	}
	sorted := Sorted(xs)
	// The median is below the k-th or above the k-th from the end as often as fewer than k of n tosses of a coin fall
	// on one side.
	best, outside := 1, 2*coin(n, 0)
	for k := 2; 2*k <= n+1; k++ {
		out := 2 * coin(n, k-1)
		if 1-out < confidence {
			break
		}
		best, outside = k, out
	}
	return Interval{Low: sorted[best-1], High: sorted[n-best], Confidence: max(0, 1-outside)}
}

// coin is the probability that at most k of n tosses fall on heads.
func coin(n, k int) float64 {
	sum := 0.0
	for i := range k + 1 {
		sum += math.Exp(logChoose(n, i) - float64(n)*math.Ln2)
	}
	return min(1, sum)
}

func logChoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

// MinForMedian is how many repetitions an interval of a median with that confidence takes: 6 for 0.95.
func MinForMedian(confidence float64) int {
	for n := 1; ; n++ {
		if 1-2*math.Pow(0.5, float64(n)) >= confidence || n >= 64 {
			return n
		}
	}
}

// Summary is a sample in a few numbers.
type Summary struct {
	N        int      `json:"n"`
	Min      float64  `json:"min"`
	Max      float64  `json:"max"`
	Median   float64  `json:"median"`
	Spread   float64  `json:"spread"`   // MAD, in the unit of the values
	Interval Interval `json:"interval"` // of the median
}

// Summarize describes a sample, its interval with the confidence asked for if the sample can give that. Of no sample N
// is 0 and the rest nothing.
func Summarize(xs []float64, confidence float64) Summary {
	if len(xs) == 0 {
		return Summary{}
	}
	sorted := Sorted(xs)
	return Summary{N: len(xs), Min: sorted[0], Max: sorted[len(sorted)-1], Median: middle(sorted), Spread: MAD(sorted),
		Interval: MedianInterval(sorted, confidence)}
}

// Relative is half the width of a sample's interval as a part of its median, for rules like "known to within 5 %"; ok
// is false where that cannot be said: too few repetitions for that confidence, or a median of zero.
func (s Summary) Relative(confidence float64) (part float64, ok bool) {
	if s.N == 0 || !s.Interval.Holds(confidence) {
		return 0, false
	}
	if half := s.Interval.Half(); half == 0 {
		return 0, true
	} else if s.Median != 0 {
		return half / math.Abs(s.Median), true
	}
	return 0, false
}
