package drivertest

import (
	"fmt"
	"math"
	"sync"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// checkFanOut proves that every subscription receives every message.
func checkFanOut(c *check) {
	u := c.use(c.anyMode())
	u.Subscriptions, u.Consumers = 3, 3
	r := c.rig(u)
	var boxes []*inbox
	for n := range u.Subscriptions {
		boxes = append(boxes, r.inbox(nil, func(spec *drivers.ConsumerSpec) { spec.Subscription = n }))
	}
	s := r.sender(1)
	s.send(c.count())
	for _, in := range boxes {
		in.exactly(s.kept())
	}
}

// checkBindings proves that a message reaches its queue exactly once with any key below drivers.ChurnKey.
func checkBindings(c *check) {
	u := c.use(c.anyMode())
	u.Bindings = 5
	r := c.rig(u)
	in := r.inbox(nil)
	s := r.sender(1)
	for i := range 50 {
		c.must(s.publish(c.ctx, uint32(i), 64), "publish")
	}
	for _, key := range []uint32{math.MaxInt32, math.MaxInt32 - 1, 1 << 20} {
		c.must(s.publish(c.ctx, key, 64), "publish")
	}
	s.settle()
	in.exactly(s.kept())
}

// checkQueues proves that messages reach only their own queue.
func checkQueues(c *check) {
	u := c.use(c.anyMode())
	u.Queues, u.Publishers, u.Consumers = 3, 3, 3
	r := c.rig(u)
	var boxes []*inbox
	var senders []*sender
	for n := range u.Queues {
		boxes = append(boxes, r.inbox(nil, func(spec *drivers.ConsumerSpec) { spec.Queue = n }))
		senders = append(senders, r.sender(uint32(n), func(spec *drivers.PublisherSpec) { spec.Queue = n }))
	}
	for _, s := range senders {
		s.send(20)
	}
	for n, in := range boxes {
		in.exactly(senders[n].kept())
	}
}

// checkMandatory proves that unroutable messages are returned before their confirms, and that no others are.
func checkMandatory(c *check, m drivers.Mode) {
	u := c.use(m)
	u.Mandatory = true
	r := c.rig(u)
	in := r.inbox(nil)
	good := r.sender(1)
	good.send(10)
	lost := r.sender(2, func(spec *drivers.PublisherSpec) { spec.Queue = 1 })
	lost.send(10)
	returned := func(s *sender) (n int) {
		s.each(func(o *outcome) {
			if o.returned {
				n++
			}
		})
		return n
	}
	c.eventually(func() bool { return returned(lost) == 10 }, func() string {
		return "messages to a queue that was not declared are not all returned"
	})
	if r.keeps() {
		in.exactly(good.kept())
	}
	if n := returned(good); n > 0 {
		c.errorf("%d messages are returned though a queue accepted them", n)
	}
}

// checkTogether uses one connection from several goroutines. The end of one publisher must not affect the others.
func checkTogether(c *check) {
	u := c.use(c.anyMode())
	u.Publishers, u.Consumers = 4, 2
	r := c.rig(u)
	in := []*inbox{r.inbox(nil), r.inbox(nil)}
	var senders [4]*sender
	for i := range senders {
		senders[i] = c.newSender(uint32(i), u.Mode)
	}
	var wg sync.WaitGroup
	conn, err := r.conn(drivers.PublisherRole)
	c.must(err, "connect publishers")
	for i, s := range senders {
		wg.Go(func() { r.connectAndSend(conn, s, c.count()/(2+i)) })
	}
	if !c.within(c.wait*2, "four publishers at once", wg.Wait) {
		return
	}
	var want []id
	for _, s := range senders {
		want = append(want, s.kept()...)
	}
	if err := failure(conn); err != nil {
		c.errorf("a publisher that was closed broke the connection of the others: %v", err)
	}
	missing := func() (n int) {
		for _, m := range want {
			if in[0].count(m)+in[1].count(m) == 0 {
				n++
			}
		}
		return n
	}
	if r.keeps() {
		c.eventually(func() bool { return missing() == 0 }, func() string {
			return fmt.Sprintf("%d messages sent from several goroutines do not arrive", missing())
		})
	}
	c.linger()
	for _, m := range want {
		if n := in[0].count(m) + in[1].count(m); n > 1 && r.declared.Guarantees.NoDuplicates {
			c.errorf("message %d of publisher %d arrives %d times", m.seq, m.publisher, n)
		}
	}
}

// connectAndSend connects a publisher, publishes and closes it. It runs in a goroutine of its own: errors do not end
// the check.
func (r *rig) connectAndSend(conn drivers.Conn, s *sender, n int) {
	if err := s.connect(conn, r.publisherSpec()); err != nil {
		r.c.errorf("connect a concurrent publisher: %v", err)
		return
	}
	defer s.close()
	for i := range n {
		if err := s.publish(r.c.ctx, uint32(i), 64); err != nil {
			r.c.errorf("concurrent publish: %v", err)
			return
		}
	}
	s.settle()
}

// checkSessions sends messages from one session to another. The end of one must not affect the topology, or the other.
func checkSessions(c *check) {
	u := c.use(c.anyMode())
	u.Publishers = 2
	r := c.rig(u)
	in := r.inbox(nil)
	other := newRig(c, u, c.session(), r.topology)
	s := other.sender(1)
	s.send(10)
	c.within(c.wait, "Session.Close", func() { c.must(other.session.Close(), "close one of two sessions") })
	next := r.sender(2)
	next.send(10)
	if err := failure(in.consumer, in.conn); err != nil {
		c.errorf("the end of one session broke the connection of another: %v", err)
	}
	if r.keeps() {
		in.exactly(append(s.kept(), next.kept()...))
	}
}

// checkInProcess proves that the sessions of a process share the broker in its memory, whichever of them closes first,
// and that the broker ends with the last one. It runs alone, because other checks use the same broker.
func checkInProcess(c *check) {
	u := c.use(c.anyMode())
	u.Publishers = 2
	d := c.need(u)
	if !d.Capabilities.InProcess {
		c.notApplicable("the broker is not in this process")
	}
	t := topology(u)
	first, second := newRig(c, u, c.session(), t), newRig(c, u, c.session(), t)
	c.cleanups = append(c.cleanups, first.teardown)
	c.must(first.session.Setup(c.ctx, t), "Setup")
	in := second.inbox(nil)
	s := first.sender(1)
	s.send(10)
	c.within(c.wait, "Session.Close", func() { c.must(first.session.Close(), "close the first session") })
	next := second.sender(2)
	next.send(10)
	if err := failure(in.consumer, in.conn, next.conn); err != nil {
		c.errorf("the end of the first session broke the connection of the second: %v", err)
	}
	if keeps(u.Mode, d.Guarantees) {
		in.exactly(append(s.kept(), next.kept()...))
	}
	c.within(c.wait, "Session.Close", func() { c.must(second.session.Close(), "close the second session") })
	third := newRig(c, u, c.session(), t)
	if left, err := third.connectInbox(nil); err == nil {
		left.close()
		c.errorf("a queue is there after the last session closed: its broker has to end with the session")
	}
}

// checkInFlight proves that a publisher sends all messages that may be in flight without waiting for an answer: while
// every answer to the publisher is withheld, a consumer with other connections receives them. So the rate reaches the
// limit per round trip, however long that is.
func checkInFlight(c *check) {
	if c.h.OneRequest {
		c.notApplicable("a publisher has one request in flight")
	}
	const limit = 50
	u := c.use(drivers.ConfirmWindow)
	r := c.rig(u)
	s := r.sender(1, func(spec *drivers.PublisherSpec) { spec.MaxInFlight = limit })
	fill := func() {
		c.within(c.wait, "publish as many messages as may be in flight", func() {
			for range limit {
				c.must(s.publish(c.ctx, uint32(s.seq), 64), "publish")
			}
			c.must(s.pub.Flush(c.ctx), "flush")
		})
	}
	env, near := c.env(), newDialer()
	c.cleanups = append(c.cleanups, near.close)
	env.Dial, env.Forward = near.dial, near.forward
	session, err := drivers.Checked(c.ctx, c.h.Driver, c.h.Options, env)
	c.must(err, "open another session")
	c.cleanups = append(c.cleanups, func() { c.within(c.wait, "Session.Close", func() { _ = session.Close() }) })
	in := newRig(c, u, session, r.topology).inbox(nil)
	// A library may open connections a few at a time, and their handshakes need answers. Each round leaves more of them
	// open.
	for patience := c.quiet(); ; patience *= 2 {
		before := in.distinct()
		arrived := func() bool { return in.distinct() == before+limit }
		c.dial.silence()
		fill()
		for end := time.Now().Add(patience); !arrived() && time.Now().Before(end) && c.ctx.Err() == nil; {
			time.Sleep(time.Millisecond)
		}
		sent := in.distinct() - before
		c.dial.stall(false)
		if !s.settle() || sent == limit {
			return
		}
		if patience > c.wait/4 {
			c.errorf("%d of %d messages are sent while no answer arrives for %v", sent, limit, patience)
			return
		}
		if !c.eventually(arrived, func() string { return "the messages do not arrive" }) {
			return
		}
	}
}
