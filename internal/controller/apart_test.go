package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/loopback"
	"lockstep/test/wiretest"
)

// parting is loopback with consumers that lose their links on the 10th message, and cannot open them again for a time.
type parting struct{}

func init() { drivers.Register(parting{}) }

func (parting) Info() drivers.Info {
	info := loopback.Driver{}.Info()
	info.Name, info.Schema = "parting", "#Options: {...}"
	return info
}

func (parting) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	var o struct {
		Away string
		Name string
	}
	if err := json.Unmarshal(options, &o); err != nil {
		return nil, err
	}
	away, err := time.ParseDuration(o.Away)
	if err != nil {
		return nil, err
	}
	named, err := json.Marshal(map[string]string{"name": o.Name})
	if err != nil {
		return nil, err
	}
	s, err := loopback.Driver{}.Open(ctx, named, env)
	return &partingSession{Session: s, away: away}, err
}

type partingSession struct {
	drivers.Session
	away time.Duration

	mu     sync.Mutex
	parted time.Time
}

var errAway = errors.New("connection refused")

// Consumer is loopback's, until it parts.
func (s *partingSession) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.parted.IsZero() {
		if time.Since(s.parted) < s.away {
			return nil, errAway
		}
		return s.Session.Consumer(ctx, spec, handle)
	}
	got := 0
	return s.Session.Consumer(ctx, spec, func(batch []drivers.Delivery) error {
		if got += len(batch); got < 10 {
			return handle(batch)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.parted.IsZero() {
			s.parted = time.Now()
			spec.OnClosed(drivers.ErrClosed)
		}
		return errAway
	})
}

func partingRun(t *testing.T, away string, most time.Duration) plan.Outcome {
	l := newLab(t, "a1", "a2", "a3", "a4")
	w := l.run(aRun(func(c *plan.Cell) {
		c.Broker.Driver = "parting"
		c.Workload.Publishers.Count, c.Workload.Publishers.Window, c.Workload.Publishers.Rate = 0, 1000, 1000
		c.Workload.Consumers.Batch = 1
		c.Workload.Measure = plan.Duration(300 * time.Millisecond)
		c.Workload.Drain = plan.Drain{Silence: plan.Duration(400 * time.Millisecond), Most: plan.Duration(most)}
		loopbackOptions(c, map[string]any{"away": away})
	}), nil, nil)
	return w.outcomes()[0]
}

// TestNothingIsLostBehindABrokenLink: what a consumer without a link does not receive may still be at the broker.
func TestNothingIsLostBehindABrokenLink(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		o := partingRun(t, "1h", 2*time.Second)
		if o.Ledger.Lost != 0 || o.Ledger.Undrained == 0 || o.Verdict == plan.Invalid {
			t.Errorf("%+v, %s %v: want what is missing undrained", o.Ledger, o.Verdict, o.Reasons)
		}
		if !strings.Contains(strings.Join(o.Warnings, "\n"), "not opened again: ") {
			t.Errorf("the warnings do not tell of the links: %v", o.Warnings)
		}
	})
}

// TestABrokenLinkIsNoSilence: links that come back in the drain bring what waited at the broker.
func TestABrokenLinkIsNoSilence(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		o := partingRun(t, "2s", 30*time.Second)
		if o.Ledger.Received != o.Ledger.Sent || o.Ledger.Lost+o.Ledger.Undrained != 0 {
			t.Errorf("%+v, %s %v: want all received", o.Ledger, o.Verdict, o.Reasons)
		}
	})
}
