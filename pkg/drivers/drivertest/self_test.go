package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// fault is a broken driver and the checks that must detect it.
type fault struct {
	name   string
	driver drivers.Driver
	found  []string
}

// TestSuiteFindsFaults proves that the suite detects faults: each named check fails for the broken driver, and passes
// for the unchanged one. Time is virtual: a pause of a check ends when no goroutine can continue, so the result does
// not depend on the machine.
func TestSuiteFindsFaults(t *testing.T) {
	passed := map[string]bool{}
	for _, f := range slices.Concat(confirmFaults(), publisherFaults(), connFaults(), consumerFaults(), sessionFaults(),
		managementFaults(), rejectFaults()) {
		t.Run(f.name, func(t *testing.T) {
			for _, name := range f.found {
				if !passed[name] {
					passed[name] = true
					if r := runOne(t, faulty{}, name); len(r.failures) > 0 || r.inapplicable != "" {
						t.Errorf("%s does not pass for loopback itself: %v %s", name, r.failures, r.inapplicable)
					}
				}
				r := runOne(t, f.driver, name)
				if len(r.failures) == 0 {
					t.Errorf("%s does not find that the driver %s (not applicable: %q)", name, f.name, r.inapplicable)
					continue
				}
				t.Logf("%s: %.150s", name, r.failures[0])
			}
		})
	}
}

// runOne runs one check in virtual time. A wait without result still costs CPU time, because the suite polls, so its
// limit is short.
func runOne(t *testing.T, d drivers.Driver, name string, edit ...func(*Harness)) (r result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := Harness{
			Driver:      d,
			Options:     schematest.Fill(t, d, `{"name":"self"}`),
			FullOptions: schematest.Fill(t, d, `{"name":"self","capacity":10}`),
			Reject:      &Rejection{Options: schematest.Fill(t, d, `{"name":"self","reject":7}`)},
			Cut:         func() { loopback.Cut("self") },
			NoNetwork:   true,
			Existing:    existing,
			wait:        2 * time.Second,
		}
		for _, e := range edit {
			e(&h)
		}
		r = prove(t, h, find(t, name))
		time.Sleep(2 * hangTime) // hanging calls end
	})
	return r
}

// existing declares a topology of loopback in a session of its own.
var existing = Declared(loopback.Driver{}, func(_ context.Context, _ drivers.Session, t drivers.Topology,
	made *Existing) error {
	made.Queue = t.Name
	return nil
})

// declares declares an existing topology again, which empties it, or creates it if it is missing.
func declares(s drivers.Session, ctx context.Context, t drivers.Topology) error {
	t.Name, t.Existing = t.Existing, ""
	return s.Setup(ctx, t)
}

// hangTime is longer than any check may take.
const hangTime = 2 * restartLimit

// hang does not return while a check runs.
func hang() { time.Sleep(hangTime) }

func find(t *testing.T, name string) named {
	t.Helper()
	at := slices.IndexFunc(checks(), func(n named) bool { return n.name == name })
	if at < 0 {
		t.Fatalf("unknown check %q", name)
	}
	return checks()[at]
}

func confirmFaults() []fault {
	var n atomic.Int64
	tenth := func() bool { return n.Add(1)%10 == 0 }
	return []fault{
		{"loses confirms", onConfirm(func(_ *drivers.PublisherSpec, token uint64, err error, call func(uint64, error)) {
			if !tenth() {
				call(token, err)
			}
		}), []string{"mode/confirm-window", "mode/confirm-each"}},
		{"confirms twice", onConfirm(func(_ *drivers.PublisherSpec, token uint64, err error, call func(uint64, error)) {
			call(token, err)
			if tenth() {
				call(token, err)
			}
		}), []string{"mode/confirm-window", "mode/confirm-batch"}},
		{"counts instead of giving tokens back", onConfirm(func(_ *drivers.PublisherSpec, _ uint64, err error,
			call func(uint64, error)) {
			call(uint64(n.Add(1)), err)
		}), []string{"mode/confirm-window"}},
		{"confirms from several goroutines at once", concurrentConfirms(), []string{"mode/confirm-window"}},
		{"confirms after Close", lateConfirms(), []string{"close/confirm-window"}},
		{"confirms what is not to be confirmed", faulty{publisher: func(p drivers.Publisher,
			spec drivers.PublisherSpec) drivers.Publisher {
			return &publishing{Publisher: p, publish: func(ctx context.Context, m drivers.Message) error {
				spec.OnConfirms([]uint64{m.Token}, nil)
				return p.Publish(ctx, m)
			}}
		}}, []string{"mode/fire-and-forget", "mode/connection-per-message"}},
		{"reads bodies late", faulty{publisher: readsLate}, []string{"mode/fire-and-forget"}},
		{"keeps bodies beyond Publish", faulty{publisher: sendsLate}, []string{"mode/confirm-window"}},
		{"reads bodies after the confirm", faulty{publisher: readsLate, declare: func(d *drivers.Declaration) {
			d.Capabilities.CopiesBody = false
		}, pubSpec: func(s *drivers.PublisherSpec) {
			s.OnConfirms = func([]uint64, error) {}
		}}, []string{"mode/confirm-window"}},
	}
}

