package change

import (
	"example.org/lockstep/lockstep/internal/stats"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// nile is the yearly flow of the Nile at Aswan, 1871 to 1970, in 10^8 m³, as published by Cobb (Biometrika, 1978). The
// literature agrees on one change: the flow is lower from 1899 on.
var nile = []float64{1120, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960, 1180,
	799, 958, 1140, 1100, 1210, 1150, 1250,
	1260, 1220, 1030, 1100, 774, 840, 874, 694, 940, 833, 701, 916, 692, 1020, 1050, 969, 831, 726, 456, 824, 702, 1120,
	1100, 832, 764, 821, 768, 845, 864,
	862, 698, 845, 744, 796, 1040, 759, 781, 865, 845, 944, 984, 897, 822, 1010, 771, 676, 649, 846, 812, 742, 801,
	1040, 860, 874, 848, 890, 744, 749, 838,
	1050, 918, 986, 797, 923, 975, 815, 1020, 906, 901, 1170, 912, 746, 919, 718, 714, 740}

// changesOf returns the changes of one series.
func changesOf(values []float64) []Point {
	s := Series{Values: values}
	for i := range values {
		s.Runs = append(s.Runs, i)
	}
	return Find([]Series{s}, len(values)-1).Points[0]
}

func TestNile(t *testing.T) {
	changes := changesOf(nile)
	if len(changes) != 1 || changes[0].At != 1899-1871 {
		t.Fatalf("changes: got %+v, want one, in 1899", changes)
	}
	if c := changes[0]; c.P > alpha || c.Shift() > -0.2 || c.Shift() < -0.3 || c.Alarm {
		t.Errorf("change in 1899: got %+v, want a shift of -20 to -30 %%, no alarm", c)
	}
}

// The statistic of the split, with its right end, agrees with a computation from its definition.
func TestSplitIsThatOfTheDefinition(t *testing.T) {
	values := []float64{3, 1, 4, 1, 5, 9, 9, 8, 9, 3, 2, 4, 1, 5}
	pairs := func(a, b []float64) (sum float64) {
		for _, x := range a {
			for _, y := range b {
				sum += math.Abs(x - y)
			}
		}
		return sum
	}
	const start, end = 1, 14
	wantAt, wantRight, want := 0, 0, math.Inf(-1)
	for at := start + segment; at <= end-segment; at++ {
		for right := at + segment; right <= end; right++ {
			l, r := values[start:at], values[at:right]
			n, m := float64(len(l)), float64(len(r))
			q := n * m / (n + m) * (2/(n*m)*pairs(l, r) - pairs(l, l)/2/(n*(n-1)/2) - pairs(r, r)/2/(m*(m-1)/2))
			if q > want {
				wantAt, wantRight, want = at, right, q
			}
		}
	}
	if at, right := newEnergy(values).split(start, start+segment, end); at != wantAt || right != wantRight ||
		right == end {
		t.Errorf("split: got %d to %d, want %d to %d, which is not the end", at, right, wantAt, wantRight)
	}
}

func TestStudentTail(t *testing.T) {
	for _, c := range []struct{ x, freedom, want float64 }{{2.776445, 4, 0.025}, {3.385185, 30, 0.001}, {1, 1, 0.25},
		{5.2936, 91, 4.1e-7}} {
		if got := stats.StudentT(-c.x, c.freedom); math.Abs(got/c.want-1) > 0.02 {
			t.Errorf("probability that t(%v) exceeds %v: got %v, want %v", c.freedom, c.x, got, c.want)
		}
	}
}

func noisySeries(r *rand.Rand, n int, sd float64) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = 1000 * (1 + sd*r.NormFloat64())
	}
	return xs
}

