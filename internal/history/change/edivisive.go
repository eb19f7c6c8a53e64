package change

import "math"

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
