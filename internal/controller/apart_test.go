package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
	"example.org/lockstep/lockstep/test/wiretest"
)

// parting is loopback with consumers that lose their links on the 10th message, and cannot reconnect for some time.
// With the option hides, that message is delivered only after a delay, as by a broker with a visibility timeout. With
// again, the 9th message is delivered twice. With late, no link breaks, and the first message is delivered again after
// a delay.
type parting struct{}

func init() { drivers.Register(parting{}) }

func (parting) Info() drivers.Info {
	info := loopback.Driver{}.Info()
	declare := info.Declare
	info.Name, info.Schema = "parting", "#Options: {...}"
	info.Declare = func(_ json.RawMessage, use drivers.Use) drivers.Declaration {
		return declare(json.RawMessage("{}"), use)
	}
	return info
}

type partingOptions struct {
	Away, Hides, Late, Name string
	Again                   bool
}

func (parting) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	var o partingOptions
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
	s, err := loopback.Driver{}.Open(ctx, schematest.FillNamed("loopback", named), env)
	hides, _ := time.ParseDuration(o.Hides)
	late, _ := time.ParseDuration(o.Late)
	return &partingSession{Session: s, away: away, hides: hides, late: late, again: o.Again}, err
}

type partingSession struct {
	drivers.Session
	away, hides, late time.Duration
	again             bool

	mu       sync.Mutex
	parted   time.Time
	previous []byte // the previous message
	hidden   []byte // the withheld message
}

var errAway = errors.New("connection refused")

// Connect makes connections whose consumers are loopback's until their connection breaks.
func (s *partingSession) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	return drivertest.Hooks{Session: s.Session, Consuming: s.consume}.Connect(ctx, spec)
}

func (s *partingSession) consume(ctx context.Context, conn drivers.Conn, spec drivers.ConsumerSpec,
	handle drivers.Handler) (drivers.Consumer, error) {
	if s.late > 0 {
		return s.repeat(ctx, conn, spec, handle)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.parted.IsZero() {
		if time.Since(s.parted) < s.away {
			return nil, errAway
		}
		if s.hidden == nil {
			return conn.Consumer(ctx, spec, handle)
		}
		hidden, oneAtATime := []drivers.Delivery{{Body: s.hidden, Redelivered: drivers.Yes}}, sync.Mutex{}
		s.hidden = nil
		c := &partingConsumer{}
		time.AfterFunc(s.hides-time.Since(s.parted), func() {
			oneAtATime.Lock()
			defer oneAtATime.Unlock()
			c.hidden = true
			handle(hidden)
			c.hidden = false
		})
		inner, err := conn.Consumer(ctx, spec, func(batch []drivers.Delivery) {
			oneAtATime.Lock()
			defer oneAtATime.Unlock()
			handle(batch)
		})
		c.Consumer = inner
		return c, err
	}
	got := 0
	var c drivers.Consumer
	c, err := conn.Consumer(ctx, spec, func(batch []drivers.Delivery) {
		if got += len(batch); got < 10 {
			s.previous = slices.Clone(batch[0].Body)
			handle(batch)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.parted.IsZero() {
			return
		}
		s.parted = time.Now()
		switch {
		case s.hides > 0 && s.again:
			s.hidden = s.previous
		case s.hides > 0:
			s.hidden = slices.Clone(batch[0].Body)
			c.Ack(1)
		}
		conn.Cut()
	})
	return c, err
}

// repeat makes a consumer whose first message is delivered again after late.
func (s *partingSession) repeat(ctx context.Context, conn drivers.Conn, spec drivers.ConsumerSpec,
	handle drivers.Handler) (drivers.Consumer, error) {
	c, oneAtATime, first := &partingConsumer{}, sync.Mutex{}, true
	inner, err := conn.Consumer(ctx, spec, func(batch []drivers.Delivery) {
		oneAtATime.Lock()
		defer oneAtATime.Unlock()
		if first {
			first = false
			again := []drivers.Delivery{{Body: slices.Clone(batch[0].Body), Redelivered: drivers.Yes}}
			time.AfterFunc(s.late, func() {
				oneAtATime.Lock()
				defer oneAtATime.Unlock()
				c.hidden = true
				handle(again)
				c.hidden = false
			})
		}
		handle(batch)
	})
	c.Consumer = inner
	return c, err
}

// partingConsumer is a consumer one of whose deliveries is not loopback's.
type partingConsumer struct {
	drivers.Consumer
	hidden bool // the handled delivery is that one
}

func (c *partingConsumer) Ack(n int) {
	if !c.hidden {
		c.Consumer.Ack(n)
	}
}

func partingRun(t *testing.T, drain time.Duration, options map[string]any, redeliverAfter time.Duration,
	change ...func(*plan.Workload)) plan.Outcome {
	l := newLab(t, "a1", "a2", "a3", "a4")
	w := l.run(aRun(func(c *plan.Cell) {
		c.Broker.Driver = "parting"
		c.Workload.Publishers.Count, c.Workload.Publishers.MaxInFlight, c.Workload.Publishers.Rate = 0, 1000, 1000
		c.Workload.Consumers.Batch = 1
		c.Workload.Measure = plan.Duration(300 * time.Millisecond)
		c.Workload.Drain = plan.Drain{Idle: plan.Duration(400 * time.Millisecond), Timeout: plan.Duration(drain)}
		c.RedeliverAfter = plan.Duration(redeliverAfter)
		for _, f := range change {
			f(&c.Workload)
		}
		loopbackOptions(c, options)
	}), nil, nil)
	return w.outcomes()[0]
}

// TestNothingIsLostBehindABrokenLink proves that missing messages do not count as lost while a consumer has no link,
// because they may still be at the broker.
func TestNothingIsLostBehindABrokenLink(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		o := partingRun(t, 2*time.Second, map[string]any{"away": "1h"}, 0)
		if o.Ledger.Lost != 0 || o.Ledger.Undrained == 0 || o.Verdict == plan.Invalid {
			t.Errorf("%+v, %s %v: want what is missing undrained", o.Ledger, o.Verdict, o.Reasons)
		}
		if !strings.Contains(strings.Join(o.Warnings, "\n"), "not opened again: ") {
			t.Errorf("no warning about the links: %v", o.Warnings)
		}
	})
}

