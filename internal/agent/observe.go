package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire"
)

const (
	mostObservations = 64   // of tasks at a time: more are a mistake, or hostile
	mostUnsent       = 3600 // samples that wait for the control plane; the oldest make room
)

// observation is a task of which this agent measures the brokers' processes. It opens no session, and any number of them go on side by
// side, each with a reading of its own: they take no slot.
type observation struct {
	*server
	a        assigned
	log      *slog.Logger
	brokers  []observed
	begin    int64 // clock.Now() at T0; 0: not known yet
	unsent   []record.Snapshot
	sequence uint64
}

// observed is one broker.
type observed struct {
	name, node string
	host       *host
}

// observing begins an observation beside all else, unless there are too many.
func (s *server) observing(ctx context.Context, a assigned) {
	o := &observation{server: s, a: a, log: s.cfg.Log.With("task", a.Task.ID, "agent", s.cfg.Name)}
	several := s.observations.Add(1)
	s.watching.Go(func() {
		defer s.observations.Add(-1)
		if several > mostObservations {
			o.arrive(ctx, wire.StepOpen, fmt.Errorf("it observes %d tasks already", mostObservations))
			return
		}
		o.live(ctx)
	})
}

// live is an observation from assignment to nothing left. It always returns: every wait in it has a deadline.
func (o *observation) live(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.a.Deadline.D(), errDeadline)
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

// observe begins to measure the processes of a broker, all of which are to be here.
func (s *server) observe(x plan.Observation, processes plan.Processes) observed {
	words := make([]string, len(processes))
	for i, p := range processes {
		words[i] = p.String()
	}
	slices.Sort(words)
	b := observed{name: x.Broker, node: strings.Join(words, ", "), host: newHost(s.cfg.Proc, processes)}
	b.host.every = true
	return b
}

// sample is what a broker's processes used since the last one.
func (b observed) sample(place string) record.HostSample {
	h := record.HostSample{Broker: b.name, Place: place, Node: b.node}
	b.host.brokers(&h)
	return h
}

// measured is what an agent that takes part in a task measures of its host: of an observer, which is there for the faults that it does, the broker.
func (s *server) measured(b plan.Broker) (h *host, of observed) {
	if fit, _ := plan.Observe([]plan.Broker{b}, s.self.Observes); len(fit) > 0 {
		of = s.observe(fit[0], s.cfg.Observes[fit[0].As])
		return of.host, of
	}
	return newHost(s.cfg.Proc, b.Process), of
}

// open finds the processes. One that is not there yet is looked for again with each sample.
func (o *observation) open() error {
	if o.a.Protocol != plan.Protocol {
		return fmt.Errorf("assignment speaks protocol %d and this agent speaks %d: install the same release of Lockstep on both", o.a.Protocol, plan.Protocol)
	}
	for _, x := range o.a.Observe {
		processes := o.cfg.Observes[x.As]
		if len(processes) == 0 {
			return fmt.Errorf("broker %q is not one that this agent observes: its --observe names %s", x.As, strings.Join(o.self.Observes, ", "))
		}
		o.brokers = append(o.brokers, o.observe(x, processes))
	}
	return nil
}

// listen passes the start on, and stops everything when the controller ends the task.
func (o *observation) listen(ctx context.Context, start chan<- wire.Release, stop context.CancelCauseFunc) {
	for {
		select {
		case r := <-o.a.inbox.releases:
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

// measure takes a sample at the start and with every full second of the measurement, until ctx ends; it returns the cause of that.
func (o *observation) measure(ctx context.Context, start <-chan wire.Release) error {
	select {
	case r := <-start:
		at, named := r.Start[clock.ID()]
		if !named {
			return errNoStart
		}
		o.begin = at + o.a.Task.Cell.Workload.Warmup.D().Nanoseconds()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		since := time.Duration(clock.Now() - o.begin)
		at := since.Truncate(reportEvery) // towards 0
		if since >= 0 {
			at += reportEvery
		}
		next := time.NewTimer(at - since)
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return context.Cause(ctx)
		}
		o.sample(false)
		if err := o.send(ctx); errors.Is(err, wire.ErrNoAttempt) {
			return err
		} else if err != nil && ctx.Err() == nil {
			o.log.Warn("send sample, trying again", "err", err)
		}
	}
}

// sample takes what the processes used since the last one.
func (o *observation) sample(last bool) {
	for _, b := range o.brokers {
		at := clock.Now() - o.begin
		o.sequence++
		s := record.Snapshot{Task: o.a.Task.ID, Agent: o.cfg.Name, Seq: o.sequence, At: at,
			Epoch: time.Now().Add(-time.Duration(at)), Host: b.sample(o.place), Final: last}
		s.Host.At = at
		o.unsent = append(o.unsent, s)
	}
	if more := len(o.unsent) - mostUnsent; more > 0 {
		o.unsent = slices.Delete(o.unsent, 0, more)
	}
}

// send stores what was taken, in order. What could not be stored stays for the next time.
func (o *observation) send(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, takeWithin)
	defer cancel()
	for len(o.unsent) > 0 {
		if err := o.conn.Snapshot(ctx, wire.RefOf(o.a.Task), o.unsent[0]); err != nil {
			return err
		}
		o.unsent = o.unsent[1:]
	}
	return nil
}

// finish hands over the rest. Why is what ended the observation before the controller did.
func (o *observation) finish(ctx context.Context, why error) {
	ctx, cancel := wire.Lasting(ctx, o.cfg.answer)
	defer cancel()
	if o.begin != 0 {
		o.sample(true)
	}
	if err := o.send(ctx); err != nil {
		why = errors.Join(why, fmt.Errorf("%d samples were not taken: %w", len(o.unsent), err))
	}
	o.arrive(ctx, wire.StepFinish, why)
}

func (o *observation) arrive(ctx context.Context, step wire.Step, failure error) {
	ctx, cancel := wire.Lasting(ctx, o.cfg.answer)
	defer cancel()
	a := wire.Arrival{Ref: wire.RefOf(o.a.Task), Agent: o.cfg.Name, Step: step, Host: o.server.host, Clock: clock.ID(), Version: o.cfg.Version,
		Now: clock.Now(), Wall: time.Now().UnixNano(), Offset: o.compared.now()}
	if failure != nil {
		a.Error = failure.Error()
	}
	if err := o.conn.Arrive(ctx, a); err != nil {
		o.log.Error("answer the controller", "step", step, "err", err)
	}
}

// place is where this process runs: its host, and the network namespace in which it looks for ports.
func place(proc, host string) string {
	space, _ := os.Readlink(filepath.Join(proc, "self", "ns", "net")) // without it the host has one
	return strings.TrimSpace(host + " " + space)
}

// observes lists the names of what an agent observes, sorted.
func observes(all map[string]plan.Processes) []string { return slices.Sorted(maps.Keys(all)) }
