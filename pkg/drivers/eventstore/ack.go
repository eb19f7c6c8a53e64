package eventstore

import (
	"context"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"lockstep/pkg/drivers"
)

// maxAcknowledged is the maximum number of events in one acknowledgement.
const maxAcknowledged = 2000

// settle answers the batch that was handled, or stores its events for a later acknowledgement. Errors of sending are
// ignored: they end the subscription, which receive reports.
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

// start is the zero of the clock of answering.
var start = time.Now()

// acknowledge acknowledges all events that were accepted and not yet acknowledged.
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

// awaitAnswers waits until the server has processed all answers. The server does not confirm them, and closing the
// subscription may overtake them. But it reports how many events it has sent to a subscriber, and how many of those are
// unanswered.
func (c *consumer) awaitAnswers() {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	stream, group := streamName(c.spec.Topology, c.spec.Queue), groupName(c.spec.Topology, c.spec.Subscription)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for wait := time.Millisecond; ; wait *= 2 {
		<-pause.C
		if !c.link.informs() {
			_, _ = c.link.holds(ctx, stream) // the server most likely answers this after processing the answers
			return
		}
		info, err := c.link.client.GetPersistentSubscriptionInfo(ctx, stream, group,
			esdb.GetPersistentSubscriptionOptions{})
		if err != nil {
			_ = c.link.verdict(err) // breaks the link if necessary
			return
		}
		if c.taken(info) {
			return
		}
		pause.Reset(wait)
	}
}

// taken reports whether the server has processed all answers. It returns true if the server does not list this
// subscriber.
func (c *consumer) taken(info *esdb.PersistentSubscriptionInfo) bool {
	for _, one := range info.Connections {
		if one.ConnectionName == c.name {
			return one.TotalItemsProcessed-one.InFlightMessages >= c.answered
		}
	}
	return true
}
