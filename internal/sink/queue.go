package sink

import (
	"context"
	"sync"
	"time"
)

// queue passes lines from the sink to the writer. Its size is bounded. add never waits: it refuses lines that do not
// fit.
type queue struct {
	size, batch int           // maximum numbers of lines
	linger      time.Duration // maximum wait of an incomplete batch for more lines

	mu      sync.Mutex
	lines   []string
	changed chan struct{} // capacity 1: has a value if there are lines, or a full batch
	taken   chan struct{} // capacity 1: has a value after lines were taken
	closed  chan struct{} // closed after the last add
}

// signal puts a value into a channel of capacity 1, if the channel is empty.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// add appends the lines that fit, and returns how many it refused.
func (q *queue) add(lines []string) (refused int) {
	q.mu.Lock()
	before := len(q.lines)
	fit := min(len(lines), max(0, q.size-before))
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

// next waits for a full batch, or for linger after the first line, and takes the lines. It returns nothing if the queue
// is closed and empty, or ctx has ended.
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

// clear empties the queue and returns the number of removed lines.
func (q *queue) clear() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.lines)
	q.lines = nil
	return n
}
