package stats

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

// Test is the result of a Mann–Whitney test.
type Test struct {
	U     float64 `json:"u"` // number of pairs in which the number of B is below that of A; a tie counts half
	P     float64 `json:"p"` // two-sided
	Exact bool    `json:"exact"`
}

// maxExact is the maximum size of both samples together for which the distribution of U is computed exactly.
const maxExact = 60

// MannWhitney tests whether numbers of one sample tend to be larger than those of another (Wilcoxon 1945, Mann and
// Whitney 1947). Up to 60 numbers in both samples together, p is exact, also with ties: it enumerates the assignments
// of the ranks to the samples. Beyond, it is the normal approximation with corrections for ties and continuity. p is
// twice the smaller tail, at most 1. If a sample is empty, p is 1.
func MannWhitney(a, b []float64) Test {
	n, m := len(a), len(b)
	if n == 0 || m == 0 {
		return Test{P: 1, Exact: true}
	}
	ranks, ties := rank(a, b)
	twice := 0 // twice the sum of a's ranks: midranks are multiples of ½
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

// rank returns twice the rank of every number, those of a first. Ties have the mean of their ranks. ties are the sizes
// of the groups of equal numbers, in order.
func rank(a, b []float64) (twice []int, ties []int) {
	all := slices.Concat(a, b)
	order := ascending(all)
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

// ascending returns the indexes of the numbers in ascending order. Equal numbers keep their order.
func ascending(xs []float64) []int {
	order := make([]int, len(xs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(xs[i], xs[j]) })
	return order
}

// twoTails returns twice the smaller of the probabilities of ≤ x and ≥ x, at most 1.
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

var known sync.Map // [2]int → []float64, which must not be modified

// untied returns the distribution of U for samples of n and m distinct numbers.
func untied(n, m int) []float64 {
	if n > m {
		n, m = m, n
	}
	if d, ok := known.Load([2]int{n, m}); ok {
		return d.([]float64)
	}
	sums := tied(n, slices.Repeat([]int{1}, n+m))
	d := make([]float64, n*m+1)
	for u := range d {
		d[u] = sums[2*u+n*(n+1)]
	}
	known.Store([2]int{n, m}, d)
	return d
}

// tied returns the distribution of twice the sum of the ranks of n numbers drawn from groups of equal ones. Element s
// is the probability of s.
func tied(n int, ties []int) []float64 {
	total := 0
	for _, t := range ties {
		total += t
	}
	maxSum := 2 * n * total
	ways := make([][]float64, n+1) // by number of draws, by sum
	for k := range ways {
		ways[k] = make([]float64, maxSum+1)
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
				for s := 0; s+take*each <= maxSum; s++ {
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

// SmallestP returns the smallest p that MannWhitney can return for samples of n and m numbers: that of samples without
// overlap.
func SmallestP(n, m int) float64 {
	if n < 1 || m < 1 {
		return 1
	}
	return min(1, 2*math.Exp(-logChoose(n+m, n)))
}

// MinRepetitions returns the minimum number of repetitions per side for a significant test in a family of tests. With
// it the smallest p is at most alpha after Holm's procedure.
func MinRepetitions(alpha float64, tests int) int {
	const limit = 1000
	for n := 1; n < limit; n++ {
		if SmallestP(n, n)*float64(max(1, tests)) <= alpha {
			return n
		}
	}
	return limit
}

// Holm adjusts the p-values of a family of tests (Holm 1979). Accept only results with an adjusted p of at most alpha.
// The probability of any false one is then at most alpha, whatever the dependence of the tests. The result has the
// order of ps.
func Holm(ps []float64) []float64 { return HolmOf(ps, len(ps)) }

// HolmOf is like Holm, for the smallest p-values of a family with the given number of tests.
func HolmOf(ps []float64, tests int) []float64 {
	adjusted := make([]float64, len(ps))
	largest := 0.0
	for step, i := range ascending(ps) {
		largest = max(largest, min(1, ps[i]*float64(tests-step)))
		adjusted[i] = largest
	}
	return adjusted
}
