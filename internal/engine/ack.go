package engine

import (
	"context"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// acker decides when the deliveries of one link of a consumer are answered. The driver only sends the answers. The
// handler calls begin, answer and end. Calls of the driver are serialised with the handler.
type acker struct {
	consumer   drivers.Consumer // set when ready is closed
	ready      chan struct{}
	known      bool // the handler has read that ready is closed
	gone       bool // deliveries were not processed: later ones must not be answered in their place
	policy     drivers.Ack
	every      int
	unanswered int // accepted and not acknowledged
	held       *held

	// with AckInterval; otherwise only the handler calls the driver
	turn    chan struct{} // a token while the handler runs, or run acknowledges
	due     atomic.Bool   // the handler acknowledges when it ends, because it ran at the end of an interval
	stop    chan struct{}
	stopped chan struct{}
}

func newAcker(c plan.Consumers, h *held) *acker {
	return &acker{ready: make(chan struct{}), policy: drivers.Ack(c.Ack), every: max(1, c.AckEvery), held: h}
}

// start sets the consumer, and begins the intervals.
func (a *acker) start(consumer drivers.Consumer, interval time.Duration) {
	a.consumer = consumer
	if a.policy == drivers.AckInterval {
		a.turn, a.stop, a.stopped = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
		go a.run(interval)
	}
	close(a.ready)
}

// run acknowledges the accepted messages at the end of each interval, or when the running call of the handler ends.
func (a *acker) run(interval time.Duration) {
	defer close(a.stopped)
	ticker := time.NewTicker(max(interval, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-a.stop:
			return
		case <-ticker.C:
		}
		select {
		case a.turn <- struct{}{}:
			a.due.Store(false)
			a.held.elapse()
			a.acknowledge()
			<-a.turn
		default:
			a.due.Store(true)
		}
	}
}

// begin must be the first call of the handler. It returns false if ctx ended before the consumer was connected, and
// from then on.
func (a *acker) begin(ctx context.Context) bool {
	if !a.known && !a.await(ctx) {
		return false
	}
	if a.turn != nil {
		a.turn <- struct{}{}
	}
	return true
}

// await is separate so that begin is inlined, as endTurn is for end: both run once per call of the handler.
func (a *acker) await(ctx context.Context) bool {
	if a.gone {
		return false
	}
	select {
	case <-a.ready:
		a.known = true
	case <-ctx.Done():
		a.gone = true
	}
	return a.known
}

// end must be the last call of the handler.
func (a *acker) end() {
	if a.turn != nil {
		a.endTurn()
	}
}

func (a *acker) endTurn() {
	for {
		if a.due.Swap(false) {
			a.acknowledge()
		}
		<-a.turn
		if !a.due.Load() { // an interval that ends from here on finds turn free
			return
		}
		select {
		case a.turn <- struct{}{}:
		default: // run has it, and acknowledges
			return
		}
	}
}

// accept answers n deliveries that were processed, now or later.
func (a *acker) accept(n int) {
	switch a.policy {
	case drivers.AckEach:
		a.ack(n)
	case drivers.AckEvery:
		for a.unanswered += n; a.unanswered >= a.every; a.unanswered -= a.every {
			a.ack(a.every)
		}
	case drivers.AckInterval:
		a.unanswered += n
	}
}

// refuse rejects n deliveries, after it has acknowledged the messages that were accepted before them.
func (a *acker) refuse(n int) {
	if a.policy != drivers.AckAutomatic {
		a.acknowledge()
		a.held.answer(n)
		a.consumer.Nack(n)
	}
}

// acknowledge acknowledges all accepted messages.
func (a *acker) acknowledge() {
	if a.unanswered > 0 {
		a.ack(a.unanswered)
		a.unanswered = 0
	}
}

func (a *acker) ack(n int) {
	a.held.answer(n)
	a.consumer.Ack(n)
}

// finish stops the consumer, and acknowledges all accepted messages. The consumer then can be closed. It waits for a
// running acknowledgement only after Stop, because the driver limits its time from then on.
func (a *acker) finish() {
	if a.stop != nil {
		close(a.stop)
	}
	a.consumer.Stop()
	if a.stop != nil {
		<-a.stopped
	}
	a.held.elapse()
	a.acknowledge()
	a.held.close()
}
