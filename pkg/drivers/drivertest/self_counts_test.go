package drivertest

import (
	"context"
	"math"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// TestProbeCounts compares metrics of loopback, which are exact, with changed ones.
func TestProbeCounts(t *testing.T) {
	highest := 0.0
	changed := func(name string, change func(float64) float64) func([]drivers.Metric) []drivers.Metric {
		return func(all []drivers.Metric) []drivers.Metric {
			for i := range all {
				if all[i].Name == name {
					all[i].Value = change(all[i].Value)
				}
			}
			return all
		}
	}
	added := func(more ...drivers.Metric) func([]drivers.Metric) []drivers.Metric {
		return func(all []drivers.Metric) []drivers.Metric { return append(all, more...) }
	}
	// lag is exact in loopback, because nothing else is delivered: it is the depth.
	lag := func(change func(float64) float64) func([]drivers.Metric) []drivers.Metric {
		return func(all []drivers.Metric) []drivers.Metric {
			depth, _ := total(all, drivers.MetricQueueDepth)
			return append(all, drivers.Metric{Name: drivers.MetricLag, Value: change(depth)})
		}
	}
	exact := func(v float64) float64 { return v }
	for name, x := range map[string]struct {
		change func([]drivers.Metric) []drivers.Metric
		passes bool
	}{
		"exactly":                       {lag(exact), true},
		"without most metrics":          {func(all []drivers.Metric) []drivers.Metric { return all[:1] }, true},
		"without unanswered deliveries": {changed(drivers.MetricUnacked, func(float64) float64 { return 0 }), false},
		"with answered deliveries": {changed(drivers.MetricUnacked, func(v float64) float64 {
			highest = math.Max(highest, v)
			return highest
		}), false},
		"without its consumer":                   {changed(drivers.MetricConsumers, func(float64) float64 { return 0 }), false},
		"without its connection":                 {added(drivers.Metric{Name: drivers.MetricConnections}), false},
		"with a lag of twice the messages":       {lag(func(v float64) float64 { return 2 * v }), false},
		"with a lag that stays":                  {lag(func(float64) float64 { return 20 }), false},
		"with more memory of queues than memory": {added(memory(drivers.MetricMemory, 1), memory(drivers.MetricMemoryQueues, 2)), false},
		"with memory of queues":                  {added(memory(drivers.MetricMemory, 2), memory(drivers.MetricMemoryQueues, 1)), true},
	} {
		d := metrics(x.change)
		d.metrics = drivers.SharedMetrics(drivers.MetricMemory, drivers.MetricMemoryQueues, drivers.MetricLag,
			drivers.MetricConnections)
		if r := runOne(t, d, "probe/counts"); (len(r.failures) == 0) != x.passes || r.inapplicable != "" {
			t.Errorf("a broker that counts %s: %v %s", name, r.failures, r.inapplicable)
		}
	}
	none := faulty{probe: func(drivers.Prober, context.Context) ([]drivers.Metric, error) {
		return nil, drivers.ErrUnsupported
	}}
	if r := runOne(t, none, "probe/counts"); r.inapplicable == "" {
		t.Error("the check applies to a broker without metrics")
	}
}

func memory(name string, value float64) drivers.Metric {
	return drivers.Metric{Name: name, Value: value}
}
