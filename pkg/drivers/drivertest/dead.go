package drivertest

import (
	"sync"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// endLimit is the maximum time of a call of Close or Stop: "a few seconds" in the contract, generously.
const endLimit = 20 * time.Second

// soon calls f, which closes or stops something while the broker is dead. If f does not return within endLimit, the
// check has failed, and soon returns false. The limit is counted in steps of 50 ms, so that a machine that suspends the
// process extends the limit.
func (c *check) soon(doing string, f func()) bool {
	const pause = 50 * time.Millisecond
	limit, began, done := min(endLimit, c.wait), time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for range limit / pause {
		select {
		case <-done:
			c.logf("%s takes %v while the broker is dead", doing, time.Since(began).Round(time.Millisecond))
			return true
		case <-time.After(pause):
		}
	}
	c.errorf("%s does not return within %v while the broker is dead; goroutines:\n%s", doing, limit, stacks())
	return false
}

// pending is a publisher and a consumer of one queue, with work that only the broker can complete.
type pending struct {
	s       *sender
	in      *inbox
	release func()        // ends the handler
	answers chan struct{} // closed when the handler is about to acknowledge
}

// pending connects a publisher and a consumer. It returns when the consumer has unanswered deliveries, and its handler
// blocks. The handler then acknowledges most of them before it returns, so that the consumer waits for the broker. The
// dialer watches the publisher's connections.
func (r *rig) pending(queue int) *pending {
	const blocked = 8 // of a prefetch of 10: the consumer also asks the broker for further deliveries
	entered, open := make(chan struct{}), make(chan struct{})
	p := &pending{release: sync.OnceFunc(func() { close(open) }), answers: make(chan struct{})}
	calls := 0
	r.acking.never = true
	p.in = r.inbox(func([]delivery) error {
		if calls++; calls == blocked {
			close(entered)
			<-open
			close(p.answers)
			p.ack(r, blocked-1)
		}
		return nil
	}, func(spec *drivers.ConsumerSpec) { spec.Queue, spec.Batch = queue, 1 })
	r.c.cleanups = append(r.c.cleanups, p.release)
	r.c.dial.watch.Store(true)
	p.s = r.sender(uint32(queue), func(spec *drivers.PublisherSpec) { spec.Queue = queue })
	p.s.send(3 * blocked)
	p.s.settle() // some libraries dial when the first message is published
	r.c.dial.watch.Store(false)
	r.c.await(entered, "deliveries of a consumer that answers none")
	return p
}

func (p *pending) ack(r *rig, n int) {
	if r.use.Ack != drivers.AckAutomatic {
		p.in.consumer.Ack(n)
	}
}

// publish publishes messages that the broker does not confirm.
func (p *pending) publish(c *check) {
	c.within(c.wait, "Publish and Flush to a broker that reads", func() {
		for i := range 10 {
			if err := p.s.publish(c.ctx, uint32(i), 64); err != nil {
				c.errorf("Publish to a broker that reads: %v", err)
			}
		}
		_ = p.s.pub.Flush(c.ctx)
	})
}

// closePublisher closes the publisher. Its unconfirmed messages must fail.
func (p *pending) closePublisher(c *check) {
	if !c.soon("Publisher.Close", func() { _ = p.s.pub.Close() }) {
		return
	}
	if n := p.s.outstanding(); n > 0 {
		c.errorf("Publisher.Close returned with %d messages unconfirmed", n)
	}
}

// closeConsumer closes the consumer like the engine.
func (p *pending) closeConsumer(c *check, r *rig) {
	_ = c.soon("Consumer.Stop", p.in.consumer.Stop) &&
		c.soon("Consumer.Ack after Stop", func() { p.ack(r, 1) }) &&
		c.soon("Consumer.Close", func() { _ = p.in.consumer.Close() })
}

// checkCloseDead closes publishers, consumers, connections and a session while the broker does not answer, and its
// connections stay open. Messages are unconfirmed, deliveries unanswered, and acknowledgements on their way. With
// stalled, the broker does not read either.
func checkCloseDead(c *check, stalled bool) {
	if c.h.NoNetwork {
		c.notApplicable("there are no connections to stall")
	}
	u := c.use(drivers.ConfirmWindow)
	u.Prefetch, u.Queues, u.Publishers, u.Consumers = 10, 2, 2, 2
	r := c.rig(u)
	other := newRig(c, u, c.session(), r.topology)
	one, two := r.pending(0), other.pending(1)
	c.broke.Store(true)
	c.dial.silence()
	defer c.dial.stall(false)
	for _, p := range []*pending{one, two} {
		p.publish(c)
	}
	if !c.eventually(func() bool { return c.dial.withheld.Load() > 0 }, func() string {
		return "the broker sends no confirm that the suite withholds"
	}) {
		return
	}
	if stalled {
		c.dial.stall(true)
	}
	for _, p := range []*pending{one, two} {
		p.release()
		c.await(p.answers, "the handler, which was released")
	}
	c.linger() // the handlers enter Ack, and wait there if the driver waits for the broker
	var all sync.WaitGroup
	all.Go(func() {
		one.closePublisher(c)
		c.soon("Conn.Close of publishers", func() { _ = one.s.conn.Close() })
	})
	all.Go(func() {
		one.closeConsumer(c, r)
		c.soon("Conn.Close of consumers", func() { _ = one.in.conn.Close() })
	})
	all.Go(func() {
		c.soon("Session.Close", func() { _ = other.session.Close() })
		two.closePublisher(c)
		two.closeConsumer(c, other)
	})
	all.Wait()
}
