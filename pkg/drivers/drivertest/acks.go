package drivertest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

const ackInterval = 20 * time.Millisecond

var errHandler = errors.New("drivertest's handler refuses")

// checkAck proves that acknowledged messages are not delivered again to a later consumer. It also proves that a
// prefetch smaller than the number of messages does not stop the flow.
func checkAck(c *check, a drivers.Ack) {
	u := c.use(c.anyMode())
	u.Ack, u.Prefetch = a, 10
	r := c.rig(u)
	s := r.sender(1)
	first := r.inbox(nil)
	s.send(45)
	first.exactly(s.kept())
	first.close()

	// Only Close can send these acknowledgements.
	usual := r.acking
	r.acking = acking{every: 90, interval: time.Hour}
	late := r.inbox(nil, func(spec *drivers.ConsumerSpec) { spec.Prefetch = 100 })
	r.acking = usual
	before := len(s.kept())
	s.send(30)
	late.arrive(s.kept()[before:])
	late.close()

	s.send(1)
	second := r.inbox(nil)
	second.arrive(s.kept()[before+30:])
	c.linger()
	if n := second.distinct(); n != 1 {
		c.errorf("%d messages come again after they were acknowledged (%s) and the consumer closed", n-1, a)
	}
}

// checkRedelivery rejects every second message once. These messages must be delivered again, and be marked as
// redelivered if the broker marks them.
func checkRedelivery(c *check, a drivers.Ack) {
	u := c.use(c.anyMode())
	u.Ack, u.Prefetch = a, 10
	d := c.need(u)
	if !d.Capabilities.Redelivery {
		c.notApplicable("redelivery is not declared")
	}
	r := c.rig(u)
	refusedOnce := map[id]bool{}
	rejects := func(spec *drivers.ConsumerSpec) { spec.Batch, spec.Nack = 1, true }
	in := r.inbox(func(got []delivery) error {
		m := got[0]
		if m.id.seq%2 == 1 && !refusedOnce[m.id] {
			refusedOnce[m.id] = true
			return errHandler
		}
		return nil
	}, rejects)
	s := r.sender(1)
	s.send(20)
	again := func(m id) bool { return m.seq%2 == 0 || in.count(m) >= 2 }
	c.eventually(func() bool {
		return in.missing(s.kept()) == 0 && !slices.ContainsFunc(s.kept(), func(m id) bool { return !again(m) })
	}, func() string { return "refused messages do not come again" })
	c.linger()
	checkFlags(c, in.all())
	in.close()
	rest := r.inbox(nil, rejects)
	c.linger()
	if n := rest.distinct(); n > 0 {
		c.errorf("%d messages come again after they were acknowledged and the consumer closed", n)
	}
}

// checkExact proves that Ack and Nack answer exactly the oldest unanswered deliveries, also between calls of the
// handler. Close must return all others.
func checkExact(c *check) {
	u := c.use(c.anyMode())
	u.Prefetch, u.Nack = 20, true
	d := c.need(u)
	if !d.Capabilities.Redelivery || u.Ack == drivers.AckAutomatic {
		c.notApplicable("redelivery is not declared, or nothing is acknowledged")
	}
	r := c.rig(u)
	r.acking.never = true
	rejects := func(spec *drivers.ConsumerSpec) { spec.Nack = true }
	in := r.inbox(nil, rejects)
	s := r.sender(1)
	s.send(20)
	if !in.arrive(s.kept()) {
		return
	}
	var order []id // of arrival
	for _, got := range in.all() {
		order = append(order, got.id)
	}
	answer := func(doing string, f func()) {
		c.within(c.wait, doing, func() {
			in.turn <- struct{}{}
			defer func() { <-in.turn }()
			f()
		})
	}
	answer("Ack and Nack", func() {
		in.consumer.Ack(4)
		in.consumer.Nack(3)
	})
	rejected := order[4:7]
	c.eventually(func() bool {
		return !slices.ContainsFunc(rejected, func(m id) bool { return in.count(m) < 2 })
	}, func() string { return "refused messages do not come again" })
	c.linger()
	if !slices.ContainsFunc(order[7:], func(m id) bool { return in.count(m) < 2 }) {
		c.errorf("refused messages come again only together with all unanswered ones: Nack did not return them")
	}
	answer("Ack", func() { in.consumer.Ack(5) })
	in.close()
	left := append(slices.Clone(rejected), order[12:]...)
	r.acking.never = false
	next := r.inbox(nil, rejects)
	next.arrive(left)
	c.linger()
	for _, m := range order {
		if n, want := next.count(m), slices.Contains(left, m); (n > 0) != want {
			c.errorf("message %d comes again %d times after the consumer closed; unanswered: %t", m.seq, n, want)
		}
	}
}

// checkFlags compares the redelivered marks with the deliveries. Each odd message must arrive twice, all others once.
func checkFlags(c *check, all []delivery) {
	times := map[id]int{}
	for _, got := range all {
		times[got.id]++
		n := times[got.id]
		switch {
		case n == 1 && got.redelivered == drivers.Yes:
			c.errorf("message %d is flagged redelivered at its first delivery", got.id.seq)
		case n > 1 && got.redelivered == drivers.No:
			c.errorf("message %d is flagged not redelivered at its second delivery", got.id.seq)
		case n > 2 || (n > 1 && got.id.seq%2 == 0):
			c.errorf("message %d arrives %d times", got.id.seq, n)
		}
	}
}

