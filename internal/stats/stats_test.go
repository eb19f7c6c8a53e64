package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > within {
		t.Errorf("%s: got %v, want %v ± %g", what, got, want, within)
	}
}

func normal(r *rand.Rand, n int, mean, deviation float64) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = mean + deviation*r.NormFloat64()
	}
	return xs
}

func TestMedians(t *testing.T) {
	near(t, "odd", Median([]float64{3, 1, 2}), 2, 0)
	near(t, "even", Median([]float64{4, 1, 2, 3}), 2.5, 0)
	near(t, "MAD", mad([]float64{1, 1, 2, 2, 4, 6, 9}), 1.4826, 1e-12) // the deviations are 1 1 0 0 2 4 7
	if !math.IsNaN(Median(nil)) || mad([]float64{1}) != 0 {
		t.Error("of nothing there is no median")
	}
}

// TestMedianInterval compares intervals with binomial tables: the order statistics and their confidence.
func TestMedianInterval(t *testing.T) {
	for _, c := range []struct {
		n, low, high int
		confidence   float64
	}{{6, 1, 6, 0.96875}, {8, 1, 8, 0.9921875}, {9, 2, 8, 0.9609375}, {10, 2, 9, 0.978515625}, {20, 6, 15, 0.9586105},
		{3, 1, 3, 0.75}, {1, 1, 1, 0}} {
		xs := make([]float64, c.n)
		for i := range xs {
			xs[i] = float64(c.n - i)
		}
		got := MedianInterval(xs, 0.95)
		if got.Low != float64(c.low) || got.High != float64(c.high) {
			t.Errorf("of %d: got %v, want from number %d to %d", c.n, got, c.low, c.high)
		}
		near(t, "confidence", got.Confidence, c.confidence, 1e-6)
		if got.Holds(0.95) != (c.n >= MinForMedian(0.95)) {
			t.Errorf("of %d: holds %v, though %d are needed", c.n, got.Holds(0.95), MinForMedian(0.95))
		}
	}
	if MinForMedian(0.95) != 6 || MedianInterval(nil, 0.95) != (Interval{}) {
		t.Errorf("six repetitions are the minimum, got %d", MinForMedian(0.95))
	}
}

func TestSummaries(t *testing.T) {
	s := Summarize([]float64{100, 102, 98, 101, 99, 103, 97}, 0.95)
	if part, ok := s.Relative(0.95); !ok || part != 0.03 {
		t.Errorf("got %v %v, want half of 97 to 103", part, ok)
	}
	if _, ok := Summarize([]float64{1, 2, 3}, 0.95).Relative(0.95); ok {
		t.Error("three repetitions do not give an interval of 95 %")
	}
	if part, ok := Summarize([]float64{0, 0, 0, 0, 0, 0}, 0.95).Relative(0.95); !ok || part != 0 {
		t.Error("six zeros are exact")
	}
	if Summarize(nil, 0.95).N != 0 {
		t.Error("nothing has a summary")
	}
}

// The example of Hollander and Wolfe (1973), page 69, from the help of R's wilcox.test: permeability of membranes.
var (
	atTerm = []float64{0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46}
	before = []float64{1.15, 0.88, 0.90, 0.74, 1.21}
)

func TestMannWhitneyAgainstPublishedExamples(t *testing.T) {
	got := MannWhitney(atTerm, before)
	if got.U != 35 || !got.Exact {
		t.Errorf("got %+v, want U 35, exact", got)
	}
	near(t, "one-sided p", got.P/2, 0.1272, 5e-5)
	a, b := []float64{1, 5, 9, 24, 56, 21, 3, 7, 21, 4}, []float64{12, 15, 5, 9, 9, 14, 56, 22, 3, 7, 32, 5}
	ranks, ties := rank(a, b)
	sum := 0
	for _, r := range ranks[:len(a)] {
		sum += r
	}
	u := float64(sum)/2 - float64(len(a)*(len(a)+1))/2
	near(t, "U with ties", u, 51.5, 0)
	near(t, "normal approximation with ties", approximate(u, len(a), len(b), ties), 0.5966, 5e-5) // as in R
}

// TestMannWhitneyCriticalValues compares the exact distribution with published tables: the largest significant U,
// two-sided.
func TestMannWhitneyCriticalValues(t *testing.T) {
	for _, c := range []struct {
		n, m, u int
		alpha   float64
	}{{4, 4, 0, 0.05}, {5, 5, 2, 0.05}, {6, 6, 5, 0.05}, {7, 7, 8, 0.05}, {8, 8, 13, 0.05}, {10, 10, 23, 0.05},
		{20, 20, 127, 0.05}, {5, 8, 6, 0.05},
		{5, 5, 0, 0.01}, {8, 8, 7, 0.01}, {10, 10, 16, 0.01}} {
		d := untied(c.n, c.m)
		if p, next := twoTails(d, c.u), twoTails(d, c.u+1); p > c.alpha || next <= c.alpha {
			t.Errorf("%d and %d at %g: p(%d) = %.4f, p(%d) = %.4f", c.n, c.m, c.alpha, c.u, p, c.u+1, next)
		}
	}
}

