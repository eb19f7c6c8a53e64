// Package change finds where the level of a series of measurements changed, and which of many series changed in the last few. It is pure
// mathematics: a series is one number a run, oldest first. docs/history.md says what it can see and what it cannot.
package change

import (
	"math"
	"math/rand/v2"
	"slices"
)

// The method's constants. They are documented in docs/history.md, and the figures there were measured with them.
const (
	Level    = 0.01 // of the test that a place is a change
	shuffles = 499  // that a place has to stand out of
	segment  = 3    // the least number of runs on either side of a change
	clip     = 5.0  // in scaled median deviations: what is further from the median counts as that far
	scaled   = 1.4826
	// MostRuns bounds a series in which changes are looked for: of a longer one, the newest are looked at.
	MostRuns = 1000
)

// Change is a place where the level changed.
type Change struct {
	At            int     // the first run of the new level
	Before, After float64 // medians of the levels on both sides
	P             float64 // how often chance alone, without a change, would show one as clear; 0.002 is the least that is told
}

// Shift is the change in parts of the level before, 0.1 for 10 % more; infinite from 0.
func (c Change) Shift() float64 { return shift(c.Before, c.After) }

func shift(before, after float64) float64 {
	if before == after {
		return 0
	}
	return (after - before) / math.Abs(before)
}

// Points finds the changes in a series, in order, by E-divisive means (Matteson and James, 2014): the place where the energy distance of both
// sides is largest is a change if shuffled copies hardly ever have a place as clear; then both sides are looked at by themselves. What is
// far out is clipped first, so that one outlier is no level. least is the smallest shift that is told, in parts. The same series gives the
// same answer.
func Points(series []float64, least float64) []Change {
	skipped := max(0, len(series)-MostRuns)
	series = series[skipped:]
	var cuts []found
	divide(series, 0, &cuts)
	slices.SortFunc(cuts, func(a, b found) int { return a.at - b.at })
	for {
		changes, weak := told(series, cuts, least)
		if weak < 0 {
			for i := range changes {
				changes[i].At += skipped
			}
			return changes
		}
		cuts = slices.Delete(cuts, weak, weak+1) // its neighbours' levels are others now
	}
}

type found struct {
	at int
	p  float64
}

// divide looks for a change in a part of a series that begins at from, and then in both its sides.
func divide(part []float64, from int, cuts *[]found) {
	at, p, is := split(part)
	if !is {
		return
	}
	*cuts = append(*cuts, found{from + at, p})
	divide(part[:at], from, cuts)
	divide(part[at:], from+at, cuts)
}

// told makes changes of cuts; weak is the cut with the smallest shift, if that is below least, else -1.
func told(series []float64, cuts []found, least float64) (changes []Change, weak int) {
	weak = -1
	smallest := least
	for i, c := range cuts {
		from, to := 0, len(series)
		if i > 0 {
			from = cuts[i-1].at
		}
		if i+1 < len(cuts) {
			to = cuts[i+1].at
		}
		change := Change{At: c.at, Before: median(series[from:c.at]), After: median(series[c.at:to]), P: c.p}
		if size := math.Abs(change.Shift()); size < smallest {
			weak, smallest = i, size
		}
		changes = append(changes, change)
	}
	return changes, weak
}

// split finds the clearest place in a part, and whether it is a change.
func split(part []float64) (at int, p float64, is bool) {
	if len(part) < 2*segment {
		return 0, 1, false
	}
	e := newEnergy(clipped(part))
	at, most := e.clearest()
	if most <= 0 {
		return 0, 1, false
	}
	random := rand.New(rand.NewPCG(uint64(len(part)), 7)) //nolint:gosec // the same series gives the same answer
	as, may := 1, int(Level*(shuffles+1))
	for range shuffles {
		random.Shuffle(len(e.ranks), func(i, j int) { e.ranks[i], e.ranks[j] = e.ranks[j], e.ranks[i] })
		if _, q := e.clearest(); q >= most {
			if as++; as > may {
				return at, 1, false
			}
		}
	}
	return at, float64(as) / (shuffles + 1), true
}

// clipped brings what is far out back to where it does not count as more than far out.
func clipped(part []float64) []float64 {
	middle := median(part)
	far := clip * scaled * deviation(part, middle)
	if far == 0 {
		return part
	}
	out := make([]float64, len(part))
	for i, x := range part {
		out[i] = min(max(x, middle-far), middle+far)
	}
	return out
}

func median(xs []float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	n := len(s)
	if n == 0 {
		return math.NaN()
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}

// deviation is the median distance from the middle.
func deviation(xs []float64, middle float64) float64 {
	d := make([]float64, len(xs))
	for i, x := range xs {
		d[i] = math.Abs(x - middle)
	}
	return median(d)
}
