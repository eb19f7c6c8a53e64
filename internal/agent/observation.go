package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
)

const (
	maxObservations = 64   // maximum of concurrent tasks: more indicate an error or an attack
	maxUnsent       = 3600 // maximum of samples that wait for the control plane; the oldest are dropped
)

// observation measures the brokers' processes during a task. It opens no session and uses no slot. Any number of
// observations run concurrently, each with its own samples.
type observation struct {
	slot       *slot
	assignment plan.Assignment
	inbox      *inbox
	ref        wire.Ref
	log        *slog.Logger
	brokers    []observedBroker
	begin      int64 // clock.Now() at T0; 0: not known yet
	unsent     []record.Snapshot
	sequence   uint64
}

// run executes an observation. It always returns, as every wait in it has a deadline.
func (o *observation) run(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.assignment.Deadline.D(), errDeadline)
	defer cancel()
	if err := o.open(); err != nil {
		o.log.Warn("observe", "err", err)
		o.arrive(ctx, wire.StepOpen, err)
		return
	}
	o.arrive(ctx, wire.StepOpen, nil)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	start := make(chan wire.Release, 1)
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		o.listen(ctx, start, stop)
	}()
	err := o.measure(ctx, start)
	stop(err)
	<-listened
	if errors.Is(err, errFinish) {
		err = nil
	}
	o.finish(ctx, err)
}

// open checks the assignment and starts to measure the processes.
func (o *observation) open() error {
	if err := o.assignment.CheckProtocol(); err != nil {
		return err
	}
	cfg := o.slot.cfg
	for _, x := range o.assignment.Observe {
		processes := cfg.Observes[x.As]
		if len(processes) == 0 {
			return fmt.Errorf("observe broker %q on agent %s: its --observe flags are for %s; start it with another",
				x.As, cfg.Name, strings.Join(o.slot.self.Observes, ", "))
		}
		o.brokers = append(o.brokers, newObservedBroker(procfs(cfg.Proc), o.slot.place, x, processes))
	}
	return nil
}

// listen passes the start on, and ends the observation when the controller ends the task.
func (o *observation) listen(ctx context.Context, start chan<- wire.Release, stop context.CancelCauseFunc) {
	for {
		select {
		case r := <-o.inbox.releases:
			switch r.Step {
			case wire.StepStart:
				start <- r
			case wire.StepFinish, wire.StepDone:
				stop(errFinish)
			}
		case <-ctx.Done():
			return
		}
	}
}

// measure takes a sample at the start and at each full second of the measurement, until ctx ends. It returns the cause
// of ctx.
func (o *observation) measure(ctx context.Context, start <-chan wire.Release) error {
	select {
	case r := <-start:
		at, named := r.Start[clock.ID()]
		if !named {
			return errNoStart
		}
		o.begin = at + o.assignment.Task.Cell.Workload.Warmup.D().Nanoseconds()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		if clock.Until(ctx, nextSecond(o.begin, clock.Now())) != nil {
			return context.Cause(ctx)
		}
		o.sample(false)
		if err := o.send(ctx); errors.Is(err, wire.ErrNoAttempt) {
			return err
		} else if err != nil && ctx.Err() == nil {
			o.log.Warn("cannot send sample; retrying", "err", err)
		}
	}
}

// sample adds the usage of the processes since the last sample.
func (o *observation) sample(last bool) {
	for _, b := range o.brokers {
		at := clock.Now() - o.begin
		o.sequence++
		s := record.Snapshot{Task: o.ref.Task, Agent: o.slot.cfg.Name, Seq: o.sequence, At: at,
			Epoch: time.Now().Add(-time.Duration(at)), Host: b.sample(), Final: last}
		s.Host.At = at
		o.unsent = append(o.unsent, s)
	}
	if more := len(o.unsent) - maxUnsent; more > 0 {
		o.unsent = slices.Delete(o.unsent, 0, more)
	}
}

// send stores the unsent samples in order. On an error the rest stays for the next call.
func (o *observation) send(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for len(o.unsent) > 0 {
		if err := o.slot.conn.Snapshot(ctx, o.ref, o.unsent[0]); err != nil {
			return err
		}
		o.unsent = o.unsent[1:]
	}
	return nil
}

// finish sends the remaining samples. why is the reason if the observation ended before the controller ended it.
func (o *observation) finish(ctx context.Context, why error) {
	ctx, cancel := wire.WithGracePeriod(ctx, o.slot.cfg.answer)
	defer cancel()
	if o.begin != 0 {
		o.sample(true)
	}
	if err := o.send(ctx); err != nil {
		why = errors.Join(why, fmt.Errorf("%d samples were not stored: %w", len(o.unsent), err))
	}
	o.arrive(ctx, wire.StepFinish, why)
}

func (o *observation) arrive(ctx context.Context, step wire.Step, failure error) {
	ctx, cancel := wire.WithGracePeriod(ctx, o.slot.cfg.answer)
	defer cancel()
	a := wire.Arrival{Ref: o.ref, Step: step}
	if failure != nil {
		a.Error = failure.Error()
	}
	_ = o.slot.arrive(ctx, a, o.log) // the error was logged
}

// observedBroker measures the processes of one broker, which must all be on this host. It must be used by one goroutine
// at a time.
type observedBroker struct {
	name, node, place string
	processes         brokerProcesses
}

// newObservedBroker starts to measure. The first sample covers the time from this call. Each sample looks again for
// missing processes.
func newObservedBroker(proc procfs, place string, x plan.Observation, of plan.Processes) observedBroker {
	names := make([]string, len(of))
	for i, p := range of {
		names[i] = p.String()
	}
	slices.Sort(names)
	b := observedBroker{name: x.Broker, node: strings.Join(names, ", "), place: place,
		processes: newBrokerProcesses(proc, of)}
	b.processes.require = true
	return b
}

// sample returns the usage of the processes since the last sample.
func (b observedBroker) sample() record.HostSample {
	s := record.HostSample{Broker: b.name, Place: b.place, Node: b.node}
	b.processes.sample(&s)
	return s
}

// placeOf returns where this process runs: its host, and the network namespace in which it looks for ports.
func placeOf(proc procfs, host string) string {
	space, _ := proc.networkSpace("self") // on an error the host counts as one namespace
	return strings.TrimSpace(host + " " + space)
}
