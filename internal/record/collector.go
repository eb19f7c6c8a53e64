package record

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Collector gathers what the owners of one agent record in one task. It is safe for concurrent use; its Recorders are
// not.
type Collector struct {
	end     atomic.Int64 // of the measurement, ns since T0; 0: none is known
	mu      sync.Mutex
	windows []*Window
	pages   []SetPages
	gaps    []Gap
}

// NewCollector returns a collector for a measurement that ends so long after T0; 0 is one without end, as far as is
// known.
func NewCollector(end time.Duration) *Collector {
	c := &Collector{}
	c.EndAt(end)
	return c
}

// EndAt says when the measurement ends, since T0. It may be said late, but not in the second of the end or after it.
func (c *Collector) EndAt(end time.Duration) { c.end.Store(int64(end)) }

// Recorder returns a new recorder for one owner: a goroutine, or several that take turns under a lock of their own.
func (c *Collector) Recorder() *Recorder { return &Recorder{collector: c} }

// Recorder records for one owner without locks. It hands over once a second, with the first event of another second, or
// when asked: an owner without events keeps what it has until Flush.
type Recorder struct {
	start           int64  // of the current windows
	length          uint64 // of the current windows; 0: there are none
	measured, other *Window
	collector       *Collector
	dirty           []*Set
	gaps            []Gap
}

// Window returns the window that an event at time now belongs to; measured reports whether its message was due inside
// the measurement. The window may be written until the next call of Window or Flush.
func (r *Recorder) Window(now int64, measured bool) *Window {
	if uint64(now-r.start) >= r.length {
		r.turn(now)
	}
	if measured {
		return r.measured
	}
	return r.other
}

// turn opens the windows of another second, one for each kind of message, so that a mixture of both costs nothing.
func (r *Recorder) turn(now int64) {
	r.Flush()
	index, start, length := windowOf(now, r.collector.end.Load())
	r.start, r.length = start, uint64(length)
	r.measured, r.other = windows.Get().(*Window), windows.Get().(*Window)
	r.measured.Index, r.measured.Start, r.measured.Length, r.measured.Measured = index, start, length, true
	r.other.Index, r.other.Start, r.other.Length = index, start, length
}

// Set returns a new set of this owner. What is added to it is handed over together with the owner's windows.
func (r *Recorder) Set(k SetKey) *Set { return newSet(r, k) }

// Flush hands over everything, current windows included. Windows and sets always go together, so that what was handed
// over agrees.
func (r *Recorder) Flush() {
	if r.length == 0 && len(r.dirty) == 0 && len(r.gaps) == 0 {
		return
	}
	pages := make([]SetPages, len(r.dirty))
	for i, s := range r.dirty {
		pages[i] = s.handOver()
	}
	r.dirty = r.dirty[:0]
	r.collector.accept(r.other, r.measured, pages, r.gaps)
	r.gaps = r.gaps[:0]
	r.length, r.other, r.measured = 0, nil, nil
}

func (c *Collector) accept(other, measured *Window, pages []SetPages, gaps []Gap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other != nil {
		c.windows = append(c.windows, other, measured)
	}
	c.pages = append(c.pages, pages...)
	c.gaps = append(c.gaps, gaps...)
}

// maxGaps bounds what an owner keeps of one second. Those it may drop are shorter than a 64th of it, and so than any
// that is kept.
const maxGaps = 64

// Gap keeps a gap of this owner; it is handed over with the windows.
func (r *Recorder) Gap(g Gap) {
	if len(r.gaps) < maxGaps {
		r.gaps = append(r.gaps, g)
		return
	}
	shortest := 0
	for i, o := range r.gaps {
		if o.To-o.From < r.gaps[shortest].To-r.gaps[shortest].From {
			shortest = i
		}
	}
	if s := r.gaps[shortest]; s.To-s.From < g.To-g.From {
		r.gaps[shortest] = g
	}
}

// TakeGaps returns the gaps handed over since it was called last.
func (c *Collector) TakeGaps() []Gap {
	c.mu.Lock()
	defer c.mu.Unlock()
	gaps := c.gaps
	c.gaps = nil
	return gaps
}

// Take returns what was handed over since the last Take, merged over the owners: windows by time, sets by key. It is
// the caller's.
func (c *Collector) Take() ([]Window, []SetPages) {
	c.mu.Lock()
	handed, pages := c.windows, c.pages
	c.windows, c.pages = nil, nil
	c.mu.Unlock()
	return mergeWindows(handed), mergePages(pages)
}

// windowKey distinguishes the windows of one agent.
type windowKey struct {
	index    int
	measured bool
}

func (w *Window) compare(o *Window) int {
	if w.Index != o.Index || w.Measured == o.Measured {
		return cmp.Compare(w.Index, o.Index)
	}
	if o.Measured {
		return -1
	}
	return 1
}

func mergeWindows(handed []*Window) []Window {
	var merged []*Window
	byKey := map[windowKey]*Window{}
	for _, w := range handed {
		k := windowKey{w.Index, w.Measured}
		sum := byKey[k]
		if sum == nil {
			sum = &Window{Index: w.Index, Measured: w.Measured, Start: w.Start, Length: w.Length}
			byKey[k] = sum
			merged = append(merged, sum)
		}
		sum.add(w)
		w.recycle()
	}
	slices.SortFunc(merged, (*Window).compare)
	var list []Window
	for _, w := range merged {
		if w.Empty() {
			continue
		}
		for _, h := range w.Hists {
			if h != nil {
				h.settle()
			}
		}
		list = append(list, *w)
	}
	return list
}
