package record

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// sample returns random latencies of all magnitudes, including the ends of the range.
func sample(r *rand.Rand) int64 {
	switch r.IntN(20) {
	case 0:
		return 0
	case 1:
		return highest
	}
	return r.Int64N(int64(1) << (1 + r.IntN(41)))
}

// A histogram agrees with HdrHistogram's own dense histogram, so that its values are comparable with those of other
// tools.
func TestHistAgreesWithHdrHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for round := range rounds(20, 5) {
		h, parts := NewHist(), []*Hist{NewHist(), NewHist(), NewHist()}
		reference := hdrhistogram.New(1, highest, digits)
		lowest, highest := int64(math.MaxInt64), int64(0)
		for range 1 + r.IntN(3000) {
			ns := sample(r)
			h.Record(ns)
			parts[r.IntN(len(parts))].Record(ns)
			if err := reference.RecordValue(ns); err != nil {
				t.Fatal(err)
			}
			lowest, highest = min(lowest, ns), max(highest, ns)
			if r.IntN(500) == 0 {
				h.Quantile(0.5) // sorts the samples in between
			}
		}
		merged := NewHist()
		for _, p := range parts {
			merged.Merge(p)
		}
		for name, got := range map[string]*Hist{"recorded": h, "merged": merged, "cloned": merged.Clone(),
			"decoded": recode(t, h)} {
			if got.Count() != uint64(reference.TotalCount()) || got.Min() != lowest || got.Max() != highest {
				t.Fatalf("round %d, %s: count %d min %d max %d, want %d %d %d", round, name, got.Count(), got.Min(),
					got.Max(),
					reference.TotalCount(), lowest, highest)
			}
			for _, q := range []float64{0, 0.001, 0.5, 0.9, 0.95, 0.99, 0.999} {
				if want := min(reference.ValueAtQuantile(100*q), highest); got.Quantile(q) != want {
					t.Errorf("round %d, %s: quantile %v is %d, want %d", round, name, q, got.Quantile(q), want)
				}
			}
			if got.Quantile(1) != highest {
				t.Errorf("round %d, %s: highest is %d, want exactly %d", round, name, got.Quantile(1), highest)
			}
			if want := reference.Mean(); math.Abs(got.Mean()-want) > want*1e-9 {
				t.Errorf("round %d, %s: mean %v, want %v", round, name, got.Mean(), want)
			}
		}
	}
}

func recode(t *testing.T, h *Hist) *Hist {
	t.Helper()
	data := h.encode()
	decoded := NewHist()
	decoded.Record(7) // must have no effect afterwards
	if err := decoded.decode(data, newBudget(len(data))); err != nil {
		t.Fatal(err)
	}
	return decoded
}

// Samples outside the range are counted, not dropped, also after a merge and a transfer.
func TestHistOutsideItsRange(t *testing.T) {
	h := new(Hist)
	for _, ns := range []int64{-1, math.MinInt64, 5, highest + 1, math.MaxInt64} {
		h.Record(ns)
	}
	sum := NewHist()
	sum.Merge(recode(t, h))
	sum.Merge(h)
	if h.Negative() != 2 || h.Over() != 2 || h.Count() != 3 || h.Min() != 5 || h.Max() != highest {
		t.Errorf("negative %d, over %d, count %d, min %d, max %d", h.Negative(), h.Over(), h.Count(), h.Min(), h.Max())
	}
	if sum.Negative() != 4 || sum.Over() != 4 || sum.Count() != 6 || sum.Quantile(0.9) != highest {
		t.Errorf("merged: negative %d, over %d, count %d, p90 %d", sum.Negative(), sum.Over(), sum.Count(),
			sum.Quantile(0.9))
	}
	only := NewHist()
	only.Record(-3)
	if got := recode(t, only); got.Negative() != 1 || got.Count() != 0 || got.Quantile(0.99) != 0 || got.Min() != 0 {
		t.Errorf("only negative samples: %d negative, %d samples", got.Negative(), got.Count())
	}
}

