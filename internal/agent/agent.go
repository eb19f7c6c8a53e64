// Package agent lives the life of an assignment on one client host: it registers with the controller, opens a driver's session, drives the
// engine from step to step as it is released, and sends snapshots of what was measured. It promises that
// after every task nothing is left of it, whatever happened, and that no secret leaves the host.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
	"lockstep/internal/wire"
	"lockstep/pkg/drivers"
)

// Config says who an agent is.
type Config struct {
	Name    string // unique in the fleet
	Labels  map[string]string
	Dir     string // for what tasks keep on disk while they last; empty: the temporary folder
	Slots   int    // tasks side by side; 0: one
	Version string // of this program, for records
	Log     *slog.Logger
	// Access states what matrices may read of this host; the zero value allows nothing.
	Access drivers.Access
	// Targets are what matrices may disturb on this host, by name.
	Targets []plan.Target
	// Observes are the brokers whose processes this agent measures, by their names in matrices or their drivers. With any, it takes no load.
	Observes map[string]plan.Processes
	// Drain is closed when the agent has to leave as soon as it is idle; nil: it stays until Serve's context ends.
	Drain <-chan struct{}
	// Stop is closed when the agent has to leave at once if it is idle, and else as with Drain; nil: never.
	Stop <-chan struct{}
	// Proc is where the host's processes are read; empty: /proc.
	Proc string
	// Standing is told how this agent stands; nil: nobody is.
	Standing *Standing

	obey, leave, answer time.Duration // for tests; 0: obeyTimeout, leaveTimeout and answerTimeout
	host                string
}

// drainAfter is for how long an agent that drains is idle before it leaves, three heartbeats: what the controller assigned before it had heard
// of it is still done, and it reads what the agent said last before it reads the goodbye.
const drainAfter = 3 * wire.HeartbeatEvery

// Causes for which a task ends early.
var (
	errStopping   = errors.New("the agent was asked to leave, and gave the task up")
	errSuperseded = errors.New("controller assigned another task")
	errDeadline   = errors.New("no word from the controller until the task's deadline")
	errFinish     = errors.New("controller ended the task")
	errUnled      = errors.New("no controller leads the attempt any more")
)

// Serve registers with the controller and carries out assignments, one at a time in each slot, until ctx ends; then it ends the tasks in flight, says
// goodbye and returns nil. With Config.Drain and Stop each slot does so, too, once no task is in flight there any more. It returns an error when the
// controller refuses the agent or conn was closed.
func Serve(ctx context.Context, conn *wire.Agent, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, cfg.Slots)
	var slots sync.WaitGroup
	for i := range errs {
		slot := newServer(conn, cfg, i)
		cfg.Standing.add(slot)
		slots.Go(func() {
			if errs[i] = slot.run(ctx); errs[i] != nil {
				stop() // one that is refused ends all
			}
		})
	}
	slots.Wait()
	return errors.Join(errs...)
}

