package engine

import (
	"math"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/internal/record"
)

// maxGaps limits the gaps that one owner keeps before the minimum length is doubled.
const maxGaps = 64

// gapDetector records gaps: long times without a confirm at one publisher, or without a delivery at one consumer. The
// goroutine that owns the recorder owns it. It costs one comparison per message.
type gapDetector struct {
	kind  string
	owner int
	min   int64 // ns; shorter gaps are not recorded. It grows, see keep
	kept  int   // gaps recorded since min grew
	last  int64 // time of the last message or confirm, ns since T0
}

func newGapDetector(kind string, owner int, min time.Duration) gapDetector {
	return gapDetector{kind: kind, owner: owner, min: int64(min), last: math.MinInt64 / 2}
}

// begin sets the beginning of the load. A gap cannot begin before it.
func (g *gapDetector) begin(at int64) { g.last = at }

// ends reports whether a message at now ends a gap to record. If it does, call keep before came.
func (g *gapDetector) ends(now int64) bool { return now-g.last > g.min }

func (g *gapDetector) came(now int64) { g.last = now }

// keep records the gap from the last message to now. The owner waited since the time since. After maxGaps gaps the
// minimum is doubled, because gaps of that length are usual. All gaps longer than the minimum are recorded.
func (g *gapDetector) keep(r *record.Recorder, now, since int64) {
	if g.kept++; g.kept >= maxGaps {
		g.kept, g.min = 0, 2*g.min
	}
	r.Gap(record.Gap{Kind: g.kind, Owner: g.owner, From: g.last, To: now, Waited: min(max(g.last, since), now)})
}

// finish records the time since the last message as an open gap, however short it is.
func (g *gapDetector) finish(r *record.Recorder, now, since int64) {
	now = max(now, g.last)
	r.Gap(record.Gap{Kind: g.kind, Owner: g.owner, From: g.last, To: now, Waited: min(max(g.last, since), now),
		Open: true, Min: g.min})
	g.last = now
}

// oldestUnconfirmed is the send time of the oldest failed message since the last confirm, ns since T0. 0 means that no
// message failed. Bit 0 is always set, so that a time of 0 is distinguishable. Bit 1 toggles with each update, so that
// a concurrent confirm does not clear a newer value. It is read with Load, and safe for concurrent use.
type oldestUnconfirmed struct{ atomic.Int64 }

// note stores the time if none is stored.
func (o *oldestUnconfirmed) note(since int64) {
	for {
		was := o.Load()
		is := was ^ 2
		if was == 0 {
			is = since | 1
		}
		if o.CompareAndSwap(was, is) {
			return
		}
	}
}

// confirmed clears the value unless it was updated since it was loaded.
func (o *oldestUnconfirmed) confirmed(loaded int64) { o.CompareAndSwap(loaded, 0) }
