package eventstore

import (
	"context"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"lockstep/pkg/drivers"
)

// maxAcknowledged is how many events one acknowledgement names.
const maxAcknowledged = 2000

// settle answers for the batch that was handled. Sending an answer fails only with the subscription, which says so
// itself.
func (c *consumer) settle(refused error) {
	c.answering.Store(int64(time.Since(start)))
	defer c.answering.Store(0)
	switch {
	case refused != nil:
		c.answered += int64(len(c.events))
		_ = c.sub.Nack("refused", esdb.NackActionRetry, c.events...)
	case c.spec.Ack == drivers.AckEach:
		c.answered += int64(len(c.events))
		for i := range c.events {
			_ = c.sub.Ack(c.events[i : i+1]...)
		}
	default:
		c.unacked = append(c.unacked, c.events...)
		if c.spec.Ack == drivers.AckEvery && (len(c.unacked) >= c.spec.AckEvery || len(c.unacked) >= c.spec.Prefetch) {
			c.acknowledge()
		}
	}
}

// start is the zero of the clock that answering reads.
var start = time.Now()

// acknowledge answers for all that was accepted until now.
func (c *consumer) acknowledge() {
	for rest := c.unacked; len(rest) > 0; {
		n := min(len(rest), maxAcknowledged)
		c.answered += int64(n)
		_ = c.sub.Ack(rest[:n]...)
		rest = rest[n:]
	}
	clear(c.unacked)
	c.unacked = c.unacked[:0]
}

// awaitAnswers returns when the server has taken all answers: it does not confirm them, and ending the subscription may
// overtake them. But it says how many events it has pushed to a subscriber, and how many of them it still waits for.
func (c *consumer) awaitAnswers() {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	stream, group := streamName(c.spec.Topology, c.spec.Queue), groupName(c.spec.Topology, c.spec.Subscription)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for wait := time.Millisecond; ; wait *= 2 {
		<-pause.C
		if !c.link.informs() {
			_, _ = c.link.holds(ctx, stream) // any answer will do: it comes behind them most likely
			return
		}
		info, err := c.link.client.GetPersistentSubscriptionInfo(ctx, stream, group,
			esdb.GetPersistentSubscriptionOptions{})
		if err != nil {
			_ = c.link.verdict(err) // breaks the link if it has to
			return
		}
		if c.taken(info) {
			return
		}
		pause.Reset(wait)
	}
}

// taken reports whether the server has taken all answers, as far as it says anything about this subscriber.
func (c *consumer) taken(info *esdb.PersistentSubscriptionInfo) bool {
	for _, one := range info.Connections {
		if one.ConnectionName == c.name {
			return one.TotalItemsProcessed-one.InFlightMessages >= c.answered
		}
	}
	return true
}
