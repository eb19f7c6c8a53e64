package nats

import (
	"slices"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// These are the answers to deliveries. If an acknowledgement includes the earlier messages, only the last of several is
// answered. JetStream acknowledges the messages of an explicit consumer one by one.
var (
	ack = []byte("+ACK")
	nak = []byte("-NAK")
)

// Ack acknowledges messages.
func (c *consumer) Ack(n int) {
	first := 0
	if c.all {
		first = max(0, n-1)
	}
	c.locked(func() {
		c.answer(c.unanswered[first:n], ack)
		c.forget(n)
	})
}

// Nack rejects messages. The server delivers them again.
func (c *consumer) Nack(n int) {
	c.locked(func() {
		c.answer(c.unanswered[:n], nak)
		c.forget(n)
	})
}

// locked calls do, which uses the library, with mu locked. A blocked write blocks every call of the library. From Stop
// on, locked therefore breaks the connection after grace, also while another call has locked mu. Stop ends a call that
// began before it, because it locks mu, too.
func (c *consumer) locked(do func()) {
	c.limited(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.limited(do) // Stop may have been called while this call waited for mu
	})
}

// limited calls do. From Stop on, it breaks the connection after grace.
func (c *consumer) limited(do func()) {
	select {
	case <-c.stop:
		c.conn.guarded(grace, do)
	default:
		do()
	}
}

func (c *consumer) answer(replies []string, with []byte) {
	for _, reply := range replies {
		_ = c.conn.nc.Publish(reply, with) // fails only if the connection is broken
	}
}

// forget removes answered messages, and requests as many others. The caller holds mu.
func (c *consumer) forget(n int) {
	c.unanswered = slices.Delete(c.unanswered, 0, n)
	if !c.pull.unlimited {
		c.pull.done(n)
	}
	_ = c.pull.more() // fails only if the connection is broken
}

// Close ends the subscription, and returns unanswered and unhandled messages to the broker.
func (c *consumer) Close() error {
	c.Stop()
	c.closing.Do(func() {
		if !c.conn.over() {
			c.conn.guarded(3*grace, c.giveBack) // it waits twice for up to grace
		}
	})
	return nil
}

// giveBack rejects unanswered and unhandled messages. No message arrives after the answer to the first flush, so none
// is missed.
func (c *consumer) giveBack() {
	_ = c.sub.Drain()
	_ = c.conn.nc.FlushTimeout(grace)
	if c.spec.Ack == drivers.AckAutomatic {
		return
	}
	c.answer(c.unanswered, nak)
	for {
		select {
		case m := <-c.inbox:
			if m.Reply != "" {
				c.answer([]string{m.Reply}, nak)
			}
			continue
		default:
		}
		break
	}
	_ = c.conn.nc.FlushTimeout(grace)
}
