package change

import (
	"math"
	"slices"
)

// The alarm's constants. docs/history.md says why these.
const (
	AlarmLevel = 0.045 // of a night: how often any of its series may raise an alarm when nothing has changed, at most. 0.05 is promised
	least      = 0.05  // the smallest shift that is an alarm, in parts
	newest     = 3     // runs that are compared with those before them
	window     = 90    // runs before them that are looked at
	enough     = 8     // runs of the present level before them that are needed
	outlying   = 4.0   // in scaled median deviations: such runs are left out of the level before
	shareThree = 0.85  // of the level, for the last three; the rest is for two
	guardThree = 1.4   // standard deviations by which the mean of the two lesser ones of three has to be off, too
	guardTwo   = 1.6   // standard deviations by which each of the last two has to be off
	gap        = 4.0   // standard deviations: what is so much further off than the next of the last runs is an outlier, and says nothing
	kindred    = 10    // series that a common noise is learned from, at least
)

// Alarm is a series whose level changed in its last runs.
type Alarm struct {
	Series        int     // its index
	Runs          int     // of the new level that it was seen in: 2 or 3
	Before, After float64 // means
	P             float64 // how often any of all series would show as much by chance: corrected for all of them
}

// Shift is the change in parts of the level before.
func (a Alarm) Shift() float64 { return shift(a.Before, a.After) }

// Alarms tells which of the series of one night, oldest first, changed their level in the last two or three runs; and how many are too short,
// or have no level, to be told of. All series together raise any alarm in less than one stable night of twenty, if their noise is about normal.
//
// The last runs are compared with those since the last change before them by a t test, whose level is divided by the number of series
// (Bonferroni). The variance of each is moderated by that of all (Smyth, 2004), and widened where runs resemble the ones before them.
func Alarms(series [][]float64) (alarms []Alarm, untold int) {
	levels := make([]level, len(series))
	for i, s := range series {
		levels[i] = levelOf(s)
	}
	common, alike := kinship(levels)
	tests := 0
	for _, l := range levels {
		if l.n >= enough && l.mean != 0 {
			tests++
		}
	}
	for i, l := range levels {
		if l.n < enough || l.mean == 0 {
			untold++
			continue
		}
		l.moderate(common, alike)
		if a, is := l.test(series[i][len(series[i])-newest:], AlarmLevel/float64(tests)); is {
			a.Series, a.P = i, min(1, a.P*float64(tests))
			alarms = append(alarms, a)
		}
	}
	return alarms, untold
}

// level is what is known of a series before its newest runs.
type level struct {
	n        int // runs; 0: too few
	mean     float64
	variance float64 // in parts of the mean, squared
	freedom  float64 // degrees of
	like     float64 // how much a run resembles the one before it: its autocorrelation
}

func levelOf(series []float64) level {
	if len(series) < enough+newest {
		return level{}
	}
	past := series[max(0, len(series)-newest-window) : len(series)-newest]
	if changes := Points(past, least); len(changes) > 0 {
		past = past[changes[len(changes)-1].At:]
	}
	if len(past) < enough {
		return level{}
	}
	middle := median(past)
	far := outlying * scaled * deviation(past, middle)
	kept := slices.DeleteFunc(slices.Clone(past), func(x float64) bool { return math.Abs(x-middle) > far })
	var l level
	l.n = len(kept)
	for _, x := range kept {
		l.mean += x / float64(l.n)
	}
	if l.mean == 0 || l.n < enough {
		return level{}
	}
	for _, x := range kept {
		l.variance += (x - l.mean) * (x - l.mean)
	}
	for i := 1; i < l.n && l.variance > 0; i++ {
		l.like += (kept[i] - l.mean) * (kept[i-1] - l.mean) / l.variance
	}
	l.freedom = float64(l.n - 1)
	l.variance /= l.freedom * l.mean * l.mean
	return l
}

// moderate brings the variance towards the common one, and the autocorrelation to that of all or, where it clearly has more, its own.
func (l *level) moderate(c prior, alike float64) {
	switch {
	case math.IsInf(c.freedom, 1):
		l.variance, l.freedom = c.variance, math.Inf(1)
	case c.freedom > 0:
		l.variance = (c.freedom*c.variance + l.freedom*l.variance) / (c.freedom + l.freedom)
		l.freedom += c.freedom
	}
	own := l.like + 1/float64(l.n)
	l.like = max(0, alike)
	if own > 2/math.Sqrt(float64(l.n)) {
		l.like = max(l.like, own)
	}
	l.like = min(l.like, 0.9)
	const finest = 0.005 // of the mean: what is steadier than that is not so by nature
	l.variance = max(l.variance, finest*finest)
}

// test compares the last three runs, and the last two, with the level.
func (l *level) test(last []float64, alpha float64) (Alarm, bool) {
	before := (1 + l.like) / (1 - l.like) / float64(l.n)
	three := math.Sqrt((1+4*l.like/3+2*l.like*l.like/3)/3 + before)
	two := math.Sqrt((1+l.like)/2 + before)
	sd := math.Sqrt(l.variance) * math.Abs(l.mean)
	pair := func(x, y float64) float64 { return 2 * upper((x+y)/2/two, l.freedom) / (1 - shareThree) }
	for _, way := range []float64{1, -1} {
		off := make([]float64, newest) // in standard deviations
		for i, x := range last {
			off[i] = way * (x - l.mean) / sd
		}
		sorted := slices.Sorted(slices.Values(off))
		low, middle, high := sorted[0], sorted[1], sorted[2]
		if p := 2 * upper((low+middle+high)/3/three, l.freedom) / shareThree; high-middle < gap && p <= alpha && (low+middle)/2 > guardThree {
			return l.alarm(last, p)
		}
		if p := pair(low, middle); high-middle >= gap && p <= alpha && middle-low < gap {
			return l.alarm(slices.DeleteFunc(slices.Clone(last), func(x float64) bool { return way*(x-l.mean)/sd == high }), p)
		}
		if p := pair(off[1], off[2]); p <= alpha && min(off[1], off[2]) > guardTwo && math.Abs(off[1]-off[2]) < gap {
			return l.alarm(last[1:], p)
		}
	}
	return Alarm{}, false
}

func (l *level) alarm(last []float64, p float64) (Alarm, bool) {
	a := Alarm{Runs: len(last), Before: l.mean, P: p}
	for _, x := range last {
		a.After += x / float64(len(last))
	}
	return a, math.Abs(a.Shift()) >= least
}
