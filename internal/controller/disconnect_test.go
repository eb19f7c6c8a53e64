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

// disconnectDriver is loopback with consumers that lose their links on the 10th message. Its options are:
//
//   - reconnectAfter: the time in which consumers cannot reconnect.
//   - visibleAfter: the 10th message is delivered only after this time, as by a broker with a visibility timeout.
//   - redeliverPrevious: with visibleAfter, the 9th message is delivered a second time, instead of the 10th.
//   - redeliverAfter: no link breaks, and the first message is delivered a second time after this time.
//   - reportReconnect: with redeliverAfter, the session reports that the library connects again.
type disconnectDriver struct{}

func init() { drivers.Register(disconnectDriver{}) }

func (disconnectDriver) Info() drivers.Info {
	info := loopback.Driver{}.Info()
	declare := info.Declare
	info.Name, info.Schema = "disconnecting", "#Options: {...}"
	info.Declare = func(_ json.RawMessage, use drivers.Use) drivers.Declaration {
		return declare(json.RawMessage("{}"), use)
	}
	return info
}

type disconnectOptions struct {
	ReconnectAfter, VisibleAfter, RedeliverAfter, Name string
	RedeliverPrevious, ReportReconnect                 bool
}

func (disconnectDriver) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	var o disconnectOptions
	if err := json.Unmarshal(options, &o); err != nil {
		return nil, err
	}
	reconnectAfter, err := time.ParseDuration(o.ReconnectAfter)
	if err != nil {
		return nil, err
	}
	named, err := json.Marshal(map[string]string{"name": o.Name})
	if err != nil {
		return nil, err
	}
	s, err := loopback.Driver{}.Open(ctx, schematest.FillNamed("loopback", named), env)
	visibleAfter, _ := time.ParseDuration(o.VisibleAfter)
	redeliverAfter, _ := time.ParseDuration(o.RedeliverAfter)
	return &disconnectSession{Session: s, reconnectAfter: reconnectAfter, visibleAfter: visibleAfter,
		redeliverAfter: redeliverAfter, redeliverPrevious: o.RedeliverPrevious, reportReconnect: o.ReportReconnect,
		env: env}, err
}

type disconnectSession struct {
	drivers.Session
	reconnectAfter, visibleAfter, redeliverAfter time.Duration
	redeliverPrevious, reportReconnect           bool
	env                                          drivers.Env

	mu             sync.Mutex
	disconnectedAt time.Time
	previous       []byte // the previous message
	hidden         []byte // the withheld message
}

var errReconnect = errors.New("connection refused")

// Connect creates connections whose consumers are those of loopback until their connection breaks.
func (s *disconnectSession) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	return drivertest.Hooks{Session: s.Session, Consuming: s.consume}.Connect(ctx, spec)
}

func (s *disconnectSession) consume(ctx context.Context, conn drivers.Conn, spec drivers.ConsumerSpec,
	handle drivers.Handler) (drivers.Consumer, error) {
	if s.redeliverAfter > 0 {
		return s.repeat(ctx, conn, spec, handle)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.disconnectedAt.IsZero() {
		if time.Since(s.disconnectedAt) < s.reconnectAfter {
			return nil, errReconnect
		}
		if s.hidden == nil {
			return conn.Consumer(ctx, spec, handle)
		}
		c := &disconnectConsumer{}
		c.deliver(s.visibleAfter-time.Since(s.disconnectedAt), s.hidden, handle)
		s.hidden = nil
		inner, err := conn.Consumer(ctx, spec, func(batch []drivers.Delivery) {
			c.mu.Lock()
			defer c.mu.Unlock()
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
		if !s.disconnectedAt.IsZero() {
			return
		}
		s.disconnectedAt = time.Now()
		switch {
		case s.visibleAfter > 0 && s.redeliverPrevious:
			s.hidden = s.previous
		case s.visibleAfter > 0:
			s.hidden = slices.Clone(batch[0].Body)
			c.Ack(1)
		}
		conn.Cut()
	})
	return c, err
}

// repeat creates a consumer whose first message is delivered again after redeliverAfter.
func (s *disconnectSession) repeat(ctx context.Context, conn drivers.Conn, spec drivers.ConsumerSpec,
	handle drivers.Handler) (drivers.Consumer, error) {
	c, first := &disconnectConsumer{}, true
	inner, err := conn.Consumer(ctx, spec, func(batch []drivers.Delivery) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if first {
			first = false
			if s.reportReconnect {
				s.env.Event(drivers.EventReconnecting, "connection broke; the library connects again")
			}
			c.deliver(s.redeliverAfter, slices.Clone(batch[0].Body), handle)
		}
		handle(batch)
	})
	c.Consumer = inner
	return c, err
}

// disconnectConsumer is a consumer with one delivery that loopback does not know.
type disconnectConsumer struct {
	drivers.Consumer
	mu      sync.Mutex // held while the handler runs
	extra   bool       // the handled delivery is that one
	stopped bool
}

// deliver delivers body again after a time, unless the consumer was stopped.
func (c *disconnectConsumer) deliver(after time.Duration, body []byte, handle drivers.Handler) {
	time.AfterFunc(after, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.stopped {
			c.extra = true
			handle([]drivers.Delivery{{Body: body, Redelivered: drivers.Yes}})
			c.extra = false
		}
	})
}

