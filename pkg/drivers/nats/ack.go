package nats

import "lockstep/pkg/drivers"

// These are the answers to deliveries. "every" and "interval" acknowledge the last message, if that includes the earlier
// ones. JetStream acknowledges the messages of an explicit consumer one by one: then they send the acknowledgements of
// several messages at the same time.
var (
	ack = []byte("+ACK")
	nak = []byte("-NAK")
)

// settle answers the batch that was handled, or stores its replies for a later acknowledgement.
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

// acknowledge acknowledges all messages that were accepted and not yet acknowledged.
func (c *consumer) acknowledge() {
	c.accept()
	c.unacked = c.unacked[:0]
	_ = c.pull.more()
}

// accept sends the acknowledgements of unacked.
func (c *consumer) accept() {
	n := len(c.unacked)
	if !c.all || n < 2 {
		c.answer(c.unacked, ack)
		return
	}
	if !c.pull.unlimited {
		c.pull.done(n - 1)
	}
	c.answer(c.unacked[n-1:], ack)
}

func (c *consumer) answer(replies []string, with []byte) {
	for _, reply := range replies {
		_ = c.link.nc.Publish(reply, with) // fails only if the link is broken
	}
	if !c.pull.unlimited {
		c.pull.done(len(replies))
	}
}

// giveBack acknowledges accepted messages, ends the subscription, and returns unhandled messages to the broker. No
// message arrives after the answer to the first flush, so none is missed.
func (c *consumer) giveBack() {
	_ = c.sub.Drain()
	if c.spec.Ack != drivers.AckAutomatic {
		c.accept()
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
