package sink

import (
	"context"
	"sync"
	"time"
)

// queue holds lines between the one who makes them and the one who writes. Adding never waits: what does not fit is refused.
type queue struct {
	most, batch int
	linger      time.Duration // how long a batch that is not full waits for more

	mu      sync.Mutex
	lines   []string
	changed chan struct{} // one: there is something, or a whole batch
	taken   chan struct{} // one: lines were taken
	closed  chan struct{} // closed when no more is added
}

func newQueue(most, batch int, linger time.Duration, taken chan struct{}) *queue {
	return &queue{most: most, batch: batch, linger: linger, changed: make(chan struct{}, 1), taken: taken, closed: make(chan struct{})}
}

// signal wakes who waits on a channel for one, if he is not woken already.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// add takes as many lines as there is room for, and tells how many it refused.
func (q *queue) add(lines []string) (refused int) {
	q.mu.Lock()
	before := len(q.lines)
	fit := min(len(lines), max(0, q.most-before))
	q.lines = append(q.lines, lines[:fit]...)
	wake := before == 0 && fit > 0 || before < q.batch && before+fit >= q.batch
	q.mu.Unlock()
	if wake {
		signal(q.changed)
	}
	return len(lines) - fit
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.lines)
}

// next waits for a batch: a whole one, or what has come since linger. It returns nothing when the queue is closed and empty, or ctx has ended.
func (q *queue) next(ctx context.Context) []string {
	for q.len() == 0 {
		select {
		case <-q.changed:
		case <-q.closed:
			return q.take()
		case <-ctx.Done():
			return nil
		}
	}
	late := time.NewTimer(q.linger)
	defer late.Stop()
	for q.len() < q.batch {
		select {
		case <-q.changed:
		case <-late.C:
			return q.take()
		case <-q.closed:
			return q.take()
		case <-ctx.Done():
			return nil
		}
	}
	return q.take()
}

func (q *queue) take() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.lines), q.batch)
	batch := q.lines[:n:n]
	q.lines = q.lines[n:]
	signal(q.taken)
	return batch
}

// clear empties the queue and tells how many were in it.
func (q *queue) clear() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.lines)
	q.lines = nil
	return n
}
