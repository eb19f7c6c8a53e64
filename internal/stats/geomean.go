package stats

import "math"

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

func square(x float64) float64 { return x * x }
