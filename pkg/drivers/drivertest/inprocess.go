package drivertest

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
		in.exactly(append(s.kept(), next.kept()...), d.Guarantees)
	}
	c.within(c.wait, "Session.Close", func() { c.must(second.session.Close(), "close the second session") })
	third := newRig(c, u, c.session(), t)
	if left, err := third.tryInbox(nil); err == nil {
		left.close()
		c.errorf("a queue is there after the last session closed: its broker has to end with the session")
	}
}
