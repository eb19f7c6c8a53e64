package agent

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// loadFor changes an assignment to publishers without confirms, with this warm-up and measurement.
func loadFor(warmup, measure time.Duration) func(*plan.Assignment) {
	return func(a *plan.Assignment) {
		w := &a.Task.Cell.Workload
		w.Publishers.Mode, w.Publishers.Rate = "fire-and-forget", 1000
		w.Warmup, w.Measure = plan.Duration(warmup), plan.Duration(measure)
	}
}

// startTask releases the steps up to the start of the task.
func (b *harness) startTask(ref wire.Ref) {
	b.t.Helper()
	b.awaitArrival(ref, wire.StepOpen)
	for _, step := range []wire.Step{wire.StepConsumers, wire.StepPublishers} {
		b.release(ref, wire.Release{Step: step})
		b.awaitArrival(ref, step)
	}
	b.release(ref, wire.Release{Step: wire.StepStart,
		Start: map[string]int64{clock.ID(): clock.Now() + int64(20*time.Millisecond)}})
}

// finishTask releases the remaining steps and returns the error of StepFinish.
func (b *harness) finishTask(ref wire.Ref) string {
	b.t.Helper()
	b.release(ref, wire.Release{Step: wire.StepFinish})
	failure := b.awaitArrival(ref, wire.StepFinish).Error
	b.release(ref, wire.Release{Step: wire.StepDone})
	b.awaitArrival(ref, wire.StepDone)
	return failure
}

// TestTheDrainDoesNotBeginWithoutTheRecord proves that the drain begins only after the record is stored. Otherwise the
// controller would count missing messages as lost.
func TestTheDrainDoesNotBeginWithoutTheRecord(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b := newHarness(t)
		b.snapshotError.Store(&wire.ErrSnapshots)
		ref := b.assign("t1", &probe{}, loadFor(0, 2*time.Second))
		b.startTask(ref)
		b.awaitArrival(ref, wire.StepStart)
		b.release(ref, wire.Release{Step: wire.StepDrain})
		if a := b.awaitArrival(ref, wire.StepDrain); !strings.Contains(a.Error, "drain on agent a1") {
			t.Errorf("arrival at the drain without a stored record: got error %q, want \"drain on agent a1\"", a.Error)
		}
		b.finishTask(ref)
	})
}

// TestLongEventsAreShortened proves that an agent shortens what a driver reports, so that the controller accepts it.
func TestLongEventsAreShortened(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newHarness(t), &probe{report: make(chan string, 1)}
		d.report <- strings.Repeat("é", record.MaxText)
		ref := b.assign("t1", d, loadFor(0, 2*time.Second))
		b.startTask(ref)
		for {
			r := <-b.reports
			if r.Snapshot == nil || len(r.Snapshot.Events) == 0 {
				continue
			}
			if got, want := r.Snapshot.Events[0].Detail, strings.Repeat("é", record.MaxText/2); got != want {
				t.Errorf("detail of %d bytes: got %d bytes, want %d", 2*record.MaxText, len(got), len(want))
			}
			break
		}
		b.finishTask(ref)
	})
}

// TestUnknownPlacement proves that an agent reports why the leaders of queues are not known, without secrets.
func TestUnknownPlacement(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b := newHarness(t)
		for password, want := range map[string]string{"": "", "s3cr3t": "no permission for ***"} {
			d := &probe{}
			if password != "" {
				d.leaders = errors.New("no permission for " + password)
			}
			ref := b.assign("t1"+password, d, loadFor(0, time.Second))
			b.awaitArrival(ref, wire.StepOpen)
			b.release(ref, wire.Release{Step: wire.StepConsumers})
			b.awaitArrival(ref, wire.StepConsumers)
			b.release(ref, wire.Release{Step: wire.StepPublishers})
			if p := b.awaitArrival(ref, wire.StepPublishers).Placement; p == nil || p.Unknown != want {
				t.Errorf("the placement is %+v, want it unknown because %q", p, want)
			}
			b.finishTask(ref)
		}
	})
}