func (c *disconnectConsumer) Ack(n int) {
	if !c.extra {
		c.Consumer.Ack(n)
	}
}

func (c *disconnectConsumer) Stop() {
	c.Consumer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
}

func runDisconnected(t *testing.T, drainTimeout time.Duration, options map[string]any, redeliverAfter time.Duration,
	change ...func(*plan.Workload)) plan.Outcome {
	l := newLocalFleet(t, "a1", "a2", "a3", "a4")
	w := l.run(newRun(func(c *plan.Cell) {
		c.Broker.Driver = "disconnecting"
		c.Workload.Publishers.Count, c.Workload.Publishers.MaxInFlight, c.Workload.Publishers.Rate = 0, 1000, 1000
		c.Workload.Consumers.Batch = 1
		c.Workload.Measure = plan.Duration(300 * time.Millisecond)
		c.Workload.Drain = plan.Drain{Idle: plan.Duration(400 * time.Millisecond), Timeout: plan.Duration(drainTimeout)}
		c.RedeliverAfter = plan.Duration(redeliverAfter)
		for _, f := range change {
			f(&c.Workload)
		}
		loopbackOptions(c, options)
	}), nil, nil)
	return w.outcomes()[0]
}

// TestMessagesBehindABrokenLinkAreNotLost proves that missing messages do not count as lost while a consumer has no
// link, because they may still be at the broker.
func TestMessagesBehindABrokenLinkAreNotLost(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		o := runDisconnected(t, 2*time.Second, map[string]any{"reconnectAfter": "1h"}, 0)
		if o.Ledger.Lost != 0 || o.Ledger.Undrained == 0 || o.Verdict == plan.Invalid {
			t.Errorf("got %+v, %s %v, want missing messages undrained, none lost", o.Ledger, o.Verdict, o.Reasons)
		}
		if !strings.Contains(strings.Join(o.Warnings, "\n"), "not opened again: ") {
			t.Errorf("warnings: got %v, want one about the links", o.Warnings)
		}
	})
}

// TestDrainWaitsForBrokenLinks proves that a consumer that reconnects during the drain receives the messages that are
// still at the broker.
func TestDrainWaitsForBrokenLinks(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		o := runDisconnected(t, 30*time.Second, map[string]any{"reconnectAfter": "2s"}, 0)
		if o.Ledger.Received != o.Ledger.Sent || o.Ledger.Lost+o.Ledger.Undrained != 0 {
			t.Errorf("got %+v, %s %v, want all received", o.Ledger, o.Verdict, o.Reasons)
		}
	})
}