func publisherFaults() []fault {
	var n atomic.Int64
	tenth := func() bool { return n.Add(1)%10 == 0 }
	return []fault{
		{"loses messages", option(`"lose":20`), []string{"mode/confirm-window", "mode/fire-and-forget"}},
		{"duplicates messages", option(`"duplicate":20`), []string{"mode/confirm-window", "fan-out"}},
		{"reorders messages", option(`"swap":[3,17]`), []string{"mode/confirm-window", "order"}},
		{"rejects messages", option(`"reject":20`), []string{"mode/confirm-window"}},
		{"drops what Close finds", faulty{publisher: func(p drivers.Publisher,
			_ drivers.PublisherSpec) drivers.Publisher {
			return &publishing{Publisher: p, publish: func(ctx context.Context, m drivers.Message) error {
				if tenth() {
					return nil
				}
				return p.Publish(ctx, m)
			}}
		}}, []string{"close/fire-and-forget", "close/confirm-window"}},
		{"sends only the messages before the last one without a flush", faulty{publisher: sendsLate}, []string{"ready"}},
		{"returns after the confirm", returnsLate(), []string{"mandatory"}},
		{"returns nothing", faulty{pubSpec: func(s *drivers.PublisherSpec) { s.Mandatory = false }},
			[]string{"mandatory", "mandatory/unconfirmed"}},
		{"loses some keys", faulty{publisher: func(p drivers.Publisher, spec drivers.PublisherSpec) drivers.Publisher {
			return &publishing{Publisher: p, publish: func(ctx context.Context, m drivers.Message) error {
				if m.Key > 1<<30 {
					spec.OnConfirms([]uint64{m.Token}, nil)
					return nil
				}
				return p.Publish(ctx, m)
			}}
		}}, []string{"bindings"}},
	}
}

func concurrentConfirms() faulty {
	return onConfirm(func(_ *drivers.PublisherSpec, token uint64, err error, call func(uint64, error)) {
		time.AfterFunc(time.Millisecond, func() { call(token, err) })
	})
}

func lateConfirms() faulty {
	return onConfirm(func(_ *drivers.PublisherSpec, token uint64, err error, call func(uint64, error)) {
		time.AfterFunc(30*time.Millisecond, func() { call(token, err) })
	})
}