// A regression that was fixed after some runs causes two change points, with 90 runs and 3 % noise.
func TestATemporaryRegressionIsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, c := range []struct {
		by    float64
		width int
		min   int // of 60 series: with a detection probability of 95 % in each, 52 or more with a probability of 99 %
	}{{1.1, 12, 52}, {1.1, 20, 52}, {1.2, 6, 52}, {1.2, 8, 52}, {0.8, 6, 52}} {
		const n = 60
		found := 0
		for range n {
			xs := noisySeries(r, 90, 0.03)
			for i := 45; i < 45+c.width; i++ {
				xs[i] *= c.by
			}
			if p := changesOf(xs); len(p) == 2 && abs(p[0].At-45) <= 2 && abs(p[1].At-45-c.width) <= 2 {
				found++
			}
		}
		t.Logf("%+.0f %% for %d of 90 runs: both change points found in %d of %d series", 100*(c.by-1), c.width, found,
			n)
		if found < c.min {
			t.Errorf("%+.0f %% for %d runs: found in %d of %d series, want at least %d", 100*(c.by-1), c.width, found,
				n, c.min)
		}
	}
}

func abs(n int) int { return max(n, -n) }

// Two steps of 10 % and outliers are in one series.
func TestStepsAndOutliers(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const n = 40
	falseFinds, found := 0, 0
	for range n {
		outliers := noisySeries(r, 60, 0.03)
		outliers[r.IntN(60)] *= 1.5
		outliers[r.IntN(60)] *= 0.5
		falseFinds += min(1, len(changesOf(outliers)))
		steps := noisySeries(r, 60, 0.03)
		for i := 25; i < 60; i++ {
			steps[i] *= 1.1
		}
		for i := 45; i < 60; i++ {
			steps[i] *= 1.1
		}
		steps[10] *= 1.5
		if c := changesOf(steps); len(c) == 2 && abs(c[0].At-25) <= 2 && abs(c[1].At-45) <= 2 {
			found++
		}
	}
	t.Logf("%d series of 60 runs with 3 %% noise: a change point in %d series with two outliers of 50 %%; both steps of 10 %% "+
		"found in %d", n, falseFinds, found)
	if falseFinds > 7 || found < 30 { // 10 % in two families of 5 %: more than 7 of 40 with a probability of 4 %
		t.Errorf("got %d series with false change points, %d with both steps, want at most 7, at least 30", falseFinds,
			found)
	}
}

func TestConstantAndShortSeries(t *testing.T) {
	for name, values := range map[string][]float64{"constant": {5, 5, 5, 5, 5, 5, 5, 5, 5, 5}, "short": {5, 5, 9},
		"none":             nil,
		"one lost message": slices.Concat(make([]float64, 17), []float64{4}, make([]float64, 12)),
		"zeros":            make([]float64, 30),
		"lost messages in two runs": slices.Concat(make([]float64, 17), []float64{4, 0, 0, 0, 0, 9},
			make([]float64, 9))} {
		if c := changesOf(values); len(c) > 0 {
			t.Errorf("%s: got changes %+v, want none", name, c)
		}
	}
	if c := changesOf([]float64{5, 5, 5, 5, 5, 5, 5, 9, 9}); len(c) != 1 || c[0].At != 7 || !c[0].Alarm {
		t.Errorf("step without noise: got %+v, want an alarm at run 7", c)
	}
}

// An outlier among the newest runs is not part of the new level. A single outlier is no new level.
func TestAnOutlierIsNoLevel(t *testing.T) {
	series := []float64{1000, 1010, 990, 1005, 995, 1002, 998, 1001, 1003, 999, 1004, 996}
	for _, c := range []struct{ last, level []float64 }{{[]float64{800, 100, 800}, []float64{800}},
		{[]float64{800, 795, 100}, []float64{797.5}}, {[]float64{1000, 100}, nil}, {[]float64{100}, nil}} {
		var levels []float64
		for _, p := range changesOf(slices.Concat(series, c.last)) {
			levels = append(levels, p.After)
		}
		if !slices.Equal(levels, c.level) {
			t.Errorf("last runs %v: new levels: got %v, want %v", c.last, levels, c.level)
		}
	}
}
