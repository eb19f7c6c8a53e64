package drivertest

import (
	"example.org/lockstep/lockstep/pkg/drivers"
)

func perMessage(m drivers.Mode) bool {
	return m == drivers.ConnectionPerMessage || m == drivers.ConnectionPerMessageConfirm
}

// keeps reports whether it is guaranteed that messages accepted in this mode arrive, as long as no link breaks.
func keeps(m drivers.Mode, p drivers.Guarantees) bool {
	return p.SentKept || (m.Confirmed() && p.ConfirmedKept)
}

// checkMode proves a declared mode: every message arrives once and unchanged. It is confirmed once, or never in
// unconfirmed modes.
func checkMode(c *check, m drivers.Mode) {
	r := c.rig(c.use(m))
	in := r.inbox(nil)
	var want []id
	if perMessage(m) {
		want = r.sendPerMessage(c.count() / 15)
	} else {
		n := c.count()
		if m == drivers.ConfirmEach { // each message waits for the broker
			n /= 5
		}
		s := r.sender(1)
		s.sendAs(m, n)
		want = s.kept()
		if len(want) != n {
			c.errorf("%d of %d messages are accepted and confirmed", len(want), n)
		}
	}
	if r.keeps() {
		in.arrive(want)
	} else {
		c.eventually(func() bool { return in.distinct() > 0 }, func() string { return "not a single message arrives" })
	}
	in.nothingElse(want)
	c.logf("%d of %d messages arrive; guaranteed: %v", len(want)-in.missing(want), len(want), r.keeps())
	if r.declared.Guarantees.Ordered {
		in.inOrder()
	}
}

// sendAs publishes like the engine in this mode.
func (s *sender) sendAs(m drivers.Mode, n int) {
	step := map[drivers.Mode]int{drivers.ConfirmEach: 1, drivers.ConfirmBatch: 10}[m]
	for i := range n {
		s.c.must(s.publish(s.c.ctx, uint32(i), 64+i%100), "publish")
		if step > 0 && (i+1)%step == 0 && !s.settle() {
			return
		}
	}
	s.settle()
}

// sendPerMessage connects, sends and closes for each message.
func (r *rig) sendPerMessage(n int) (want []id) {
	for i := range n {
		s := r.ownSender(uint32(i))
		s.send(1)
		r.c.must(s.pub.Close(), "close a publisher of one message")
		r.c.end(s.conn)
		want = append(want, s.kept()...)
	}
	if len(want) != n {
		r.c.errorf("%d of %d messages are accepted and confirmed", len(want), n)
	}
	return want
}

// checkClose proves that Close loses no message and leaves no confirm outstanding, even without a flush.
func checkClose(c *check, m drivers.Mode) {
	r := c.rig(c.use(m))
	in := r.inbox(nil)
	rounds, each := 3, 20
	if m == drivers.ConfirmBatch {
		each = 10
	}
	if perMessage(m) || m == drivers.ConfirmEach {
		rounds, each = 5, 1
	}
	var want []id
	var senders []*sender
	for i := range rounds {
		connect := r.ownSender
		if !perMessage(m) {
			connect = func(publisher uint32) *sender { return r.sender(publisher) }
		}
		s := connect(uint32(i))
		for k := range each {
			c.must(s.publish(c.ctx, uint32(k), 64), "publish")
		}
		c.within(c.wait, "Publisher.Close", func() { c.must(s.pub.Close(), "close a publisher") })
		if n := s.outstanding(); n > 0 {
			c.errorf("Close returned with %d of %d messages unconfirmed", n, each)
		}
		c.must(s.pub.Close(), "close a publisher again")
		if err := s.publish(c.ctx, 0, 64); err == nil {
			c.errorf("Publish after Close gives no error")
		}
		want = append(want, s.kept()...)
		senders = append(senders, s)
	}
	c.linger()
	for _, s := range senders {
		if err := s.failure(); err != nil {
			c.errorf("Err is not nil although the suite closed the publisher: %v", err)
		}
	}
	if m.Confirmed() && len(want) < rounds*each {
		c.logf("%d of %d confirms came without error before Close returned", len(want), rounds*each)
	}
	if r.keeps() {
		in.arrive(want)
	}
}

// checkOrder publishes with several publishers to one consumer.
func checkOrder(c *check) {
	u := c.use(c.anyMode())
	u.Publishers = 3
	d := c.need(u)
	if !d.Guarantees.Ordered {
		c.notApplicable("order is not guaranteed")
	}
	r := c.rig(u)
	in := r.inbox(nil)
	senders := []*sender{r.sender(1), r.sender(2), r.sender(3)}
	for i := range c.count() {
		for _, s := range senders {
			c.must(s.publish(c.ctx, uint32(i), 32+(i*37)%3000), "publish")
		}
	}
	var want []id
	for _, s := range senders {
		s.settle()
		want = append(want, s.kept()...)
	}
	in.exactly(want)
	in.inOrder()
}

// checkSizes publishes small and large bodies.
func checkSizes(c *check) {
	r := c.rig(c.use(c.anyMode()))
	in := r.inbox(nil)
	s := r.sender(1)
	for i, size := range []int{headSize, 64, 4096, 65_535, 65_536, 262_144, 64} {
		c.must(s.publish(c.ctx, uint32(i), size), "publish")
	}
	s.settle()
	if r.keeps() {
		in.exactly(s.kept())
	}
}

// checkReady publishes immediately after a consumer is connected. In modes without a wait after each message, the
// message must arrive without a flush.
func checkReady(c *check) {
	u := c.use(c.anyMode())
	d := c.need(u)
	if !keeps(u.Mode, d.Guarantees) {
		c.notApplicable("it is not guaranteed that messages arrive")
	}
	for i := range 5 {
		r := c.rig(u)
		s := r.sender(uint32(i))
		in := r.inbox(nil)
		c.must(s.publish(c.ctx, 0, 64), "publish")
		if u.Mode != drivers.ConfirmWindow && u.Mode != drivers.FireAndForget {
			s.settle()
		}
		if !in.arrive([]id{{s.id, 0}}) {
			c.fatalf("a message published after Consumer returned was missed, or was not sent without a flush")
		}
		s.settle()
	}
}
