package nats

import "lockstep/pkg/drivers"

// What consumers answer deliveries with. JetStream acknowledges an explicit consumer's messages one by one: "every" and
// "interval" send the acknowledgements of many messages at one time.
var (
	ack = []byte("+ACK")
	nak = []byte("-NAK")
)

// settle answers for the batch that was handled.
func (c *consumer) settle(refused error) {
	if c.spec.Ack == drivers.AckAutomatic {
		c.pull.done(len(c.replies))
		return
	}
	if refused != nil {
		c.answer(c.replies, nak)
		return
	}
	switch c.spec.Ack {
	case drivers.AckEach:
		c.answer(c.replies, ack)
	case drivers.AckEvery:
		c.unacked = append(c.unacked, c.replies...)
		if len(c.unacked) >= c.spec.AckEvery || c.pull.full(len(c.unacked)) {
			c.acknowledge()
		}
	case drivers.AckInterval:
		c.unacked = append(c.unacked, c.replies...)
	}
	if c.pull.unlimited {
		c.pull.done(len(c.replies))
	}
}

// acknowledge answers for all that was accepted until now.
func (c *consumer) acknowledge() {
	c.answer(c.unacked, ack)
	c.unacked = c.unacked[:0]
	_ = c.pull.more()
}

func (c *consumer) answer(replies []string, with []byte) {
	for _, reply := range replies {
		_ = c.link.nc.Publish(reply, with) // fails only with the link
	}
	if !c.pull.unlimited {
		c.pull.done(len(replies))
	}
}

// giveBack ends the subscription in an order that misses nothing under way: behind the answer to the flush nothing
// comes any more.
func (c *consumer) giveBack() {
	_ = c.sub.Drain()
	if c.spec.Ack != drivers.AckAutomatic {
		c.answer(c.unacked, ack)
	}
	_ = c.link.nc.FlushTimeout(grace)
	for {
		select {
		case m := <-c.inbox:
			if m.Reply != "" && c.spec.Ack != drivers.AckAutomatic {
				c.answer([]string{m.Reply}, nak)
			}
			continue
		default:
		}
		break
	}
	_ = c.link.nc.FlushTimeout(grace)
}
