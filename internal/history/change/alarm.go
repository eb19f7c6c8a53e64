package change

import (
	"math"
	"slices"
)

// The alarm's constants. docs/history.md says why these.
const (
	AlarmLevel = 0.045 // alarms that a night on which nothing has changed may raise in the mean: at most 0.05 of such nights have any, which is promised
	least      = 0.05  // the smallest shift that is an alarm, in parts
	newest     = 3     // runs that are compared with those before them
	window     = 90    // runs before them that are looked at
	enough     = 8     // runs of the present level before them that are needed
	outlying   = 4.0   // in scaled median deviations: such runs are left out of the level before
	shareThree = 0.85  // of the level, for the last three; the rest is for two
	guardThree = 1.4   // standard deviations by which the mean of the two lesser ones of three has to be off, too
	guardTwo   = 1.6   // standard deviations by which each of the last two has to be off
	gap        = 4.0   // standard deviations: what is so much further off than the next of the last runs is an outlier, and says nothing
	faint      = 1.9   // standard errors: what is not even so far off is not looked at
	kindred    = 10    // series that a common noise is learned from, at least
)

// Alarm is a series whose level changed in its last runs.
type Alarm struct {
	Series        int     // its index
	Runs          int     // of the new level that it was seen in: 2 or 3
	Before, After float64 // means
	P             float64 // how often any of all series would show as much by chance: of nights dealt from what is before
}

// Shift is the change in parts of the level before.
func (a Alarm) Shift() float64 { return shift(a.Before, a.After) }

// Alarms tells which of the series of one night, oldest first, changed their level in the last two or three runs; and how many are too short,
// or have no level, to be told of. All series together raise any alarm in less than one stable night of twenty, if the newest runs of these are dealt like
// those before. The same series give the same answer.
//
// The last runs are compared with those since the last change before them by a statistic like Student's. The variance of each is moderated by that of all
// (Smyth, 2004), and widened where runs resemble the ones before them. How large the statistic has to be is learned from the series themselves (calibrate).
func Alarms(series [][]float64) (alarms []Alarm, untold int) {
	levels := make([]level, len(series))
	for i, s := range series {
		levels[i] = levelOf(s)
	}
	common, alike := kinship(levels)
	var told []level
	for _, l := range levels {
		if l.tells() {
			told = append(told, l)
		}
	}
	chance := calibrate(told, common)
	for i, l := range levels {
		if !l.tells() {
			untold++
			continue
		}
		l.resemble(alike)
		l.moderate(common)
		a, is := l.test(series[i][len(series[i])-newest:])
		if a.P, a.Series = chance.of(a.P), i; is && a.P <= AlarmLevel {
			alarms = append(alarms, a)
		}
	}
	return alarms, untold
}

// level is what is known of a series before its newest runs.
type level struct {
	past     []float64 // the runs of the present level, outliers too
	n        int       // runs without outliers; 0: too few
	mean     float64
	variance float64 // in parts of the mean, squared
	freedom  float64 // degrees of
	like     float64 // how much a run resembles the one before it: its autocorrelation
	far      float64 // what is further than this from middle is an outlier
	middle   float64
}

func (l *level) tells() bool { return l.n >= enough && l.mean != 0 }

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
	l := level{past: past, middle: median(past)}
	l.far = outlying * scaled * deviation(past, l.middle)
	kept := slices.DeleteFunc(slices.Clone(past), l.outlier)
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

func (l *level) outlier(x float64) bool { return math.Abs(x-l.middle) > l.far }

// resemble takes the autocorrelation of all or, where the series clearly has more, its own.
func (l *level) resemble(alike float64) {
	own := l.like + 1/float64(l.n)
	l.like = max(0, alike)
	if own > 2/math.Sqrt(float64(l.n)) {
		l.like = max(l.like, own)
	}
	l.like = min(l.like, 0.9)
}

// moderate brings the variance towards the common one.
func (l *level) moderate(c prior) {
	switch {
	case math.IsInf(c.freedom, 1):
		l.variance, l.freedom = c.variance, math.Inf(1)
	case c.freedom > 0:
		l.variance = (c.freedom*c.variance + l.freedom*l.variance) / (c.freedom + l.freedom)
		l.freedom += c.freedom
	}
	const finest = 0.005 // of the mean: what is steadier than that is not so by nature
	l.variance = max(l.variance, finest*finest)
}

// test compares the last three runs, and two of them, with the level. P of what it finds is that of normal noise, for this series alone.
func (l *level) test(last []float64) (found Alarm, is bool) {
	before := (1 + l.like) / (1 - l.like) / float64(l.n)
	three := math.Sqrt((1+4*l.like/3+2*l.like*l.like/3)/3 + before)
	two := math.Sqrt((1+l.like)/2 + before)
	sd := math.Sqrt(l.variance) * math.Abs(l.mean)
	consider := func(some []float64, mean, error, share float64) {
		if mean < faint*error {
			return
		}
		if p := 2 * upper(mean/error, l.freedom) / share; !is || p < found.P {
			if a := l.alarm(some, p); math.Abs(a.Shift()) >= least {
				found, is = a, true
			}
		}
	}
	for _, way := range []float64{1, -1} {
		var off [newest]float64 // in standard deviations
		for i, x := range last {
			off[i] = way * (x - l.mean) / sd
		}
		low, middle, high := inOrder(off)
		switch {
		case high-middle < gap && (low+middle)/2 > guardThree:
			consider(last, (low+middle+high)/3, three, shareThree)
		case high-middle >= gap && middle-low < gap:
			rest := slices.DeleteFunc(slices.Clone(last), func(x float64) bool { return way*(x-l.mean)/sd == high })
			consider(rest, (low+middle)/2, two, 1-shareThree)
		}
		if min(off[1], off[2]) > guardTwo && math.Abs(off[1]-off[2]) < gap {
			consider(last[1:], (off[1]+off[2])/2, two, 1-shareThree)
		}
	}
	return found, is
}

func inOrder(x [newest]float64) (low, middle, high float64) {
	low, high = min(x[0], x[1], x[2]), max(x[0], x[1], x[2])
	return low, x[0] + x[1] + x[2] - low - high, high
}

func (l *level) alarm(last []float64, p float64) Alarm {
	a := Alarm{Runs: len(last), Before: l.mean, P: p}
	for _, x := range last {
		a.After += x / float64(len(last))
	}
	return a
}
