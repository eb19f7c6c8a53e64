// Package record holds the measurements of a task: windows of counters and histograms, and the exact sets of sent,
// confirmed and received messages. Recording takes nanoseconds and no lock. Agents report increments, which merge
// exactly, in any order and repeatedly.
//
// All times are ns since T0, the beginning of the measurement; they are negative in warm-up. With warm-up "auto" T0 is
// the beginning of the load, and Merged.Rebase corrects the times.
package record

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

const second = int64(1e9)

// Window is the record of one second. Index counts seconds from T0, negative in warm-up. The last window of the
// measurement ends with the measurement, so that no window is on both sides. Measured states whether its messages
// belong to the measurement.
type Window struct {
	Index    int
	Measured bool
	Start    int64 // ns since T0
	Length   int64 // ns
	Counts   [numCounters]int64
	Hists    [numSeries]*Hist // nil until the first sample
	// Published counts, by queue, the messages sent to it minus those returned as unroutable. Delivered counts, by flow
	// (see Flows), the messages that a consumer received for the first time. Their length is the highest index plus
	// one; missing entries are zero.
	Published, Delivered []int64
}

// Publish adds n messages to a queue.
func (w *Window) Publish(queue int, n int64) {
	if queue >= len(w.Published) {
		w.Published = longer(w.Published, queue)
	}
	w.Published[queue] += n
}

// Deliver adds a message to a flow.
func (w *Window) Deliver(flow int) { w.deliver(flow, 1) }

func (w *Window) deliver(flow int, n int64) {
	if flow >= len(w.Delivered) {
		w.Delivered = longer(w.Delivered, flow)
	}
	w.Delivered[flow] += n
}

// longer extends counts to contain the index i.
func longer(counts []int64, i int) []int64 { return append(counts, make([]int64, i+1-len(counts))...) }

var (
	windows = sync.Pool{New: func() any { return new(Window) }}
	hists   = sync.Pool{New: func() any { return new(Hist) }}
)

// Record adds a sample of ns nanoseconds to a series.
func (w *Window) Record(s Series, ns int64) {
	h := w.Hists[s]
	if h == nil {
		h = w.open(s)
	}
	h.Record(ns)
}

// RecordN adds n samples of ns nanoseconds each to a series.
func (w *Window) RecordN(s Series, ns int64, n uint64) {
	h := w.Hists[s]
	if h == nil {
		h = w.open(s)
	}
	h.RecordN(ns, n)
}

func (w *Window) open(s Series) *Hist {
	w.Hists[s] = hists.Get().(*Hist)
	return w.Hists[s]
}

// HistOf returns the sum of a series over windows.
func HistOf(s Series, windows []Window) *Hist {
	sum := NewHist()
	for i := range windows {
		if h := windows[i].Hists[s]; h != nil {
			sum.Merge(h)
		}
	}
	return sum
}

// empty reports whether nothing was recorded.
func (w *Window) empty() bool {
	return w.Counts == [numCounters]int64{} && w.Hists == [numSeries]*Hist{} && len(w.Published)+len(w.Delivered) == 0
}

// Add adds the content of o, which is of the same second and not changed.
func (w *Window) Add(o *Window) {
	for c, n := range o.Counts {
		w.Counts[c] += n
	}
	for s, h := range o.Hists {
		if h == nil {
			continue
		}
		if w.Hists[s] == nil {
			w.Hists[s] = NewHist()
		}
		w.Hists[s].Merge(h)
	}
	for i, n := range o.Published {
		w.Publish(i, n)
	}
	for i, n := range o.Delivered {
		w.deliver(i, n)
	}
}

// memory returns an upper bound of the bytes that the window keeps.
func (w *Window) memory() int {
	n := memoryWindow + 8*(cap(w.Published)+cap(w.Delivered))
	for _, h := range w.Hists {
		if h != nil {
			n += h.memory()
		}
	}
	return n
}

