package change

import "slices"

// energy compares both sides of every place of a part. Sums of distances come from a Fenwick tree over the ranks, so that a pass takes n log n.
type energy struct {
	values []float64 // sorted
	ranks  []int     // of the part's numbers, in their order
	total  float64   // of the distances of all pairs
	far    []float64 // by rank: the sum of the distances to all
	count  []float64 // Fenwick trees of the left side: how many, and their sum
	sum    []float64
}

func newEnergy(part []float64) *energy {
	n := len(part)
	e := &energy{values: slices.Sorted(slices.Values(part)), ranks: make([]int, n), count: make([]float64, n+1), sum: make([]float64, n+1)}
	middle := e.values[n/2]
	for i := range e.values {
		e.values[i] -= middle // sums of large numbers that hardly differ lose digits
	}
	for i, x := range part {
		e.ranks[i], _ = slices.BinarySearch(e.values, x-middle)
	}
	var all, below float64
	for i, x := range e.values {
		e.total += x * float64(2*i-n+1)
		all += x
	}
	for i, x := range e.values {
		e.far = append(e.far, x*float64(2*i-n)+all-2*below)
		below += x
	}
	return e
}

// clearest is the place where the energy distance of both sides, weighted by their lengths, is largest.
func (e *energy) clearest() (at int, most float64) {
	clear(e.count)
	clear(e.sum)
	n := len(e.ranks)
	left, right, leftSum := 0.0, e.total, 0.0
	for i, rank := range e.ranks {
		x := e.values[rank]
		below, belowSum := e.upTo(rank)
		toLeft := x*below - belowSum + (leftSum - belowSum) - x*(float64(i)-below)
		left += toLeft
		right -= e.far[rank] - toLeft
		e.add(rank, x)
		leftSum += x
		k, m := float64(i+1), float64(n-i-1)
		if i+1 < segment || n-i-1 < segment {
			continue
		}
		across := e.total - left - right
		q := k * m / (k + m) * (2*across/(k*m) - 2*left/(k*(k-1)) - 2*right/(m*(m-1)))
		if at == 0 || q > most {
			at, most = i+1, q
		}
	}
	return at, most
}

// upTo counts and sums the numbers of the left side whose rank is not above.
func (e *energy) upTo(rank int) (count, sum float64) {
	for i := rank + 1; i > 0; i -= i & -i {
		count += e.count[i]
		sum += e.sum[i]
	}
	return count, sum
}

func (e *energy) add(rank int, x float64) {
	for i := rank + 1; i < len(e.count); i += i & -i {
		e.count[i]++
		e.sum[i] += x
	}
}
