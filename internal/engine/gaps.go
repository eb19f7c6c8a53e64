package engine

import (
	"math"
	"sync/atomic"
	"time"

	"lockstep/internal/record"
)

// maxGaps bounds the gaps that one owner keeps: not many more for each doubling of the minimum.
const maxGaps = 64

// gapDetector keeps the times in which one publisher received no confirm, or one consumer no message, that are longer
// than usual. Whoever owns the recorder owns it. It costs one comparison per message.
type gapDetector struct {
	kind  string
	owner int
	min   int64 // ns; shorter times are not kept. It grows, see keep
	kept  int   // since it grew
	last  int64 // ns since T0, when the last message or confirm came
}

func newGapDetector(kind string, owner int, min time.Duration) gapDetector {
	return gapDetector{kind: kind, owner: owner, min: int64(min), last: math.MinInt64 / 2}
}

// begin sets when the load begins: nothing is waited for before.
func (g *gapDetector) begin(at int64) { g.last = at }

// ends reports whether what comes now ends a time that is kept: then keep is called, before came.
func (g *gapDetector) ends(now int64) bool { return now-g.last > g.min }

func (g *gapDetector) came(now int64) { g.last = now }

// keep records the time since the last, of which the owner waited since a time. Times that exceeded the minimum so
// often are usual, and the minimum is doubled: it is never more than twice a time that maxGaps exceeded, and all longer
// ones are kept.
func (g *gapDetector) keep(r *record.Recorder, now, since int64) {
	if g.kept++; g.kept >= maxGaps {
		g.kept, g.min = 0, 2*g.min
	}
	r.Gap(record.Gap{Kind: g.kind, Owner: g.owner, From: g.last, To: now, Waited: min(max(g.last, since), now)})
}

// finish records the time since the last, however short, as one that did not end.
func (g *gapDetector) finish(r *record.Recorder, now, since int64) {
	now = max(now, g.last)
	r.Gap(record.Gap{Kind: g.kind, Owner: g.owner, From: g.last, To: now, Waited: min(max(g.last, since), now),
		Open: true, Min: g.min})
	g.last = now
}

// oldestUnconfirmed is the send time of the oldest failed message since the last confirm, ns since T0; 0: none failed.
// Bit 0 is set with it; bit 1 toggles on each update, so that a concurrent confirm does not clear a newer one. Any
// goroutine.
type oldestUnconfirmed struct{ atomic.Int64 }

// note keeps the first time.
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

// confirmed clears what was noted when it was loaded.
func (o *oldestUnconfirmed) confirmed(loaded int64) { o.CompareAndSwap(loaded, 0) }
