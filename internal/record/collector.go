package record

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Collector collects the records of one agent's owners in one task. It is safe for concurrent use; its Recorders are
// not.
type Collector struct {
	end     atomic.Int64 // of the measurement, ns since T0; 0: not known
	mu      sync.Mutex
	windows []*Window
	pages   []SetPages
	gaps    []Gap
}

// NewCollector returns a collector for a measurement that ends end after T0. 0 means that the end is not known.
func NewCollector(end time.Duration) *Collector {
	c := &Collector{}
	c.EndAt(end)
	return c
}

// EndAt sets the end of the measurement, since T0. It must be called before the last second of the measurement begins.
func (c *Collector) EndAt(end time.Duration) { c.end.Store(int64(end)) }

// Recorder returns a new recorder for one owner: one goroutine, or several that are serialised by a lock.
func (c *Collector) Recorder() *Recorder { return &Recorder{collector: c} }

// Recorder records for one owner without locks. It passes its windows to the collector on Flush, and on the first event
// in another second. Without events and Flush, it keeps them.
type Recorder struct {
	start           int64  // of the current windows
	length          uint64 // of the current windows; 0: there are none
	measured, other *Window
	collector       *Collector
	dirty           []*Set
	gaps            []Gap
}

// Window returns the window of an event at time now. measured states whether the message belongs to the measurement.
// The window may be written until the next call of Window or Flush.
func (r *Recorder) Window(now int64, measured bool) *Window {
	if uint64(now-r.start) >= r.length {
		r.turn(now)
	}
	if measured {
		return r.measured
	}
	return r.other
}

// turn opens the windows of another second: one for measured messages, one for others. Alternating between the two is
// free.
func (r *Recorder) turn(now int64) {
	r.Flush()
	index, start, length := windowOf(now, r.collector.end.Load())
	r.start, r.length = start, uint64(length)
	r.measured, r.other = windows.Get().(*Window), windows.Get().(*Window)
	r.measured.Index, r.measured.Start, r.measured.Length, r.measured.Measured = index, start, length, true
	r.other.Index, r.other.Start, r.other.Length = index, start, length
}

// Set returns a new set of this owner. It is passed to the collector together with the owner's windows.
func (r *Recorder) Set(k SetKey) *Set { return &Set{key: k, owner: r, pages: map[uint64]*page{}} }

// Flush passes everything to the collector, including the current windows. Windows and sets are always passed together,
// so that they are consistent.
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

// maxGaps limits the gaps that an owner keeps per second. The dropped gaps are shorter than 1/64 s, and shorter than
// all that are kept.
const maxGaps = 64

// Gap records a gap of this owner. It is passed to the collector with the windows.
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

// TakeGaps returns the gaps passed to the collector since its last call.
func (c *Collector) TakeGaps() []Gap {
	c.mu.Lock()
	defer c.mu.Unlock()
	gaps := c.gaps
	c.gaps = nil
	return gaps
}

// Take returns the windows and sets passed to the collector since its last call, merged over the owners. Windows are
// sorted by time, sets by key. The caller owns the result.
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

// windowSums are windows summed over owners or agents.
type windowSums map[windowKey]*Window

// add adds a window, which is not changed. It returns by how many bytes the memory has grown.
func (s windowSums) add(w *Window) (grown int) {
	k := windowKey{w.Index, w.Measured}
	sum := s[k]
	if sum == nil {
		sum = &Window{Index: w.Index, Measured: w.Measured, Start: w.Start, Length: w.Length}
		s[k] = sum
	} else {
		grown = -sum.memory()
	}
	sum.Add(w)
	return grown + sum.memory()
}

func (s windowSums) sorted() []*Window { return slices.SortedFunc(maps.Values(s), (*Window).Compare) }

func mergeWindows(handed []*Window) []Window {
	merged := windowSums{}
	for _, w := range handed {
		merged.add(w)
		w.recycle()
	}
	var list []Window
	for _, w := range merged.sorted() {
		if w.empty() {
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
