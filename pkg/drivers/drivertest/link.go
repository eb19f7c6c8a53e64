package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

const (
	blockSize  = 16 << 10
	blockBytes = 64 << 20 // more than a driver, its library and the system buffer
)

// blockedRig returns a rig whose broker accepts no messages, or will soon stop accepting them.
func (c *check) blockedRig(u drivers.Use) *rig {
	switch {
	case c.h.FullOptions != nil:
		return c.rigOf(c.h.FullOptions, u, topology(u))
	case c.h.NoNetwork:
		c.notApplicable("there are no connections to stall, and no options that make Publish block")
	}
	return c.rig(u)
}

// block publishes in a goroutine, and returns when Publish blocks. The channel receives the goroutine's last error when
// it ends.
func (c *check) block(ctx context.Context, s *sender) <-chan error {
	if c.h.FullOptions == nil {
		c.dial.stall(true)
	}
	ended := make(chan error, 1)
	var sent atomic.Int64
	go func() {
		var err error
		for sent.Load() < blockBytes && err == nil {
			err = s.publish(ctx, 0, blockSize)
			sent.Add(blockSize)
		}
		ended <- err
	}()
	for last := int64(-1); sent.Load() != last && sent.Load() < blockBytes; {
		last = sent.Load()
		time.Sleep(3 * c.quiet())
	}
	return ended
}

// blockMode returns fire-and-forget if it is declared: a confirmed mode would need a window as large as the bytes in
// flight.
func (c *check) blockMode() drivers.Mode {
	if slices.Contains(c.declare(c.use(drivers.FireAndForget)).Capabilities.Modes, drivers.FireAndForget) &&
		c.h.FullOptions == nil {
		return drivers.FireAndForget
	}
	return c.anyMode()
}

// checkPublishBlocksCut cuts the connection of a publisher whose Publish blocks. The time must count as waiting.
func checkPublishBlocksCut(c *check) {
	u := c.use(c.blockMode())
	c.need(u)
	r := c.blockedRig(u)
	r.writes = &drivers.Waiting{}
	waiting := &drivers.Waiting{Writes: r.writes}
	s := r.sender(1, func(spec *drivers.PublisherSpec) { spec.Waiting = waiting })
	ended := c.block(c.ctx, s)
	c.eventually(func() bool { return len(ended) > 0 || waiting.Nanos() >= int64(c.quiet()) }, func() string {
		return fmt.Sprintf("Publish blocks, but PublisherSpec.Waiting has only %v", time.Duration(waiting.Nanos()))
	})
	c.cutConn(s.conn)
	select {
	case err := <-ended:
		if err == nil {
			c.errorf("Publish accepted %d MiB while the broker accepted nothing: it has to block", blockBytes>>20)
		} else if !errors.Is(err, drivers.ErrClosed) {
			c.errorf("Publish returned %v after Cut, want ErrClosed", err)
		}
	case <-time.After(c.wait):
		c.errorf("Publish still blocks %v after Cut", c.wait)
	}
	s.unconfirmedFail()
	s.close()
	if n := s.outstanding(); n > 0 {
		c.errorf("Close returned with %d messages unconfirmed", n)
	}
}

// cutConn calls Cut, and proves that the connection reports its end.
func (c *check) cutConn(conn drivers.Conn) {
	c.broke.Store(true)
	c.within(c.wait, "Cut", conn.Cut)
	c.ends("connection", conn)
}

// unconfirmedFail waits until every accepted message has its confirm, after the connection broke.
func (s *sender) unconfirmedFail() {
	s.c.eventually(func() bool { return s.outstanding() == 0 }, func() string {
		return fmt.Sprintf("%d confirms stay open after the connection broke", s.outstanding())
	})
	s.each(func(o *outcome) {
		if o.confirms > 0 && o.err != nil && !errors.Is(o.err, drivers.ErrClosed) {
			s.c.errorf("message %d: the confirm over a broken connection is not ErrClosed: %v", o.seq, o.err)
		}
	})
}

