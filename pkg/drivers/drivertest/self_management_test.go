package drivertest

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// managementFaults are the faults of metrics, bindings and leftovers.
func managementFaults() []fault {
	return slices.Concat(proberFaults(), binderFaults(), cleanerFaults())
}

// metrics is a fault that changes the result of a probe. Its driver also declares memory.
func metrics(change func([]drivers.Metric) []drivers.Metric) faulty {
	return faulty{metrics: drivers.SharedMetrics(drivers.MetricMemory), probe: func(p drivers.Prober, ctx context.Context) ([]drivers.Metric, error) {
		all, err := p.Probe(ctx)
		return change(all), err
	}}
}

func proberFaults() []fault {
	return []fault{
		{"declares a metric without a unit", faulty{metrics: []drivers.MetricInfo{{Name: "segments", Doc: "segments"}}},
			[]string{"info"}},
		{"reports a metric that it does not declare", metrics(func(all []drivers.Metric) []drivers.Metric {
			return append(all, drivers.Metric{Name: "temperature", Value: 1})
		}), []string{"probe"}},
		{"says what is no number", metrics(func(all []drivers.Metric) []drivers.Metric {
			return append(all, drivers.Metric{Name: drivers.MetricMemory, Value: math.NaN()})
		}), []string{"probe"}},
		{"says a metric twice", metrics(func(all []drivers.Metric) []drivers.Metric { return append(all, all[0]) }),
			[]string{"probe"}},
		{"says a metric of the whole and of its nodes", metrics(func(all []drivers.Metric) []drivers.Metric {
			return append(all, drivers.Metric{Name: all[0].Name, Node: "n", Value: 1})
		}), []string{"probe"}},
		{"says zero for what it does not know", metrics(func(all []drivers.Metric) []drivers.Metric {
			return append(all, drivers.Metric{Name: drivers.MetricMemory})
		}), []string{"probe"}},
		{"counts the queues of others", metrics(func(all []drivers.Metric) []drivers.Metric {
			for i := range all {
				all[i].Value += 3
			}
			return all
		}), []string{"probe"}},
		{"counts messages that were consumed", countsConsumed(), []string{"probe"}},
		{"says nothing", metrics(func([]drivers.Metric) []drivers.Metric { return nil }), []string{"probe"}},
		{"does not end a probe with its context", faulty{probe: func(p drivers.Prober,
			ctx context.Context) ([]drivers.Metric, error) {
			if ctx.Err() != nil {
				hang()
			}
			return p.Probe(ctx)
		}}, []string{"probe/ends"}},
		{"says zero where there is no answer", faulty{probe: func(p drivers.Prober,
			ctx context.Context) ([]drivers.Metric, error) {
			all, err := p.Probe(ctx)
			if err != nil {
				all = []drivers.Metric{{Name: drivers.MetricQueueDepth}}
			}
			return all, err
		}}, []string{"probe/ends"}},
		{"cannot probe again", faulty{probe: func() func(drivers.Prober, context.Context) ([]drivers.Metric, error) {
			broken := false
			return func(p drivers.Prober, ctx context.Context) ([]drivers.Metric, error) {
				if ctx.Err() != nil || broken {
					broken = true
					return nil, errors.New("broken")
				}
				return p.Probe(ctx)
			}
		}()}, []string{"probe/ends"}},
	}
}

// countsConsumed never reduces the depth of a queue. Its consumers are slow, as on a busy machine.
func countsConsumed() faulty {
	depth := 0.0
	f := metrics(func(all []drivers.Metric) []drivers.Metric {
		for i := range all {
			if all[i].Name == drivers.MetricQueueDepth {
				depth = max(depth, all[i].Value)
				all[i].Value = depth
			}
		}
		return all
	})
	f.handler = func(h drivers.Handler) drivers.Handler {
		return func(ds []drivers.Delivery) {
			time.Sleep(10 * time.Second)
			h(ds)
		}
	}
	return f
}

