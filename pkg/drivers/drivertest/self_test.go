package drivertest

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/internal/schematest"
	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/loopback"
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
	for _, f := range slices.Concat(confirmFaults(), publisherFaults(), consumerFaults(), sessionFaults(),
		asideFaults()) {
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
func runOne(t *testing.T, d drivers.Driver, name string) (r result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r = prove(t, Harness{
			Driver:      d,
			Options:     schematest.Fill(t, d, `{"name":"self"}`),
			FullOptions: schematest.Fill(t, d, `{"name":"self","capacity":10}`),
			Cut:         func() { loopback.Cut("self") },
			NoNetwork:   true,
			wait:        2 * time.Second,
		}, find(t, name))
		time.Sleep(2 * hangTime) // hanging calls end
	})
	return r
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
		{"cannot be cancelled", faulty{publisher: func(p drivers.Publisher, _ drivers.PublisherSpec) drivers.Publisher {
			return &publishing{Publisher: p, publish: func(_ context.Context, m drivers.Message) error {
				return p.Publish(context.Background(), m)
			}}
		}}, []string{"publish-blocks/cancel"}},
		{"waits in Close for Publish", waitingClose(), []string{"publish-blocks/close"}},
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
		{"says nothing of a broken link", faulty{pubSpec: func(s *drivers.PublisherSpec) { s.OnClosed = nil }},
			[]string{"cut/publisher"}},
		{"says twice that a link broke", faulty{pubSpec: func(s *drivers.PublisherSpec) {
			call := s.OnClosed
			s.OnClosed = func(err error) { call(err); call(err) }
		}}, []string{"cut/publisher"}},
		{"says that Close broke the link", faulty{publisher: func(p drivers.Publisher,
			spec drivers.PublisherSpec) drivers.Publisher {
			return &publishing{Publisher: p, close: func() error { spec.OnClosed(drivers.ErrClosed); return p.Close() }}
		}}, []string{"close/confirm-window"}},
		{"says after Close that the link broke", faulty{pubSpec: func(s *drivers.PublisherSpec) {
			call := s.OnClosed
			s.OnClosed = func(err error) { time.AfterFunc(time.Millisecond, func() { call(err) }) }
		}}, []string{"cut/late"}},
		{"closes while it says that the link broke", faulty{pubSpec: func(s *drivers.PublisherSpec) {
			call := s.OnClosed
			s.OnClosed = func(err error) { go call(err) }
		}}, []string{"cut/late"}},
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

func waitingClose() faulty {
	return faulty{publisher: func(p drivers.Publisher, _ drivers.PublisherSpec) drivers.Publisher {
		turn := make(chan struct{}, 1) // a lock that does not stop virtual time
		return &publishing{
			Publisher: p,
			publish: func(ctx context.Context, m drivers.Message) error {
				turn <- struct{}{}
				defer func() { <-turn }()
				return p.Publish(ctx, m)
			},
			close: func() error {
				turn <- struct{}{}
				defer func() { <-turn }()
				return p.Close()
			},
		}
	}}
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
