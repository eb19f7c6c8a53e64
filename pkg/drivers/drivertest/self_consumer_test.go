package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
)

func consumerFaults() []fault {
	var n atomic.Int64
	return []fault{
		{"acknowledges what is refused", consumers(func(c *consuming) { c.nack = c.Consumer.Ack }),
			[]string{"redelivery/each", "redelivery/every", "ack/exact"}},
		{"forgets acknowledgements", consumers(func(c *consuming) {
			c.ack = func(m int) {
				if n.Add(1)%2 == 0 { // on a busy machine, messages are delivered in few calls
					c.Consumer.Ack(m)
				}
			}
		}), []string{"ack/each", "ack/interval"}},
		{"acknowledges only in Close", lateAcks(), []string{"ack/each", "ack/every"}},
		{"acknowledges more than it is told", greedyAcks(), []string{"ack/exact"}},
		{"hides redelivery", flagging(drivers.No), []string{"redelivery/each"}},
		{"claims redelivery", flagging(drivers.Yes), []string{"redelivery/each"}},
		{"corrupts bodies", faulty{handler: func(h drivers.Handler) drivers.Handler {
			return func(d []drivers.Delivery) { d[0].Body[len(d[0].Body)-1]++; h(d) }
		}}, []string{"mode/confirm-window", "sizes"}},
		{"ignores the prefetch", faulty{conSpec: func(s *drivers.ConsumerSpec) { s.Prefetch = 0 }},
			[]string{"prefetch"}},
		{"ignores the prefetch of streams", faulty{conSpec: func(s *drivers.ConsumerSpec) { s.Prefetch = 0 },
			declare: func(d *drivers.Declaration) { d.Capabilities.Streams = true }}, []string{"prefetch"}},
		{"ignores the batch", faulty{conSpec: func(s *drivers.ConsumerSpec) { s.Batch = 1000 }}, []string{"batch"}},
		{"waits for batches to fill", gathering(), []string{"batch"}},
		{"mixes subscriptions", faulty{conSpec: func(s *drivers.ConsumerSpec) { s.Subscription = 0 }},
			[]string{"fan-out"}},
		{"mixes queues", faulty{conSpec: func(s *drivers.ConsumerSpec) { s.Queue = 0 }}, []string{"queues"}},
		{"calls the handler twice at a time", faulty{handler: func(h drivers.Handler) drivers.Handler {
			return func(d []drivers.Delivery) {
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() { h(d) })
				}
				wg.Wait()
			}
		}}, []string{"mode/confirm-window"}},
		{"does not wait for the handler in Stop", consumers(func(c *consuming) {
			c.stop = func() { go c.Consumer.Stop() }
		}), []string{"handler-blocks/stop"}},
		{"calls the handler after Stop", consumers(func(c *consuming) { c.stop = func() {} }),
			[]string{"handler-blocks/stop"}},
		{"never ends Close", consumers(func(c *consuming) {
			c.close = func() { _ = c.Consumer.Close(); hang() }
		}), []string{"handler-blocks/stop", "ack/each"}},
	}
}

// A rejection that only forgets the messages is found although they come again after a timeout of the broker.
func TestRejectionByTimeout(t *testing.T) {
	d := consumers(func(c *consuming) {
		c.nack = func(int) { time.AfterFunc(time.Second, func() { c.Consumer.Nack(16) }) } // all that are unanswered
	})
	r := runOne(t, d, "ack/exact")
	if !slices.ContainsFunc(r.failures, func(line string) bool {
		return strings.Contains(line, "together with all unanswered ones")
	}) {
		t.Errorf("the failures are %q", r.failures)
	}
}

// consumers is a fault of consumers.
func consumers(change func(*consuming)) faulty {
	return faulty{consumer: func(c drivers.Consumer) drivers.Consumer {
		changed := &consuming{Consumer: c}
		change(changed)
		return changed
	}}
}