// The names of nodes may be addresses with parts that are secrets.
func TestNodesHaveNoSecrets(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b := newHarness(t)
		ref := b.assign("t1", &probe{node: "s3cr3t.example:5672"}, loadFor(0, time.Second))
		if s := b.awaitArrival(ref, wire.StepOpen).Subject; s == nil || !slices.Equal(s.Members, []string{"***.example:5672"}) {
			t.Errorf("members: got %+v, want ***.example:5672", s)
		}
		b.release(ref, wire.Release{Step: wire.StepConsumers})
		b.awaitArrival(ref, wire.StepConsumers)
		b.release(ref, wire.Release{Step: wire.StepPublishers})
		if p := b.awaitArrival(ref, wire.StepPublishers).Placement; p == nil || p.Leaders["***.example:5672"] != 1 {
			t.Errorf("placement: got %+v, want the leader ***.example:5672", p)
		}
		b.finishTask(ref)
	})
}

// TestStuckDriverCallsAreReported proves that a driver call that does not return is abandoned, and that the record
// reports the agent's incomplete part.
func TestStuckDriverCallsAreReported(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b := newHarness(t, func(c *Config) { c.obey, c.leave = 20*time.Millisecond, 300*time.Millisecond })
		d := &probe{publishGate: make(chan struct{})}
		d.blocked.Add(1)
		ref := b.assign("t1", d, loadFor(0, 50*time.Millisecond))
		b.startTask(ref)
		d.blocked.Wait()
		time.AfterFunc(time.Second, func() { close(d.publishGate) }) // after it was abandoned
		if failure := b.finishTask(ref); !strings.Contains(failure, "driver probe does not respond") {
			t.Errorf("error of the arrival at finish: got %q, want \"driver probe does not respond\"", failure)
		}
	})
}

// TestASlowDriverIsWaitedFor proves that the agent waits for a driver call that returns late. Closing during the call
// would change the accounting.
func TestASlowDriverIsWaitedFor(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b := newHarness(t, func(c *Config) { c.obey = 20 * time.Millisecond })
		d := &probe{publishGate: make(chan struct{})}
		d.blocked.Add(1)
		ref := b.assign("t1", d, loadFor(0, 50*time.Millisecond))
		b.startTask(ref)
		d.blocked.Wait()
		time.AfterFunc(500*time.Millisecond, func() { close(d.publishGate) })
		if failure := b.finishTask(ref); failure != "" {
			t.Errorf("error of the arrival at finish: got %q, want none: the driver returned in time", failure)
		}
	})
}

// hostSamples executes a task and returns the agent's samples of the host, by time.
func (b *harness) hostSamples(d *probe, warmup, measure time.Duration) (all []record.HostSample) {
	b.t.Helper()
	ref := b.assign("t1", d, loadFor(warmup, measure))
	b.startTask(ref)
	take := func(e report) {
		if s := e.Snapshot; s != nil && s.Host != (record.HostSample{}) {
			s.Host.At = s.At
			all = append(all, s.Host)
		}
	}
	until := func(step wire.Step) {
		for e := range b.reports {
			if take(e); e.Arrival != nil && e.Arrival.Step == step {
				return
			}
		}
	}
	until(wire.StepStart)
	b.release(ref, wire.Release{Step: wire.StepDrain})
	until(wire.StepDrain)
	b.release(ref, wire.Release{Step: wire.StepFinish})
	until(wire.StepFinish)
	b.release(ref, wire.Release{Step: wire.StepDone})
	until(wire.StepDone)
	return all
}

// TestMetricsOfTheHostBeginWithTheMeasurement proves that samples begin with the measurement. Otherwise the first one
// would include the preparation, and the last one would be empty.
func TestMetricsOfTheHostBeginWithTheMeasurement(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newHarness(t), &probe{}
		all := b.hostSamples(d, time.Second, 700*time.Millisecond)
		exactly := func(at time.Duration) bool {
			return slices.ContainsFunc(all, func(s record.HostSample) bool {
				return s.At == int64(at)
			})
		}
		if !exactly(0) || !exactly(699*time.Millisecond) {
			t.Errorf("got samples %+v, want one at the start of the measurement and one at its last message", all)
		}
		for i := 1; i < len(all); i++ {
			if d := time.Duration(all[i].At - all[i-1].At); d < minHostSample {
				t.Errorf("interval between samples: got %v, want at least %v: %+v", d, minHostSample, all)
			}
		}
	})
}

// TestCoresAreThoseThatMayBeUsed proves that the cores are those of the container's quota, not those of the host.
func TestCoresAreThoseThatMayBeUsed(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 1))
	if s := newSlot(nil, Config{Name: "a1"}, 0); s.self.Cores != runtime.NumCPU()+1 {
		t.Errorf("got %d cores, want %d: those that this process may use", s.self.Cores, runtime.NumCPU()+1)
	}
}
