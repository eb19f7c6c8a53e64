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

// Limits of encoded histograms. A histogram with all possible counts is far smaller than maxEncoded. Sums of histograms
// with up to maxCount samples do not overflow.
const (
	maxEncoded = 1 << 20
	maxCount   = 1 << 48
)

const histVersion = 1

// MarshalBinary encodes the histogram: a version, the exact negative and over counts, minimum and maximum as varints,
// and HdrHistogram's compressed V2 format.
func (h *Hist) MarshalBinary() ([]byte, error) {
	h.settle()
	data := []byte{histVersion}
	for _, n := range []uint64{h.negative, h.over, uint64(h.Min()), uint64(h.Max())} {
		data = binary.AppendUvarint(data, n)
	}
	if h.settled == nil {
		return data, nil
	}
	return h.appendV2(data), nil
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

// appendV2 appends HdrHistogram's compressed V2 format. The bytes are those of PackedHistogram.EncodeV2, which allocates
// a new compressor of 800 KB for each histogram. The format is described in the documentation of HdrHistogram:
// AbstractHistogram.encodeIntoCompressedByteBuffer.
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

// decode replaces the histogram by one from MarshalBinary. Other data is an error, and leaves the histogram unchanged.
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

// MarshalText returns the result of MarshalBinary in base64, so that histograms are strings in JSON.
func (h *Hist) MarshalText() ([]byte, error) {
	data, err := h.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.AppendEncode(nil, data), nil
}

// UnmarshalText decodes the result of MarshalText.
func (h *Hist) UnmarshalText(text []byte) error { return h.unmarshal(text, newBudget(len(text))) }

func (h *Hist) unmarshal(text []byte, left *budget) error {
	data, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("read histogram: %w", err)
	}
	return h.decode(data, left)
}
