// Package change finds change points in time series of benchmark results, of many series together. A series has one
// value per scheduled run.
//
// Candidates come from E-divisive means (Matteson and James, A Nonparametric Approach for Multiple Change Point
// Analysis of Multivariate Data, 2014). A candidate is a change point if two conditions hold. Student's t-test rejects
// that the levels on both sides are equal, and the levels differ by MinShift. This is the method of Fleming et al.
// (Hunter: Using Change Point Detection to Hunt for Performance Regressions, 2023), which is Apache Otava. P-values are
// corrected for all series and split points (Holm, 1979). docs/concepts/statistics.md has the measured error rates.
//
// All functions are pure and may be called concurrently.
package change

import (
	"math"
	"slices"

	"example.org/lockstep/lockstep/internal/stats"
)

// The parameters of the method.
const (
	// the level of Holm's procedure in each family of tests; with estimated variances, the probability of any false
	// change point is up to 5 %
	alpha    = 0.04
	minShift = 0.05 // smallest change of a level, relative to the level before
	Recent   = 3    // k: a change point in the last k scheduled runs is an alarm
	maxRuns  = 1000 // only the newest runs of a longer series are used

	segment   = 2    // minimum runs between two change points
	minBefore = 6    // minimum runs before a change point in the last k runs
	weak      = 0.01 // level of the test that ends the search for candidates
	// in scaled median absolute deviations: Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993
	outlying = 3.5
)

// Series is a time series, oldest run first.
type Series struct {
	Group  string // series of one group have the same value of different cells
	Runs   []int  // ascending numbers of the scheduled runs; the same run has the same number in all series
	Values []float64
}

// Point is a change point.
type Point struct {
	At     int     // index of the first value of the new level
	Before float64 // mean of the level before
	After  float64 // mean of the level after
	P      float64 // corrected p-value
	Alarm  bool    // it is in the last Recent scheduled runs
}

// Shift returns the change relative to the level before: 0.1 for 10 % more. It is infinite if the level before is 0.
func (p Point) Shift() float64 { return shift(p.Before, p.After) }

func shift(before, after float64) float64 {
	if before == after {
		return 0
	}
	return (after - before) / math.Abs(before)
}

// Common is a change in more than a third of the cells of a group in the same runs.
type Common struct {
	Group  string
	From   int       // number of its first run
	To     int       // number of its last run
	Series []int     // indexes of the series that changed
	Shifts []float64 // of each of them: the change in the first run, relative to the level before
}

// Result is the result of Find.
type Result struct {
	Points          [][]Point // one element per series, in order
	Common          []Common  // in the last Recent scheduled runs; Points has no alarm for these values
	Tested          int       // series that are long enough for an alarm
	Autocorrelation float64   // of consecutive runs, estimated over all series
}

// Find returns the change points of all series. last is the number of the newest scheduled run.
//
// The family of tests is divided in two, each with a probability of Alpha that any of its change points is false: the
// splits in the last Recent runs, which raise alarms, and all earlier ones.
func Find(all []Series, last int) Result {
	r := Result{Points: make([][]Point, len(all)), Autocorrelation: autocorrelation(all)}
	sds := make([]float64, len(all))
	for i, s := range all {
		sds[i] = standardDeviation(s.Values, r.Autocorrelation)
	}
	var explained []map[int]bool
	r.Common, explained = common(all, last, sds)
	var parts []*series
	var recent, earlier int // tests
	for i, s := range all {
		l := newSeries(s, r.Autocorrelation, sds[i], last, explained[i])
		l.propose()
		recent, earlier = recent+l.recent, earlier+l.earlier
		if l.recent > 0 {
			r.Tested++
		}
		parts = append(parts, l)
	}
	for prune(parts, recent, earlier) {
	}
	for i, l := range parts {
		r.Points[i] = l.points
	}
	return r
}

// prune corrects the p-values of all candidates. From each series it removes the least significant candidate that is
// not significant or too small.
func prune(all []*series, recent, earlier int) (removed bool) {
	ps := map[bool][]float64{}
	for _, s := range all {
		for i, p := range s.points {
			ps[p.Alarm] = append(ps[p.Alarm], s.ps[i])
		}
	}
	corrected := map[bool][]float64{true: stats.HolmOf(ps[true], recent), false: stats.HolmOf(ps[false], earlier)}
	for _, s := range all {
		worst := -1
		for i := range s.points {
			p := &s.points[i]
			p.P, corrected[p.Alarm] = corrected[p.Alarm][0], corrected[p.Alarm][1:]
			if (p.P > alpha || math.Abs(p.Shift()) < minShift) && (worst < 0 || p.P > s.points[worst].P) {
				worst = i
			}
		}
		if worst >= 0 {
			s.points, removed = slices.Delete(s.points, worst, worst+1), true
			s.test()
		}
	}
	return removed
}