// refuses proves that the publisher of a broken connection accepts nothing.
func (s *sender) refuses() {
	s.c.within(s.c.wait, "Publish over a broken connection", func() {
		if err := s.publish(s.c.ctx, 0, 64); !errors.Is(err, drivers.ErrClosed) {
			s.c.errorf("Publish over a broken connection returns %v, want ErrClosed", err)
		}
	})
}

// checkCutConn cuts one connection while the broker does not answer. Its publishers end, and other connections work.
func checkCutConn(c *check) {
	u := c.use(c.anyMode())
	u.Publishers = 3
	r := c.rig(u)
	in := r.inbox(nil)
	first, second, other := r.sender(1), r.sender(2), r.ownSender(3)
	for _, s := range []*sender{first, second, other} {
		s.send(5)
	}
	c.dial.stall(true)
	published := make(chan struct{})
	go func() {
		defer close(published)
		for _, s := range []*sender{first, second} {
			for i := range 5 {
				if s.publish(c.ctx, uint32(i), 64) != nil {
					break
				}
			}
			_ = s.pub.Flush(c.ctx)
		}
	}()
	c.linger()
	c.cutConn(first.conn)
	c.await(published, "Publish and Flush over a connection that was cut")
	for _, s := range []*sender{first, second} {
		c.ends("publisher", s.pub)
		s.unconfirmedFail()
		s.refuses()
		s.close()
	}
	c.dial.stall(false)
	other.send(5)
	if err := failure(other.pub, other.conn, in.consumer, in.conn); err != nil {
		c.errorf("Cut broke another connection: %v", err)
	}
	if r.keeps() {
		in.arrive(other.kept())
	}
	in.close()
	r.checkAgain(nil)
}

// checkSessionClose closes a session that has an open publisher and consumer.
func checkSessionClose(c *check) {
	r := c.rig(c.use(c.anyMode()))
	in := r.inbox(nil)
	s := r.sender(1)
	for i := range 20 {
		c.must(s.publish(c.ctx, uint32(i), 64), "publish")
	}
	c.within(c.wait, "Session.Close over open connections", func() { c.must(r.session.Close(), "close the session") })
	for _, conn := range []drivers.Conn{s.conn, in.conn} {
		if !over(conn) {
			c.errorf("Done of a connection is not closed after its session")
		}
	}
	s.close()
	in.close()
	if n := s.outstanding(); n > 0 {
		c.errorf("%d of 20 accepted messages have no confirm after session and publisher are closed", n)
	}
	if err := failure(s.pub, s.conn, in.consumer, in.conn); err != nil {
		c.errorf("Err is not nil although the suite closed the session: %v", err)
	}
}

// cut breaks every connection.
func (c *check) cut() {
	c.broke.Store(true)
	if c.h.Cut != nil {
		c.h.Cut()
		c.dial.stall(false)
		return
	}
	if c.h.NoNetwork {
		c.notApplicable("there are no connections to cut")
	}
	c.dial.cut()
}

// breaks is like need, for checks of broken connections: the library of the driver must not repair them.
func (c *check) breaks(u drivers.Use) drivers.Declaration {
	d := c.need(u)
	if d.Resilience == drivers.ByLibrary {
		c.notApplicable("the client library connects again: see cut/library")
	}
	return d
}

