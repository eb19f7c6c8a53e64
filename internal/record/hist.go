package record

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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
//
// It has more than 25 methods: samples are added, merged, encoded, decoded and queried, and each query is one method.
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

// memory returns an upper bound of the bytes that a histogram without recent samples keeps.
func (h *Hist) memory() int {
	if h.settled == nil {
		return memoryHist
	}
	buckets := int(h.settled.Populated()) * (4 + h.settled.CountWidth()) // index and count
	return memoryHist + buckets + buckets/4                              // unused capacity after merging
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

// Limits of encoded histograms. A histogram with all possible counts is far smaller than maxEncoded. Sums of histograms
// with up to maxCount samples do not overflow.
const (
	maxEncoded = 1 << 20
	maxCount   = 1 << 48
)

const histVersion = 1

// encode encodes the histogram: a version, the exact negative and over counts, minimum and maximum as varints, and
// HdrHistogram's compressed V2 format.
func (h *Hist) encode() []byte {
	h.settle()
	data := []byte{histVersion}
	for _, n := range []uint64{h.negative, h.over, uint64(h.Min()), uint64(h.Max())} {
		data = binary.AppendUvarint(data, n)
	}
	if h.settled == nil {
		return data
	}
	return h.appendV2(data)
}

const (
	cookieV2           = 0x1c849313
	cookieV2Compressed = 0x1c849314
	prefixV2           = 8 // cookie and length of the compressed contents
)

var deflaters = sync.Pool{New: func() any {
	w, _ := zlib.NewWriterLevel(nil, zlib.BestCompression) // cannot fail: the level is valid
	return w
}}

// appendV2 appends HdrHistogram's compressed V2 format. The bytes are those of PackedHistogram.EncodeV2, which
// allocates a new compressor of 800 KB for each histogram. The format is described in the documentation of
// HdrHistogram: AbstractHistogram.encodeIntoCompressedByteBuffer.
func (h *Hist) appendV2(data []byte) []byte {
	plain := make([]byte, hdrhistogram.ENCODING_HEADER_SIZE, 512)
	next := int64(0) // index after the last bucket
	h.settled.ForEachBucket(func(value, count int64) bool {
		index := indexOf(value)
		if zeros := index - next; zeros > 1 {
			plain = binary.AppendVarint(plain, -zeros)
		} else if zeros == 1 {
			plain = binary.AppendVarint(plain, 0)
		}
		plain = binary.AppendVarint(plain, count)
		next = index + 1
		return true
	})
	header := binary.BigEndian.AppendUint32(plain[:0], cookieV2)
	header = binary.BigEndian.AppendUint32(header, uint32(len(plain)-hdrhistogram.ENCODING_HEADER_SIZE))
	header = binary.BigEndian.AppendUint32(header, 0) // index offset
	header = binary.BigEndian.AppendUint32(header, digits)
	header = binary.BigEndian.AppendUint64(header, 1)
	header = binary.BigEndian.AppendUint64(header, uint64(highest))
	binary.BigEndian.AppendUint64(header, math.Float64bits(1)) // conversion ratio

	start := len(data)
	out := bytes.NewBuffer(append(data, make([]byte, prefixV2)...))
	w := deflaters.Get().(*zlib.Writer)
	w.Reset(out)
	_, err := w.Write(plain)
	if err = errors.Join(err, w.Close()); err != nil {
		panic(err) // a buffer accepts all writes
	}
	deflaters.Put(w)
	data = out.Bytes()
	binary.BigEndian.PutUint32(data[start:], cookieV2Compressed)
	binary.BigEndian.PutUint32(data[start+4:], uint32(len(data)-start-prefixV2))
	return data
}

// decode replaces the histogram by one from encode. Other data is an error, and leaves the histogram unchanged.
// The memory that it allocates is limited.
func (h *Hist) decode(data []byte, left *budget) error {
	read, err := decodeHist(data, left)
	if err != nil {
		return fmt.Errorf("read histogram: %w; the record is damaged or of another version of Lockstep", err)
	}
	h.Reset()
	*h = *read
	return nil
}

func decodeHist(data []byte, left *budget) (*Hist, error) {
	if len(data) == 0 || len(data) > maxEncoded || data[0] != histVersion {
		return nil, errors.New("not a histogram")
	}
	data = data[1:]
	var metrics [4]uint64
	for i := range metrics {
		v, n := binary.Uvarint(data)
		if n <= 0 {
			return nil, io.ErrUnexpectedEOF
		}
		metrics[i], data = v, data[n:]
	}
	h := &Hist{negative: metrics[0], over: metrics[1]}
	if len(data) == 0 {
		if metrics[1] != 0 || metrics[2] != 0 || metrics[3] != 0 {
			return nil, errors.New("metrics of samples that are not there")
		}
		return h, nil
	}
	if metrics[2] > metrics[3] || metrics[3] > uint64(highest) {
		return nil, errors.New("extremes out of range")
	}
	h.under, h.max = highest-int64(metrics[2]), int64(metrics[3])
	payload, err := checkGeometry(data)
	if err == nil {
		err = left.unpack(payload)
	}
	if err != nil {
		return nil, err
	}
	if h.settled, err = hdrhistogram.DecodePacked([]byte(base64.StdEncoding.EncodeToString(data))); err != nil {
		return nil, err
	}
	return h, h.check()
}

// check compares a decoded distribution with its exact minimum, maximum and counts.
func (h *Hist) check() error {
	n := h.settled.TotalCount()
	if n == 0 || n > maxCount || h.over > uint64(n) {
		return fmt.Errorf("impossible counts: %d samples, %d beyond the range", n, h.over)
	}
	if indexOf(h.settled.Min()) != indexOf(highest-h.under) || indexOf(h.settled.Max()) != indexOf(h.max) {
		return errors.New("extremes do not belong to the distribution")
	}
	return nil
}

// indexOf returns the index of the bucket of v.
func indexOf(v int64) int64 {
	shift := bits.Len64(uint64(v)|(2*blockSize-1)) - fineBits
	return int64(shift)<<blockBits + v>>shift
}

var inflaters sync.Pool

// checkGeometry checks the header of a compressed histogram before memory is allocated for it. It returns the size of
// the uncompressed payload after the header.
func checkGeometry(compressed []byte) (payload int, err error) {
	var header [hdrhistogram.ENCODING_HEADER_SIZE]byte
	if len(compressed) < prefixV2 {
		return 0, io.ErrUnexpectedEOF
	}
	if n := binary.BigEndian.Uint32(compressed[4:]); uint64(n) != uint64(len(compressed)-prefixV2) {
		return 0, errors.New("compressed length does not match")
	}
	source := bytes.NewReader(compressed[prefixV2:])
	inflater, _ := inflaters.Get().(io.ReadCloser)
	if inflater == nil {
		inflater, err = zlib.NewReader(source)
	} else {
		err = inflater.(zlib.Resetter).Reset(source, nil)
	}
	if err != nil {
		return 0, err
	}
	defer inflaters.Put(inflater)
	if _, err := io.ReadFull(inflater, header[:]); err != nil {
		return 0, err
	}
	d, low, high := binary.BigEndian.Uint32(header[12:]), binary.BigEndian.Uint64(header[16:]),
		binary.BigEndian.Uint64(header[24:])
	if d != digits || low != 1 || high != uint64(highest) {
		return 0, fmt.Errorf("range %d to %d with %d digits is not ours", low, high, d)
	}
	return int(binary.BigEndian.Uint32(header[4:])), nil
}

// MarshalText returns the encoded histogram in base64, so that histograms are strings in JSON.
func (h *Hist) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, h.encode()), nil
}

// unmarshal decodes the result of MarshalText.
func (h *Hist) unmarshal(text []byte, left *budget) error {
	data, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("read histogram: %w", err)
	}
	return h.decode(data, left)
}
