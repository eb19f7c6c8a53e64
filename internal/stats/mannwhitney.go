package stats

import (
	"math"
	"slices"
	"sync"
)

// Test is the outcome of a Mann–Whitney test.
type Test struct {
	U     float64 `json:"u"` // how often a number of B is below one of A; a tie counts half
	P     float64 `json:"p"` // two-sided
	Exact bool    `json:"exact"`
}

// maxExact is the size of both samples together up to which the distribution of U is computed and not approximated.
const maxExact = 60

// MannWhitney tests whether numbers of one sample tend to be larger than those of another (Wilcoxon 1945, Mann and
// Whitney 1947). Up to 60 numbers in both, p is exact, ties included (by enumeration of how the ranks at hand can be
// parted); beyond, it is the normal approximation with corrections for ties and continuity. p is twice the smaller
// tail, at most 1. Without numbers in one of them p is 1.
func MannWhitney(a, b []float64) Test {
	n, m := len(a), len(b)
	if n == 0 || m == 0 {
		return Test{P: 1, Exact: true}
	}
	ranks, ties := rank(a, b)
	twice := 0 // of the sum of a's ranks: midranks are whole halves
	for _, r := range ranks[:n] {
		twice += r
	}
	u2 := twice - n*(n+1) // twice U
	t := Test{U: float64(u2) / 2, Exact: n+m <= maxExact}
	switch {
	case !t.Exact:
		t.P = approximate(t.U, n, m, ties)
	case len(ties) == n+m:
		t.P = twoTails(untied(n, m), u2/2)
	default:
		t.P = twoTails(tied(n, ties), twice)
	}
	return t
}

// rank gives every number twice its rank, those of a first; ties have the mean of their ranks. ties are the sizes of
// groups of equal numbers, in order.
func rank(a, b []float64) (twice []int, ties []int) {
	all := slices.Concat(a, b)
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		switch {
		case all[i] < all[j]:
			return -1
		case all[i] > all[j]:
			return 1
		}
		return 0
	})
	twice = make([]int, len(all))
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && all[order[to]] == all[order[from]] {
			to++
		}
		for _, i := range order[from:to] {
			twice[i] = from + 1 + to
		}
		ties = append(ties, to-from)
		from = to
	}
	return twice, ties
}

// twoTails is twice the smaller of the probabilities of at most and at least x.
func twoTails(distribution []float64, x int) float64 {
	below, above := 0.0, 0.0
	for i, p := range distribution {
		if i <= x {
			below += p
		}
		if i >= x {
			above += p
		}
	}
	return min(1, 2*min(below, above))
}

var known sync.Map // [2]int → []float64, which nobody changes

// untied is the distribution of U of samples of n and m different numbers.
func untied(n, m int) []float64 {
	if n > m {
		n, m = m, n
	}
	if d, ok := known.Load([2]int{n, m}); ok {
		return d.([]float64)
	}
	ones := make([]int, n+m)
	for i := range ones {
		ones[i] = 1
	}
	sums := tied(n, ones)
	d := make([]float64, n*m+1)
	for u := range d {
		d[u] = sums[2*u+n*(n+1)]
	}
	known.Store([2]int{n, m}, d)
	return d
}

// tied is the distribution of twice the sum of the ranks of n numbers drawn from groups of equal ones: element s is the
// probability of s.
func tied(n int, ties []int) []float64 {
	total := 0
	for _, t := range ties {
		total += t
	}
	most := 2 * n * total
	ways := make([][]float64, n+1) // by how many are drawn, by sum
	for k := range ways {
		ways[k] = make([]float64, most+1)
	}
	ways[0][0] = 1
	before := 0
	for _, t := range ties {
		each := 2*before + t + 1 // twice the midrank
		before += t
		for k := min(n, before); k >= 1; k-- {
			for take := 1; take <= min(t, k); take++ {
				count := math.Round(math.Exp(logChoose(t, take)))
				from, to := ways[k-take], ways[k]
				for s := 0; s+take*each <= most; s++ {
					if from[s] != 0 {
						to[s+take*each] += count * from[s]
					}
				}
			}
		}
	}
	all := math.Exp(logChoose(total, n))
	for s := range ways[n] {
		ways[n][s] /= all
	}
	return ways[n]
}

func approximate(u float64, n, m int, ties []int) float64 {
	total := float64(n + m)
	correction := 0.0
	for _, t := range ties {
		x := float64(t)
		correction += x*x*x - x
	}
	product := float64(n) * float64(m)
	variance := product / 12 * (total + 1 - correction/(total*(total-1)))
	if variance <= 0 {
		return 1
	}
	z := max(0, math.Abs(u-product/2)-0.5) / math.Sqrt(variance)
	return min(1, math.Erfc(z/math.Sqrt2))
}

// SmallestP is the smallest p that MannWhitney can give to samples of n and m: that of samples which do not overlap.
func SmallestP(n, m int) float64 {
	if n < 1 || m < 1 {
		return 1
	}
	return min(1, 2*math.Exp(-logChoose(n+m, n)))
}

// MinRepetitions is how many repetitions on either side it takes so that the smallest p is at most alpha after Holm's
// procedure over a family of tests.
func MinRepetitions(alpha float64, tests int) int {
	const most = 1000
	for n := 1; n < most; n++ {
		if SmallestP(n, n)*float64(max(1, tests)) <= alpha {
			return n
		}
	}
	return most
}

// Holm adjusts p-values for being a family (Holm 1979): where only those whose adjusted p is at most alpha are
// believed, the probability that any of these is false is at most alpha, however the tests depend on each other. The
// order is that of ps.
func Holm(ps []float64) []float64 { return HolmOf(ps, len(ps)) }

// HolmOf is Holm for the smallest p-values of a family of so many tests.
func HolmOf(ps []float64, tests int) []float64 {
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case ps[i] < ps[j]:
			return -1
		case ps[i] > ps[j]:
			return 1
		}
		return 0
	})
	adjusted := make([]float64, len(ps))
	most := 0.0
	for step, i := range order {
		most = max(most, min(1, ps[i]*float64(tests-step)))
		adjusted[i] = most
	}
	return adjusted
}
