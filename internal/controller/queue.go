package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// queue is what waits and what is executed, in the order submitted, as the control plane keeps it. Safe for concurrent use.
type queue struct {
	agents  *fleet
	most    int // runs side by side
	mu      sync.Mutex
	claims  []*claim // in the order submitted
	read    bool     // what was there when this controller began to lead
	changed chan struct{}
	forget  func(wire.Request) // deletes a cancellation that nothing is here for
}

// add takes a message of the queue, and how the run stands as last noted. A cancellation holds for what was submitted before it.
func (q *queue) add(r wire.Request, noted wire.RunState) {
	if q.insert(r, noted) {
		q.forget(r)
	}
	q.wake()
}

// complete notes that all was added that was there when this controller began to lead.
func (q *queue) complete() {
	q.mu.Lock()
	q.read = true
	q.mu.Unlock()
	q.wake()
}

func (q *queue) wake() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

func (q *queue) insert(r wire.Request, noted wire.RunState) (idle bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.Submission != nil || r.Submits {
		q.claims = append(q.claims, newClaim(r, noted))
		return false
	}
	idle = true
	for _, c := range q.claims {
		if c.Run != r.Run || c.Seq > r.Seq {
			continue
		}
		idle, c.over, c.why = false, true, cancelledBy(r.By)
		if c.cancel != nil {
			c.cancel(c.why)
		}
	}
	return idle
}

// start says how to cancel a run that begins, which may have been asked for already.
func (q *queue) start(c *claim, cancel context.CancelCauseFunc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.cancel = cancel
	if c.over {
		cancel(cmp.Or(c.why, errCancelled))
	}
}

// finish gives back what a run had.
func (q *queue) finish(c *claim) {
	q.mu.Lock()
	q.claims = slices.DeleteFunc(q.claims, func(o *claim) bool { return o == c })
	q.mu.Unlock()
	q.agents.rouse()
	q.wake()
}

// holds tells whether a run waits or is executed.
func (q *queue) holds(run string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.claims, func(c *claim) bool { return c.Run == run })
}

// waits tells whether any run waits.
func (q *queue) waits() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.claims, func(c *claim) bool { return !c.begun })
}

// wants sets what the tasks that are left of a run need.
func (q *queue) wants(c *claim, todo []plan.Task, done map[string]bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.want(todo, done)
}

// reserve adds agents that a former leader gave to a run.
func (q *queue) reserve(c *claim, names []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range names {
		c.agents[name] = true
	}
}

// met ends the time in which agents of a run that was taken over stay reserved although nobody heard them.
func (q *queue) met(c *claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.former = false
}

// names lists the agents that are reserved for a run.
func (q *queue) names(c *claim) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Sorted(maps.Keys(c.agents))
}
