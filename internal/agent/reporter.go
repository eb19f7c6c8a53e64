package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/engine"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
)

// Intervals of snapshots, and of samples of the host.
const (
	reportEvery   = time.Second
	drainEvery    = 20 * time.Millisecond
	storeTimeout  = 3 * time.Second        // snapshots not stored by then are sent with the next
	minHostSample = 100 * time.Millisecond // the kernel counts in steps of 10 ms, so shorter samples are useless
)

// occasion is the reason for a snapshot.
type occasion uint8

const (
	regular occasion = iota
	news             // only if there is new data
	epoch            // the measurement begins
	stopped          // this agent's publishers have stopped
	final            // the last of the task
)

// reporter makes snapshots of an attempt's record and stores them in order, each once. Safe for concurrent use.
type reporter struct {
	conn       *wire.Agent
	ref        wire.Ref
	agent      string
	group      string
	session    *session
	timeline   *timeline
	correction *correction
	prober     *prober
	runtime    *runtimeMetrics
	sampleHost func() record.HostSample

	measuring chan struct{} // closed when the controller has set the start of the measurement (warmup "auto")
	draining  chan struct{} // closed when the controller has released the drain
	drained   chan error    // receives the result of storing the first snapshot after that, and all before it

	// sending is full while a snapshot is made and sent, and guards the fields below. A mutex would stop virtual time
	// in tests.
	sending  chan struct{}
	unsent   []record.Snapshot
	sampled  time.Time // time of the last sample of the host
	counting bool      // the sample belongs to the measurement
	sequence uint64

	skew atomic.Int64 // ns
}

// run sends snapshots until ctx ends: once per second from the start of the measurement, and in the drain after each
// change. It returns the error of a snapshot that could not be stored in the drain. Otherwise the controller would take
// the missing snapshots for the absence of deliveries.
func (r *reporter) run(ctx context.Context, e *engine.Engine, log *slog.Logger) error {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	began := time.NewTimer(time.Duration(r.timeline.t0() - clock.Now()))
	defer began.Stop()
	measuring, draining, why := r.measuring, r.draining, regular
	for {
		var err error
		select {
		case <-tick.C:
			err = r.snapshot(ctx, e, why, draining == nil)
		case <-began.C:
			err = r.snapshot(ctx, e, epoch, false)
			tick.Reset(reportEvery)
		case <-measuring:
			measuring = nil
			r.sending <- struct{}{}
			r.counting = false // the samples so far were of the load
			<-r.sending
			began.Reset(time.Duration(r.timeline.t0() + r.timeline.measurement().Nanoseconds() - clock.Now()))
			continue
		case <-draining:
			draining, why = nil, news
			r.timeline.setPhase(plan.PhaseDrain)
			err := r.snapshot(ctx, e, regular, true)
			r.drained <- err
			if err != nil {
				return nil
			}
			tick.Reset(drainEvery)
		case <-ctx.Done():
			return nil
		}
		switch {
		case err == nil || ctx.Err() != nil:
		case draining != nil: // it is sent with the next
			log.Warn("cannot send snapshot", "err", err)
		default:
			return err
		}
	}
}

// snapshot makes a snapshot and sends all unsent ones. If they are not stored within storeTimeout, they are sent with
// the next one. A patient call then waits for them until ctx ends.
func (r *reporter) snapshot(ctx context.Context, e *engine.Engine, why occasion, patient bool) error {
	r.sending <- struct{}{}
	defer func() { <-r.sending }()
	r.take(e, why)
	soon, cancel := context.WithTimeout(ctx, storeTimeout)
	err := r.send(soon)
	cancel()
	if err == nil || !patient {
		return err
	}
	return r.send(ctx)
}

// last makes the last snapshot of an attempt. complete means that no part of the engine runs any more.
func (r *reporter) last(e *engine.Engine, complete bool) {
	r.sending <- struct{}{}
	defer func() { <-r.sending }()
	why := stopped
	if complete {
		why = final
	}
	r.take(e, why)
}

// flush sends all unsent snapshots.
func (r *reporter) flush(ctx context.Context) error {
	r.sending <- struct{}{}
	defer func() { <-r.sending }()
	return r.send(ctx)
}

// take makes a snapshot of the data since the last one. The caller holds sending.
func (r *reporter) take(e *engine.Engine, why occasion) {
	begin, measurement := r.timeline.t0(), r.timeline.measurement()
	var at int64
	if begin != 0 {
		at = clock.Now() - begin
	}
	sample := r.isSampleDue(why, at-measurement.Nanoseconds())
	if sample {
		r.runtime.observe(e)
	}
	s := e.Take(why == final)
	r.skew.Store(int64(s.Skew))
	nothing := len(s.Windows) == 0 && len(s.Sets) == 0 && len(s.Events) == 0
	if why == news && nothing && time.Since(r.sampled) < reportEvery {
		return
	}
	s.Task, s.Group, s.Agent, s.Clock = r.ref.Task, r.group, r.agent, clock.ID()
	s.Final, s.Clocks = why == final, r.correction.take()
	if begin != 0 {
		s.At = clock.Now() - begin
		s.Begin = measurement.Nanoseconds()
		s.Epoch = time.Now().Add(-time.Duration(s.At))
		s.Probes = r.prober.take()
	}
	if sample {
		s.Host = r.sampleHost()
		r.sampled = time.Now()
	}
	for i := range s.Events {
		detail := r.session.clean(s.Events[i].Detail)
		s.Events[i].Detail = strings.ToValidUTF8(detail[:min(len(detail), record.MaxText)], "")
	}
	r.unsent = append(r.unsent, s)
}

// isSampleDue reports whether the host must be sampled now. at is the time since the start of the measurement or, until
// that is known, of the load. Each sample covers the time since the last one. So a sample at the start, however short,
// and one at the end exclude everything outside the measurement.
func (r *reporter) isSampleDue(why occasion, at int64) bool {
	since := time.Since(r.sampled)
	switch why {
	case epoch:
		r.counting = true
		return true
	case stopped, final:
		return since >= minHostSample
	}
	soon := !r.counting && at > -minHostSample.Nanoseconds()
	return since >= reportEvery*9/10 && !soon
}

// send stores the unsent snapshots in order. On an error the rest stays for the next call. The caller holds sending.
func (r *reporter) send(ctx context.Context) error {
	for len(r.unsent) > 0 {
		s := r.unsent[0]
		if s.Seq == 0 {
			r.sequence++
			s.Seq = r.sequence
			r.unsent[0] = s
		}
		err := r.conn.Snapshot(ctx, r.ref, s)
		if errors.Is(err, wire.ErrTooLarge) {
			if first, second, ok := s.Split(); ok {
				second.Seq = 0 // it gets its own number later
				r.unsent = append([]record.Snapshot{first, second}, r.unsent[1:]...)
				continue
			}
		}
		if err != nil {
			return err
		}
		r.unsent = r.unsent[1:]
	}
	return nil
}
