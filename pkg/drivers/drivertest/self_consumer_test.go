package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"

	"lockstep/internal/schematest"
	"lockstep/pkg/drivers"
)

func consumerFaults() []fault {
	var n atomic.Int64
	return []fault{
		{"acknowledges what the handler refused", faulty{handler: func(h drivers.Handler) drivers.Handler {
			return func(d []drivers.Delivery) error { _ = h(d); return nil }
		}}, []string{"redelivery/each", "redelivery/every"}},
		{"forgets acknowledgements", faulty{handler: func(h drivers.Handler) drivers.Handler {
			return func(d []drivers.Delivery) error {
				err := h(d)
				if n.Add(1)%2 == 0 { // on a busy machine, messages are delivered in few calls
					return errHandler
				}
				return err
			}
		}}, []string{"ack/each", "ack/interval"}},
		{"hides redelivery", flagging(drivers.No), []string{"redelivery/each"}},
		{"claims redelivery", flagging(drivers.Yes), []string{"redelivery/each"}},
		{"corrupts bodies", faulty{handler: func(h drivers.Handler) drivers.Handler {
			return func(d []drivers.Delivery) error { d[0].Body[len(d[0].Body)-1]++; return h(d) }
		}}, []string{"mode/confirm-window", "sizes"}},
		{"ignores the prefetch", faulty{conSpec: func(s *drivers.ConsumerSpec) { s.Prefetch = 0 }},
			[]string{"prefetch"}},
		{"ignores the batch", faulty{conSpec: func(s *drivers.ConsumerSpec) { s.Batch = 1000 }}, []string{"batch"}},
		{"waits for batches to fill", gathering(), []string{"batch"}},
		{"mixes subscriptions", faulty{conSpec: func(s *drivers.ConsumerSpec) { s.Subscription = 0 }},
			[]string{"fan-out"}},
		{"mixes queues", faulty{conSpec: func(s *drivers.ConsumerSpec) { s.Queue = 0 }}, []string{"queues"}},
		{"calls the handler twice at a time", faulty{handler: func(h drivers.Handler) drivers.Handler {
			return func(d []drivers.Delivery) error {
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() { _ = h(d) })
				}
				wg.Wait()
				return nil
			}
		}}, []string{"mode/confirm-window"}},
		{"does not wait for the handler in Close", faulty{consumer: func(c drivers.Consumer) drivers.Consumer {
			return closing(func() error { go func() { _ = c.Close() }(); return nil })
		}}, []string{"handler-blocks/close"}},
		{"never ends Close", faulty{consumer: func(c drivers.Consumer) drivers.Consumer {
			return closing(func() error { err := c.Close(); hang(); return err })
		}}, []string{"handler-blocks/close", "ack/each"}},
		{"says nothing of a broken link", faulty{conSpec: func(s *drivers.ConsumerSpec) { s.OnClosed = nil }},
			[]string{"cut/consumer"}},
		{"closes while it says that the link broke", faulty{conSpec: func(s *drivers.ConsumerSpec) {
			call := s.OnClosed
			s.OnClosed = func(err error) { go call(err) }
		}}, []string{"cut/late"}},
	}
}

func flagging(say drivers.Tristate) faulty {
	return faulty{handler: func(h drivers.Handler) drivers.Handler {
		return func(d []drivers.Delivery) error {
			for i := range d {
				d[i].Redelivered = say
			}
			return h(d)
		}
	}}
}

// gathering delivers nothing before it has 10 deliveries.
func gathering() faulty {
	return faulty{handler: func(h drivers.Handler) drivers.Handler {
		var held []drivers.Delivery
		return func(d []drivers.Delivery) error {
			for _, one := range d {
				held = append(held, drivers.Delivery{Body: append([]byte(nil), one.Body...)})
			}
			if len(held) < 10 {
				return nil
			}
			err := h(held[:1])
			held = held[1:]
			return err
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
		{"does not empty in Setup", faulty{setup: func(s drivers.Session, ctx context.Context,
			t drivers.Topology) error {
			again := t
			again.Name += "-seen"
			_, err := s.Consumer(ctx, drivers.ConsumerSpec{Topology: again, Batch: 1, Ack: drivers.AckEach}, nil)
			if err == nil {
				return nil
			}
			return errors.Join(s.Setup(ctx, again), s.Setup(ctx, t))
		}}, []string{"setup"}},
		{"cannot tear down nothing", faulty{teardown: func(s drivers.Session, ctx context.Context,
			t drivers.Topology) error {
			p, err := s.Publisher(ctx, drivers.PublisherSpec{Topology: t, Mode: drivers.FireAndForget})
			if err != nil {
				return err
			}
			return errors.Join(p.Close(), s.Teardown(ctx, t))
		}}, []string{"teardown"}},
		{"does not tear down", faulty{
			setup: func(s drivers.Session, ctx context.Context, t drivers.Topology) error {
				if p, err := s.Publisher(ctx, drivers.PublisherSpec{Topology: t,
					Mode: drivers.FireAndForget}); err == nil {
					return p.Close()
				}
				return s.Setup(ctx, t)
			},
			teardown: func(drivers.Session, context.Context, drivers.Topology) error { return nil },
		}, []string{"teardown"}},
	}
}

func changing() drivers.Driver {
	var n atomic.Int64
	return faulty{declare: func(d *drivers.Declaration) {
		if n.Add(1)%2 == 0 {
			d.Guarantees.Ordered = false
		}
	}}
}