// checkCutLibrary breaks all connections of a publisher and a consumer, while confirms are outstanding. The client
// library must connect again and repeat its requests, so that every message is confirmed and delivered. It must report
// that it did, and the connection of the publisher must not end.
func checkCutLibrary(c *check) {
	u := c.use(c.anyMode())
	d := c.need(u)
	if d.Resilience != drivers.ByLibrary {
		c.notApplicable("a broken connection breaks the link: the client library repeats nothing")
	}
	r := c.rig(u)
	inboxes := []*inbox{r.inbox(nil)}
	// The connections may break before the library has sent a request: then the check begins again, with more patience.
	for patience, n := c.quiet(), uint32(1); c.retried.Load() == 0; patience, n = 2*patience, n+1 {
		if patience > c.wait/4 {
			c.errorf("Env.Retried is not called")
			return
		}
		s := r.sender(n)
		s.send(10)
		c.dial.stall(true)
		published := make(chan struct{})
		go func() {
			defer close(published)
			for i := range 10 {
				if err := s.publish(c.ctx, uint32(i), 64); err != nil {
					c.errorf("Publish while connections break: %v", err)
				}
			}
			if err := s.pub.Flush(c.ctx); err != nil {
				c.errorf("Flush while connections break: %v", err)
			}
		}()
		time.Sleep(patience)
		c.cut()
		c.await(published, "Publish and Flush over new connections")
		c.eventually(func() bool { return s.outstanding() == 0 }, func() string {
			return fmt.Sprintf("%d confirms stay open after the connections broke", s.outstanding())
		})
		s.send(10)
		s.each(func(o *outcome) {
			if o.err != nil {
				c.errorf("message %d: %v; the library has to repeat it", o.seq, o.err)
			}
		})
		missing := func() (n int) {
			for _, m := range s.kept() {
				if !slices.ContainsFunc(inboxes, func(in *inbox) bool { return in.count(m) > 0 }) {
					n++
				}
			}
			return n
		}
		c.eventually(func() bool {
			if inboxes[len(inboxes)-1].broken() != "" { // a library need not repair the connection of a consumer
				if in, err := r.connectInbox(nil); err == nil {
					inboxes = append(inboxes, in)
				}
			}
			return missing() == 0
		}, func() string { return fmt.Sprintf("%d of 30 messages do not arrive", missing()) })
		if err := s.failure(); err != nil {
			c.errorf("the publisher's connection ended, although the library connects again: %v", err)
		}
		c.within(c.wait, "Publisher.Close", func() { _ = s.pub.Close() })
	}
}

// checkCutPublisher breaks the connection while confirms are outstanding. Each of them must fail, unless it arrived
// before. The connection must end, and the session must make another one.
func checkCutPublisher(c *check) {
	u := c.use(c.anyMode())
	c.breaks(u)
	r := c.rig(u)
	s := r.sender(1)
	s.send(10)
	c.dial.stall(true)
	ctx, cancel := context.WithTimeout(c.ctx, time.Second)
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		for i := range 10 {
			if err := s.publish(ctx, uint32(i), 64); err != nil {
				return
			}
		}
		_ = s.pub.Flush(ctx)
	}()
	c.linger()
	c.cut()
	c.await(flushed, "Publish and Flush over a broken connection")
	cancel()
	c.ends("connection", s.conn)
	c.ends("publisher", s.pub)
	s.unconfirmedFail()
	s.refuses()
	s.close()
	r.checkAgain(s.kept())
}

// checkAgain proves that the session works after its connections broke, and that no confirmed message was lost.
func (r *rig) checkAgain(before []id) {
	in, s := r.reconnect()
	if !s.send(10) {
		return
	}
	if r.declared.Guarantees.ConfirmedKept && s.confirmed {
		in.arrive(append(before, s.kept()...))
	} else if r.keeps() {
		in.arrive(s.kept())
	}
}

// reconnect connects a consumer and a publisher. It retries after errors, like the engine. The publisher has a new
// connection, because a driver may detect the break of an idle one later.
func (r *rig) reconnect() (*inbox, *sender) {
	s := r.c.newSender(9, r.use.Mode)
	var in *inbox
	var err error
	r.c.eventually(func() bool {
		if in == nil {
			if in, err = r.connectInbox(nil); err != nil {
				in = nil
				return false
			}
		}
		var conn drivers.Conn
		if conn, err = r.connect(drivers.PublisherRole); err == nil {
			err = s.connect(conn, r.publisherSpec())
		}
		return err == nil
	}, func() string {
		return fmt.Sprintf("the session does not connect again after its connections broke: %v", err)
	})
	if err != nil {
		r.c.fatalf("no publisher or consumer after the connections broke")
	}
	r.c.cleanups = append(r.c.cleanups, s.close)
	return in, s
}

