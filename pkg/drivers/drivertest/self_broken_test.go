package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// telling is a driver that reports an event in Open.
type telling struct{ faulty }

func (d telling) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	env.Event(drivers.EventNotice, "the broker is slow today")
	return d.faulty.Open(ctx, raw, env)
}

// halfCleaner is a driver whose sessions have one method of drivers.Cleaner.
type halfCleaner struct{ faulty }

func (d halfCleaner) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	s, err := d.faulty.Open(ctx, raw, env)
	return struct {
		drivers.Session
		lister
	}{Session: s}, err
}

type lister struct{}

func (lister) Leftovers(context.Context, string) ([]drivers.Leftover, error) { return nil, nil }

// TestOptionalInterfaces: a session that lost an optional interface is noticed, by a failure or in the log.
func TestOptionalInterfaces(t *testing.T) {
	r := runOne(t, faulty{}, "open/optional")
	if len(r.failures) > 0 || len(r.logs) == 0 ||
		r.logs[0] != "optional interfaces: Prober, Binder, Cleaner, Verifier; not implemented: Describer, ClientProcesses, Placer" {
		t.Errorf("failures %q, log %q", r.failures, r.logs)
	}
	r = runOne(t, halfCleaner{}, "open/optional")
	if len(r.failures) != 1 || !strings.Contains(r.failures[0], "method Leftovers, but does not implement drivers.Cleaner") {
		t.Errorf("of half a Cleaner: failures %q", r.failures)
	}
}

// silenced breaks the link of each consumer before any delivery.
func silenced() faulty {
	return faulty{
		consumer: func(c drivers.Consumer) drivers.Consumer {
			s := &silencedConsumer{Consumer: c}
			s.Broke(errors.New("reset by peer"))
			return s
		},
		handler: func(drivers.Handler) drivers.Handler { return func([]drivers.Delivery) {} },
	}
}

type silencedConsumer struct {
	drivers.Consumer
	kit.State
}

func (s *silencedConsumer) Done() <-chan struct{} { return s.State.Done() }
func (s *silencedConsumer) Err() error            { return s.State.Err() }

// Messages that are missing because of a broken link and messages that the broker withholds are different faults. The
// failure states which.
func TestFailureNamesBrokenLink(t *testing.T) {
	r := runOne(t, telling{silenced()}, "order")
	if len(r.failures) == 0 || !strings.Contains(r.failures[0],
		"do not arrive; the consumer's link broke: link to the broker is closed: reset by peer") {
		t.Errorf("the failures are %q", r.failures)
	}
	if !slices.ContainsFunc(r.logs, func(line string) bool {
		return strings.Contains(line,
			"the broker is slow today")
	}) {
		t.Errorf("what the driver said is not in the log: %q", r.logs)
	}
}