// TestTiesAreEnumerated compares p with that of all partitions of the numbers.
func TestTiesAreEnumerated(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		n, m := 1+r.IntN(5), 1+r.IntN(5)
		all := make([]float64, n+m)
		for i := range all {
			all[i] = float64(r.IntN(5))
		}
		near(t, "p of ties", MannWhitney(all[:n], all[n:]).P, enumerate(all, n), 1e-9)
	}
}

func enumerate(all []float64, n int) float64 {
	u := func(mask uint) float64 {
		sum := 0.0
		for i, x := range all {
			for k, y := range all {
				if mask>>i&1 == 1 && mask>>k&1 == 0 {
					switch {
					case x > y:
						sum++
					case x == y:
						sum += 0.5
					}
				}
			}
		}
		return sum
	}
	seen := u(1<<n - 1)
	ways, below, above := 0, 0, 0
	for mask := range uint(1) << len(all) {
		bits := 0
		for i := range all {
			bits += int(mask >> i & 1)
		}
		if bits != n {
			continue
		}
		ways++
		if x := u(mask); x <= seen {
			below++
		}
		if x := u(mask); x >= seen {
			above++
		}
	}
	return min(1, 2*float64(min(below, above))/float64(ways))
}

func TestMannWhitneyProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		a, b := normal(r, 1+r.IntN(12), 10, 1), normal(r, 1+r.IntN(12), 10.5, 1)
		one, other := MannWhitney(a, b), MannWhitney(b, a)
		near(t, "symmetry", one.P, other.P, 1e-9)
		near(t, "U", one.U+other.U, float64(len(a)*len(b)), 0)
		cubed := func(xs []float64) []float64 {
			out := slices.Clone(xs)
			for i := range out {
				out[i] = out[i] * out[i] * out[i]
			}
			return out
		}
		near(t, "ranks alone count", MannWhitney(cubed(a), cubed(b)).P, one.P, 0)
		if one.P < SmallestP(len(a), len(b))-1e-12 {
			t.Errorf("p %g is smaller than the smallest %g", one.P, SmallestP(len(a), len(b)))
		}
	}
	near(t, "smallest p of 3 and 3", SmallestP(3, 3), 0.1, 1e-12)
	near(t, "smallest p of 5 and 5", SmallestP(5, 5), 2.0/252, 1e-12)
	near(t, "apart", MannWhitney([]float64{1, 2, 3, 4, 5}, []float64{6, 7, 8, 9, 10}).P, 2.0/252, 1e-12)
	near(t, "all the same", MannWhitney([]float64{1, 1, 1, 1}, []float64{1, 1, 1, 1}).P, 1, 0)
	near(t, "nothing", MannWhitney(nil, []float64{1}).P, 1, 0)
	if n := MinRepetitions(0.05, 1); n != 4 {
		t.Errorf("%d repetitions, want 4", n)
	}
	if n := MinRepetitions(0.05, 20); n != 6 {
		t.Errorf("%d repetitions for 20 tests, want 6: 2/924 × 20 is 0.043", n)
	}
}

func TestTheApproximationMeetsTheExactOne(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 50 {
		a, b := normal(r, 30, 0, 1), normal(r, 30, 0.4, 1)
		_, ties := rank(a, b)
		got := MannWhitney(a, b)
		if !got.Exact {
			t.Fatal("60 numbers are exact")
		}
		near(t, "p", approximate(got.U, 30, 30, ties), got.P, 0.006)
	}
	if MannWhitney(normal(r, 31, 0, 1), normal(r, 30, 9, 1)).Exact {
		t.Error("61 numbers are approximated")
	}
}

func TestHolm(t *testing.T) {
	got := Holm([]float64{0.01, 0.04, 0.03, 0.005})
	for i, want := range []float64{0.03, 0.06, 0.06, 0.02} {
		near(t, "adjusted p", got[i], want, 1e-12)
	}
	if len(Holm(nil)) != 0 || Holm([]float64{0.9, 0.8})[0] != 1 {
		t.Error("no p is above 1")
	}
}

// TestHolmHoldsTheFamily counts families of 40 true null hypotheses, tested with 8 repetitions, in which any is
// rejected.
func TestHolmHoldsTheFamily(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	const families = 400
	wrong := 0
	for range families {
		ps := make([]float64, 40)
		for i := range ps {
			ps[i] = MannWhitney(normal(r, 8, 0, 1), normal(r, 8, 0, 1)).P
		}
		if slices.Min(Holm(ps)) <= 0.05 {
			wrong++
		}
	}
	t.Logf("%d of %d families of 40 equal cells had a false alarm at 0.05", wrong, families)
	if wrong > 34 { // 0.05 + 3.2 standard errors
		t.Errorf("%d of %d families had a false alarm", wrong, families)
	}
}