// gate is a handler that blocks in its first call until release is called.
type gate struct {
	entered, open chan struct{}
	once, opened  sync.Once
	after         error // result of the blocked call
}

// release opens the gate. Checks defer it, so that no failure leaves a handler blocked.
func (g *gate) release() { g.opened.Do(func() { close(g.open) }) }

func newGate(after error) *gate {
	return &gate{entered: make(chan struct{}), open: make(chan struct{}), after: after}
}

func (g *gate) react([]delivery) error {
	var err error
	g.once.Do(func() {
		close(g.entered)
		<-g.open
		err = g.after
	})
	return err
}

// checkPrefetch proves that a consumer which acknowledges nothing receives at most as many messages as its prefetch.
// Another one blocks its handler, and may hold back as many, and no more. The second part does not apply if queues are
// divided in streams, which consumers share.
func checkPrefetch(c *check) {
	u := c.use(c.anyMode())
	u.Prefetch = 5
	d := c.need(u)
	if u.Ack == drivers.AckAutomatic {
		c.notApplicable("nothing is acknowledged")
	}
	one := func(spec *drivers.ConsumerSpec) { spec.Batch = 1 }
	r := c.rig(u)
	r.acking.never = true
	r.sender(1).send(40)
	in := r.inbox(nil, one)
	c.eventually(func() bool { return in.distinct() > 0 }, func() string { return "no message arrives" })
	c.linger()
	if n := in.distinct(); n > u.Prefetch && !c.h.WholeChunks {
		c.errorf("a consumer that acknowledges nothing receives %d messages: its prefetch is %d", n, u.Prefetch)
	}
	in.close()
	if d.Capabilities.Streams {
		return
	}
	u.Consumers = 2
	r = c.rig(u)
	g := newGate(nil)
	defer g.release()
	s := r.sender(1)
	s.send(40) // all are queued when the first consumer connects, so that it can take its whole prefetch
	blocked := r.inbox(g.react, one)
	c.await(g.entered, "the first message")
	other := r.inbox(nil, one)
	c.eventually(func() bool { return other.distinct() >= 35 }, func() string {
		return "a handler that blocks keeps more than its prefetch of 5 from another consumer"
	})
	c.linger()
	if n := other.distinct() + blocked.distinct(); n > 40 {
		c.errorf("%d different deliveries of 40 messages: an unacknowledged message went to two consumers", n)
	}
	if held := blocked.all(); other.count(held[0].id) > 0 {
		c.errorf("the message in a blocked handler went to another consumer too")
	}
}

// await waits until a channel is closed. It ends the check after 2·wait.
func (c *check) await(ch <-chan struct{}, what string) {
	select {
	case <-ch:
	case <-time.After(2 * c.wait):
		c.fatalf("not within %v: %s", 2*c.wait, what)
	}
}

// checkBatch proves that handler calls have at most batch deliveries, and do not wait for a batch to fill.
func checkBatch(c *check) {
	u := c.use(c.anyMode())
	for _, batch := range []int{1, 7, 1000} {
		r := c.rig(u)
		s := r.sender(1)
		g := newGate(nil)
		defer g.release()
		in := r.inbox(g.react, func(spec *drivers.ConsumerSpec) { spec.Batch = batch })
		s.send(3)
		c.await(g.entered, "the first of 3 messages: they must not wait for a batch to fill")
		s.send(80) // they accumulate while the handler blocks
		g.release()
		if r.keeps() {
			in.arrive(s.kept())
		}
		in.close()
		c.logf("batch %d: %d calls, at most %d at once", batch, in.calls, in.largest)
	}
}

// checkHandlerBlocks stops a consumer whose handler blocks. Stop must wait for the handler, and no further call may
// follow.
func checkHandlerBlocks(c *check) {
	u := c.use(c.anyMode())
	u.Prefetch = 10
	r := c.rig(u)
	g := newGate(nil)
	if r.declared.Capabilities.Redelivery {
		g.after = errHandler
	}
	defer g.release()
	var accepted sync.Map // by id
	in := r.inbox(func(got []delivery) error {
		err := g.react(got)
		if err == nil {
			accepted.Store(got[0].id, true)
		}
		return err
	}, func(spec *drivers.ConsumerSpec) { spec.Batch, spec.Nack = 1, r.declared.Capabilities.Redelivery })
	s := r.sender(1)
	s.send(10)
	c.await(g.entered, "the first message")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		in.consumer.Stop()
	}()
	c.linger()
	select {
	case <-stopped:
		c.errorf("Stop returned while the handler was running")
	default:
	}
	g.release()
	c.await(stopped, "Consumer.Stop after its handler returned")
	calls := len(in.all())
	c.linger()
	if n := len(in.all()); n > calls {
		c.errorf("the handler is called %d times after Stop returned", n-calls)
	}
	in.close()
	if err := failure(in.consumer, in.conn); err != nil {
		c.errorf("Err is not nil although the suite closed the consumer: %v", err)
	}
	if r.declared.Capabilities.Redelivery && u.Ack != drivers.AckAutomatic {
		var left []id
		for _, m := range s.kept() {
			if _, done := accepted.Load(m); !done {
				left = append(left, m)
			}
		}
		r.inbox(nil).arrive(left)
	}
}
