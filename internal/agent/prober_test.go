package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/test/wiretest"
)

// runProbedTask executes a task, and returns the metrics, the logged messages and the error of StepFinish.
func (b *harness) runProbedTask(d *probe, warmup, measure time.Duration,
	change func(*plan.Assignment)) (all []record.ProbeSample, notices []string, failure string) {
	b.t.Helper()
	ref := b.assign("t1", d, func(a *plan.Assignment) {
		loadFor(warmup, measure)(a)
		if change != nil {
			change(a)
		}
	})
	b.startTask(ref)
	until := func(step wire.Step) (failure string) {
		b.t.Helper()
		timeout := time.After(waitLimit)
		for {
			select {
			case e := <-b.reports:
				if e.Snapshot != nil {
					all = append(all, e.Snapshot.Probes...)
					for _, x := range e.Snapshot.Events {
						if strings.HasPrefix(x.Detail, "probe broker") {
							notices = append(notices, x.Detail)
						}
					}
				}
				if e.Arrival != nil && e.Arrival.Step == step {
					return e.Arrival.Error
				}
			case <-timeout:
				b.t.Fatalf("got no arrival at step %s", step)
			}
		}
	}
	until(wire.StepStart)
	b.release(ref, wire.Release{Step: wire.StepDrain})
	until(wire.StepDrain)
	b.release(ref, wire.Release{Step: wire.StepFinish})
	failure = until(wire.StepFinish)
	b.release(ref, wire.Release{Step: wire.StepDone})
	until(wire.StepDone)
	return all, notices, failure
}

// The broker is probed at the start, at each second of the record, and after the last message was sent.
func TestProbesAreAlignedToTheWindows(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b := newHarness(t)
		d := &probe{metrics: func(_ context.Context, n int64) ([]drivers.Metric, error) {
			return []drivers.Metric{{Name: drivers.MetricMemory, Node: "a", Value: float64(n)},
				{Name: drivers.MetricQueues, Value: math.NaN()}}, nil
		}}
		all, notices, failure := b.runProbedTask(d, time.Second, 2500*time.Millisecond, nil)
		if len(notices) > 0 || failure != "" {
			t.Errorf("got notices %q, error %q, want none", notices, failure)
		}
		exactly := func(at time.Duration) bool {
			return slices.ContainsFunc(all, func(s record.ProbeSample) bool { return s.At == int64(at) })
		}
		for _, at := range []time.Duration{0, time.Second, 2 * time.Second, 2499 * time.Millisecond} {
			if !exactly(at) {
				t.Errorf("got no probe at %v: %+v", at, all)
			}
		}
		if len(all) == 0 || all[0].At >= 0 {
			t.Errorf("got no probe in the warm-up: %+v", all)
		}
		for i, s := range all {
			if s.Name != "memory" || s.Node != "a" || s.Value != float64(i+1) {
				t.Errorf("sample %d: got %+v, want memory of node a with value %d (values that are not numbers are left out)", i, s,
					i+1)
			}
		}
	})
}

// An unknown metric is missing and never zero. The reason is reported once, without secrets.
func TestFailedProbesAreReportedOnce(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b := newHarness(t)
		d := &probe{metrics: func(_ context.Context, n int64) ([]drivers.Metric, error) {
			if n%2 == 1 {
				return nil, errors.New("rejected: s3cr3t")
			}
			return []drivers.Metric{{Name: drivers.MetricMemory, Value: 7}}, nil
		}}
		all, notices, failure := b.runProbedTask(d, 0, 2500*time.Millisecond, nil)
		if len(notices) != 1 || strings.Contains(notices[0], "s3cr3t") || !strings.Contains(notices[0], "rejected") {
			t.Errorf("got notices %q, want one without the password", notices)
		}
		if failure != "" || len(all) == 0 || int64(len(all)) > d.probed.Load()/2 {
			t.Errorf("got %d samples of %d probes, error %q, want at least one, at most half as many as probes, no error",
				len(all), d.probed.Load(), failure)
		}
	})
}

