package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// rejectFaults are the faults of drivers whose broker rejects every seventh message.
func rejectFaults() []fault {
	rejected := func(change func(token uint64, err error, call func(uint64, error))) faulty {
		return onConfirm(func(_ *drivers.PublisherSpec, token uint64, err error, call func(uint64, error)) {
			if err == nil {
				call(token, nil)
				return
			}
			change(token, err, call)
		})
	}
	var once atomic.Bool
	return []fault{
		{"confirms rejected messages", rejected(func(token uint64, _ error, call func(uint64, error)) { call(token, nil) }),
			[]string{"reject"}},
		{"does not confirm rejected messages", rejected(func(uint64, error, func(uint64, error)) {}), []string{"reject"}},
		{"takes a rejection for a broken connection", rejected(func(token uint64, _ error, call func(uint64, error)) {
			call(token, drivers.ErrClosed)
		}), []string{"reject"}},
		{"breaks the connection of a rejected message", rejected(func(token uint64, err error, call func(uint64, error)) {
			call(token, err)
			go loopback.Cut("self")
		}), []string{"reject"}},
		{"rejects more than the broker", onConfirm(func(_ *drivers.PublisherSpec, token uint64, err error,
			call func(uint64, error)) {
			if err == nil && once.CompareAndSwap(false, true) {
				err = fmt.Errorf("%w with another one", drivers.ErrRejected)
			}
			call(token, err)
		}), []string{"reject"}},
		{"accepts nothing after a rejected message", rejectsOn(), []string{"reject"}},
	}
}

// rejectsOn rejects everything after maxFill messages.
func rejectsOn() faulty {
	sent := 0
	return faulty{publisher: func(p drivers.Publisher, _ drivers.PublisherSpec) drivers.Publisher {
		return &publishing{Publisher: p, publish: func(ctx context.Context, m drivers.Message) error {
			if sent++; sent > maxFill {
				return errors.New("full")
			}
			return p.Publish(ctx, m)
		}}
	}}
}

// A body that is too large is rejected by Publish or by its confirm, and no other body is.
func TestTooLargeBody(t *testing.T) {
	const limit = 1000
	large := func(refuse func(m drivers.Message, confirms func([]uint64, error)) error) faulty {
		return faulty{publisher: func(p drivers.Publisher, spec drivers.PublisherSpec) drivers.Publisher {
			return &publishing{Publisher: p, publish: func(ctx context.Context, m drivers.Message) error {
				if len(m.Body) > limit {
					return refuse(m, spec.OnConfirms)
				}
				return p.Publish(ctx, m)
			}}
		}}
	}
	confirmed := func(err error) faulty {
		return large(func(m drivers.Message, confirms func([]uint64, error)) error {
			confirms([]uint64{m.Token}, err)
			return nil
		})
	}
	refused := func(err error) faulty {
		return large(func(drivers.Message, func([]uint64, error)) error { return err })
	}
	for name, x := range map[string]struct {
		driver faulty
		passes bool
	}{
		"is refused by Publish":        {refused(errors.New("too large")), true},
		"is rejected by the broker":    {confirmed(drivers.ErrRejected), true},
		"is confirmed and not there":   {confirmed(nil), false},
		"is confirmed and there":       {faulty{}, false},
		"ends the publisher":           {refused(drivers.ErrClosed), false},
		"counts as a broken publisher": {confirmed(drivers.ErrClosed), false},
	} {
		r := runOne(t, x.driver, "reject", func(h *Harness) { h.Reject = &Rejection{Size: 2 * limit} })
		if (len(r.failures) == 0) != x.passes || r.inapplicable != "" {
			t.Errorf("a body that %s: %v %s", name, r.failures, r.inapplicable)
		}
	}
}

// The limit of a topology is set before its Setup, and removed after its Teardown.
func TestLimitOfATopology(t *testing.T) {
	var steps []string
	note := func(step, name string) { steps = append(steps, step+" "+name) }
	d := faulty{
		setup: func(s drivers.Session, ctx context.Context, t drivers.Topology) error {
			note("set up", t.Name)
			return s.Setup(ctx, t)
		},
		teardown: func(s drivers.Session, ctx context.Context, t drivers.Topology) error {
			note("tear down", t.Name)
			return s.Teardown(ctx, t)
		},
	}
	name := ""
	r := runOne(t, d, "reject", func(h *Harness) {
		h.Reject.Limit = func(_ context.Context, t drivers.Topology) (func(), error) {
			name = t.Name
			note("limit", name)
			return func() { note("undo", name) }, nil
		}
	})
	want := []string{"limit " + name, "set up " + name, "tear down " + name, "undo " + name}
	if len(r.failures) > 0 || fmt.Sprint(steps) != fmt.Sprint(want) {
		t.Errorf("failures %v, steps %v, want %v", r.failures, steps, want)
	}
}
