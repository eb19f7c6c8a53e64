package controller

import (
	"context"
	"slices"
	"sync"

	"lockstep/internal/wire"
)

// queue is what waits, in the order submitted, as the control plane keeps it.
type queue struct {
	mu        sync.Mutex
	waiting   []wire.Request
	current   wire.Request // zero: none
	cancel    context.CancelCauseFunc
	cancelled map[string]uint64 // runs here to the number of their last cancellation
	changed   chan struct{}
	forget    func(wire.Request) // deletes a cancellation that nothing is here for
}

// add takes a message of the queue. A cancellation holds for what was submitted before it.
func (q *queue) add(r wire.Request) {
	if q.insert(r) {
		q.forget(r)
	}
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

func (q *queue) insert(r wire.Request) (idle bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.Submission != nil || r.Err != nil {
		q.waiting = append(q.waiting, r)
		return false
	}
	if q.current.Run == r.Run {
		q.cancelled[r.Run] = r.Seq
		if q.cancel != nil && q.current.Seq < r.Seq {
			q.cancel(errCancelled)
		}
		return false
	}
	if !slices.ContainsFunc(q.waiting, func(w wire.Request) bool { return w.Run == r.Run }) {
		return true
	}
	q.cancelled[r.Run] = r.Seq
	return false
}

// next makes the first that waits the current one.
func (q *queue) next() (wire.Request, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return wire.Request{}, false
	}
	q.current = q.waiting[0]
	q.waiting = q.waiting[1:]
	return q.current, true
}

// start says how to cancel the current one, which may have been asked for already.
func (q *queue) start(cancel context.CancelCauseFunc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cancel = cancel
	if q.cancelled[q.current.Run] > q.current.Seq {
		cancel(errCancelled)
	}
}

func (q *queue) finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	again := slices.ContainsFunc(q.waiting, func(w wire.Request) bool { return w.Run == q.current.Run })
	if !again {
		delete(q.cancelled, q.current.Run)
	}
	q.current, q.cancel = wire.Request{}, nil
}
