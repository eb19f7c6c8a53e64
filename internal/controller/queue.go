package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"lockstep/internal/wire"
)

// queue is what waits and what is executed, in the order submitted, as the control plane keeps it. Safe for concurrent use.
type queue struct {
	agents  *fleet
	maxRuns int           // side by side
	gather  time.Duration // how long a run whose turn it is waits for agents that are missing
	lookup  lookup
	mu      sync.Mutex
	runs    []*queuedRun // in the order submitted
	read    bool         // what was there when this controller began to lead
	// resolving is how long the names of submissions were resolved before that. One goroutine adds.
	resolving time.Duration
	changed   chan struct{}
	forget    func(wire.Request) // deletes a cancellation that nothing is here for
}

// add takes a message of the queue, and how the run stands as last noted. A cancellation holds for what was submitted before it.
func (q *queue) add(ctx context.Context, r wire.Request, noted wire.RunState) {
	var submitted *queuedRun
	if r.Submission != nil || r.Submits {
		q.mu.Lock()
		if q.read {
			q.resolving = 0
		}
		limit := lookupTimeout - q.resolving
		q.mu.Unlock()
		began := time.Now()
		looking, cancel := context.WithTimeout(ctx, limit)
		submitted = newQueuedRun(looking, r, noted, q.lookup)
		cancel()
		q.resolving += time.Since(began)
	}
	if q.insert(r, submitted) {
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

func (q *queue) insert(r wire.Request, submitted *queuedRun) (idle bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if submitted != nil {
		q.runs = append(q.runs, submitted)
		return false
	}
	idle = true
	for _, run := range q.runs {
		if run.Run != r.Run || run.Seq > r.Seq {
			continue
		}
		idle, run.rejected, run.cause = false, true, cancelledBy(r.By)
		if run.cancel != nil {
			run.cancel(run.cause)
		}
	}
	return idle
}

// start says how to cancel a run that begins, which may have been asked for already.
func (q *queue) start(run *queuedRun, cancel context.CancelCauseFunc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	run.cancel = cancel
	if run.rejected {
		cancel(cmp.Or(run.cause, errCancelled))
	}
}

// finish gives back what a run had.
func (q *queue) finish(run *queuedRun) {
	q.mu.Lock()
	q.runs = slices.DeleteFunc(q.runs, func(o *queuedRun) bool { return o == run })
	q.mu.Unlock()
	q.agents.rouse()
	q.wake()
}

// holds tells whether a run waits or is executed.
func (q *queue) holds(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.runs, func(run *queuedRun) bool { return run.Run == id })
}

// met ends the time in which agents of a run that was taken over stay reserved although nobody heard them.
func (q *queue) met(run *queuedRun) {
	q.mu.Lock()
	defer q.mu.Unlock()
	run.former = false
}

// require sets what the tasks of a run need that are not done.
func (q *queue) require(run *queuedRun, done map[string]bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if run.refusal == nil {
		run.require(done)
	}
}

// names lists the agents that are reserved for a run.
func (q *queue) names(run *queuedRun) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Sorted(maps.Keys(run.agents))
}

// fit returns the agents that an executed run may use, sorted by name; those that were lost are replaced by what is free for it.
func (q *queue) fit(run *queuedRun) []wire.AgentInfo {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(q.pass().living, func(a wire.AgentInfo) bool { return !run.agents[a.Agent] })
}

// next makes the runs begin whose turn it is, and returns them, and those that wait for something else than before.
func (q *queue) next() (begin, waiting []*queuedRun) {
	q.mu.Lock()
	defer q.mu.Unlock()
	anyWaits := slices.ContainsFunc(q.runs, func(run *queuedRun) bool { return !run.begun })
	if !q.read || !anyWaits { // before all is read, one further back may have been begun by a former leader, and have its agents
		return nil, nil
	}
	p := q.pass()
	for i, run := range q.runs {
		wait := ""
		switch {
		case run.begun:
			continue
		case run.former:
		case slices.ContainsFunc(q.runs[:i], func(o *queuedRun) bool { return o.Run == run.Run }):
			wait = "its earlier submission"
		case run.rejected:
			run.needs, run.brokers = nil, nil
		default:
			wait = q.admit(p, run)
		}
		if wait == "" {
			run.begun = true
			begin = append(begin, run)
		} else if wait != run.waiting {
			run.waiting = wait
			waiting = append(waiting, run)
		}
	}
	return begin, waiting
}
