package drivertest

import (
	"slices"
	"strings"

	"lockstep/pkg/drivers"
)

// use returns the simplest use of a broker in a mode: one of everything.
func (c *check) use(m drivers.Mode) drivers.Use {
	u := drivers.Use{
		Mode: m, Prefetch: 100, Queues: 1, Subscriptions: 1, Bindings: 1, Publishers: 1, Consumers: 1,
		PublisherNode: drivers.AnyNode, ConsumerNode: drivers.AnyNode, QueueNode: drivers.AnyNode,
	}
	d := c.declare(u)
	if !d.Capabilities.Transient {
		u.Persistent = true
		d = c.declare(u)
	}
	u.Ack = drivers.AckEach
	if acks := d.Capabilities.Acks; !slices.Contains(acks, u.Ack) && len(acks) > 0 {
		u.Ack = acks[0]
	}
	return u
}

func (c *check) declare(u drivers.Use) drivers.Declaration {
	return c.h.Driver.Info().Declare(c.h.Options, u)
}

// need returns the declaration for a use. The check does not apply if the driver does not support the use.
func (c *check) need(u drivers.Use) drivers.Declaration {
	d := c.declare(u)
	if reasons := append(d.Unsupported(c.h.Driver.Info().Name, u), d.Rejections...); len(reasons) > 0 {
		c.notApplicable("%s", strings.Join(reasons, "; "))
	}
	return d
}

// anyMode returns a declared mode for checks that work with any mode. It prefers confirmed modes.
func (c *check) anyMode() drivers.Mode {
	for _, m := range []drivers.Mode{drivers.ConfirmWindow, drivers.ConfirmBatch, drivers.ConfirmEach,
		drivers.FireAndForget} {
		if slices.Contains(c.declare(c.use(m)).Capabilities.Modes, m) {
			return m
		}
	}
	c.notApplicable("no mode with lasting publishers is declared")
	return ""
}

// rig is a session with a topology for one use.
type rig struct {
	c        *check
	use      drivers.Use
	session  drivers.Session
	topology drivers.Topology
}

// rig opens a session and sets up the topology for a use. Both are removed at the end of the check.
func (c *check) rig(u drivers.Use) *rig { return c.rigWith(c.h.Options, u) }

func (c *check) rigWith(options []byte, u drivers.Use) *rig {
	r := &rig{c: c, use: u, session: c.sessionWith(options), topology: topology(u)}
	c.must(r.session.Setup(c.ctx, r.topology), "Setup")
	c.cleanups = append(c.cleanups, r.teardown)
	return r
}

// teardown uses a new session if that of the rig fails, because the check may have closed or cut it.
func (r *rig) teardown() {
	ctx, cancel := withLimit(r.c.wait)
	defer cancel()
	r.c.dial.stall(false)
	if err := r.session.Teardown(ctx, r.topology); err == nil {
		return
	}
	s, err := drivers.Checked(ctx, r.c.h.Driver, r.c.h.Options, r.c.env())
	if err != nil {
		r.c.errorf("open a session for Teardown: %v", err)
		return
	}
	defer func() { _ = s.Close() }()
	if err := s.Teardown(ctx, r.topology); err != nil {
		r.c.errorf("Teardown by another session: %v", err)
	}
}

func (r *rig) publisherSpec() drivers.PublisherSpec {
	return drivers.PublisherSpec{
		Topology: r.topology, Mode: r.use.Mode, MaxInFlight: 1000, Batch: 10,
		Persistent: r.use.Persistent, Mandatory: r.use.Mandatory, Node: r.use.PublisherNode,
	}
}

func (r *rig) consumerSpec() drivers.ConsumerSpec {
	s := drivers.ConsumerSpec{
		Topology: r.topology, Prefetch: r.use.Prefetch, Batch: 10, Ack: r.use.Ack,
		Node: r.use.ConsumerNode, Connection: 1,
	}
	switch r.use.Ack {
	case drivers.AckEvery:
		s.AckEvery = 7
	case drivers.AckInterval:
		s.AckInterval = ackInterval
	}
	return s
}
