package kafka

import (
	"fmt"
	"time"

	"lockstep/pkg/drivers"
)

// tick commits at the interval AckInterval.
func (c *consumer) tick() {
	ticker := time.NewTicker(c.spec.AckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.mu.Lock()
			c.commit(c.session.options.Commit == "blocking")
			c.mu.Unlock()
		case <-c.stop:
			return
		case <-c.link.ctx.Done():
			return
		}
	}
}

// deliver passes messages of one partition to the handler, in batches, and commits as the spec requires. It returns
// false, without accepting the rest, when the consumer ends or when current reports that the partition was reassigned.
func (c *consumer) deliver(partition int32, messages []message, current func() bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(messages) > 0 {
		for c.room() == 0 && !c.over() && current() {
			c.changed.Wait()
		}
		if c.over() || !current() {
			return false
		}
		some := messages[:min(len(messages), c.room())]
		c.hand(partition, some)
		messages = messages[len(some):]
	}
	return true
}

// room returns how many messages may be passed to the handler now.
func (c *consumer) room() int {
	if c.spec.Prefetch == 0 {
		return c.spec.Batch
	}
	return max(0, min(c.spec.Batch, c.spec.Prefetch-c.accepted-c.unanswered))
}

func (c *consumer) over() bool {
	select {
	case <-c.stop:
		return true
	default:
		return c.link.over.Load()
	}
}

// allowance waits until room is not 0, and returns how many messages to fetch.
func (c *consumer) allowance() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.room() == 0 && !c.over() {
		c.changed.Wait()
	}
	if c.spec.Prefetch == 0 {
		return max(c.spec.Batch, 500)
	}
	return max(1, c.spec.Prefetch-c.accepted-c.unanswered)
}

// hand passes one batch to the handler. Kafka has no negative acknowledgement: what the handler rejects is committed,
// too.
func (c *consumer) hand(partition int32, some []message) {
	c.deliveries = c.deliveries[:0]
	for _, m := range some {
		c.deliveries = append(c.deliveries, drivers.Delivery{Body: m.body, Stream: uint32(partition)})
	}
	_ = c.handle(c.deliveries)
	c.positions[partition] = some[len(some)-1].next
	c.accepted += len(some)
	due := c.spec.Ack == drivers.AckEach || (c.spec.Ack == drivers.AckEvery && c.accepted >= c.spec.AckEvery)
	if full := c.spec.Prefetch > 0 && c.accepted >= c.spec.Prefetch; due || full && c.spec.Ack != drivers.AckInterval {
		c.commit(c.session.options.Commit == "blocking")
	}
}

// commit commits all accepted messages. The caller holds mu. A blocking commit keeps mu locked until the answer
// arrives. A background commit first waits, with mu unlocked, for the previous commit.
func (c *consumer) commit(blocking bool) {
	for c.unanswered > 0 && !c.link.over.Load() {
		c.changed.Wait()
	}
	if c.accepted == 0 || c.link.over.Load() {
		return
	}
	positions, n := c.positions, c.accepted
	c.positions, c.accepted = make(map[int32]int64, len(positions)), 0
	if blocking {
		c.committed(c.source.commit(positions))
		return
	}
	c.unanswered = n
	go func() {
		err := c.source.commit(positions)
		c.mu.Lock()
		c.unanswered = 0
		c.mu.Unlock()
		c.committed(err)
	}()
}

// committed handles the result of a commit. After an error the link breaks, because the group may have removed this
// member.
func (c *consumer) committed(err error) {
	c.changed.Broadcast()
	if err != nil {
		// In a new goroutine: the caller may hold a lock that the link's watchers need.
		go c.link.broke(fmt.Errorf("commit positions of group %s: %w", c.group, err))
	}
}

// revoke is called when partitions are taken away. It commits the accepted messages, and makes deliver check whether
// its partition is still assigned.
func (c *consumer) revoke() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commit(true)
	c.changed.Broadcast()
}

// look wakes the waiting goroutines, so that they check the state again.
func (c *consumer) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed.Broadcast()
}

// assigned reports the partitions that the consumer got in a rebalancing.
func (c *consumer) assigned(partitions []int32) {
	c.session.event(drivers.EventRebalanced, fmt.Sprintf("group %s: %s has partitions %v", c.group, c.id, partitions))
}
