package engine

import (
	"context"
	"errors"
	"net"
	"sync"

	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// recorder records one publisher's messages. Three sides write to it, each to its own fields: the publisher's
// goroutine, the confirms (one call at a time), and the returns.
type recorder struct {
	timeline  *timeline
	index     int  // of the publisher
	flow      int  // of the publisher's messages to the first subscription
	paced     bool // messages have an intended send time
	confirmed bool // the broker confirms messages

	sends           *record.Recorder // written by the publisher's goroutine; nil until the start time is known
	sent, uncertain *record.Set
	lastSend        int64

	confirms               *record.Recorder
	acknowledged, rejected *record.Set
	lastConfirm            int64
	gaps                   gapDetector

	unconfirmed oldestUnconfirmed // written by all sides

	returnsMu sync.Mutex
	returns   *record.Recorder
	returned  *record.Set
}

// begin creates the publisher's part of the record. It is called when the start time is known.
func (r *recorder) begin(c *record.Collector) {
	r.sends, r.confirms, r.returns = c.Recorder(), c.Recorder(), c.Recorder()
	r.gaps.begin(-int64(r.timeline.warmup))
	set := func(r *record.Recorder, publisher int, kind record.SetKind) *record.Set {
		return r.Set(record.SetKey{Publisher: publisher, Kind: kind})
	}
	r.sent, r.uncertain = set(r.sends, r.index, record.SetSent), set(r.sends, r.index, record.SetUncertain)
	r.acknowledged, r.rejected = set(r.confirms, r.index, record.SetConfirmed),
		set(r.confirms, r.index, record.SetRejected)
	r.returned = set(r.returns, r.index, record.SetReturned)
}

// accept records a message that the driver accepted.
func (r *recorder) accept(w *record.Window, sequence uint64, size int, send int64) {
	w.Counts[record.Sent]++
	w.Counts[record.SentBytes] += int64(size)
	w.Publish(r.flow, 1)
	r.sent.Add(sequence)
	r.lastSend = send
}

// fail records a message that the driver did not accept. ctx is the context of the failed call.
func (r *recorder) fail(ctx context.Context, w *record.Window, err error, intended, send int64) {
	w.Counts[record.PublishErrors]++
	r.failedAfter(w, intended, send, r.timeline.now())
	var n net.Error
	switch {
	// deadlines are checked first: calls fail with ErrClosed when the engine closes stuck links at a deadline
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &n) && n.Timeout(),
		errors.Is(ctx.Err(), context.DeadlineExceeded):
		w.Counts[record.Timeouts]++
	case errors.Is(err, drivers.ErrClosed):
		w.Counts[record.ClosedErrors]++
	}
	r.waitsSince(send)
}

// failedAfter records the latency of a message that failed without an answer of the broker.
func (r *recorder) failedAfter(w *record.Window, intended, send, now int64) {
	w.Record(record.PublishFailed, now-send)
	if r.paced {
		w.Record(record.Unanswered, now-intended)
	}
}

// waitsSince notes that a message with this send time failed and is unconfirmed. The time until the next confirm then
// counts from it. It may be called from any goroutine.
func (r *recorder) waitsSince(send int64) {
	if r.confirmed {
		r.unconfirmed.note(send)
	}
}

// confirm records the confirm of a message in flight and its publish latency (the values publish.* and
// publish.intended.*). The confirm side calls it, and endGap after the messages of one call.
func (r *recorder) confirm(s *slot, now int64) {
	w := r.confirms.Window(now, r.timeline.belongs(s.intended, s.send))
	w.Counts[record.Confirmed]++
	w.Record(record.Publish, now-s.send)
	if r.paced {
		w.Record(record.PublishIntended, now-s.intended)
	}
	r.acknowledged.Add(s.sequence)
}

// endGap ends the time without a confirm. since is the earliest send time of the messages that were confirmed at now.
func (r *recorder) endGap(now, since int64) {
	r.lastConfirm = now
	if oldest := r.unconfirmed.Load(); oldest != 0 {
		r.unconfirmed.confirmed(oldest)
		since = min(since, oldest)
	}
	if r.gaps.ends(now) {
		r.gaps.keep(r.confirms, now, since)
	}
	r.gaps.came(now)
}

// confirmFailed records that a message in flight was rejected, or that its confirm was lost. The confirm side calls it.
func (r *recorder) confirmFailed(s *slot, rejected bool, now int64) {
	w := r.confirms.Window(now, r.timeline.belongs(s.intended, s.send))
	if rejected {
		w.Counts[record.Rejected]++
		w.Record(record.PublishFailed, now-s.send)
		r.rejected.Add(s.sequence)
		r.waitsSince(s.send)
		return
	}
	r.neverConfirmed(w, s, now)
}

// neverConfirmed records that the confirm of a message was lost, in a window of the calling side.
func (r *recorder) neverConfirmed(w *record.Window, s *slot, now int64) {
	w.Counts[record.Unconfirmed]++
	r.failedAfter(w, s.intended, s.send, now)
	r.waitsSince(s.send)
}

// takeBack records a message that the broker returned as unroutable.
func (r *recorder) takeBack(env envelope) {
	r.returnsMu.Lock()
	defer r.returnsMu.Unlock()
	if r.returned.Add(env.sequence) {
		w := r.returns.Window(r.timeline.now(), r.timeline.belongs(env.intended, env.send))
		w.Counts[record.Returned]++
		w.Publish(r.flow, -1)
	}
}

// flushReturns passes the returns to the collector. It may be called from any goroutine.
func (r *recorder) flushReturns() {
	r.returnsMu.Lock()
	r.returns.Flush()
	r.returnsMu.Unlock()
}

// finish records the open gap at the end. The link is closed, so every message that was in flight has failed.
func (r *recorder) finish(now int64) {
	if r.confirmed {
		since := now
		if oldest := r.unconfirmed.Load(); oldest != 0 {
			since = oldest
		}
		r.gaps.finish(r.confirms, now, since)
	}
	r.confirms.Flush()
}
