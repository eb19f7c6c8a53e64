package drivertest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// binderRig returns a rig for a driver that can change bindings while messages flow. It has several queues, and several
// subscriptions if the driver supports them.
func binderRig(c *check) (*rig, drivers.Binder) {
	u := c.use(c.anyMode())
	u.Churn, u.Queues = true, 2
	if c.declare(u).Capabilities.Subscriptions {
		u.Subscriptions = 2
	}
	u.Consumers = u.Queues * u.Subscriptions
	r := c.rig(u)
	binder, can := drivers.As[drivers.Binder](r.session)
	switch {
	case !can:
		c.fatalf("changing bindings while messages flow is declared, but the session is no Binder")
	case !slices.Contains(r.declared.Capabilities.Modes, drivers.ConfirmWindow):
		c.errorf("changing bindings while messages flow is declared without %s, in which their messages are sent",
			drivers.ConfirmWindow)
	}
	return r, binder
}

// checkBinder proves that a binding routes messages to one queue of one subscription, from the return of Bind until the
// return of Unbind. Messages with other keys must not reach that queue through it.
func checkBinder(c *check) {
	r, binder := binderRig(c)
	boxes := map[[2]int]*inbox{}
	for s := range r.use.Subscriptions {
		for q := range r.use.Queues {
			boxes[[2]int{s, q}] = r.inbox(nil, func(spec *drivers.ConsumerSpec) { spec.Subscription, spec.Queue = s, q })
		}
	}
	const key, other = drivers.ChurnKey, drivers.ChurnKey + 12_345
	at := [2]int{r.use.Subscriptions - 1, 1}
	s := r.sender(1, func(spec *drivers.PublisherSpec) { spec.Queue = at[1] })
	publish := func(key uint32, n int) (sent []id) {
		before := len(s.kept())
		for range n {
			c.must(s.publish(c.ctx, key, 64), "publish")
		}
		s.settle()
		return s.kept()[before:]
	}
	publish(key, 5) // there is no binding yet
	c.must(binder.Bind(c.ctx, r.topology, at[0], at[1], key), "Bind")
	want := publish(key, 10)
	publish(other, 5)
	usual := publish(7, 10)
	c.must(binder.Unbind(c.ctx, r.topology, at[0], at[1], key), "Unbind")
	c.must(binder.Unbind(c.ctx, r.topology, at[0], at[1], key), "Unbind without a binding")
	publish(key, 5)
	again := drivers.ChurnKey | 1<<30
	c.must(binder.Bind(c.ctx, r.topology, at[0], at[1], again), "Bind another key")
	want = append(want, publish(again, 10)...)
	for place, in := range boxes {
		expected := usual
		switch {
		case place == at:
			expected = append(slices.Clone(want), usual...)
		case place[1] != at[1]:
			expected = nil
		}
		in.exactly(expected)
	}
}

// checkBinderTogether creates and removes bindings from several goroutines. Teardown must remove the remaining ones.
func checkBinderTogether(c *check) {
	r, binder := binderRig(c)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 5 {
				key := drivers.ChurnKey + uint32(10*i+n)
				if err := binder.Bind(c.ctx, r.topology, 0, i%2, key); err != nil {
					c.errorf("concurrent Bind: %v", err)
				}
				if n%2 == 0 {
					continue
				}
				if err := binder.Unbind(c.ctx, r.topology, 0, i%2, key); err != nil {
					c.errorf("concurrent Unbind: %v", err)
				}
			}
		})
	}
	c.within(2*c.wait, "bindings of eight goroutines", wg.Wait)
	c.must(r.session.Teardown(c.ctx, r.topology), "Teardown with bindings left")
	c.must(r.session.Setup(c.ctx, r.topology), "Setup again")
	in := r.inbox(nil)
	s := r.sender(1)
	c.must(s.publish(c.ctx, drivers.ChurnKey, 64), "publish") // the binding of key 0 of goroutine 0 was not removed
	s.settle()
	in.nothingElse(nil)
}

// checkBinderEnds proves that a call ends with its context, and that Bind works again after its link broke.
func checkBinderEnds(c *check) {
	r, binder := binderRig(c)
	c.must(binder.Bind(c.ctx, r.topology, 0, 0, drivers.ChurnKey), "Bind")
	if !c.h.NoNetwork {
		c.dial.stall(true)
		ctx, cancel := context.WithTimeout(c.ctx, c.quiet())
		defer cancel()
		c.within(c.wait, "Bind when the broker does not answer", func() {
			if err := binder.Bind(ctx, r.topology, 0, 0, drivers.ChurnKey+1); err == nil {
				c.errorf("Bind succeeds although the broker does not answer")
			}
		})
		c.cut()
		var err error
		c.eventually(func() bool {
			err = binder.Bind(c.ctx, r.topology, 0, 0, drivers.ChurnKey+2)
			return err == nil
		}, func() string { return fmt.Sprintf("Bind does not work again after its link broke: %v", err) })
	}
	c.must(r.session.Close(), "close the session")
	c.within(c.wait, "Bind of a closed session", func() {
		if err := binder.Bind(c.ctx, r.topology, 0, 0, drivers.ChurnKey+3); err == nil {
			c.errorf("a closed session makes bindings")
		}
	})
}