func binderFaults() []fault {
	nothing := func(drivers.Binder, context.Context, drivers.Topology, int, int, uint32) error { return nil }
	return []fault{
		{"binds nothing", faulty{bind: nothing}, []string{"binder"}},
		{"unbinds nothing", faulty{unbind: nothing}, []string{"binder"}},
		{"binds every subscription", faulty{bind: func(b drivers.Binder, ctx context.Context, t drivers.Topology, _,
			queue int, key uint32) error {
			return errors.Join(b.Bind(ctx, t, 0, queue, key), b.Bind(ctx, t, 1, queue, key))
		}}, []string{"binder"}},
		{"binds later", option(`"bindSpread":"300ms"`), []string{"binder"}},
		{"takes all keys for one", faulty{
			bind: func(b drivers.Binder, ctx context.Context, t drivers.Topology, subscription, queue int,
				_ uint32) error {
				return b.Bind(ctx, t, subscription, queue, drivers.ChurnKey)
			},
			publisher: func(p drivers.Publisher, _ drivers.PublisherSpec) drivers.Publisher {
				return &publishing{Publisher: p, publish: func(ctx context.Context, m drivers.Message) error {
					if m.Key > drivers.ChurnKey {
						m.Key = drivers.ChurnKey
					}
					return p.Publish(ctx, m)
				}}
			},
		}, []string{"binder"}},
		{"minds what is not bound", faulty{unbind: func(b drivers.Binder, ctx context.Context, t drivers.Topology,
			subscription, queue int, key uint32) error {
			if err := b.Unbind(ctx, t, subscription, queue, key); err != nil || key != drivers.ChurnKey {
				return err
			}
			return errors.New("not bound")
		}}, []string{"binder"}},
		{"leaves bindings to the next", faulty{teardown: func(drivers.Session, context.Context,
			drivers.Topology) error {
			return nil
		}, setup: func(s drivers.Session, ctx context.Context, t drivers.Topology) error {
			err := s.Setup(ctx, t)
			return errors.Join(err, s.(drivers.Binder).Bind(ctx, t, 0, 0, drivers.ChurnKey))
		}}, []string{"binder/together"}},
		{"binds after its session closed", faulty{bind: nothing}, []string{"binder/ends"}},
		{"declares what it cannot do", faulty{declare: func(d *drivers.Declaration) {
			d.Capabilities.Modes = []drivers.Mode{drivers.ConfirmEach}
		}}, []string{"binder"}},
	}
}

func cleanerFaults() []fault {
	return []fault{
		{"lists everything", faulty{leftovers: func(all []drivers.Leftover,
			_ string) []drivers.Leftover {
			return all
		}}, []string{"cleanup"}},
		{"lists nothing", faulty{leftovers: func([]drivers.Leftover, string) []drivers.Leftover { return nil }},
			[]string{"cleanup"}},
		{"lists in no order", faulty{leftovers: func(all []drivers.Leftover, prefix string) []drivers.Leftover {
			all = beginning(all, prefix)
			slices.Reverse(all)
			return all
		}}, []string{"cleanup"}},
		{"cleans up nothing", faulty{cleanup: func([]drivers.Leftover) []drivers.Leftover { return nil }},
			[]string{"cleanup"}},
		{"cleans up more than it is told", faulty{cleanup: func(these []drivers.Leftover) []drivers.Leftover {
			topologies.Range(func(name, _ any) bool {
				these = append(these, drivers.Leftover{Name: name.(string)})
				return true
			})
			return these
		}}, []string{"cleanup"}},
	}
}

// publish_rate is compared with the rate of the check.
func TestPublishRateIsCompared(t *testing.T) {
	for scale, passes := range map[float64]bool{1: true, 10: false, 0.1: false} {
		sent, began := 0, time.Time{}
		d := faulty{metrics: drivers.SharedMetrics(drivers.MetricPublishRate),
			publisher: func(p drivers.Publisher, _ drivers.PublisherSpec) drivers.Publisher {
				began = time.Now()
				return &publishing{Publisher: p, publish: func(ctx context.Context, m drivers.Message) error {
					sent++
					return p.Publish(ctx, m)
				}}
			},
			probe: func(p drivers.Prober, ctx context.Context) ([]drivers.Metric, error) {
				all, err := p.Probe(ctx)
				rate := float64(sent) / time.Since(began).Seconds()
				return append(all, drivers.Metric{Name: drivers.MetricPublishRate, Value: scale * rate}), err
			}}
		if r := runOne(t, d, "probe/rate"); (len(r.failures) == 0) != passes || r.inapplicable != "" {
			t.Errorf("of %v times the rate: %v %s", scale, r.failures, r.inapplicable)
		}
		none := func(h *Harness) { h.NoPublishRate = true }
		if r := runOne(t, d, "probe/rate", none); len(r.failures) == 0 {
			t.Error("publish_rate may be reported although the harness states that it never is")
		}
		d.probe = nil
		if r := runOne(t, d, "probe/rate", none); len(r.failures) > 0 || r.inapplicable == "" {
			t.Errorf("without publish_rate: %v %s", r.failures, r.inapplicable)
		}
	}
	if r := runOne(t, faulty{}, "probe/rate"); r.inapplicable == "" {
		t.Error("the check applies to a driver without publish_rate")
	}
}