func TestHistEmptyAndReset(t *testing.T) {
	h := NewHist()
	if h.Count() != 0 || h.Min() != 0 || h.Max() != 0 || h.Quantile(0.5) != 0 || h.Quantile(1) != 0 || h.Mean() != 0 {
		t.Error("an empty histogram has metrics")
	}
	h.Record(1000)
	h.Record(-1)
	h.Quantile(0.5)
	h.Record(2000)
	h.Reset()
	h.Record(3000)
	if h.Count() != 1 || h.Min() != 3000 || h.Max() != 3000 || h.Negative() != 0 || h.Quantile(0.5) != 3000 {
		t.Errorf("something is left after Reset: count %d, min %d, max %d", h.Count(), h.Min(), h.Max())
	}
}

// Counts of new samples have 32 bits: they are moved before an overflow, in Record and in Merge.
func TestHistFreshCountsDoNotOverflow(t *testing.T) {
	crowded := func() *Hist {
		h := NewHist()
		h.Record(100)
		h.blocks[0][100], h.fresh = maxFresh-1, maxFresh-1
		return h
	}
	h := crowded()
	for range 3 {
		h.Record(100)
	}
	if want := uint64(maxFresh) + 2; h.Count() != want || h.Quantile(0.5) != 100 {
		t.Errorf("count %d, want %d", h.Count(), want)
	}
	sum := crowded()
	sum.Merge(crowded())
	if want := 2 * uint64(maxFresh-1); sum.Count() != want || sum.Quantile(0.5) != 100 {
		t.Errorf("merged count %d, want %d", sum.Count(), want)
	}
}

// The encoded distribution has HdrHistogram's format.
func TestHistHoldsCompressedV2(t *testing.T) {
	h := NewHist()
	for i := range int64(10_000) {
		h.Record(i * i)
	}
	data := h.encode()
	data = data[1:]
	for range 4 {
		_, n := binary.Uvarint(data)
		data = data[n:]
	}
	decoded, err := hdrhistogram.Decode([]byte(base64.StdEncoding.EncodeToString(data)))
	if err != nil {
		t.Fatal(err)
	}
	if decoded.TotalCount() != 10_000 || decoded.ValueAtQuantile(50) != h.Quantile(0.5) {
		t.Errorf("HdrHistogram reads %d samples with median %d, want 10000 and %d", decoded.TotalCount(),
			decoded.ValueAtQuantile(50), h.Quantile(0.5))
	}
}

func TestEncodedBytesAreThoseOfHdrHistogram(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		h := NewHist()
		for range 1 + random.IntN(500) {
			h.RecordN(random.Int64N(1<<(1+random.IntN(41))), 1+random.Uint64N(1<<random.IntN(40)))
		}
		if i == 0 {
			h.Reset()
			h.Record(0)
		}
		h.settle()
		text, err := h.settled.EncodeV2()
		if err != nil {
			t.Fatal(err)
		}
		if got := base64.StdEncoding.EncodeToString(h.appendV2(nil)); got != string(text) {
			t.Fatalf("histogram %d: encoded as %s, HdrHistogram encodes it as %s", i, got, text)
		}
	}
}

func TestHistRefusesWhatIsNotItsOwn(t *testing.T) {
	h := NewHist()
	h.Record(1000)
	h.Record(5000)
	good := h.encode()
	foreign := func(p *hdrhistogram.PackedHistogram, lowest, highest uint64) []byte {
		text, err := p.EncodeV2()
		if err != nil {
			t.Fatal(err)
		}
		data := []byte{histVersion, 0, 0}
		data = binary.AppendUvarint(binary.AppendUvarint(data, lowest), highest)
		data, _ = base64.StdEncoding.AppendDecode(data, text)
		return data
	}
	count := int64(1)
	with := func(low, high int64, digits int, values ...int64) *hdrhistogram.PackedHistogram {
		p := hdrhistogram.NewPacked(low, high, digits)
		for _, v := range values {
			if err := p.RecordValues(v, count); err != nil {
				t.Fatal(err)
			}
		}
		return p
	}
	ours := []byte{histVersion, 0, 0, 0, 0}
	count = maxCount + 1
	overrun := foreign(with(1, highest, digits, 1000), 1000, 1000)
	count = 1
	for name, data := range map[string][]byte{
		"nothing":             {},
		"another version":     append([]byte{histVersion + 1}, good[1:]...),
		"cut short":           good[:len(good)-3],
		"cut in its metrics":  good[:3],
		"longer":              append(good[:len(good):len(good)], 0),
		"too long":            make([]byte, maxEncoded+1),
		"metrics only":        {histVersion, 0, 0, 1, 2},
		"no samples":          foreign(with(1, highest, digits), 0, 0),
		"other digits":        foreign(with(1, highest, 5, 1000), 1000, 1000),
		"other range":         foreign(with(1, math.MaxInt64, digits, 1000), 1000, 1000),
		"wrong minimum":       foreign(with(1, highest, digits, 1000, 5000), 999, 5000),
		"wrong maximum":       foreign(with(1, highest, digits, 1000, 5000), 1000, 6000),
		"crossed extremes":    foreign(with(1, highest, digits, 1000, 5000), 5000, 1000),
		"beyond the range":    foreign(with(1, highest, digits, 1000, highest+highest/10), 1000, uint64(highest)),
		"counts that overrun": overrun,
		"not compressed":      append(ours[:len(ours):len(ours)], 1, 2, 3, 4, 0, 0, 0, 2, 5, 6),
		"short":               append(ours[:len(ours):len(ours)], 1, 2, 3),
	} {
		kept := NewHist()
		kept.Record(42)
		if err := kept.decode(data, newBudget(len(data))); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if kept.Count() != 1 || kept.Max() != 42 {
			t.Errorf("%s: an error changed the histogram", name)
		}
	}
}

