package stats

import "math"

// MedianInterval returns a confidence interval of the median of the population of a sample, between two order
// statistics. It is valid for every distribution (Thompson 1936). It is the narrowest symmetric interval with the
// requested confidence. If the sample is too small for that, it is the range of the sample, with the confidence of
// that: see Interval.Holds and MinForMedian.
func MedianInterval(xs []float64, confidence float64) Interval {
	n := len(xs)
	if n == 0 {
		return Interval{}
	}
	sorted := Sorted(xs)
	// The probability that the median lies outside, on one side, is that of fewer than k heads in n tosses of a coin.
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

// coin returns the probability of at most k heads in n tosses.
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

// MinForMedian returns the minimum number of repetitions for an interval of a median with that confidence: 6 for 0.95.
func MinForMedian(confidence float64) int {
	for n := 1; ; n++ {
		if 1-2*math.Pow(0.5, float64(n)) >= confidence || n >= 64 {
			return n
		}
	}
}

// Summary describes a sample.
type Summary struct {
	N        int      `json:"n"`
	Min      float64  `json:"min"`
	Max      float64  `json:"max"`
	Median   float64  `json:"median"`
	Spread   float64  `json:"spread"`   // MAD, in the unit of the values
	Interval Interval `json:"interval"` // of the median
}

// Summarize describes a sample. Its interval has the requested confidence if the sample is large enough. The zero
// Summary describes an empty sample.
func Summarize(xs []float64, confidence float64) Summary {
	if len(xs) == 0 {
		return Summary{}
	}
	sorted := Sorted(xs)
	return Summary{N: len(xs), Min: sorted[0], Max: sorted[len(sorted)-1], Median: middle(sorted), Spread: mad(sorted),
		Interval: MedianInterval(sorted, confidence)}
}

// Relative returns half the width of a sample's interval as a fraction of its median, for rules such as "known to
// within 5 %". ok is false if there are too few repetitions for that confidence, or if the median is zero.
func (s Summary) Relative(confidence float64) (part float64, ok bool) {
	if s.N == 0 || !s.Interval.Holds(confidence) {
		return 0, false
	}
	if half := s.Interval.half(); half == 0 {
		return 0, true
	} else if s.Median != 0 {
		return half / math.Abs(s.Median), true
	}
	return 0, false
}
