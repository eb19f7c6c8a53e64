package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/drivers"
)

// telling is a driver that reports an event in Open.
type telling struct{ faulty }

func (d telling) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	env.Event(drivers.EventNotice, "the broker is slow today")
	return d.faulty.Open(ctx, raw, env)
}

// silenced breaks the link of each consumer before any delivery.
func silenced() faulty {
	return faulty{
		conSpec: func(s *drivers.ConsumerSpec) { s.OnClosed(errors.New("reset by peer")) },
		handler: func(drivers.Handler) drivers.Handler { return func([]drivers.Delivery) error { return nil } },
	}
}

// Messages that are missing because of a broken link and messages that the broker withholds are different faults. The
// failure states which.
func TestFailureNamesBrokenLink(t *testing.T) {
	r := runOne(t, telling{silenced()}, "order")
	if len(r.failures) == 0 || !strings.Contains(r.failures[0],
		"do not arrive; the consumer's link broke: reset by peer") {
		t.Errorf("the failures are %q", r.failures)
	}
	if !slices.ContainsFunc(r.logs, func(line string) bool {
		return strings.Contains(line,
			"the broker is slow today")
	}) {
		t.Errorf("what the driver said is not in the log: %q", r.logs)
	}
}
