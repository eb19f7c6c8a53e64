package engine

import (
	"context"
	"math"
	"math/rand/v2"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
)

// maxMeans truncates exponential times at ten times the mean. One in 22,000 would be longer.
const maxMeans = 10

// processor simulates a consumer's work before it acknowledges: it delays or refuses deliveries. The consumer's handler
// owns it. A nil processor does neither.
type processor struct {
	delay  plan.DurationDist
	nack   float64
	draws  rand.PCG
	waiter clock.Waiter
}

// newProcessor returns nil for a consumer that acknowledges every message at once.
func newProcessor(c plan.Consumers, task uint64, subscription, consumer int) *processor {
	if c.Nack == 0 && c.Process == (plan.DurationDist{}) {
		return nil
	}
	return &processor{delay: c.Process, nack: c.Nack,
		draws: *rand.NewPCG(task, 3<<48|uint64(subscription)<<24|uint64(consumer))}
}

// unit returns a uniform number in (0, 1].
func unit(r *rand.PCG) float64 { return float64(r.Uint64()>>11+1) / (1 << 53) }

// refuses reports whether the next batch is refused. The whole batch is refused, because brokers accept one answer for
// messages that they delivered together.
func (p *processor) refuses() bool { return p != nil && p.nack > 0 && unit(&p.draws) <= p.nack }

// process waits for the simulated processing time of n messages, or until ctx ends. It returns false if there is none.
func (p *processor) process(ctx context.Context, n int) bool {
	if p == nil || p.delay == (plan.DurationDist{}) {
		return false
	}
	var all int64
	for range n {
		all += p.time()
	}
	_ = p.waiter.Until(ctx, clock.Now()+all) // a consumer that disconnects does not finish its work
	return true
}

// time draws the processing time of one message, in ns.
func (p *processor) time() int64 {
	if mean := float64(p.delay.Mean); mean > 0 {
		return int64(mean * min(maxMeans, -math.Log(unit(&p.draws))))
	}
	from, to := int64(p.delay.Min), int64(p.delay.Max)
	return from + int64(unit(&p.draws)*float64(to-from))
}
