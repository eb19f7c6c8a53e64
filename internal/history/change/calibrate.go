package change

import (
	"math"
	"math/rand/v2"
	"slices"
)

// dealt is how many stable nights are dealt from what is known: enough that one alarm in twenty of them is 200.
const dealt = 4000

// chance is what stable nights show: of each series of each, the P of its test.
type chance struct{ ps []float64 } // in order

// of is how many alarms a stable night has in the mean that are as strong as p.
func (c chance) of(p float64) float64 {
	at, _ := slices.BinarySearchFunc(c.ps, p, func(x, p float64) int {
		if x <= p {
			return -1
		}
		return 1
	})
	return min(1, float64(at+1)/(dealt+1))
}

// calibrate deals nights on which nothing has changed: three runs of each series are taken out of those before, and tested as the newest ones are, against
// the rest. Noise of any kind is so met by a test that is as strict as that noise needs it, whichever series are how noisy: the errors of all are added.
func calibrate(levels []level, common prior) (c chance) {
	random := rand.New(rand.NewPCG(uint64(len(levels)), 11)) //nolint:gosec // the same series give the same answer
	for _, l := range levels {
		far := l.apart(common)
		for range dealt {
			var out [newest]int
			for i := range out {
				out[i] = random.IntN(len(l.past))
				for slices.Contains(out[:i], out[i]) {
					out[i] = random.IntN(len(l.past))
				}
			}
			if far != nil {
				if n := far[out[0]] + far[out[1]] + far[out[2]]; n%down < 2 && n/down < 2 {
					continue
				}
			}
			rest, last := l.without(out)
			if rest.moderate(common); rest.mean == 0 {
				continue
			}
			if a, is := rest.test(last[:]); is {
				c.ps = append(c.ps, a.P)
			}
		}
	}
	slices.Sort(c.ps)
	return c
}

// What apart says of a run; sums of them count both.
const (
	up   = 1
	down = 8
)

// apart tells of each run of a long series whether it is off: up, down or neither, 0. The test finds nothing of three runs unless two are off to one side,
// which is quick to see; the bound is low enough for what the three themselves do to the level.
func (l level) apart(common prior) []int {
	const long, bound = 40, 0.9
	if l.n < long {
		return nil
	}
	l.moderate(common)
	far := make([]int, len(l.past))
	for i, x := range l.past {
		switch off := (x - l.mean) / (math.Sqrt(l.variance) * math.Abs(l.mean)); {
		case off > bound:
			far[i] = up
		case off < -bound:
			far[i] = down
		}
	}
	return far
}

// without is the level of the runs that are left when some are taken out. It has no autocorrelation: runs that are drawn do not follow each other.
func (l *level) without(out [newest]int) (rest level, last [newest]float64) {
	n, sum := float64(l.n), 0.0 // of what is taken out, from the mean
	squares := l.variance * l.freedom * l.mean * l.mean
	for i, at := range out {
		last[i] = l.past[at]
		if !l.outlier(last[i]) {
			n--
			sum += last[i] - l.mean
			squares -= (last[i] - l.mean) * (last[i] - l.mean)
		}
	}
	shift := -sum / n
	rest = level{n: int(n), mean: l.mean + shift, freedom: n - 1}
	if rest.mean != 0 {
		rest.variance = max(0, squares-n*shift*shift) / (rest.freedom * rest.mean * rest.mean)
	}
	return rest, last
}
