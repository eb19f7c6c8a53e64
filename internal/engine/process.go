package engine

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// worker is what a consumer does with messages before it acknowledges them: it takes its time, or refuses them. The consumer's handler
// owns it.
type worker struct {
	takes  plan.Spread
	nack   float64
	draws  rand.PCG
	waiter clock.Waiter
}

// newWorker is nil for a consumer that acknowledges all at once.
func (e *Engine) newWorker(subscription, consumer int) *worker {
	c := e.work.Consumers
	if c.Nack == 0 && c.Process == (plan.Spread{}) {
		return nil
	}
	return &worker{takes: c.Process, nack: c.Nack, draws: *rand.NewPCG(e.task, 3<<48|uint64(subscription)<<24|uint64(consumer))}
}

var errRefused = errors.New("refused, as consumers.nack says")

// unit is uniform in (0, 1].
func unit(r *rand.PCG) float64 { return float64(r.Uint64()>>11+1) / (1 << 53) }

// refuses tells whether the next batch is refused. All of it is, or none: what brokers are told goes for what they gave together.
func (w *worker) refuses() bool { return w != nil && w.nack > 0 && unit(&w.draws) <= w.nack }

// work takes the time of n messages, unless ctx ends before.
func (w *worker) work(ctx context.Context, n int) {
	if w == nil || w.takes == (plan.Spread{}) {
		return
	}
	var all int64
	for range n {
		all += w.time()
	}
	_ = w.waiter.Until(ctx, clock.Now()+all) // who leaves does not finish its work
}

// mostMeans cuts exponential times, of which one in 22,000 would be longer.
const mostMeans = 10

// time draws the time of one message, in nanoseconds.
func (w *worker) time() int64 {
	if mean := float64(w.takes.Mean); mean > 0 {
		return int64(mean * min(mostMeans, -math.Log(unit(&w.draws))))
	}
	least, most := int64(w.takes.Least), int64(w.takes.Most)
	return least + int64(unit(&w.draws)*float64(most-least))
}

// refuse counts a batch that is refused: it is not received, and its messages are when they come again.
func (c *consumer) refuse(batch []drivers.Delivery) {
	now := c.e.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.receipts.Window(now, c.e.counts(now))
	for i := range batch {
		if body := batch[i].Body; len(body) >= EnvelopeSize && body[1] == kindMessage {
			w.Counts[record.Nacked]++
		}
	}
}

// account receives a batch.
func (c *consumer) account(batch []drivers.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range batch {
		c.receive(&batch[i])
	}
	if c.slow {
		c.interrupted = max(1, c.lastReceipt)
	}
}