// Metrics of a probe that also returns an error are kept.
func TestAProbeThatFailsInPartKeepsTheRest(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b := newHarness(t)
		d := &probe{metrics: func(context.Context, int64) ([]drivers.Metric, error) {
			return []drivers.Metric{{Name: drivers.MetricMemory, Value: 7}}, errors.New("lag: no coordinator")
		}}
		all, notices, failure := b.runProbedTask(d, 0, 500*time.Millisecond, nil)
		if len(notices) != 1 || !strings.Contains(notices[0], "no coordinator") || failure != "" {
			t.Errorf("got notices %q, error %q, want one notice with \"no coordinator\", no error", notices, failure)
		}
		if len(all) == 0 || all[0].Name != "memory" || all[0].Value != 7 {
			t.Errorf("got samples %+v, want memory with value 7", all)
		}
	})
}

// A driver whose probe is unsupported with these options is not probed again.
func TestUnsupportedProbesEnd(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b := newHarness(t)
		d := &probe{metrics: func(context.Context, int64) ([]drivers.Metric, error) {
			return nil, fmt.Errorf("give management: %w", drivers.ErrUnsupported)
		}}
		_, notices, _ := b.runProbedTask(d, 0, 1500*time.Millisecond, nil)
		if len(notices) != 1 || d.probed.Load() != 1 {
			t.Errorf("got %d probes, notices %q, want one of each", d.probed.Load(), notices)
		}
	})
}

// A broker that does not respond to probes delays neither the load nor the end of the task.
func TestAHangingProbeDelaysNothing(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b := newHarness(t)
		d := &probe{metrics: func(ctx context.Context, _ int64) ([]drivers.Metric, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		begin := time.Now() // 20 ms before the load
		all, _, failure := b.runProbedTask(d, 0, time.Second, nil)
		if elapsed := time.Since(begin); elapsed > 2020*time.Millisecond || failure != "" || len(all) > 0 {
			t.Errorf("task of 1 s: got duration %v, error %q, samples %v, want at most 2.02 s, no error, no samples",
				elapsed, failure, all)
		}
	})
}

// A probe that ignores its context is abandoned, and the task ends.
func TestAStuckProbeIsLeftBehind(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b := newHarness(t, func(c *Config) { c.obey, c.leave = 20*time.Millisecond, 300*time.Millisecond })
		stuck := make(chan struct{})
		d := &probe{metrics: func(context.Context, int64) ([]drivers.Metric, error) {
			<-stuck
			return nil, nil
		}}
		_, notices, failure := b.runProbedTask(d, 0, 500*time.Millisecond, nil)
		close(stuck)
		if failure != "" || len(notices) != 1 || !strings.Contains(notices[0], "did not return") {
			t.Errorf("got error %q, notices %q, want no error, one notice with \"did not return\"", failure, notices)
		}
	})
}

// Only agent 0 probes.
func TestOnlyTheFirstAgentProbes(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b := newHarness(t)
		d := &probe{metrics: func(context.Context, int64) ([]drivers.Metric, error) {
			return []drivers.Metric{{Name: drivers.MetricMemory, Value: 7}}, nil
		}}
		all, _, _ := b.runProbedTask(d, 0, 300*time.Millisecond, func(a *plan.Assignment) { a.Index = 1 })
		if len(all) > 0 || d.probed.Load() > 0 {
			t.Errorf("agent 1: got %d probes, samples %+v, want none", d.probed.Load(), all)
		}
	})
}

func TestNextSecond(t *testing.T) {
	const s = int64(time.Second)
	for _, c := range []struct{ begin, now, want int64 }{
		{0, 0, s}, {0, 1, s}, {0, s - 1, s}, {0, s, 2 * s}, {10, 11, s + 10},
		{5 * s, 0, s}, {5 * s, s / 2, s}, {5 * s, 5*s - 1, 5 * s}, {5 * s, 4 * s, 5 * s}, {5*s + 7, 4 * s, 4*s + 7},
	} {
		if got := nextSecond(c.begin, c.now); got != c.want {
			t.Errorf("nextSecond(%d, %d): got %d, want %d", c.begin, c.now, got, c.want)
		}
	}
}