func lateAcks() faulty {
	return consumers(func(c *consuming) {
		acks := 0
		c.ack = func(n int) { acks += n }
		c.nack = func(n int) {
			c.Consumer.Ack(acks)
			acks = 0
			c.Consumer.Nack(n)
		}
		c.close = func() {
			c.Consumer.Stop()
			c.Consumer.Ack(acks)
			acks = 0
			_ = c.Consumer.Close()
		}
	})
}

// greedyAcks acknowledges one message more with each Ack of several ones.
func greedyAcks() faulty {
	return consumers(func(c *consuming) {
		c.ack = func(n int) {
			if n > 1 {
				n++
			}
			c.Consumer.Ack(n)
		}
	})
}

func flagging(say drivers.Tristate) faulty {
	return faulty{handler: func(h drivers.Handler) drivers.Handler {
		return func(d []drivers.Delivery) {
			for i := range d {
				d[i].Redelivered = say
			}
			h(d)
		}
	}}
}

// gathering delivers nothing before it has 10 deliveries.
func gathering() faulty {
	return faulty{handler: func(h drivers.Handler) drivers.Handler {
		var held []drivers.Delivery
		return func(d []drivers.Delivery) {
			for _, one := range d {
				held = append(held, drivers.Delivery{Body: append([]byte(nil), one.Body...)})
			}
			if len(held) < 10 {
				return
			}
			h(held[:1])
			held = held[1:]
		}
	}}
}

func sessionFaults() []fault {
	return []fault{
		{"takes any options", faulty{open: func(raw json.RawMessage) (json.RawMessage, error) {
			if !json.Valid(raw) {
				raw = schematest.FillNamed("loopback", json.RawMessage(`{"name":"self"}`))
			}
			return raw, nil
		}}, []string{"open/garbage"}},
		{"gives no label", faulty{declare: func(d *drivers.Declaration) { d.Label = "" }}, []string{"info"}},
		{"declares something else each time", changing(), []string{"info"}},
		{"declares existing queues", faulty{verify: declares}, []string{"existing"}},
		{"finds queues that do not exist", faulty{verify: func(drivers.Session, context.Context, drivers.Topology) error {
			return nil
		}}, []string{"existing"}},
		{"does not empty in Setup", faulty{setup: func(s drivers.Session, ctx context.Context,
			t drivers.Topology) error {
			again := t
			again.Name += "-seen"
			if exists(ctx, s, again) {
				return nil
			}
			return errors.Join(s.Setup(ctx, again), s.Setup(ctx, t))
		}}, []string{"setup"}},
		{"cannot tear down nothing", faulty{teardown: func(s drivers.Session, ctx context.Context,
			t drivers.Topology) error {
			if !exists(ctx, s, t) {
				return errors.New("no such topology")
			}
			return s.Teardown(ctx, t)
		}}, []string{"teardown"}},
		{"does not tear down", faulty{
			setup: func(s drivers.Session, ctx context.Context, t drivers.Topology) error {
				if exists(ctx, s, t) {
					return nil
				}
				return s.Setup(ctx, t)
			},
			teardown: func(drivers.Session, context.Context, drivers.Topology) error { return nil },
		}, []string{"teardown"}},
	}
}

// exists reports whether a topology is declared.
func exists(ctx context.Context, s drivers.Session, t drivers.Topology) bool {
	conn, err := s.Connect(ctx, drivers.ConnSpec{})
	if err != nil {
		return false
	}
	defer conn.Close()
	p, err := conn.Publisher(ctx, drivers.PublisherSpec{Topology: t, Mode: drivers.FireAndForget})
	return err == nil && p.Close() == nil
}

func changing() drivers.Driver {
	var n atomic.Int64
	return faulty{declare: func(d *drivers.Declaration) {
		if n.Add(1)%2 == 0 {
			d.Guarantees.Ordered = false
		}
	}}
}
