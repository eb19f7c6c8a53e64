package external

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// These methods need capabilities that only some brokers have. Otherwise the driver's process answers with the kind
// "unsupported".

// answer makes a call and decodes its result.
func (s *session) answer(ctx context.Context, doing string, request outbound, into any) error {
	raw, err := s.call(ctx, request)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: read the driver's answer: %w", doing, err)
	}
	return nil
}

// Describe returns the broker's description. It adds the driver's version, which is part of the system under test.
func (s *session) Describe(ctx context.Context) (drivers.Description, error) {
	var d drivers.Description
	if err := s.answer(ctx, "describe broker", outbound{Type: "describe"}, &d); err != nil {
		return drivers.Description{}, err
	}
	if s.driver.description.Version != "" {
		if d.Settings == nil {
			d.Settings = map[string]string{}
		}
		d.Settings["driver"] = s.driver.description.Name + " " + s.driver.description.Version
	}
	return d, nil
}

// Probe returns the broker's own metrics.
func (s *session) Probe(ctx context.Context) ([]drivers.Metric, error) {
	var answered []metric
	if err := s.answer(ctx, "probe broker", outbound{Type: "probe"}, &answered); err != nil {
		return nil, err
	}
	metrics := make([]drivers.Metric, 0, len(answered))
	for _, f := range answered {
		declared := func(m drivers.MetricInfo) bool { return m.Name == f.Name }
		if !slices.ContainsFunc(s.driver.description.Metrics, declared) {
			return nil, fmt.Errorf("probe broker: metric %q is not declared; add it to metrics of the description", f.Name)
		}
		if f.Value < 0 || math.IsInf(f.Value, 0) {
			return nil, fmt.Errorf("probe broker: metric %q is %v; return a finite number that is at least 0", f.Name, f.Value)
		}
		metrics = append(metrics, drivers.Metric(f))
	}
	return metrics, nil
}

// Bind creates a binding while messages flow.
func (s *session) Bind(ctx context.Context, t drivers.Topology, subscription, queue int, key uint32) error {
	return s.do(ctx, "bind", outbound{Type: "bind", Topology: topologyOf(t), Binding: &binding{subscription, queue, key}})
}

// Unbind removes a binding of Bind.
func (s *session) Unbind(ctx context.Context, t drivers.Topology, subscription, queue int, key uint32) error {
	return s.do(ctx, "unbind", outbound{Type: "unbind", Topology: topologyOf(t),
		Binding: &binding{subscription, queue, key}})
}

// Leftovers lists objects of the broker whose names begin with prefix.
func (s *session) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	var found []leftover
	if err := s.answer(ctx, "list leftovers", outbound{Type: "leftovers", Prefix: prefix}, &found); err != nil {
		return nil, err
	}
	all := make([]drivers.Leftover, 0, len(found))
	for _, x := range found {
		all = append(all, drivers.Leftover(x))
	}
	return all, nil
}

// Cleanup removes objects that Leftovers returned.
func (s *session) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	leftovers := make([]leftover, 0, len(these))
	for _, x := range these {
		leftovers = append(leftovers, leftover(x))
	}
	return s.do(ctx, "cleanup", outbound{Type: "cleanup", Leftovers: leftovers})
}