// checkCutConsumer breaks the connection of a consumer, which must end. Unacknowledged messages must be delivered
// again, and the handler must not be called after Close.
func checkCutConsumer(c *check) {
	u := c.use(c.anyMode())
	u.Prefetch = 10
	c.breaks(u)
	r := c.rig(u)
	s := r.sender(1)
	g := newGate(nil)
	defer g.release()
	in := r.inbox(g.react, func(spec *drivers.ConsumerSpec) { spec.Batch = 1 })
	s.send(10)
	c.await(g.entered, "the first message")
	c.cut()
	c.ends("connection", in.conn)
	c.ends("consumer", in.consumer)
	g.release()
	in.close()
	calls := len(in.all())
	s.close()
	blocked := in.all()[0].id
	again := slices.DeleteFunc(s.kept(), func(m id) bool {
		return in.count(m) > 0 && m != blocked // acknowledged, or the acknowledgement was lost
	})
	if !r.declared.Capabilities.Redelivery || u.Ack == drivers.AckAutomatic {
		again = nil
	}
	r.checkAgain(again)
	if n := len(in.all()); n > calls {
		c.errorf("the handler is called %d times after Close returned", n-calls)
	}
}

// checkCutLate closes publishers and consumers while their connections break: before the driver detects it, and while
// it reports it. The reason of the end must not change afterwards.
func checkCutLate(c *check) {
	if c.h.NoNetwork && c.h.Cut == nil {
		c.notApplicable("there are no connections to cut")
	}
	u := c.use(c.anyMode())
	reasons := map[drivers.Conn]error{}
	for i, after := range []time.Duration{0, 0, 500 * time.Microsecond, time.Millisecond, 3 * time.Millisecond,
		10 * time.Millisecond} {
		r := c.rig(u)
		s, in := r.sender(uint32(i)), r.inbox(nil)
		s.send(1)
		c.broke.Store(true)
		cut := make(chan struct{})
		go func() {
			defer close(cut)
			c.cut()
		}()
		time.Sleep(after)
		send := func() {
			s.close()
			c.end(s.conn)
		}
		if i%2 == 0 {
			send()
		}
		in.close()
		c.end(in.conn)
		if i%2 == 1 {
			send()
		}
		reasons[s.conn], reasons[in.conn] = s.conn.Err(), in.conn.Err()
		c.await(cut, "the cut")
	}
	c.linger()
	for conn, reason := range reasons {
		if now := conn.Err(); fmt.Sprint(now) != fmt.Sprint(reason) {
			c.errorf("Err of a connection changes from %v to %v after Close", reason, now)
		}
	}
}

// checkRestart restarts the broker. The connections must end, and the session must connect again and work.
func checkRestart(c *check) {
	if c.h.Restart == nil {
		c.notApplicable("the harness cannot restart this broker")
	}
	u := c.use(c.anyMode())
	if c.declare(u).Capabilities.Persistent {
		u.Persistent = true
	}
	c.breaks(u)
	r := c.rig(u)
	s := r.sender(1)
	s.send(10)
	g := newGate(nil)
	defer g.release()
	in := r.inbox(g.react, func(spec *drivers.ConsumerSpec) { spec.Batch = 1 })
	c.await(g.entered, "the first message")
	c.broke.Store(true)
	c.h.Restart(c.t)
	g.release() // too late to acknowledge
	c.ends("connection", s.conn)
	c.ends("connection", in.conn)
	s.close()
	in.close()
	before := slices.DeleteFunc(s.kept(), func(m id) bool { return in.count(m) > 0 })
	if !u.Persistent {
		before = nil
	}
	r.checkAgain(before)
}
