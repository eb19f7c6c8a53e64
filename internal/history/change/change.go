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
	"cmp"
	"maps"
	"math"
	"slices"

	"example.org/lockstep/lockstep/internal/stats"
)

// The parameters of the method.
const (
	// the level of Holm's procedure in each family of tests; with estimated variances and 90 earlier runs, about 5 % of
	// the digests of 800 stable values have a false alarm
	alpha    = 0.03
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

// energy has the sums of the distances of all pairs of values: sums[i*(n+1)+j] is the sum between the first i and the
// first j values.
type energy struct {
	sums []float64
	n    int
}

func newEnergy(values []float64) energy {
	n := len(values)
	e := energy{make([]float64, (n+1)*(n+1)), n}
	for i, x := range values {
		above, row := e.sums[i*(n+1):(i+1)*(n+1)], e.sums[(i+1)*(n+1):(i+2)*(n+1)]
		sum := 0.0
		for j, y := range values {
			sum += math.Abs(x - y)
			row[j+1] = above[j+1] + sum
		}
	}
	return e
}

// split returns the best split of the values from start to end, and the right end of the part after it. The split is at
// from or later. The best one has the largest scaled energy distance between start…at and at…right. See Matteson and
// James, 2014, equations 5 to 7, with alpha = 1.
func (e energy) split(start, from, end int) (at, right int) {
	largest := math.Inf(-1)
	w := e.n + 1
	for k := from; k <= end-segment; k++ {
		x := float64(k - start)
		atK, atStart := e.sums[k*w:(k+1)*w], e.sums[start*w:(start+1)*w]
		left := atK[k] - 2*atK[start] + atStart[start] // contains each pair twice
		for m := k + segment; m <= end; m++ {
			y := float64(m - k)
			across := atK[m] - atK[k] - atStart[m] + atStart[k]
			within := e.sums[m*w+m] - 2*atK[m] + atK[k]
			if q := x * y / (x + y) * (2*across/(x*y) - left/(x*(x-1)) - within/(y*(y-1))); q > largest {
				at, right, largest = k, m, q
			}
		}
	}
	return at, right
}

const (
	commonRuns   = 2 * Recent // number of newest runs in which common changes are searched
	commonBefore = 9          // number of runs before these; their median is the level before
	commonFar    = 2.0        // minimum deviation from that level, in standard deviations
	minCommon    = 3          // minimum number of cells
)

// common finds changes in more than a third of the cells of a group in the same runs, of one or more runs. It also
// returns, for each series, the runs whose values such a change explains. These are not tested again: the test would
// find the change in some cells, or in later runs. A change of commonRuns or more runs is a new level and explains
// nothing. sds are the standard deviations of the series relative to their levels.
func common(all []Series, last int, sds []float64) (found []Common, explained []map[int]bool) {
	explained = make([]map[int]bool, len(all))
	type key struct {
		group string
		run   int
		up    bool
	}
	cells := map[string]int{}          // by group
	total := map[key]map[int]bool{}    // series that moved by more than noise
	moved := map[key]map[int]float64{} // relative change of each series that moved by at least MinShift
	for i, s := range all {
		fresh, _ := slices.BinarySearch(s.Runs, last-commonRuns+1)
		if fresh < minBefore {
			continue
		}
		level := stats.Median(s.Values[max(0, fresh-commonBefore):fresh])
		if level == 0 || fresh == len(s.Values) { // a relative change needs a level, and recent runs
			continue
		}
		cells[s.Group]++
		for j := fresh; j < len(s.Values); j++ {
			part := shift(level, s.Values[j])
			if math.Abs(part) < minShift {
				continue
			}
			k := key{s.Group, s.Runs[j], part > 0}
			if moved[k] == nil {
				moved[k] = map[int]float64{}
			}
			moved[k][i] = part
			if math.Abs(part) > commonFar*sds[i] {
				if total[k] == nil {
					total[k] = map[int]bool{}
				}
				total[k][i] = true // counted once, even if several runs have this number
			}
		}
	}
	maps.DeleteFunc(moved, func(k key, _ map[int]float64) bool {
		return len(total[k]) < minCommon || 3*len(total[k]) <= cells[k.group]
	})
	for k := range moved {
		if moved[key{k.group, k.run - 1, k.up}] != nil || k.run == last-commonRuns+1 {
			continue // not the first run of the change
		}
		c := Common{Group: k.group, From: k.run, To: k.run}
		for ; moved[key{k.group, c.To, k.up}] != nil; c.To++ {
			for i := range moved[key{k.group, c.To, k.up}] {
				if explained[i] == nil {
					explained[i] = map[int]bool{}
				}
				explained[i][c.To] = true
			}
		}
		if c.To--; c.From <= last-Recent {
			continue
		}
		for i := range all {
			if part, is := moved[k][i]; is {
				c.Series, c.Shifts = append(c.Series, i), append(c.Shifts, part)
			}
		}
		found = append(found, c)
	}
	slices.SortFunc(found, func(a, b Common) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.From, b.From), slices.Compare(a.Series, b.Series))
	})
	return found, explained
}
