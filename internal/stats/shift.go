package stats

import (
	"math"
	"slices"
)

// Change is the difference or the ratio of two samples.
type Change struct {
	Estimate float64  `json:"estimate"`
	Interval Interval `json:"interval"`
}

// Difference returns by how much the numbers of b exceed those of a: the median of the differences of all pairs (Hodges
// and Lehmann 1963). Its interval is that of the Mann–Whitney test. It assumes two distributions of the same shape, one
// of which is shifted. ok is false if a sample is empty.
func Difference(a, b []float64, confidence float64) (c Change, ok bool) {
	if len(a) == 0 || len(b) == 0 {
		return Change{}, false
	}
	all := differences(a, b)
	k, sure := margin(len(a), len(b), confidence)
	return Change{Estimate: middle(all), Interval: Interval{Low: all[k], High: all[len(all)-1-k], Confidence: sure}},
		true
}

// differences returns the differences of all pairs, sorted.
func differences(a, b []float64) []float64 {
	all := make([]float64, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			all = append(all, y-x)
		}
	}
	slices.Sort(all)
	return all
}

// margin returns the number of sorted differences outside an interval on each side, and its confidence.
func margin(n, m int, confidence float64) (k int, sure float64) {
	limit := (n*m - 1) / 2
	if n+m > maxExact {
		mean, deviation := float64(n*m)/2, math.Sqrt(float64(n*m*(n+m+1))/12)
		k = int(math.Floor(mean - 0.5 - NormalQuantile((1-confidence)/2)*deviation))
		k = min(max(0, k), limit)
		return k, math.Erf((mean - 0.5 - float64(k)) / deviation / math.Sqrt2)
	}
	distribution := untied(n, m)
	tail := distribution[0]
	sure = max(0, 1-2*tail)
	for k < limit {
		tail += distribution[k+1]
		if 1-2*tail < confidence {
			break
		}
		k++
		sure = 1 - 2*tail
	}
	return k, sure
}

// Ratio returns the factor by which the numbers of b exceed those of a: the median of the ratios of all pairs. It is
// Difference applied to logarithms. ok is false if a sample is empty or contains a number that is not positive.
func Ratio(a, b []float64, confidence float64) (c Change, ok bool) {
	la, okA := logs(a)
	lb, okB := logs(b)
	if !okA || !okB {
		return Change{}, false
	}
	c, ok = Difference(la, lb, confidence)
	c.Estimate, c.Interval.Low, c.Interval.High = math.Exp(c.Estimate), math.Exp(c.Interval.Low),
		math.Exp(c.Interval.High)
	return c, ok
}

func logs(xs []float64) ([]float64, bool) {
	out := make([]float64, len(xs))
	for i, x := range xs {
		if !(x > 0) || math.IsInf(x, 1) {
			return nil, false
		}
		out[i] = math.Log(x)
	}
	return out, true
}

// Pair holds the repetitions of one cell on both sides.
type Pair struct{ A, B []float64 }

// GeometricRatio returns the geometric mean over cells of the ratio of b to a, as Ratio computes it. Its interval is a
// normal approximation. Standard errors are derived from the widths of the cells' own intervals (Lehmann 1963). For one
// cell it is that cell's interval. Cells with a number that is not positive are left out; used is the number of the
// others. ok is false if there is none. If a side of a cell has only one repetition, its noise is unknown, and the
// interval has confidence 0.
func GeometricRatio(pairs []Pair, confidence float64) (c Change, used int, ok bool) {
	var logMean, variance float64
	single := false
	for _, p := range pairs {
		r, is := Ratio(p.A, p.B, confidence)
		if !is {
			continue
		}
		used++
		c = r
		logMean += math.Log(r.Estimate)
		single = single || len(p.A) < 2 || len(p.B) < 2
		variance += square(math.Log(r.Interval.High/r.Interval.Low) / 2 / NormalQuantile((1-r.Interval.Confidence)/2))
	}
	if used < 2 {
		return c, used, used == 1
	}
	logMean /= float64(used)
	c = Change{Estimate: math.Exp(logMean)}
	c.Interval = Interval{Low: c.Estimate, High: c.Estimate}
	if !single {
		half := NormalQuantile((1-confidence)/2) * math.Sqrt(variance) / float64(used)
		c.Interval = Interval{Low: math.Exp(logMean - half), High: math.Exp(logMean + half), Confidence: confidence}
	}
	return c, used, true
}
