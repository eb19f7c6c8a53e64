package record

import (
	"math"
	"math/bits"
	"sync"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Geometry of every histogram: that of HdrHistogram for 1 ns … 1 h with 3 significant digits. Values below 2·blockSize
// have one count each. Above, each power of two has blockSize counts.
const (
	highest    = int64(3_600_000_000_000) // ns; larger samples are recorded as this value
	digits     = 3
	blockBits  = 10
	blockSize  = 1 << blockBits
	fineBits   = blockBits + 1
	maxFresh   = math.MaxUint32
	histBlocks = 42 - fineBits + 2 // 42: bits of highest
)

// block holds the recent counts of one power of two.
type block [blockSize]uint32

var blocks = sync.Pool{New: func() any { return new(block) }}

// Hist is a distribution of durations in ns: an HdrHistogram with 3 significant digits from 1 ns to 1 h. The zero value
// is empty and ready to use. It is not safe for concurrent use. Reading methods modify it, too.
//
// Recent samples are counted in blocks, which takes a few nanoseconds each. Reading, merging and encoding move them
// into the sparse histogram.
type Hist struct {
	fresh    uint32 // samples in blocks; at maxFresh they move, so that no count overflows
	max      int64
	under    int64 // highest minus the smallest sample, so that the zero value is valid
	negative uint64
	over     uint64
	blocks   [histBlocks]*block
	settled  *hdrhistogram.PackedHistogram // nil: empty
}

// NewHist returns an empty histogram.
func NewHist() *Hist { return new(Hist) }

// Record adds one sample of ns nanoseconds. A negative sample is counted in Negative only. A sample above one hour is
// recorded as one hour, and counted in Over. Record does not allocate once the histogram is warm.
func (h *Hist) Record(ns int64) {
	if uint64(ns) > uint64(highest) {
		h.recordOutside(ns)
		return
	}
	shift := uint(bits.Len64(uint64(ns)|(2*blockSize-1)) - fineBits)
	index := shift<<blockBits + uint(ns>>shift)
	b := h.blocks[index>>blockBits]
	if b == nil || h.fresh == maxFresh {
		b = h.prepare(index >> blockBits)
	}
	b[index%blockSize]++
	h.fresh++
	h.max = max(h.max, ns)
	h.under = max(h.under, highest-ns)
}

// RecordN adds n samples of ns nanoseconds each, like Record. It writes to the sparse histogram, which is slow.
func (h *Hist) RecordN(ns int64, n uint64) {
	switch {
	case n == 0:
	case ns < 0:
		h.negative += n
	case ns > highest:
		h.over += n
		h.RecordN(highest, n)
	default:
		if h.settled == nil {
			h.settled = hdrhistogram.NewPacked(1, highest, digits)
		}
		_ = h.settled.RecordValues(ns, int64(n)) // cannot fail: in range
		h.max, h.under = max(h.max, ns), max(h.under, highest-ns)
	}
}

func (h *Hist) recordOutside(ns int64) {
	if ns < 0 {
		h.negative++
		return
	}
	h.over++
	h.Record(highest)
}

func (h *Hist) prepare(i uint) *block {
	if h.fresh == maxFresh {
		h.settle()
	}
	if h.blocks[i] == nil {
		h.blocks[i] = blocks.Get().(*block)
	}
	return h.blocks[i]
}

// valueAt returns the smallest value that is counted at offset of block i.
func valueAt(i, offset int) int64 {
	if i == 0 {
		return int64(offset)
	}
	return int64(blockSize+offset) << (i - 1)
}

// settle moves recent samples into the sparse histogram.
func (h *Hist) settle() {
	if h.fresh == 0 {
		return
	}
	p := hdrhistogram.NewPacked(1, highest, digits)
	for i, b := range h.blocks {
		if b == nil {
			continue
		}
		for offset, n := range b {
			if n != 0 {
				_ = p.RecordValues(valueAt(i, offset), int64(n)) // cannot fail: in range, and far from overflow
			}
		}
	}
	h.release()
	if h.settled == nil {
		p.Compact()
		h.settled = p
		return
	}
	h.settled.Merge(p)
}

func (h *Hist) release() {
	for i, b := range h.blocks {
		if b != nil {
			*b = block{}
			blocks.Put(b)
			h.blocks[i] = nil
		}
	}
	h.fresh = 0
}

// Merge adds the samples of o. o is not changed.
func (h *Hist) Merge(o *Hist) {
	h.max, h.under = max(h.max, o.max), max(h.under, o.under)
	h.negative += o.negative
	h.over += o.over
	if o.fresh > 0 {
		if uint64(h.fresh)+uint64(o.fresh) > maxFresh {
			h.settle()
		}
		h.mergeBlocks(o)
	}
	if o.settled == nil {
		return
	}
	if h.settled == nil {
		h.settled = o.settled.Clone()
		return
	}
	h.settled.Merge(o.settled)
}

func (h *Hist) mergeBlocks(o *Hist) {
	for i, from := range o.blocks {
		if from == nil {
			continue
		}
		if h.blocks[i] == nil {
			h.blocks[i] = blocks.Get().(*block)
		}
		to := h.blocks[i]
		for j, n := range from {
			to[j] += n
		}
	}
	h.fresh += o.fresh
}

// Clone returns an independent copy.
func (h *Hist) Clone() *Hist {
	c := new(Hist)
	c.Merge(h)
	return c
}

// Reset removes all samples.
func (h *Hist) Reset() {
	h.release()
	*h = Hist{}
}

// Count returns the number of samples without negative ones.
func (h *Hist) Count() uint64 {
	n := uint64(h.fresh)
	if h.settled != nil {
		n += uint64(h.settled.TotalCount())
	}
	return n
}

// Quantile returns the value at q (0 … 1) in ns, like HdrHistogram's ValueAtQuantile: the upper end of the bucket with
// that rank, limited to Max. q ≥ 1 returns Max; an empty histogram returns 0.
func (h *Hist) Quantile(q float64) int64 {
	if q >= 1 || h.Count() == 0 {
		return h.Max()
	}
	h.settle()
	return min(h.settled.ValueAtPercentile(q*100), h.max)
}

// OverAt reports whether the sample at q (0 … 1) is beyond the range. Quantile(q) is then only a lower bound.
func (h *Hist) OverAt(q float64) bool {
	n := h.Count()
	// HdrHistogram rounds the rank of a quantile like this
	return h.over > 0 && uint64(min(q, 1)*float64(n)+0.5) > n-h.over
}

// Each calls f with every value, at the resolution of the histogram, and its number of samples.
func (h *Hist) Each(f func(ns int64, n uint64)) {
	h.settle()
	if h.settled == nil {
		return
	}
	for value, count := range h.settled.ForEachBucket {
		if count > 0 {
			f(value, uint64(count))
		}
	}
}

// Min returns the exact minimum; 0 if there are no samples.
func (h *Hist) Min() int64 {
	if h.Count() == 0 {
		return 0
	}
	return highest - h.under
}

// Max returns the exact maximum, limited to one hour; 0 if there are no samples.
func (h *Hist) Max() int64 { return h.max }

// Mean returns the mean in ns, at the resolution of the histogram; 0 if there are no samples.
func (h *Hist) Mean() float64 {
	h.settle()
	if h.settled == nil {
		return 0
	}
	return h.settled.Mean()
}

// Negative returns the number of negative samples.
func (h *Hist) Negative() uint64 { return h.negative }

// Over returns the number of samples beyond the range.
func (h *Hist) Over() uint64 { return h.over }