// connFaults are the faults of connections.
func connFaults() []fault {
	var n atomic.Int64
	unsaid := faulty{conn: func(c drivers.Conn) drivers.Conn {
		return &connecting{Conn: c, done: make(chan struct{})}
	}}
	return []fault{
		{"says nothing of a broken connection", unsaid,
			[]string{"cut/publisher", "cut/consumer", "cut/conn", "cut/late", "session-close"}},
		{"says that Close broke the connection", faulty{conn: func(c drivers.Conn) drivers.Conn {
			return &connecting{Conn: c, err: func() error {
				if over(c) {
					return drivers.ErrClosed
				}
				return nil
			}}
		}}, []string{"session-close", "handler-blocks/stop"}},
		{"gives the reason of a broken connection without ErrClosed", faulty{conn: func(c drivers.Conn) drivers.Conn {
			return &connecting{Conn: c, err: func() error { return errors.New("reset by peer") }}
		}}, []string{"cut/publisher", "cut/consumer", "cut/conn"}},
		{"changes the reason", faulty{conn: func(c drivers.Conn) drivers.Conn {
			return &connecting{Conn: c, err: func() error { return fmt.Errorf("%w %d", drivers.ErrClosed, n.Add(1)) }}
		}}, []string{"cut/late"}},
		{"breaks the connection when a publisher closes", faulty{publisher: breakingClose()}, []string{"together", "order"}},
		{"does not cut", faulty{conn: func(c drivers.Conn) drivers.Conn {
			return &connecting{Conn: c, cut: func() {}}
		}}, []string{"cut/conn", "publish-blocks/cut"}},
		{"cuts, but lets Publish wait", cutWithout(func(p drivers.Publisher, m drivers.Message) error {
			return p.Publish(context.Background(), m)
		}), []string{"publish-blocks/cut"}},
		{"does not record that it waits", faulty{pubSpec: func(spec *drivers.PublisherSpec) { spec.Waiting = nil }},
			[]string{"publish-blocks/cut"}},
		{"does not block", faulty{publisher: func(p drivers.Publisher, spec drivers.PublisherSpec) drivers.Publisher {
			return &publishing{Publisher: p, publish: func(_ context.Context, m drivers.Message) error {
				spec.OnConfirms([]uint64{m.Token}, nil)
				return nil
			}}
		}}, []string{"publish-blocks/cut"}},
		{"waits in Cut for the broker", faulty{conn: func(c drivers.Conn) drivers.Conn {
			return &connecting{Conn: c, cut: func() { hang(); c.Cut() }}
		}}, []string{"cut/conn", "publish-blocks/cut"}},
		{"cuts all connections", faulty{conn: func(c drivers.Conn) drivers.Conn {
			return &connecting{Conn: c, cut: func() { loopback.Cut("self") }}
		}}, []string{"cut/conn"}},
		{"never ends Close of a connection", faulty{conn: func(c drivers.Conn) drivers.Conn {
			return &connecting{Conn: c, close: func() { hang(); _ = c.Close() }}
		}}, []string{"order", "cut/late"}},
		{"accepts messages over a broken connection", faulty{publisher: func(p drivers.Publisher,
			spec drivers.PublisherSpec) drivers.Publisher {
			return &publishing{Publisher: p, publish: func(ctx context.Context, m drivers.Message) error {
				err := p.Publish(ctx, m)
				if errors.Is(err, drivers.ErrClosed) {
					spec.OnConfirms([]uint64{m.Token}, nil)
					return nil
				}
				return err
			}}
		}}, []string{"cut/publisher", "cut/conn"}},
		{"says that Close broke a publisher", faulty{publisher: func(p drivers.Publisher,
			_ drivers.PublisherSpec) drivers.Publisher {
			own := &ownEnd{Publisher: p}
			own.Broke(drivers.ErrClosed)
			return own
		}}, []string{"close/confirm-window"}},
		{"does not end a publisher that is closed", faulty{publisher: func(p drivers.Publisher,
			_ drivers.PublisherSpec) drivers.Publisher {
			return &ownEnd{Publisher: p}
		}}, []string{"close/confirm-window", "order"}},
		{"does not end the publishers of a broken connection", faulty{publisher: func(p drivers.Publisher,
			_ drivers.PublisherSpec) drivers.Publisher {
			own := &ownEnd{}
			own.Publisher = &publishing{Publisher: p, close: func() error { own.End(); return p.Close() }}
			return own
		}}, []string{"cut/publisher", "cut/conn"}},
		{"tears down with a session", faulty{closes: func(s *faultySession) {
			_ = s.Session.Teardown(context.Background(), s.topology)
		}}, []string{"sessions"}},
		{"closes all sessions with one", faulty{closes: func(*faultySession) { loopback.Cut("self") }},
			[]string{"sessions"}},
	}
}

// ownEnd is a publisher whose end is not that of its connection.
type ownEnd struct {
	drivers.Publisher
	kit.State
}

func (p *ownEnd) Done() <-chan struct{} { return p.State.Done() }
func (p *ownEnd) Err() error            { return p.State.Err() }

// breakingClose is the fault of publishers that own the connection.
func breakingClose() func(drivers.Publisher, drivers.PublisherSpec) drivers.Publisher {
	return func(p drivers.Publisher, _ drivers.PublisherSpec) drivers.Publisher {
		return &publishing{Publisher: p, close: func() error { loopback.Cut("self"); return p.Close() }}
	}
}

// cutWithout is the fault of a connection that reports its end after Cut, and whose publishers do not notice it.
func cutWithout(publish func(p drivers.Publisher, m drivers.Message) error) faulty {
	return faulty{
		conn: func(c drivers.Conn) drivers.Conn {
			var state kit.State
			return &connecting{Conn: c, done: state.Done(), err: state.Err, cut: func() { state.Broke(drivers.ErrClosed) },
				close: func() { state.End(); _ = c.Close() }}
		},
		publisher: func(p drivers.Publisher, _ drivers.PublisherSpec) drivers.Publisher {
			return &publishing{Publisher: p, publish: func(_ context.Context, m drivers.Message) error {
				return publish(p, m)
			}}
		},
	}
}

func returnsLate() faulty {
	return faulty{pubSpec: func(s *drivers.PublisherSpec) {
		onReturn, onConfirms := s.OnReturn, s.OnConfirms
		var returned []byte
		s.OnReturn = func(b []byte) { returned = slices.Clone(b) }
		s.OnConfirms = func(tokens []uint64, err error) {
			onConfirms(tokens, err)
			if returned != nil {
				onReturn(returned)
				returned = nil
			}
		}
	}}
}
