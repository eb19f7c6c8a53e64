package engine

import (
	"math"
	"math/rand/v2"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// alias draws from a discrete distribution in constant time: the alias method (Walker 1977), with the table
// construction of Vose (1991). It is read-only after creation, so publishers share one.
type alias struct {
	keep  []uint32 // per column: probability, in units of 2⁻³², of its own index
	other []uint32 // per column: the index drawn otherwise
}

// newAlias builds the table. There must be fewer than 2³² weights, and one must be above 0.
func newAlias(weights []float64) *alias {
	n, sum := len(weights), 0.0
	for _, w := range weights {
		sum += w
	}
	a := &alias{make([]uint32, n), make([]uint32, n)}
	left := make([]float64, n) // remaining probability per column, in units of 1/n
	var small, large []uint32
	for i, w := range weights {
		left[i] = w / sum * float64(n)
		if left[i] < 1 {
			small = append(small, uint32(i))
		} else {
			large = append(large, uint32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		a.keep[s], a.other[s] = uint32(min(left[s]*(1<<32), math.MaxUint32)), l
		if left[l] -= 1 - left[s]; left[l] < 1 {
			small, large = append(small, l), large[:len(large)-1]
		}
	}
	for _, i := range append(small, large...) { // only rounding errors are left: draw their own index
		a.keep[i], a.other[i] = math.MaxUint32, i
	}
	return a
}

func (a *alias) draw(r *rand.PCG) int { return a.index(r.Uint64()) }

// index returns the index for a random number. Its upper half selects the column.
func (a *alias) index(x uint64) int {
	column := uint32((x >> 32) * uint64(len(a.keep)) >> 32)
	if uint32(x) < a.keep[column] {
		return int(column)
	}
	return int(a.other[column])
}

// keyTable is the distribution of keys. A nil keyTable gives each message a different key.
type keyTable struct {
	count int
	zipf  *alias // nil: uniform
}

// newKeyTable returns the distribution of keys. Key k (from 0) has a probability proportional to 1/(k+1)^Skew. It
// returns nil if Count is 0.
func newKeyTable(k plan.Keys) *keyTable {
	if k.Count == 0 {
		return nil
	}
	t := &keyTable{count: k.Count}
	if k.Skew > 0 {
		weights := make([]float64, k.Count)
		for i := range weights {
			weights[i] = math.Pow(float64(i+1), -k.Skew)
		}
		t.zipf = newAlias(weights)
	}
	return t
}

// key returns the key of a message.
func (t *keyTable) key(sequence uint64, r *rand.PCG) uint32 {
	if t == nil {
		return uint32(sequence) &^ drivers.ChurnKey
	}
	if t.zipf == nil {
		return uint32(below(r, t.count))
	}
	return uint32(t.zipf.draw(r))
}
