package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/engine"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire"
)

// How often snapshots are sent, and figures of the host read.
const (
	reportEvery = time.Second
	drainEvery  = 20 * time.Millisecond
	takeWithin  = 3 * time.Second        // what the control plane has not stored by then goes with the next
	leastFigure = 100 * time.Millisecond // the kernel counts in steps of 10 ms: of less time figures say nothing
)

// occasion is why a snapshot is taken.
type occasion uint8

const (
	regular occasion = iota
	news             // not without any
	epoch            // the measurement begins
	stopped          // this agent's publishers have stopped
	final            // the last of the task
)

func (t *task) setStart(r wire.Release) error {
	start, named := r.Start[clock.ID()]
	if !named {
		return errNoStart
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin = start + t.work.Warmup.D().Nanoseconds()
	t.reference, t.base = r.Clock, start-r.Start[r.Clock]
	return nil
}

// agreed is when the measurement begins, and by how much this clock was taken to be ahead of the reference's for that.
func (t *task) agreed() (begin, base int64, reference string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begin, t.base, t.reference
}

// measure sends and receives until this agent's publishers have stopped, while snapshots are sent from beside.
func (t *task) measure(ctx context.Context) error {
	e := t.theEngine()
	t.correctNow(e)
	t.reporting.Go(func() { t.correct(ctx, e) })
	t.reporting.Go(func() { t.report(ctx, e) })
	t.startFaults(t.disturbing)
	finish := t.startProber(ctx)
	start := t.beginning() - t.work.Warmup.D().Nanoseconds()
	if err := e.Run(ctx, start); err != nil {
		return err
	}
	finish(ctx)
	if err := t.snapshotSoon(ctx, e, stopped); err != nil && ctx.Err() == nil {
		t.log.Warn("send snapshot", "err", err) // the drain does not begin without it
	}
	return nil
}

// drain returns when the first snapshot since the publishers have stopped everywhere is stored, and all before it: the controller would take
// what it does not know of for lost.
func (t *task) drain(ctx context.Context) error {
	select {
	case err := <-t.drained:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// report sends snapshots: once a second, counted from the measurement's beginning, and in the drain as soon as something changed.
func (t *task) report(ctx context.Context, e *engine.Engine) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	told := t.told
	began := time.NewTimer(time.Duration(t.beginning() - clock.Now()))
	defer began.Stop()
	draining, why := t.draining, regular
	for {
		var err error
		select {
		case <-tick.C:
			err = t.snapshot(ctx, e, why, draining == nil)
		case <-began.C:
			err = t.snapshotSoon(ctx, e, epoch)
			tick.Reset(reportEvery)
		case <-told:
			told = nil
			t.sending <- struct{}{}
			t.counting = false // they were of the load
			<-t.sending
			began.Reset(time.Duration(t.beginning() + t.measurement().Nanoseconds() - clock.Now()))
			continue
		case <-draining:
			draining, why = nil, news
			t.setPhase(plan.PhaseDrain)
			err := t.snapshot(ctx, e, regular, true)
			t.drained <- err
			if err != nil {
				return
			}
			tick.Reset(drainEvery)
		case <-ctx.Done():
			return
		}
		switch {
		case err == nil || ctx.Err() != nil:
		case draining != nil: // it goes with the next
			t.log.Warn("send snapshot", "err", err)
		default: // the controller would take the silence for the end
			t.arrive(ctx, wire.StepDrain, fmt.Errorf("drain on agent %s: %w", t.cfg.Name, err))
			return
		}
	}
}

// snapshotSoon sends a snapshot while the load runs; one that cannot be stored now is kept and goes with the next.
func (t *task) snapshotSoon(ctx context.Context, e *engine.Engine, why occasion) error {
	return t.snapshot(ctx, e, why, false)
}

// snapshot takes a snapshot and sends all that is unsent. What the control plane does not store soon goes with the next; a
// patient one then waits for it until ctx ends.
func (t *task) snapshot(ctx context.Context, e *engine.Engine, why occasion, patient bool) error {
	t.sending <- struct{}{}
	defer func() { <-t.sending }()
	t.take(e, why)
	soon, cancel := context.WithTimeout(ctx, takeWithin)
	err := t.send(soon)
	cancel()
	if err == nil {
		return nil
	}
	if !patient {
		return err
	}
	return t.send(ctx)
}

// lastSnapshot takes the last snapshot of a task, if its engine has been made.
func (t *task) lastSnapshot(e *engine.Engine, complete bool) {
	t.reporting.Wait()
	t.sending <- struct{}{}
	defer func() { <-t.sending }()
	why := stopped
	if complete {
		why = final
	}
	t.take(e, why)
}

// take makes a snapshot of what was recorded since the last one. The caller holds sending.
func (t *task) take(e *engine.Engine, why occasion) {
	var at int64
	begin := t.beginning()
	if begin != 0 {
		at = clock.Now() - begin
	}
	figures := t.figuresDue(why, at-t.measurement().Nanoseconds())
	if figures {
		t.observe()
	}
	part := e.Take(why == final)
	t.setSkew(part.Skew)
	if why == news && len(part.Windows) == 0 && len(part.Sets) == 0 && len(part.Events) == 0 && time.Since(t.taken) < reportEvery {
		return
	}
	s := record.Snapshot{Task: t.a.Task.ID, Group: t.a.Task.Group, Agent: t.cfg.Name, Clock: clock.ID(), Final: why == final,
		Windows: part.Windows, Sets: part.Sets, Events: part.Events, Bindings: part.Bindings, LastSend: part.LastSend, LastConfirm: part.LastConfirm,
		LastReceipt: part.LastReceipt, LastInterrupted: part.LastInterrupted, Apart: part.Apart, Skew: part.Skew, Busiest: part.Busiest, Clocks: t.correction.take()}
	if begin != 0 {
		s.At = clock.Now() - begin
		s.Begin = t.measurement().Nanoseconds()
		s.Epoch = time.Now().Add(-time.Duration(s.At))
		s.Probes = t.takeProbed()
	}
	if figures {
		if t.watched.name != "" {
			s.Host = t.watched.sample(t.place)
		} else {
			s.Host = t.host.sample()
			s.Host.LocalBroker = t.localBroker.Load()
			t.host.outside.add(t.host, t.outside(), &s.Host)
		}
		t.taken = time.Now()
	}
	s.Gaps = part.Gaps
	for i := range s.Events {
		s.Events[i].Detail = t.clean(s.Events[i].Detail)
	}
	t.unsent = append(t.unsent, s)
}

// figuresDue tells whether figures of the host are read at a time of the measurement; of the load, while it is not known when that begins.
// Each is of the time since the last, so one at the beginning, however short, and one at the end keep out what is not of the measurement.
func (t *task) figuresDue(why occasion, at int64) bool {
	since := time.Since(t.taken)
	switch why {
	case epoch:
		t.counting = true
		return true
	case stopped, final:
		return since >= leastFigure
	}
	soon := !t.counting && at > -leastFigure.Nanoseconds()
	return since >= reportEvery*9/10 && !soon
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
		err := t.conn.Snapshot(ctx, wire.RefOf(t.a.Task), s)
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