// TestABrokenLinkIsNoSilence proves that a consumer that reconnects during the drain receives the messages that are
// left at the broker.
func TestABrokenLinkIsNoSilence(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		o := partingRun(t, 30*time.Second, map[string]any{"away": "2s"}, 0)
		if o.Ledger.Received != o.Ledger.Sent || o.Ledger.Lost+o.Ledger.Undrained != 0 {
			t.Errorf("%+v, %s %v: want all received", o.Ledger, o.Verdict, o.Reasons)
		}
	})
}

// TestHiddenMessagesAreNotLost proves that the drain waits for messages that the broker withholds after a broken link,
// for the time that the driver declares. The silence before that does not end the drain.
func TestHiddenMessagesAreNotLost(t *testing.T) {
	hides := map[string]any{"away": "10ms", "hides": "5s"}
	wiretest.InVirtualTime(t, func(t *testing.T) {
		if o := partingRun(t, 30*time.Second, hides, 5*time.Second); o.Ledger.Received != o.Ledger.Sent ||
			o.Verdict != plan.Valid {
			t.Errorf("%+v, %s %v: want all received", o.Ledger, o.Verdict, o.Reasons)
		}
		if o := partingRun(t, 3*time.Second, hides, 5*time.Second); o.Ledger.Undrained != 2 || o.Ledger.Lost != 0 ||
			o.Verdict != plan.Valid {
			t.Errorf("a drain of 3 s: %+v, %s %v: want the message of each consumer undrained", o.Ledger, o.Verdict,
				o.Reasons)
		}
		if o := partingRun(t, 30*time.Second, hides, 5*time.Second,
			func(w *plan.Workload) { w.Warmup = plan.Duration(time.Second) }); o.Ledger.Received != o.Ledger.Sent {
			t.Errorf("the link broke in warm-up: %+v: want all received", o.Ledger)
		}
		if o := partingRun(t, 30*time.Second, hides, 2*time.Second); o.Ledger.Lost != 2 || o.Verdict != plan.Invalid {
			t.Errorf("declared for 2 s: %+v, %s %v: want the message of each consumer lost", o.Ledger, o.Verdict,
				o.Reasons)
		}
	})
}

// TestDuplicatesAfterTheLastMessageCount proves that a duplicate that arrives after all messages is counted.
func TestDuplicatesAfterTheLastMessageCount(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		o := partingRun(t, 30*time.Second, map[string]any{"away": "10ms", "hides": "5s", "again": true}, 5*time.Second)
		if o.Ledger.Received != o.Ledger.Sent || o.Ledger.Duplicated != 2 {
			t.Errorf("%+v, %s %v: want all received, and one of each consumer twice", o.Ledger, o.Verdict, o.Reasons)
		}
	})
}

// TestLateDuplicatesOfASlowConsumerCount proves that the drain waits for redeliveries if processing the prefetched
// messages may exceed the acknowledgement time of 2 s. That is the case for 400 messages of 5 ms, and for an unlimited
// prefetch. A consumer that prefetches one message cannot exceed it, and its drain ends with the last message.
func TestLateDuplicatesOfASlowConsumerCount(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		for prefetch, want := range map[int]uint64{0: 2, 400: 2, 1: 0} {
			o := partingRun(t, 30*time.Second, map[string]any{"away": "10ms", "late": "1500ms"}, 2*time.Second,
				func(w *plan.Workload) {
					w.Publishers.Rate, w.Consumers.Prefetch = 100, prefetch
					w.Consumers.Process.Min, w.Consumers.Process.Max = plan.Duration(5*time.Millisecond),
						plan.Duration(5*time.Millisecond)
				})
			if o.Ledger.Received != o.Ledger.Sent || o.Ledger.Duplicated != want {
				t.Errorf("prefetch %d: %+v, %s %v: want all received, and %d twice", prefetch, o.Ledger, o.Verdict,
					o.Reasons, want)
			}
		}
	})
}
