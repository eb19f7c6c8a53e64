package change

import (
	"cmp"
	"math"
	"slices"

	"example.org/lockstep/lockstep/internal/stats"
)

// series is the state of the search for change points in a series.
type series struct {
	values          []float64
	index           []int   // of each value in Series.Values
	fresh           int     // the first value of the last Recent runs
	rho             float64 // autocorrelation
	far             float64 // deviation from its level, relative to it, beyond which a value is an outlier
	points          []Point
	ps              []float64 // of the points, not corrected
	recent, earlier int       // number of possible split points in the last Recent runs, and before
}

func newSeries(s Series, rho, sd float64, last int, explained map[int]bool) *series {
	l := &series{rho: rho}
	for i := max(0, len(s.Values)-maxRuns); i < len(s.Values); i++ {
		if !explained[s.Runs[i]] {
			l.values, l.index = append(l.values, s.Values[i]), append(l.index, i)
		}
	}
	n := len(l.values)
	// outlying is a quantile of the normal distribution; that of Student's with the freedom of a median absolute
	// deviation of n values, 0.37 n, is larger (Cornish and Fisher, 1938: by the factor 1 + (z² + 1)/(4 · freedom)).
	l.far = outlying * (1 + (outlying*outlying+1)/(4*0.37*float64(n))) * sd
	for l.fresh = n; l.fresh > 0 && s.Runs[l.index[l.fresh-1]] > last-Recent; {
		l.fresh--
	}
	l.recent = max(0, n-segment+1-max(l.fresh, minBefore))
	l.earlier = max(0, n-2*segment+1) - l.recent
	return l
}

// standardDeviation estimates that of a value relative to its level, from the differences of consecutive values, so
// that levels and outliers hardly affect it.
func standardDeviation(values []float64, rho float64) float64 {
	return 1.4826 * stats.Median(differences(values, 1)) / math.Sqrt(2*(1-rho))
}

// differences returns the absolute differences of values that are lag runs apart, relative to their mean.
func differences(values []float64, lag int) (all []float64) {
	for i := lag; i < len(values); i++ {
		if x, y := values[i-lag], values[i]; x != y {
			all = append(all, 2*math.Abs(y-x)/math.Abs(y+x))
		} else {
			all = append(all, 0)
		}
	}
	return all
}

// propose adds the candidates: those of E-divisive means, and the best split in the last Recent runs, which that search
// does not always reach.
func (s *series) propose() {
	e := newEnergy(s.clipped())
	var divide func(start, end int)
	divide = func(start, end int) {
		if end-start < 2*segment {
			return
		}
		at, right := e.split(start, start+segment, end)
		if s.compare([]level{s.level(start, at), s.level(at, right)})[0] > weak {
			return
		}
		divide(start, at)
		s.points = append(s.points, Point{At: s.index[at], Alarm: at >= max(s.fresh, minBefore)})
		divide(at, end)
	}
	divide(0, len(s.values))
	if n := len(s.points); s.recent > 0 && (n == 0 || !s.points[n-1].Alarm) {
		at, _ := e.split(0, max(s.fresh, minBefore), len(s.values))
		s.points = append(s.points, Point{At: s.index[at], Alarm: true})
	}
	s.test()
}

// clipped returns the values without lone outliers: one that is far from the median of itself and of two values on
// either side is moved towards it.
func (s *series) clipped() []float64 {
	values := slices.Clone(s.values)
	for i, x := range s.values {
		middle := stats.Median(s.values[max(0, i-2):min(len(values), i+3)])
		far := s.far * math.Abs(middle)
		values[i] = min(max(x, middle-far), middle+far)
	}
	return values
}

// test estimates the levels between the candidates, and compares consecutive levels.
func (s *series) test() {
	var all []level
	start := 0
	for _, p := range s.points {
		at, _ := slices.BinarySearch(s.index, p.At)
		all = append(all, s.level(start, at))
		start = at
	}
	all = append(all, s.level(start, len(s.values)))
	s.ps = s.compare(all)
	for i := range s.points {
		s.points[i].Before, s.points[i].After = all[i].mean, all[i+1].mean
	}
}

// level is the mean of consecutive values without outliers.
type level struct {
	n       float64
	mean    float64
	squares float64 // sum of the squared deviations, relative to the mean
}

func (s *series) level(start, end int) (l level) {
	middle := stats.Median(s.values[start:end])
	far := s.far * math.Abs(middle)
	part := slices.DeleteFunc(slices.Clone(s.values[start:end]),
		func(x float64) bool { return far != 0 && !(math.Abs(x-middle) <= far) })
	if len(part) == 0 {
		return l
	}
	l.n, l.mean = float64(len(part)), stats.Mean(part)
	for _, x := range part {
		if l.mean != 0 {
			l.squares += (x/l.mean - 1) * (x/l.mean - 1)
		}
	}
	return l
}

// compare returns the p-values of Student's t-tests between consecutive levels. The variance is that of a value
// relative to its level, pooled over all levels: the variances of the two or three newest runs alone, as in Welch's
// test, would leave one degree of freedom.
func (s *series) compare(all []level) []float64 {
	squares, freedom := 0.0, 0.0
	for _, l := range all {
		if l.mean != 0 {
			squares += l.squares
			freedom += l.n - s.inflation(l.n)
		}
	}
	variance := squares / freedom
	freedom *= (1 - s.rho*s.rho) / (1 + s.rho*s.rho) // Bartlett, 1946
	ps := make([]float64, len(all)-1)
	for i := range ps {
		a, b := all[i], all[i+1]
		if ps[i] = 1; a.n == 0 || b.n == 0 || a.mean == b.mean || freedom <= 0 {
			continue
		}
		part := math.Abs(a.mean-b.mean) / cmp.Or(math.Abs(a.mean), math.Abs(b.mean))
		t := part / math.Sqrt(variance*(s.inflation(a.n)/a.n+s.inflation(b.n)/b.n))
		ps[i] = 2 * stats.StudentT(-t, freedom)
	}
	return ps
}

// inflation returns the factor by which autocorrelation increases the variance of the mean of n values. The effective
// sample size is n divided by it (Bayley and Hammersley, The "Effective" Number of Independent Observations in an
// Autocorrelated Time Series, 1946).
func (s *series) inflation(n float64) float64 {
	r := s.rho
	return (1+r)/(1-r) - 2*r*(1-math.Pow(r, n))/(n*(1-r)*(1-r))
}

// autocorrelation estimates the correlation of consecutive runs, over all series. The estimate is a ratio of variances
// less one (von Neumann, 1941). The variances are those of the differences between values that are two runs and one run
// apart. Levels do not affect them, and a few changes hardly do. Standard deviations are estimated by mean absolute
// differences, of which large ones are reduced to four medians.
func autocorrelation(all []Series) float64 {
	var one, two float64
	for _, s := range all {
		if len(s.Values) < minBefore+segment {
			continue
		}
		x, y := differences(s.Values, 1), differences(s.Values, 2)
		limit := 4 * stats.Median(x)
		mean := func(all []float64) (mean float64) {
			for _, d := range all {
				mean += min(d, limit) / float64(len(all))
			}
			return mean
		}
		if n, x, y := float64(len(x)), mean(x), mean(y); x > 0 {
			one, two = one+n*x/(x+y), two+n*y/(x+y)
		}
	}
	if one == 0 {
		return 0
	}
	return min(max(0, two*two/(one*one)-1), 0.9)
}
