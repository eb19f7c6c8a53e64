package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestDifferenceAgainstThePublishedExample(t *testing.T) {
	got, ok := Difference(before, atTerm, 0.95)
	if !ok {
		t.Fatal("there is a difference")
	}
	near(t, "estimate", got.Estimate, 0.305, 1e-12) // as in R's wilcox.test(conf.int = TRUE)
	near(t, "low", got.Interval.Low, -0.15, 1e-12)
	near(t, "high", got.Interval.High, 0.76, 1e-12)
	if !got.Interval.Holds(0.95) {
		t.Errorf("confidence %v", got.Interval.Confidence)
	}
}

func TestChangeProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 200 {
		a, b := normal(r, 2+r.IntN(9), 100, 5), normal(r, 2+r.IntN(9), 110, 5)
		one, _ := Difference(a, b, 0.95)
		other, _ := Difference(b, a, 0.95)
		near(t, "swapped", other.Estimate, -one.Estimate, 1e-9)
		near(t, "swapped interval", other.Interval.Low, -one.Interval.High, 1e-9)
		ratio, ok := Ratio(a, b, 0.95)
		back, _ := Ratio(b, a, 0.95)
		near(t, "ratio and back", ratio.Estimate*back.Estimate, 1, 1e-9)
		if !ok || !ratio.Interval.Contains(ratio.Estimate) || !one.Interval.Contains(one.Estimate) {
			t.Errorf("an estimate is outside its interval: %+v %+v", ratio, one)
		}
		// The interval and the test agree: zero is outside if p is small.
		if test := MannWhitney(a, b); one.Interval.Holds(0.95) && (test.P < 0.05) == one.Interval.Contains(0) {
			t.Errorf("p is %g and the interval %+v", test.P, one.Interval)
		}
	}
	if _, ok := Ratio([]float64{0, 1}, []float64{1}, 0.95); ok {
		t.Error("a ratio to zero")
	}
	if c, _ := Difference([]float64{1, 2, 3}, []float64{4, 5, 6}, 0.95); c.Interval.Holds(0.95) ||
		c.Interval.Low != 1 || c.Interval.High != 5 {
		t.Errorf("3 and 3 give all pairs at 90 %%, got %+v", c.Interval)
	}
	many, _ := Difference(normal(r, 50, 0, 1), normal(r, 50, 1, 1), 0.95)
	near(t, "half width of many", many.Interval.half(), 1.96*math.Sqrt(2.0/50/0.955), 0.12)
}

// TestCoverage measures the coverage of intervals, with skewed samples of five to ten repetitions.
func TestCoverage(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	skewed := func(n int, scale float64) []float64 {
		xs := make([]float64, n)
		for i := range xs {
			xs[i] = scale * math.Exp(0.2*r.NormFloat64())
		}
		return xs
	}
	const rounds = 1000
	for _, n := range []int{6, 10} {
		median, ratio, percentile := 0, 0, 0
		for range rounds {
			a, b := skewed(n, 100), skewed(n, 120)
			if MedianInterval(a, 0.95).Contains(100) {
				median++
			}
			if c, _ := Ratio(a, b, 0.95); c.Interval.Contains(1.2) {
				ratio++
			}
			draws := make([]float64, 60)
			for i := range draws {
				again := make([]float64, n)
				for k := range again {
					again[k] = a[r.IntN(n)]
				}
				draws[i] = Median(again)
			}
			if slices.Sort(draws); draws[1] <= 100 && 100 <= draws[58] {
				percentile++
			}
		}
		t.Logf("%2d repetitions: interval of the median %.1f %%, of the ratio %.1f %%, of a percentile bootstrap of the median %.1f %%", n,
			100*float64(median)/rounds, 100*float64(ratio)/rounds, 100*float64(percentile)/rounds)
		if wanted := int(0.93 * rounds); median < wanted || ratio < wanted {
			t.Errorf("%d repetitions: intervals hold the truth in %d and %d of %d", n, median, ratio, rounds)
		}
	}
}

func TestGeometricMeans(t *testing.T) {
	pairs := []Pair{{[]float64{1, 1}, []float64{2, 2}}, {[]float64{1, 1}, []float64{8, 8}},
		{[]float64{0, 1}, []float64{1, 1}}}
	c, used, ok := GeometricRatio(pairs, 0.95)
	near(t, "of cells", c.Estimate, 4, 1e-12)
	if !ok || used != 2 || math.Abs(c.Interval.half()) > 1e-9 {
		t.Errorf("got %+v of %d cells: there is no noise, and one cell has a zero", c, used)
	}
	if c, _, _ := GeometricRatio([]Pair{{[]float64{1}, []float64{2, 2}}}, 0.95); c.Interval.Holds(0.95) {
		t.Error("a single repetition knows nothing of its noise")
	}
	if _, _, ok := GeometricRatio(nil, 0.95); ok {
		t.Error("no cells have no mean")
	}
}

// TestCoverageOfGeometricMeans measures the coverage of intervals whose true value differs per cell.
func TestCoverageOfGeometricMeans(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for _, n := range []int{3, 5, 8} {
		for _, cells := range []int{2, 6, 20} {
			const rounds = 500
			held := 0
			for range rounds {
				pairs, truth := make([]Pair, cells), 0.0
				for i := range pairs {
					factor := 1 + 0.01*float64(i)
					truth += math.Log(factor) / float64(cells)
					pairs[i] = Pair{normal(r, n, 100, 3), normal(r, n, 100*factor, 3*factor)}
				}
				if c, _, _ := GeometricRatio(pairs, 0.95); c.Interval.Contains(math.Exp(truth)) {
					held++
				}
			}
			t.Logf("%d repetitions of %2d cells: %.1f %% of the intervals hold the truth", n, cells,
				100*float64(held)/rounds)
			if held < rounds*90/100 {
				t.Errorf("%d repetitions of %d cells: %d of %d intervals hold the truth", n, cells, held, rounds)
			}
		}
	}
}

func BenchmarkMannWhitney(b *testing.B) {
	r := rand.New(rand.NewPCG(9, 9))
	x, y := normal(r, 8, 0, 1), normal(r, 8, 1, 1)
	for b.Loop() {
		MannWhitney(x, y)
	}
}
