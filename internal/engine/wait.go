package engine

import (
	"math"
	"sync/atomic"
	"time"

	"lockstep/internal/record"
)

// wait notes the times in which one publisher saw no confirm, or one consumer no message, that are longer than ordinary. It belongs to
// whoever owns the recorder. What it costs a message is one comparison.
type wait struct {
	kind  string
	owner int
	least int64 // ns; shorter times are not kept. It grows, see note
	kept  int   // since it grew
	last  int64 // ns since T0, when the last one came
}

func newWait(kind string, owner int, least time.Duration) wait {
	return wait{kind: kind, owner: owner, least: int64(least), last: math.MinInt64 / 2}
}

// begin is when the load begins: before it nothing is waited for.
func (w *wait) begin(at int64) { w.last = at }

// over tells whether what comes now ends a time that is kept; note is called then, before came.
func (w *wait) over(now int64) bool { return now-w.last > w.least }

func (w *wait) came(now int64) { w.last = now }

// mostKept bounds what an owner keeps of a task: not many more for each doubling of the least.
const mostKept = 64

// note keeps the time since the last, of which this owner waited since a time. What was longer than the least so often is ordinary, and the
// least is doubled: so it is never more than twice a time that mostKept exceeded, and all that are longer are kept.
func (w *wait) note(r *record.Recorder, now, since int64) {
	if w.kept++; w.kept >= mostKept {
		w.kept, w.least = 0, 2*w.least
	}
	r.Gap(record.Gap{Kind: w.kind, Owner: w.owner, From: w.last, To: now, Waited: min(max(w.last, since), now)})
}

// end keeps the time since the last, however short, as one that did not end.
func (w *wait) end(r *record.Recorder, now, since int64) {
	now = max(now, w.last)
	r.Gap(record.Gap{Kind: w.kind, Owner: w.owner, From: w.last, To: now, Waited: min(max(w.last, since), now), Open: true, Least: w.least})
	w.last = now
}

// lack notes that a message waits for its confirm in vain since a time: it failed, and what is next is behind that. Any goroutine.
func (p *publisher) lack(since int64) {
	if p.flight != nil {
		p.lacking.note(since)
	}
}

// lack is since when a message waits for its confirm in vain, ns since T0, but for the last two bits: one says that there is such a time, the
// other changes with each that is noted, so that one noted while a confirm comes is not taken for answered by it.
type lack struct{ atomic.Int64 }

// note keeps the first time.
func (l *lack) note(since int64) {
	for {
		was := l.Load()
		is := was ^ 2
		if was == 0 {
			is = since | 1
		}
		if l.CompareAndSwap(was, is) {
			return
		}
	}
}

// answered forgets what was noted when it was seen last.
func (l *lack) answered(seen int64) { l.CompareAndSwap(seen, 0) }

// confirmedAt notes a confirm of a message that was sent at a time. It is the confirm side's.
func (p *publisher) confirmedAt(now, send int64) {
	if l := p.lacking.Load(); l != 0 {
		p.lacking.answered(l)
		send = min(send, l)
	}
	if p.confirmWait.over(now) {
		p.confirmWait.note(p.confirms, now, send)
	}
	p.confirmWait.came(now)
}

// endWait keeps what this publisher still waited for at the end; links are closed, so that whatever was in flight has failed.
func (p *publisher) endWait(now int64) {
	if p.flight == nil {
		return
	}
	since := now
	if l := p.lacking.Load(); l != 0 {
		since = l
	}
	p.confirmWait.end(p.confirms, now, since)
}
