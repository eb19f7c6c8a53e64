package agent

import (
	"context"
	"errors"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/engine"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire"
)

// How often snapshots are sent.
const (
	reportEvery = time.Second
	drainEvery  = 20 * time.Millisecond
)

func (t *task) setStart(r wire.Release) error {
	start, named := r.Start[clock.ID()]
	if !named {
		return errNoStart
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin = start + t.work.Warmup.D().Nanoseconds()
	return nil
}

// measure sends and receives until this agent's publishers have stopped, while snapshots are sent from beside.
func (t *task) measure(ctx context.Context) error {
	e := t.theEngine()
	t.reporting.Add(1)
	go func() {
		defer t.reporting.Done()
		t.report(ctx, e)
	}()
	start := t.beginning() - t.work.Warmup.D().Nanoseconds()
	if err := e.Run(ctx, start); err != nil {
		return err
	}
	t.snapshotSoon(ctx, e, false)
	return nil
}

// drain returns when the first snapshot since the publishers have stopped everywhere is stored.
func (t *task) drain(ctx context.Context) error {
	select {
	case <-t.drained:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// report sends snapshots: once a second, and in the drain as soon as something changed.
func (t *task) report(ctx context.Context, e *engine.Engine) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	draining := t.draining
	for {
		select {
		case <-tick.C:
			t.snapshotSoon(ctx, e, draining == nil)
		case <-draining:
			draining = nil
			t.setPhase(plan.PhaseDrain)
			t.snapshotSoon(ctx, e, false)
			close(t.drained)
			tick.Reset(drainEvery)
		case <-ctx.Done():
			return
		}
	}
}

// snapshotSoon sends a snapshot while the task goes on; one that cannot be stored now goes with the next.
func (t *task) snapshotSoon(ctx context.Context, e *engine.Engine, onlyChanges bool) {
	t.sending.Lock()
	defer t.sending.Unlock()
	t.take(e, false, onlyChanges)
	if err := t.send(ctx); err != nil && ctx.Err() == nil {
		t.log.Warn("send snapshot", "err", err)
	}
}

// snapshot sends the last snapshot of a task.
func (t *task) snapshot(ctx context.Context, e *engine.Engine, complete bool) error {
	t.reporting.Wait()
	t.sending.Lock()
	defer t.sending.Unlock()
	t.take(e, complete, false)
	return t.send(ctx)
}

// take makes a snapshot of what was recorded since the last one. The caller holds sending.
func (t *task) take(e *engine.Engine, final, onlyChanges bool) {
	part := e.Take(final)
	t.setSkew(part.Skew)
	if onlyChanges && len(part.Windows) == 0 && len(part.Sets) == 0 && len(part.Events) == 0 && time.Since(t.taken) < reportEvery {
		return
	}
	s := record.Snapshot{Protocol: plan.Protocol, Task: t.a.Task.ID, Agent: t.cfg.Name, Clock: clock.ID(), Final: final,
		Windows: part.Windows, Sets: part.Sets, Events: part.Events, LastSend: part.LastSend, LastConfirm: part.LastConfirm,
		LastReceipt: part.LastReceipt, Skew: part.Skew}
	if begin := t.beginning(); begin != 0 {
		s.At = clock.Now() - begin
		s.Epoch = time.Now().Add(-time.Duration(s.At))
	}
	if final || time.Since(t.taken) >= reportEvery*9/10 {
		s.Host = t.host.sample()
		t.taken = time.Now()
	}
	for i := range s.Events {
		s.Events[i].Detail = t.clean(s.Events[i].Detail)
	}
	t.unsent = append(t.unsent, s)
}

// send stores what was taken, in order. What could not be stored stays for the next time. The caller holds sending.
func (t *task) send(ctx context.Context) error {
	for len(t.unsent) > 0 {
		s := t.unsent[0]
		if s.Seq == 0 {
			t.sequence++
			s.Seq = t.sequence
			t.unsent[0] = s
		}
		err := t.conn.Snapshot(ctx, t.a.Ref(), s)
		if errors.Is(err, wire.ErrTooLarge) {
			if first, second, ok := s.Split(); ok {
				second.Seq = 0 // one of its own, when its turn comes
				t.unsent = append([]record.Snapshot{first, second}, t.unsent[1:]...)
				continue
			}
		}
		if err != nil {
			return err
		}
		t.unsent = t.unsent[1:]
	}
	return nil
}

func (t *task) beginning() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begin
}

func (t *task) setSkew(skew time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.skewed = skew
}

func (t *task) skew() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.skewed
}

func (t *task) setPhase(p plan.Phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = p
}

// currentPhase is where this agent is; between start and stop the clock tells.
func (t *task) currentPhase() plan.Phase {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := clock.Now()
	switch {
	case t.phase != plan.PhaseReady || t.begin == 0 || now < t.begin-t.work.Warmup.D().Nanoseconds():
		return t.phase
	case now < t.begin:
		return plan.PhaseWarmup
	case now < t.begin+t.work.Measure.D().Nanoseconds():
		return plan.PhaseMeasure
	}
	return plan.PhaseDrain
}
