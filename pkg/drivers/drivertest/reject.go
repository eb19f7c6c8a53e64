package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Rejection describes messages that a broker, or its client library, rejects.
type Rejection struct {
	// Options are options for a broker that rejects messages. Nil: Harness.Options.
	Options json.RawMessage
	// Size is the size in bytes of a body that is rejected. 0: some of maxFill small messages are rejected, for example
	// because they fill the queue.
	Size int
	// Limit limits the queues of a topology at the broker, before Setup. undo removes the limit, after Teardown. Nil:
	// the options do so.
	Limit func(ctx context.Context, t drivers.Topology) (undo func(), err error)
}

// maxFill is the number of messages that some of are rejected, if none is too large.
const maxFill = 200

// checkReject proves that the driver reports the messages that the broker rejects, and only these, as rejected. The
// publisher and its connection must not end, and their next messages are accepted.
func checkReject(c *check) {
	how := c.h.Reject
	if how == nil {
		c.notApplicable("the harness describes no message that the broker rejects")
	}
	if how.Options != nil {
		c.h.Options = how.Options
	}
	u := c.use(c.anyMode())
	if !u.Mode.Confirmed() {
		c.notApplicable("nothing is confirmed")
	}
	if c.declare(u).Capabilities.Persistent {
		u.Persistent = true // it may be necessary for the guarantee that confirmed messages are kept
	}
	d := c.need(u)
	t := topology(u)
	if how.Limit != nil {
		undo, err := how.Limit(c.ctx, t)
		c.must(err, "limit the queues")
		c.cleanups = append(c.cleanups, undo)
	}
	r := c.rigOf(c.h.Options, u, t)
	s := r.sender(1)
	if how.Size > 0 {
		// The messages are not in one batch, because brokers may reject batches as a whole.
		for _, size := range []int{64, how.Size, 64} {
			if err := s.attempt(size); err != nil {
				c.logf("Publish of %d bytes: %v", size, err)
			}
			s.answered()
		}
	} else {
		for range maxFill {
			_ = s.attempt(64)
		}
		s.answered()
	}
	var rejected []uint64
	s.each(func(o *outcome) {
		switch {
		case !o.accepted || errors.Is(o.err, drivers.ErrRejected):
			rejected = append(rejected, o.seq)
		case o.err != nil:
			c.errorf("message %d is confirmed with %v, although no connection broke", o.seq, o.err)
		}
	})
	switch n := len(rejected); {
	case how.Size > 0 && (n != 1 || rejected[0] != 1):
		c.errorf("messages %v are rejected; want only message 1, which has %d bytes", rejected, how.Size)
	case n == 0 || n == maxFill:
		c.errorf("%d of %d messages are rejected; want some of them", n, s.seq)
	}
	if err := s.failure(); err != nil {
		c.fatalf("a rejected message ended its publisher or its connection: %v", err)
	}
	in := r.inbox(nil)
	if d.Guarantees.ConfirmedKept {
		in.arrive(s.kept())
	}
	in.nothingElse(s.kept())
	kept := len(s.kept())
	c.eventually(func() bool { // a broker may report space in a queue with a delay
		_ = s.attempt(64)
		return s.answered() && len(s.kept()) > kept
	}, func() string { return "no message is accepted after the rejected ones" })
	if d.Guarantees.ConfirmedKept {
		in.arrive(s.kept())
	}
	c.logf("%d messages are rejected, %d are kept", len(rejected), len(s.kept()))
}

// attempt publishes a message that may be rejected, by Publish or by its confirm.
func (s *sender) attempt(size int) error {
	err := s.publish(s.c.ctx, 0, size)
	if errors.Is(err, drivers.ErrClosed) {
		s.c.fatalf("Publish of a message of %d bytes ends the publisher: %v", size, err)
	}
	return err
}

// answered flushes and waits until every accepted message is confirmed, with any result.
func (s *sender) answered() bool {
	s.c.must(s.pub.Flush(s.c.ctx), "flush")
	return s.c.eventually(func() bool { return s.outstanding() == 0 }, func() string {
		return fmt.Sprintf("%d messages of publisher %d are not confirmed", s.outstanding(), s.id)
	})
}