// TestHiddenMessagesAreNotLost proves that the drain waits for messages that the broker withholds after a broken link,
// for the time that the driver declares. The drain is not ended by its idle time before that.
func TestHiddenMessagesAreNotLost(t *testing.T) {
	options := map[string]any{"reconnectAfter": "10ms", "visibleAfter": "5s"}
	wiretest.InVirtualTime(t, func(t *testing.T) {
		if o := runDisconnected(t, 30*time.Second, options, 5*time.Second); o.Ledger.Received != o.Ledger.Sent ||
			o.Verdict != plan.Valid {
			t.Errorf("got %+v, %s %v, want all received", o.Ledger, o.Verdict, o.Reasons)
		}
		if o := runDisconnected(t, 3*time.Second, options, 5*time.Second); o.Ledger.Undrained != 2 ||
			o.Ledger.Lost != 0 ||
			o.Verdict != plan.Valid {
			t.Errorf("drain of 3 s: got %+v, %s %v, want 2 undrained: one of each consumer", o.Ledger, o.Verdict,
				o.Reasons)
		}
		if o := runDisconnected(t, 30*time.Second, options, 5*time.Second,
			func(w *plan.Workload) { w.Warmup = plan.Duration(time.Second) }); o.Ledger.Received != o.Ledger.Sent {
			t.Errorf("link broken in warm-up: got %+v, want all received", o.Ledger)
		}
		if o := runDisconnected(t, 30*time.Second, options, 2*time.Second); o.Ledger.Lost != 2 ||
			o.Verdict != plan.Invalid {
			t.Errorf("declared redelivery of 2 s: got %+v, %s %v, want 2 lost: one of each consumer", o.Ledger,
				o.Verdict, o.Reasons)
		}
	})
}

// TestDuplicatesAfterTheLastMessageCount proves that a duplicate that arrives after all messages is counted.
func TestDuplicatesAfterTheLastMessageCount(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		o := runDisconnected(t, 30*time.Second, map[string]any{"reconnectAfter": "10ms", "visibleAfter": "5s",
			"redeliverPrevious": true}, 5*time.Second)
		if o.Ledger.Received != o.Ledger.Sent || o.Ledger.Duplicated != 2 {
			t.Errorf("got %+v, %s %v, want all received, 2 duplicated: one of each consumer", o.Ledger, o.Verdict,
				o.Reasons)
		}
	})
}

// TestLateDuplicatesAfterALibraryReconnects proves that the drain waits for redeliveries if the client library hides a
// consumer's broken connection, and the driver reports it.
func TestLateDuplicatesAfterALibraryReconnects(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		for reported, want := range map[bool]uint64{false: 0, true: 2} {
			o := runDisconnected(t, 30*time.Second, map[string]any{"reconnectAfter": "10ms", "redeliverAfter": "1500ms",
				"reportReconnect": reported}, 2*time.Second, func(w *plan.Workload) { w.Publishers.Rate = 100 })
			if o.Ledger.Received != o.Ledger.Sent || o.Ledger.Duplicated != want {
				t.Errorf("reported %t: got %+v, %s %v, want all received, %d duplicated", reported, o.Ledger, o.Verdict,
					o.Reasons, want)
			}
		}
	})
}

// TestLateDuplicatesOfASlowConsumerCount proves that the drain waits for redeliveries if a consumer held a delivery for
// longer than the acknowledgement time of 2 s. Each of two consumers receives 45 messages at once, and processes them
// for 3 s. With a prefetch of 100 or without a limit, most wait in the client for longer than 2 s. With a prefetch of
// one, none does, and the drain ends with the last message. The same applies to consumers that are fast.
func TestLateDuplicatesOfASlowConsumerCount(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			prefetch   int
			process    time.Duration
			late       string // time of the duplicate after the first delivery
			duplicates uint64
		}{
			"unlimited, slow":    {0, 66 * time.Millisecond, "4s", 2},
			"prefetch 100, slow": {100, 66 * time.Millisecond, "4s", 2},
			"prefetch 1, slow":   {1, 66 * time.Millisecond, "4s", 0},
			"unlimited, fast":    {0, 5 * time.Millisecond, "1500ms", 0},
			"prefetch 400, fast": {400, 5 * time.Millisecond, "1500ms", 0},
			"prefetch 1, fast":   {1, 5 * time.Millisecond, "1500ms", 0},
		} {
			o := runDisconnected(t, 30*time.Second, map[string]any{"reconnectAfter": "10ms", "redeliverAfter": c.late}, 2*time.Second,
				func(w *plan.Workload) {
					w.Publishers.Rate, w.Consumers.Prefetch = 100, c.prefetch
					if c.late == "4s" {
						w.Publishers.Rate = 300
					}
					w.Consumers.Process.Min, w.Consumers.Process.Max = plan.Duration(c.process), plan.Duration(c.process)
				})
			if o.Ledger.Received != o.Ledger.Sent || o.Ledger.Duplicated != c.duplicates {
				t.Errorf("%s: %+v, %s %v: want all received, and %d twice", name, o.Ledger, o.Verdict, o.Reasons,
					c.duplicates)
			}
		}
	})
}
