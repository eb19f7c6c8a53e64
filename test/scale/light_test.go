package scale

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
)

// light is an agent with the complete protocol on its own connection, but without a broker. It executes every step,
// waits for the agreed start, and reports the planned number of messages as sent. So one host can run a thousand of
// them.
type light struct {
	conn     *wire.Agent
	name     string
	instance string
	busy     atomic.Pointer[string]
	skews    *skews

	mu       sync.Mutex
	releases map[wire.Ref]chan wire.Release // of the current attempts
}

// skews are the differences from the agreed start, in ns.
type skews struct {
	mu  sync.Mutex
	all []float64
}

func (s *skews) add(ns int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, float64(ns))
}

// take returns the skews since the previous call.
func (s *skews) take() []float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// startLight registers an agent, which executes tasks until stop is called. stop waits for its end.
func startLight(t *testing.T, url, name string, s *skews) (stop func()) {
	t.Helper()
	conn, err := wire.Dial(t.Context(), url, wire.Auth{})
	if err != nil {
		t.Fatal(err)
	}
	l := &light{conn: wire.NewAgent(conn), name: name, instance: wire.NewName(), skews: s,
		releases: map[wire.Ref]chan wire.Release{}}
	ctx, cancel := context.WithCancel(context.Background())
	assigned := make(chan plan.Assignment, 16)
	unsubscribe, err := l.conn.Commands(name, l.instance, func(c wire.Command) error { return l.command(c, assigned) })
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.conn.SendHeartbeats(ctx, l.heartbeat, func(wire.Ref, error) {}); err != nil {
			t.Errorf("agent %s: %v", name, err)
		}
	})
	wg.Go(func() {
		for {
			select {
			case a := <-assigned:
				l.busy.Store(&a.Task.ID)
				l.live(ctx, a)
				l.busy.Store(nil)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
		unsubscribe()
		conn.Close()
	}
}

// command handles a command of the controller. Repeated assignments are ignored.
func (l *light) command(c wire.Command, assigned chan<- plan.Assignment) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.releases[c.Ref] == nil {
		l.releases[c.Ref] = make(chan wire.Release, 64)
		if c.Assignment != nil {
			assigned <- *c.Assignment
		}
	}
	if c.Release != nil {
		l.releases[c.Ref] <- *c.Release
	}
	return nil
}

func (l *light) heartbeat() wire.Heartbeat {
	h := wire.Heartbeat{Agent: l.name, Instance: l.instance, Host: "light", Clock: clock.ID(), Cores: 1}
	if b := l.busy.Load(); b != nil {
		h.Busy = *b
	}
	return h
}

// live executes the steps of a task as they are released.
func (l *light) live(ctx context.Context, a plan.Assignment) {
	ctx, cancel := context.WithTimeout(ctx, a.Deadline.D())
	defer cancel()
	var skew time.Duration
	arrive := func(step wire.Step, phase plan.Phase) {
		v := wire.Arrival{Ref: wire.RefOf(a.Task), Agent: l.name, Step: step, Phase: phase, Host: "light",
			Clock: clock.ID(), Now: clock.Now(),
			Wall: time.Now().UnixNano(), Offset: &wire.Offset{Reference: clock.ID(), At: clock.Now()},
			Skew: plan.Duration(skew)}
		if step == wire.StepOpen && a.Index == 0 {
			v.Subject = &plan.Subject{}
		}
		_ = l.conn.Arrive(ctx, v) // the controller reports the missing arrival
	}
	arrive(wire.StepOpen, plan.PhasePrepare)
	l.mu.Lock()
	releases := l.releases[wire.RefOf(a.Task)]
	l.mu.Unlock()
	arrived := map[wire.Step]bool{}
	for {
		var r wire.Release
		select {
		case r = <-releases:
		case <-ctx.Done():
			return
		}
		if arrived[r.Step] || r.Step == wire.StepTeardown && r.Agent != l.name {
			continue // a repetition
		}
		arrived[r.Step] = true
		switch r.Step {
		case wire.StepConsumers, wire.StepPublishers:
			arrive(r.Step, plan.PhaseReady)
		case wire.StepStart:
			skew = l.run(ctx, a, r)
			arrive(r.Step, plan.PhaseDrain)
		default:
			arrive(r.Step, plan.PhaseTeardown)
		}
		if r.Step == wire.StepDone {
			return
		}
	}
}

// run waits for the agreed start and for the end of the measurement, and stores the planned counts. It returns the
// start delay.
func (l *light) run(ctx context.Context, a plan.Assignment, r wire.Release) time.Duration {
	start, w := r.Start[clock.ID()], a.Task.Cell.Workload
	if clock.Until(ctx, start) != nil {
		return 0
	}
	skew := clock.Now() - start
	l.skews.add(skew)
	end := start + w.Measure.D().Nanoseconds()
	if clock.Until(ctx, end) != nil {
		return 0
	}
	c := record.NewCollector(w.Measure.D())
	rec := c.Recorder()
	share := w.Publishers.Rate * float64(a.Publishers.Count) / float64(max(1, a.Publishers.Total))
	rec.Window(0, true).Counts[record.Sent] += int64(share * w.Measure.D().Seconds())
	rec.Flush()
	s := record.Snapshot{Task: a.Task.ID, Agent: l.name, Seq: 1, At: clock.Now() - start, Clock: clock.ID(),
		Final: true,
		Skew:  time.Duration(skew), LastSend: end - start - 1}
	s.Windows, s.Sets = c.Take()
	_ = l.conn.Snapshot(ctx, wire.RefOf(a.Task), s) // the controller reports the missing snapshot
	return time.Duration(skew)
}
