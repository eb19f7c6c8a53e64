package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strings"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// Declared returns a Harness.Existing whose queue is the first one of a topology that a session of its own declares.
// describe sets the name of the queue, and may replace the options and Remove.
func Declared(d drivers.Driver, describe func(context.Context, drivers.Session, drivers.Topology, *Existing) error,
) func(context.Context, json.RawMessage) (Existing, error) {
	return func(ctx context.Context, options json.RawMessage) (Existing, error) {
		made := Existing{Options: options}
		s, err := d.Open(ctx, options, drivers.Env{Dial: new(net.Dialer).DialContext, Log: slog.New(slog.DiscardHandler),
			Event: func(drivers.EventKind, string) {}, Access: drivers.FullAccess()})
		if err != nil {
			return made, err
		}
		t := topology(drivers.Use{Queues: 1, Subscriptions: 1, Bindings: 1, Publishers: 1, Consumers: 1,
			QueueNode: drivers.AnyNode})
		made.Remove = func() error {
			ctx, cancel := withLimit(waitLimit)
			defer cancel()
			return errors.Join(s.Teardown(ctx, t), s.Close())
		}
		if err = s.Setup(ctx, t); err == nil {
			err = describe(ctx, s, t, &made)
		}
		if err != nil {
			err = errors.Join(err, made.Remove())
		}
		return made, err
	}
}

// checkExisting publishes to an existing queue in one task, consumes from it in the next, and does both in a third.
// Nothing but the acknowledged messages may disappear. A missing queue gives an error, and is not created.
func checkExisting(c *check) {
	u := c.use(c.anyMode())
	u.Existing = true
	if !c.declare(u).Capabilities.Existing {
		c.notApplicable("existing queues are not declared")
	}
	if c.h.Existing == nil {
		c.fatalf("existing queues are declared, and the harness has no Existing")
	}
	made, err := c.h.Existing(c.ctx, c.h.Options)
	c.must(err, "make a queue")
	c.cleanups = append(c.cleanups, func() {
		if err := made.Remove(); err != nil {
			c.errorf("remove the existing queue %s: %v", made.Queue, err)
		}
	})
	options := schematest.FillNamed(c.h.Driver.Info().Name, made.Options)
	d := c.h.Driver.Info().Declare(options, u)
	if reasons := append(d.Unsupported(c.h.Driver.Info().Name, u), d.Rejections...); len(reasons) > 0 {
		c.fatalf("the options of the existing queue do not support its use: %s", strings.Join(reasons, "; "))
	}
	// task calls use with a session, and ends like a task.
	task := func(publishers, consumers int, use func(*rig)) {
		u := u
		u.Publishers, u.Consumers = publishers, consumers
		t := topology(u)
		t.Existing = made.Queue
		r := newRig(c, u, c.sessionWith(options), t)
		r.declared.Guarantees = drivers.Guarantees{} // duplicates are permitted
		c.must(r.session.Setup(c.ctx, t), "find the existing queue")
		opened := len(c.cleanups)
		use(r)
		for n := len(c.cleanups); n > opened; n = len(c.cleanups) { // close publishers, consumers and connections
			c.cleanups[n-1]()
			c.cleanups = c.cleanups[:n-1]
		}
		c.must(r.session.Teardown(c.ctx, t), "Teardown")
		c.must(r.session.Close(), "close the session")
	}
	var before []id
	task(1, 0, func(r *rig) {
		s := r.sender(1)
		s.send(10)
		before = s.kept()
	})
	if len(before) != 10 {
		c.fatalf("%d of 10 messages to an existing queue are accepted", len(before))
	}
	task(0, 1, func(r *rig) { r.inbox(nil).exactly(before) })
	task(1, 1, func(r *rig) {
		in, s := r.inbox(nil), r.sender(2)
		s.send(10)
		in.exactly(s.kept())
	})
	missing := topology(u)
	missing.Existing = made.Queue + "-missing"
	s := c.sessionWith(options)
	for range 2 {
		if err := s.Setup(c.ctx, missing); err == nil || !strings.Contains(err.Error(), missing.Existing) {
			c.errorf("Setup with a missing queue returns %v, want an error that names %s", err, missing.Existing)
		}
	}
}
