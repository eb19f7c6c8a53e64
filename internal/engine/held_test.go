package engine

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
)

// The time for which a consumer holds deliveries is measured, including the time for which they wait in the client. The
// redelivery time is 2 s.
func TestHeldDeliveries(t *testing.T) {
	const ms, limit = time.Millisecond, 2 * time.Second
	fresh := func(time.Duration) time.Duration { return 0 }
	queued := func(elapsed time.Duration) time.Duration { return elapsed } // all messages are sent at the beginning
	for name, c := range map[string]struct {
		consumers plan.Consumers
		calls     int // of the handler
		batch     int
		process   time.Duration
		pause     time.Duration                             // between calls
		age       func(elapsed time.Duration) time.Duration // of the messages when they are received; nil: unknown
		interval  time.Duration
		exceeded  bool
	}{
		"processed for longer": {plan.Consumers{Ack: "each", Prefetch: 1}, 1, 1, 3 * time.Second, 0, fresh, 0, true},
		"processed in time":    {plan.Consumers{Ack: "each", Prefetch: 1}, 3, 1, 1900 * ms, 0, queued, 0, false},
		"prefetched, full":     {plan.Consumers{Ack: "each", Prefetch: 400}, 900, 1, 6 * ms, 0, queued, 0, true},
		"prefetched, in time":  {plan.Consumers{Ack: "each", Prefetch: 400}, 900, 1, 4 * ms, 0, queued, 0, false},
		"many prefetched":      {plan.Consumers{Ack: "each", Prefetch: 10_000}, 250, 100, 25 * ms, 0, queued, 0, true},
		"many, in time":        {plan.Consumers{Ack: "each", Prefetch: 10_000}, 250, 100, 15 * ms, 0, queued, 0, false},
		"prefetched, not full": {plan.Consumers{Ack: "each", Prefetch: 400}, 900, 1, 6 * ms, 0, fresh, 0, false},
		"full, unknown age":    {plan.Consumers{Ack: "each", Prefetch: 400}, 900, 1, 6 * ms, 0, nil, 0, true},
		"at once, full":        {plan.Consumers{Ack: "each", Prefetch: 400}, 900, 1, 0, 6 * ms, queued, 0, true},
		"at once, in time":     {plan.Consumers{Ack: "each", Prefetch: 400}, 900, 1, 0, 4 * ms, queued, 0, false},
		"at once, many":        {plan.Consumers{Ack: "each", Prefetch: 10_000}, 250, 100, 0, 25 * ms, queued, 0, true},
		"at once, unknown age": {plan.Consumers{Ack: "each", Prefetch: 400}, 900, 1, 0, 6 * ms, nil, 0, true},
		"at once, unlimited":   {plan.Consumers{Ack: "each"}, 900, 1, 0, 3 * ms, queued, 0, true},
		"at once, fresh":       {plan.Consumers{Ack: "each"}, 900, 1, 0, 6 * ms, fresh, 0, false},
		"unlimited":            {plan.Consumers{Ack: "each"}, 900, 1, 3 * ms, 0, queued, 0, true},
		"unlimited and fast":   {plan.Consumers{Ack: "each"}, 900, 1, 1 * ms, 0, fresh, 0, false},
		"idle":                 {plan.Consumers{Ack: "each", Prefetch: 100}, 3, 1, ms, time.Minute, fresh, 0, false},
		"every 100th, slowly": {plan.Consumers{Ack: "every", AckEvery: 100, Prefetch: 100}, 100, 1, 0, 30 * ms, fresh, 0,
			true},
		"every 100th": {plan.Consumers{Ack: "every", AckEvery: 100, Prefetch: 100}, 250, 1, 0, 10 * ms, fresh, 0, false},
		"every 100th, some not answered": {plan.Consumers{Ack: "every", AckEvery: 100, Prefetch: 100}, 99, 1, 0, 30 * ms,
			fresh, 0, true},
		"long intervals": {plan.Consumers{Ack: "interval", Prefetch: 1000}, 40, 1, 0, 100 * ms, fresh, 3 * time.Second,
			true},
		"short intervals": {plan.Consumers{Ack: "interval", Prefetch: 1000}, 90, 1, 0, 100 * ms, fresh, time.Second, false},
		"automatic":       {plan.Consumers{Ack: "automatic"}, 1, 1, 3 * time.Second, 0, fresh, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				line := newTimeline(plan.Default())
				line.origin.Store(clock.Now())
				var exceeded atomic.Int64
				c.consumers.Process.Min, c.consumers.Process.Max = plan.Duration(c.process), plan.Duration(c.process)
				h := newHeld(c.consumers, int64(limit), &exceeded, line)
				a := newAcker(c.consumers, h)
				a.start(&idleConsumer{}, c.interval)
				for range c.calls {
					if !a.begin(t.Context()) {
						t.Fatal("begin: got false, want true")
					}
					now, sent := line.now(), unknownSend
					if c.age != nil {
						sent = now - int64(c.age(time.Duration(now)))
					}
					h.receive(c.batch, sent, now)
					if c.process > 0 {
						time.Sleep(c.process)
						h.elapse()
					}
					a.accept(c.batch)
					a.end()
					time.Sleep(c.pause)
					synctest.Wait()
				}
				if got := exceeded.Load() != 0 || h != nil && h.overdue(line.now()); got != c.exceeded {
					t.Errorf("exceeded: got %v, want %v", got, c.exceeded)
				}
				a.finish()
				if h != nil && h.overdue(line.now()+int64(time.Hour)) {
					t.Error("overdue after the link was closed: got true, want false")
				}
			})
		})
	}
}

// A rejection is an answer. Accepted deliveries before it are acknowledged first.
func TestRejectedDeliveriesAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := newTimeline(plan.Default())
		line.origin.Store(clock.Now())
		var exceeded atomic.Int64
		c := plan.Consumers{Ack: "every", AckEvery: 10, Prefetch: 10}
		h := newHeld(c, int64(time.Second), &exceeded, line)
		a := newAcker(c, h)
		a.start(&idleConsumer{}, 0)
		a.begin(t.Context())
		h.receive(2, line.now(), line.now())
		a.accept(2)
		h.receive(1, line.now(), line.now())
		a.refuse(1)
		time.Sleep(time.Minute)
		if h.overdue(line.now()) || exceeded.Load() != 0 {
			t.Error("exceeded: got true, want false")
		}
	})
}
