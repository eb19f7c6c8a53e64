package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"lockstep/pkg/drivers"
)

const (
	blockSize  = 16 << 10
	blockBytes = 64 << 20 // a driver that accepted this much without blocking will not block
)

// blockedRig returns a rig whose broker accepts no messages, or will soon stop accepting them.
func (c *check) blockedRig(u drivers.Use) *rig {
	switch {
	case c.h.FullOptions != nil:
		return c.rigWith(c.h.FullOptions, u)
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
	if sent.Load() >= blockBytes {
		c.logf("Publish took %d MiB without blocking while the broker was stalled", sent.Load()>>20)
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

// checkPublishBlocksClose closes a publisher whose Publish blocks.
func checkPublishBlocksClose(c *check) {
	u := c.use(c.blockMode())
	c.need(u)
	r := c.blockedRig(u)
	s := r.sender(1)
	ended := c.block(c.ctx, s)
	c.within(c.wait, "Publisher.Close while Publish blocks", func() { _ = s.pub.Close() })
	select {
	case err := <-ended:
		if err == nil {
			c.logf("no Publish was blocked when Close came")
		}
	case <-time.After(c.wait):
		c.errorf("Publish still blocks after Close returned")
	}
	if n := s.outstanding(); n > 0 {
		c.errorf("Close returned with %d messages unconfirmed", n)
	}
	if s.closings.Load() > 0 {
		c.logf("the driver found the link broken by itself")
	}
}

// checkPublishBlocksCancel cancels the context of a Publish that blocks.
func checkPublishBlocksCancel(c *check) {
	u := c.use(c.blockMode())
	c.need(u)
	r := c.blockedRig(u)
	s := r.sender(1)
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	ended := c.block(ctx, s)
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			c.logf("no Publish was blocked when its context was cancelled")
		}
	case <-time.After(c.wait):
		c.errorf("Publish still blocks %v after its context was cancelled", c.wait)
	}
	c.within(c.wait, "Publisher.Close of a stalled publisher", func() { _ = s.pub.Close() })
}

// checkSessionClose closes a session that has an open publisher and consumer.
func checkSessionClose(c *check) {
	u := c.use(c.anyMode())
	c.need(u)
	r := c.rig(u)
	in := r.inbox(nil)
	s := r.sender(1)
	for i := range 20 {
		c.must(s.publish(c.ctx, uint32(i), 64), "publish")
	}
	c.within(c.wait, "Session.Close over open parts", func() { c.must(r.session.Close(), "close the session") })
	c.within(c.wait, "Close of parts after their session", func() {
		_ = s.pub.Close()
		_ = in.consumer.Close()
	})
	if n := s.outstanding(); n > 0 {
		c.errorf("%d of 20 accepted messages have no confirm after session and publisher are closed", n)
	}
	if s.closings.Load()+in.closings.Load() > 0 {
		c.errorf("OnClosed was called although the suite closed the session")
	}
}

// cut breaks every link.
func (c *check) cut() {
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

// breaks is like need, for checks of broken links: the library of the driver must not repair them.
func (c *check) breaks(u drivers.Use) drivers.Declaration {
	d := c.need(u)
	if d.Resilience == drivers.ByLibrary {
		c.notApplicable("the client library connects again: see cut/library")
	}
	return d
}

// checkCutLibrary breaks all connections of a publisher and a consumer, while confirms are outstanding. The client
// library must connect again and repeat its requests, so that every message is confirmed and delivered. It must report
// that it did, and OnClosed of the publisher must not be called.
func checkCutLibrary(c *check) {
	u := c.use(c.anyMode())
	d := c.need(u)
	if d.Resilience != drivers.ByLibrary {
		c.notApplicable("a broken connection breaks the link: the client library repeats nothing")
	}
	r := c.rig(u)
	in, s := r.inbox(nil), r.sender(1)
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
	c.linger()
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
	var next *inbox // a library need not repair the link of a consumer
	missing := func() (n int) {
		for _, m := range s.kept() {
			if in.count(m) == 0 && (next == nil || next.count(m) == 0) {
				n++
			}
		}
		return n
	}
	c.eventually(func() bool {
		if in.closings.Load() > 0 && next == nil {
			next, _ = r.tryInbox(nil)
		}
		return missing() == 0
	}, func() string { return fmt.Sprintf("%d of 30 messages do not arrive", missing()) })
	if s.closings.Load() > 0 {
		c.errorf("OnClosed of the publisher is called, although the library connects again")
	}
	c.within(c.wait, "Publisher.Close", func() { _ = s.pub.Close() })
	if c.retried.Load() == 0 {
		c.errorf("Env.Retried is not called")
	}
}

// checkCutPublisher breaks the link while confirms are outstanding. Each of them must fail, unless it arrived before.
// OnClosed must be called once, and the session must connect another publisher.
func checkCutPublisher(c *check) {
	u := c.use(c.anyMode())
	d := c.breaks(u)
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
	c.await(flushed, "Publish and Flush over a broken link")
	cancel()
	c.eventually(func() bool { return s.closings.Load() > 0 },
		func() string { return "OnClosed is not called after the link broke" })
	c.eventually(func() bool { return s.outstanding() == 0 }, func() string {
		return fmt.Sprintf("%d confirms stay open after the link broke", s.outstanding())
	})
	s.each(func(o *outcome) {
		if o.confirms > 0 && o.err != nil && !errors.Is(o.err, drivers.ErrClosed) {
			c.errorf("message %d: the confirm over a broken link is not ErrClosed: %v", o.seq, o.err)
		}
	})
	c.within(c.wait, "Publish over a broken link", func() {
		if err := s.publish(c.ctx, 0, 64); err == nil {
			c.errorf("Publish over a broken link gives no error")
		}
	})
	c.within(c.wait, "Close over a broken link", func() { _ = s.pub.Close() })
	if n := s.closings.Load(); n > 1 {
		c.errorf("OnClosed is called %d times", n)
	}
	r.checkAgain(d, s.kept())
}

// checkAgain proves that the session works after its links broke, and that no confirmed message was lost.
func (r *rig) checkAgain(d drivers.Declaration, before []id) {
	in, s := r.reconnect()
	if !s.send(10) {
		return
	}
	if d.Guarantees.ConfirmedKept && s.confirmed {
		in.arrive(append(before, s.kept()...))
	} else if keeps(r.use.Mode, d.Guarantees) {
		in.arrive(s.kept())
	}
}

// reconnect connects a consumer and a publisher. It retries after errors, like the engine.
func (r *rig) reconnect() (*inbox, *sender) {
	s := r.c.newSender(9, r.use.Mode)
	var in *inbox
	var err error
	r.c.eventually(func() bool {
		if in == nil {
			if in, err = r.tryInbox(nil); err != nil {
				in = nil
				return false
			}
		}
		s.pub, err = r.session.Publisher(r.c.ctx, s.spec(r.publisherSpec()))
		return err == nil
	}, func() string { return fmt.Sprintf("the session does not connect again after its links broke: %v", err) })
	if err != nil {
		r.c.fatalf("no publisher or consumer after the links broke")
	}
	r.c.cleanups = append(r.c.cleanups, func() { _ = s.pub.Close() })
	return in, s
}

// checkCutConsumer breaks the link of a consumer. OnClosed must be called once, unacknowledged messages must be
// delivered again, and the handler must not be called after Close.
func checkCutConsumer(c *check) {
	u := c.use(c.anyMode())
	u.Prefetch = 10
	d := c.breaks(u)
	r := c.rig(u)
	s := r.sender(1)
	g := newGate(nil)
	defer g.release()
	in := r.inbox(g.react, func(spec *drivers.ConsumerSpec) { spec.Batch = 1 })
	s.send(10)
	c.await(g.entered, "the first message")
	c.cut()
	c.eventually(func() bool { return in.closings.Load() > 0 },
		func() string { return "OnClosed is not called after the link broke" })
	g.release()
	in.close()
	calls := len(in.all())
	c.within(c.wait, "Publisher.Close over a broken link", func() { _ = s.pub.Close() })
	if n := in.closings.Load(); n > 1 {
		c.errorf("OnClosed is called %d times", n)
	}
	again := slices.DeleteFunc(s.kept(), func(m id) bool {
		return in.count(m) > 0 && m.seq > 0 // acknowledged, or the acknowledgement was lost
	})
	if !d.Capabilities.Redelivery || u.Ack == drivers.AckAutomatic {
		again = nil
	}
	r.checkAgain(d, again)
	if n := len(in.all()); n > calls {
		c.errorf("the handler is called %d times after Close returned", n-calls)
	}
}

// checkRestart restarts the broker. The links must break, and the session must connect again and work.
func checkRestart(c *check) {
	if c.h.Restart == nil {
		c.notApplicable("the harness cannot restart this broker")
	}
	u := c.use(c.anyMode())
	if c.declare(u).Capabilities.Persistent {
		u.Persistent = true
	}
	d := c.breaks(u)
	r := c.rig(u)
	s := r.sender(1)
	s.send(10)
	g := newGate(nil)
	defer g.release()
	in := r.inbox(g.react, func(spec *drivers.ConsumerSpec) { spec.Batch = 1 })
	c.await(g.entered, "the first message")
	c.h.Restart(c.t)
	g.release() // too late to acknowledge
	c.eventually(func() bool { return s.closings.Load() > 0 && in.closings.Load() > 0 }, func() string {
		return "OnClosed is not called after the broker restarted"
	})
	c.within(c.wait, "Publisher.Close after a restart", func() { _ = s.pub.Close() })
	in.close()
	before := slices.DeleteFunc(s.kept(), func(m id) bool { return in.count(m) > 0 })
	if !u.Persistent {
		before = nil
	}
	r.checkAgain(d, before)
}