// complete fills in what was left out.
func (cfg *Config) complete() (err error) {
	if cfg.Name == "" {
		return errors.New("start agent: it has no name")
	}
	if len(cfg.Observes) > 0 && cfg.Slots > 1 {
		return errors.New("start agent: an observer has no slots; it observes all tasks at once")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Proc, cfg.Slots = cmp.Or(cfg.Proc, "/proc"), max(cfg.Slots, 1)
	cfg.obey, cfg.leave, cfg.answer = cmp.Or(cfg.obey, obeyTimeout), cmp.Or(cfg.leave, leaveTimeout), cmp.Or(cfg.answer, answerTimeout)
	if cfg.host, err = os.Hostname(); err != nil {
		return fmt.Errorf("start agent: %w", err)
	}
	return nil
}

// run is the life of one slot.
func (s *server) run(ctx context.Context) error {
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	assigned := make(chan assigned, mostObservations)
	unsubscribe, err := s.conn.Commands(s.cfg.Name, s.self.Instance, func(c wire.Command) error { return s.command(c, assigned) })
	if err != nil {
		return fmt.Errorf("register with the controller: %w", err)
	}
	defer unsubscribe()
	refused := make(chan error, 1)
	var beside sync.WaitGroup
	beside.Go(func() {
		defer s.reported.Store(nil)
		refused <- s.conn.SendHeartbeats(inner, func() wire.Heartbeat {
			now := time.Now()
			s.reported.Store(&now)
			return s.heartbeat()
		}, s.unled)
	})
	beside.Go(func() { s.compare(inner) })
	err = s.serve(ctx, assigned, refused)
	stop()
	beside.Wait()
	return err
}

// assigned is an attempt of which this agent has a part.
type assigned struct {
	plan.Assignment
	inbox *inbox
}

// command takes a command of the controller, which sends it again until this returns.
func (s *server) command(c wire.Command, to chan<- assigned) error {
	if c.Release != nil {
		return s.attempts.release(c.Ref, *c.Release)
	}
	in := s.attempts.add(c.Ref)
	if in == nil {
		return nil
	}
	select {
	case to <- assigned{*c.Assignment, in}:
		return nil
	default:
		return errors.New("too many assignments at a time")
	}
}

// unled ends the attempt in flight, which no controller leads any more.
func (s *server) unled(ref wire.Ref, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if busy := s.busy.Load(); busy != nil && *busy == ref {
		s.cancel(fmt.Errorf("%w: %w", errUnled, why))
	}
}

type server struct {
	conn *wire.Agent
	cfg  Config
	host string
	self wire.Heartbeat

	compared comparison
	attempts attempts

	place        string // see the function
	watching     sync.WaitGroup
	observations atomic.Int64

	busy     atomic.Pointer[wire.Ref]
	current  atomic.Pointer[task] // the newest
	draining atomic.Bool
	reported atomic.Pointer[time.Time] // when the loop of heartbeats last went on; nil: there is none

	mu     sync.Mutex
	cancel context.CancelCauseFunc // ends the attempt in flight
}

// memory tells this process from others.
var memory = wire.NewName()

// newServer makes a slot of an agent; the first has the agent's name, the others a number behind it.
func newServer(conn *wire.Agent, cfg Config, slot int) *server {
	process := cfg.Name
	cfg.Name = wire.SlotName(cfg.Name, slot)
	return &server{conn: conn, cfg: cfg, host: cfg.host, place: place(cfg.Proc, cfg.host), self: wire.Heartbeat{
		Agent: cfg.Name, Instance: wire.NewName(), Host: cfg.host, Clock: clock.ID(), Version: cfg.Version, Labels: cfg.Labels, Protocol: plan.Protocol,
		Cores:   runtime.GOMAXPROCS(0), // what a container's quota leaves of the host
		Targets: kinds(cfg.Targets), Slots: cfg.Slots, Process: process, Memory: memory,
		Observes: observes(cfg.Observes), Observer: len(cfg.Observes) > 0,
	}}
}

// kinds are the faults that can be done to each target.
func kinds(targets []plan.Target) map[string][]string {
	var all map[string][]string
	for _, t := range targets {
		if all == nil {
			all = map[string][]string{}
		}
		all[t.Name] = t.Kinds()
	}
	return all
}

func (s *server) heartbeat() wire.Heartbeat {
	h := s.self
	h.Offset = s.compared.now()
	h.Draining = s.draining.Load()
	if busy := s.busy.Load(); busy != nil {
		h.Busy, h.Try = busy.Task, *busy
	}
	return h
}

// serve runs tasks until ctx ends or the controller refuses the agent.
func (s *server) serve(ctx context.Context, assigned <-chan assigned, refused <-chan error) error {
	var (
		cancel      context.CancelCauseFunc = func(error) {}
		idle                                = make(chan struct{})
		done        <-chan struct{}         = idle
		drain, stop                         = s.cfg.Drain, s.cfg.Stop
		free        <-chan struct{}         // done, while draining
		quiet       <-chan time.Time        // then idle for long enough to leave
	)
	close(idle)
	finish := func(cause error) {
		cancel(cause)
		<-done
	}
	watching, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer s.watching.Wait()
	defer end(errStopping)
	for {
		select {
		case a := <-assigned:
			if len(a.Observe) > 0 {
				s.observing(watching, a)
				continue
			}
			// The controller gives work to an agent that it believes idle: whatever is going on here is nobody's any more.
			finish(errSuperseded)
			cancel, done = s.start(ctx, a)
			if s.draining.Load() { // assigned before the controller had heard of it
				free, quiet = done, nil
			}
		case <-drain:
			s.cfg.Log.Info("leaving as soon as no task is in flight")
			drain, free = nil, s.drained(done)
		case <-stop:
			if s.idle() {
				s.cfg.Log.Info("asked to leave: no task is in flight", "agent", s.cfg.Name)
				return nil
			}
			s.cfg.Log.Info("asked to leave: after the task in flight; a second signal leaves at once", "agent", s.cfg.Name)
			stop, free = nil, s.drained(done)
		case <-free:
			free, quiet = nil, time.After(drainAfter)
		case <-quiet:
			if s.observations.Load() == 0 {
				return nil
			}
			quiet = time.After(drainAfter)
		case err := <-refused:
			cause := fmt.Errorf("the agent gave the task up: %w", err)
			end(cause)
			finish(cause)
			return err
		case <-ctx.Done():
			finish(errStopping)
			return nil
		}
	}
}

// drained says from now on that this slot takes no further task; it passes on what is closed when the one in flight has ended.
func (s *server) drained(done <-chan struct{}) <-chan struct{} {
	s.draining.Store(true)
	return done
}

// idle tells whether nothing is under way in this slot.
func (s *server) idle() bool { return s.busy.Load() == nil && s.observations.Load() == 0 }

// start runs a task on its own; done is closed when nothing of it is left.
func (s *server) start(ctx context.Context, a assigned) (context.CancelCauseFunc, <-chan struct{}) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	done := make(chan struct{})
	ref := wire.RefOf(a.Task)
	s.mu.Lock()
	s.busy.Store(&ref)
	s.cancel = cancel
	s.mu.Unlock()
	t := newTask(s, a)
	s.current.Store(t)
	go func() {
		defer close(done)
		defer cancel(nil)
		t.live(ctx)
		s.busy.Store(nil)
		s.current.CompareAndSwap(t, nil)
	}()
	return cancel, done
}
