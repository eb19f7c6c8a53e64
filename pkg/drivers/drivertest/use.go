package drivertest

import (
	"errors"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
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

// rig is a session with a topology for one use. It has one connection for publishers and one for consumers.
type rig struct {
	c        *check
	use      drivers.Use
	session  drivers.Session
	topology drivers.Topology
	acking   acking
	shared   map[drivers.Role]drivers.Conn
	writes   *drivers.Waiting // records the blocked writes of its connections; may be nil
	declared drivers.Declaration
}

func newRig(c *check, u drivers.Use, s drivers.Session, t drivers.Topology) *rig {
	return &rig{c: c, use: u, session: s, topology: t, acking: acking{every: 7, interval: ackInterval},
		shared: map[drivers.Role]drivers.Conn{}, declared: c.declare(u)}
}

// rig opens a session and sets up the topology for a use. Both are removed at the end of the check. The check does not
// apply if the driver does not support the use.
func (c *check) rig(u drivers.Use) *rig {
	c.need(u)
	return c.rigOf(c.h.Options, u, topology(u))
}

// keeps reports whether it is guaranteed that messages arrive, as long as no link breaks.
func (r *rig) keeps() bool { return keeps(r.use.Mode, r.declared.Guarantees) }

func (c *check) rigOf(options []byte, u drivers.Use, t drivers.Topology) *rig {
	r := newRig(c, u, c.sessionWith(options), t)
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

// connect makes a connection. At the end of the check it is closed, and checked.
func (r *rig) connect(role drivers.Role) (drivers.Conn, error) {
	spec := drivers.ConnSpec{Role: role, Topology: r.topology, Node: r.use.PublisherNode}
	if role == drivers.ConsumerRole {
		spec.Node = r.use.ConsumerNode
	}
	conn, err := r.session.Connect(drivers.WithWaiting(r.c.ctx, r.writes), spec)
	if err == nil {
		r.c.cleanups = append(r.c.cleanups, func() { r.c.end(conn) })
	}
	return conn, err
}

// conn returns the connection that the publishers or the consumers of the rig share. It is replaced if the check broke
// it.
func (r *rig) conn(role drivers.Role) (drivers.Conn, error) {
	conn := r.shared[role]
	if conn != nil && !over(conn) {
		return conn, nil
	}
	if conn != nil && !r.c.broke.Load() {
		r.c.errorf("the connection of the %ss ended by itself: %v", role, conn.Err())
	}
	conn, err := r.connect(role)
	if err == nil {
		r.shared[role] = conn
	}
	return conn, err
}

// end closes a connection, and proves that it has ended then.
func (c *check) end(conn drivers.Conn) {
	c.within(c.wait, "Conn.Close", func() {
		if err := conn.Close(); err != nil && conn.Err() == nil {
			c.errorf("close a connection: %v", err)
		}
		_ = conn.Close()
	})
	if !over(conn) {
		c.errorf("Done of a connection is not closed after Close")
	}
	switch err := conn.Err(); {
	case err != nil && !c.broke.Load():
		c.errorf("a connection that the suite closed broke: %v", err)
	case err != nil && !errors.Is(err, drivers.ErrClosed):
		c.errorf("Err of a connection does not wrap ErrClosed: %v", err)
	}
}

// over reports whether something has ended.
func over(x drivers.Ended) bool {
	select {
	case <-x.Done():
		return true
	default:
		return false
	}
}

// failure returns why the first of these broke, or nil.
func failure(all ...drivers.Ended) error {
	for _, x := range all {
		if over(x) && x.Err() != nil {
			return x.Err()
		}
	}
	return nil
}

// ends waits until something has ended, and proves that it reports a broken connection.
func (c *check) ends(what string, x drivers.Ended) {
	if !c.eventually(func() bool { return over(x) }, func() string {
		return "Done of the " + what + " is not closed after its connection broke"
	}) {
		return
	}
	if err := x.Err(); !errors.Is(err, drivers.ErrClosed) {
		c.errorf("Err of the %s over a broken connection is %v, want ErrClosed", what, err)
	}
}

func (r *rig) publisherSpec() drivers.PublisherSpec {
	return drivers.PublisherSpec{
		Topology: r.topology, Mode: r.use.Mode, MaxInFlight: 1000, Batch: 10,
		Persistent: r.use.Persistent, Mandatory: r.use.Mandatory,
	}
}