func FuzzHistUnmarshal(f *testing.F) {
	h := NewHist()
	f.Add([]byte{})
	for i := range int64(100) {
		data := h.encode()
		f.Add(data)
		h.Record(i * i * 1000)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h := NewHist()
		if h.decode(data, newBudget(len(data))) != nil {
			return
		}
		if h.Min() > h.Quantile(0.5) || h.Quantile(0.5) > h.Max() {
			t.Errorf("min %d, median %d, max %d", h.Min(), h.Quantile(0.5), h.Max())
		}
		recode(t, h)
	})
}

func TestHistIsTextInJSON(t *testing.T) {
	h := NewHist()
	h.Record(123)
	data, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var text string
	var back Hist
	if err := json.Unmarshal(data, &text); err != nil {
		t.Fatal(err)
	}
	if err := back.unmarshal([]byte(text), newBudget(len(text))); err != nil || back.Max() != 123 {
		t.Errorf("%s came back as %+v: %v", data, back, err)
	}
	if err := back.unmarshal([]byte("?"), newBudget(1)); err == nil {
		t.Error("bad base64 accepted")
	}
}

// TestOverAtFindsTheRankOfWhatIsBeyond compares with ranks that are counted one by one.
func TestOverAtFindsTheRankOfWhatIsBeyond(t *testing.T) {
	h := NewHist()
	for range 990 {
		h.Record(1)
	}
	for range 10 {
		h.Record(2 * highest)
	}
	for q, want := range map[float64]bool{0.5: false, 0.99: false, 0.991: true, 0.999: true, 1: true} {
		if got := h.OverAt(q); got != want {
			t.Errorf("quantile %v: beyond the range %t, want %t", q, got, want)
		}
	}
	if h.Reset(); h.OverAt(1) {
		t.Error("an empty histogram has nothing beyond its range")
	}
}

func TestRecordNIsRecordNTimes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	one, many := NewHist(), NewHist()
	for range 500 {
		ns, n := sample(r), uint64(r.IntN(20))
		switch r.IntN(10) {
		case 0:
			ns = -ns - 1
		case 1:
			ns += highest
		}
		many.RecordN(ns, n)
		for range n {
			one.Record(ns)
		}
		if r.IntN(3) == 0 { // in addition to new samples
			many.Record(ns)
			one.Record(ns)
		}
	}
	if one.Count() != many.Count() || one.Negative() != many.Negative() || one.Over() != many.Over() ||
		one.Min() != many.Min() || one.Max() != many.Max() {
		t.Errorf("%d samples, %d negative, %d over, %d to %d; want %d, %d, %d, %d to %d", many.Count(), many.Negative(),
			many.Over(), many.Min(), many.Max(),
			one.Count(), one.Negative(), one.Over(), one.Min(), one.Max())
	}
	for _, q := range []float64{0, 0.1, 0.5, 0.9, 0.99, 1} {
		if got, want := recode(t, many).Quantile(q), one.Quantile(q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
	huge := NewHist()
	if huge.RecordN(5, 1<<40); huge.Count() != 1<<40 {
		t.Errorf("%d samples of 2⁴⁰", huge.Count())
	}
}