// clone returns an independent copy.
func (w *Window) clone() Window {
	c := *w
	c.Published, c.Delivered = slices.Clone(w.Published), slices.Clone(w.Delivered)
	for s, h := range w.Hists {
		if h != nil {
			c.Hists[s] = h.Clone()
		}
	}
	return c
}

// recycle returns the window and its histograms to the pools. The capacity of its counts is kept.
func (w *Window) recycle() {
	for _, h := range w.Hists {
		if h != nil {
			h.Reset()
			hists.Put(h)
		}
	}
	*w = Window{Published: w.Published[:0], Delivered: w.Delivered[:0]}
	windows.Put(w)
}

// windowOf returns the index and the bounds of the window of t. measure 0 is a measurement without a known end.
func windowOf(t, measure int64) (index int, start, length int64) {
	base := int64(0)
	if measure > 0 && t >= measure {
		base = measure
		index = int((measure + second - 1) / second)
	}
	n := (t - base) / second
	if (t-base)%second < 0 {
		n--
	}
	start, length = base+n*second, second
	if t < measure {
		length = min(second, measure-start)
	}
	return index + int(n), start, length
}

// windowJSON is the stored form of a window. H is *Hist, or histText while it is read.
type windowJSON[H any] struct {
	Index     int               `json:"index"`
	Measured  bool              `json:"measured,omitempty"`
	Start     int64             `json:"start"`
	Length    int64             `json:"length,omitempty"` // omitted: one second
	Counts    map[Counter]int64 `json:"counts,omitempty"`
	Published []int64           `json:"published,omitempty"`
	Delivered []int64           `json:"delivered,omitempty"`
	Hists     map[Series]H      `json:"hists,omitempty"`
}

// MarshalJSON omits counters that are zero. Histograms are base64.
func (w Window) MarshalJSON() ([]byte, error) {
	j := windowJSON[*Hist]{Index: w.Index, Measured: w.Measured, Start: w.Start, Counts: map[Counter]int64{},
		Hists:     map[Series]*Hist{},
		Published: w.Published, Delivered: w.Delivered}
	if w.Length != second {
		j.Length = w.Length
	}
	for c, n := range w.Counts {
		if n != 0 {
			j.Counts[Counter(c)] = n
		}
	}
	for s, h := range w.Hists {
		if h != nil {
			j.Hists[Series(s)] = h
		}
	}
	return json.Marshal(j)
}

type windowText = windowJSON[histText]

// histText is a histogram in the format of Hist.MarshalText.
type histText []byte

func (t *histText) UnmarshalText(text []byte) error {
	*t = append(histText{}, text...)
	return nil
}

// read takes over a decoded window. Windows are only decoded with their Snapshot, which bounds the memory for them.
func (w *Window) read(j windowText, left *budget) error {
	*w = Window{Index: j.Index, Measured: j.Measured, Start: j.Start, Length: j.Length, Published: j.Published,
		Delivered: j.Delivered}
	if w.Length == 0 {
		w.Length = second
	}
	if w.Length < 0 || w.Length > second {
		return fmt.Errorf("read window %d: length of %d ns is impossible; the record is damaged", w.Index, w.Length)
	}
	if n := max(len(w.Published), len(w.Delivered)); n > maxFlows {
		return fmt.Errorf("read window %d: it counts %d flows, the bound is %d; the record is damaged", w.Index, n,
			maxFlows)
	}
	for c, n := range j.Counts {
		w.Counts[c] = n
	}
	for s, text := range j.Hists {
		if text == nil {
			continue
		}
		w.Hists[s] = new(Hist)
		if err := w.Hists[s].unmarshal(text, left); err != nil {
			return fmt.Errorf("read window %d: %w", w.Index, err)
		}
	}
	return nil
}

// Compare orders windows by time. Within a second, those not measured come first.
func (w *Window) Compare(o *Window) int {
	if w.Index != o.Index || w.Measured == o.Measured {
		return cmp.Compare(w.Index, o.Index)
	}
	if o.Measured {
		return -1
	}
	return 1
}

func (w *Window) shift(by int64) {
	w.Index -= int(by / second)
	w.Start -= by
}
