package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
)

// Limits of the bytes of snapshots per agent and attempt: ten times what agents with the most connections need, and
// observers. For attempts of up to 25 minutes they are less than the space of a run with the default --record-limit.
const (
	snapshotBytes       = 64 << 20
	snapshotBytesSecond = 256 << 10 // per second of plan.Limit
	observerBytes       = 1 << 20
	observerBytesSecond = 10 << 10
)

// recordMemory returns the maximum memory of the merged record of an attempt in bytes, by record.Merged.Memory: more
// than its agents need, and at least a sixth of GOMEMLIMIT, because judging and copying may need as much again. The two
// agents of a cell of matrices/quick.cue need 23 to 85 KiB per second. Snapshots of a few bytes may unpack to several
// hundred times their size.
func recordMemory(t plan.Task, agents int) int {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 { // GOMEMLIMIT is not set
		limit = 6 << 30
	}
	w := t.Cell.Workload
	need := int(plan.Limit(w).Seconds()) * (128<<10*(1+len(w.Groups)) + 12<<10*agents)
	for _, p := range t.Parts() {
		w := p.Cell.Workload
		publishers, consumers := w.Publishers.Nodes*w.Publishers.Threads, w.Consumers.Nodes*w.Consumers.Threads
		need += 64 << 10 * (publishers + consumers*w.Topology.Subscriptions)
	}
	return max(int(limit/6), need)
}

// maxCommands is more than an agent receives in an attempt: an assignment and a release to each step.
const maxCommands = 16

// mailbox carries the messages of one attempt: commands to its agents, and their reports. Safe for concurrent use.
type mailbox struct {
	ref       wire.Ref
	task      plan.Task
	log       *slog.Logger
	agents    []wire.AgentInfo
	observers map[string]bool              // by agent
	commands  map[string]chan wire.Command // by agent
	reports   chan agentReport
	snapshots *wire.SnapshotStore // nil: refused
	closed    <-chan struct{}     // then no report is accepted any more
}

// agentReport is a report of an agent. A snapshot may have an err; otherwise exactly one field besides agent is set.
type agentReport struct {
	agent    string
	arrival  *wire.Arrival
	snapshot *record.Snapshot // stored
	err      error            // why the report or a command was rejected
}

func newMailbox(log *slog.Logger, t plan.Task, parts []*part) *mailbox {
	m := &mailbox{ref: wire.RefOf(t), task: t, log: log, observers: map[string]bool{},
		commands: map[string]chan wire.Command{}, reports: make(chan agentReport, 64)}
	for _, p := range parts {
		m.observers[p.agent.Agent] = p.observe != nil
		m.agents = append(m.agents, p.agent)
		m.commands[p.agent.Agent] = make(chan wire.Command, maxCommands)
	}
	return m
}

// open begins to send commands, and to store snapshots and add them to merged. closeMailbox ends both and waits. If
// recorder is nil, snapshots are refused: those of a probe would be before the run's plan and make it unreadable.
func (m *mailbox) open(lease *wire.Leader, recorder *wire.Recorder, merged *record.Merged) (closeMailbox func()) {
	ctx, cancel := context.WithCancel(lease.Context())
	m.closed = ctx.Done()
	var sending sync.WaitGroup
	for _, a := range m.agents {
		sending.Go(func() { m.send(ctx, lease, a) })
	}
	if recorder == nil {
		return func() { cancel(); sending.Wait() }
	}
	seconds := int(plan.Limit(m.task.Cell.Workload).Seconds())
	limit := func(agent string) int {
		if m.observers[agent] {
			return observerBytes + seconds*observerBytesSecond
		}
		return snapshotBytes + seconds*snapshotBytesSecond
	}
	memory := recordMemory(m.task, len(m.agents))
	m.snapshots = recorder.Snapshots(ctx, m.ref, limit, func(s record.Snapshot) error {
		// A stored snapshot counts, even if the attempt no longer accepts reports.
		r := agentReport{agent: s.Agent, snapshot: &s}
		r.err = wire.Guard(m.log, "snapshot of agent "+s.Agent, func() error { merged.Add(s); return nil })
		var over error
		if used := merged.Memory(); used > memory {
			over = fmt.Errorf("store snapshot: %w: the record of the attempt needs %d MiB of memory, and the limit is %d MiB;"+
				" raise GOMEMLIMIT of the controller", wire.ErrSnapshots, used>>20, memory>>20)
		}
		r.err = cmp.Or(r.err, over)
		_ = m.accept(ctx, r)
		return over
	})
	return func() {
		cancel()
		sending.Wait()
		m.snapshots.Wait()
	}
}

// send sends commands to one agent in order, each until the agent has confirmed it. The attempt gets its error.
func (m *mailbox) send(ctx context.Context, lease *wire.Leader, a wire.AgentInfo) {
	for {
		select {
		case command := <-m.commands[a.Agent]:
			err := lease.Command(ctx, a.Agent, command)
			if err != nil && ctx.Err() == nil {
				_ = m.accept(ctx, agentReport{agent: a.Agent, err: fmt.Errorf("rejected by agent %s: %w", a.Agent, err)})
			}
		case <-ctx.Done():
			return
		}
	}
}

func (m *mailbox) command(a wire.AgentInfo, command wire.Command) {
	command.Instance, command.Ref = a.Instance, m.ref
	m.commands[a.Agent] <- command
}

// accept passes a report to the attempt and waits until the attempt has it.
func (m *mailbox) accept(ctx context.Context, r agentReport) error {
	select {
	case m.reports <- r:
		return nil
	case <-m.closed:
		return wire.ErrNoAttempt
	case <-ctx.Done():
		return fmt.Errorf("accept report: %w: %w", wire.ErrNotStored, context.Cause(ctx))
	}
}

// runOwnership answers requests of agents: all but those about its own attempts are stale. Safe for concurrent use.
type runOwnership struct {
	agents        *fleet
	ownedAttempts sync.Map // wire.Ref to *mailbox
}

func (o *runOwnership) own(m *mailbox) (disown func()) {
	o.ownedAttempts.Store(m.ref, m)
	return func() { o.ownedAttempts.Delete(m.ref) }
}

// mailbox returns the mailbox of an attempt; nil: it is not owned by this leadership, or the agent has no part in it.
func (o *runOwnership) mailbox(ref wire.Ref, agent string) *mailbox {
	if m, owned := o.ownedAttempts.Load(ref); owned && m.(*mailbox).commands[agent] != nil {
		return m.(*mailbox)
	}
	return nil
}

// heartbeat handles a heartbeat. stale: this leadership does not own the agent's attempt, which is to end.
func (o *runOwnership) heartbeat(h wire.Heartbeat) (stale bool, refuse error) {
	if why := o.agents.heartbeat(h); why != "" {
		return false, errors.New(why)
	}
	return h.Attempt != (wire.Ref{}) && o.mailbox(h.Attempt, h.Agent) == nil, nil
}

func (o *runOwnership) arrive(ctx context.Context, a wire.Arrival) error {
	m := o.mailbox(a.Ref, a.Agent)
	if m == nil {
		return wire.ErrNoAttempt
	}
	return m.accept(ctx, agentReport{agent: a.Agent, arrival: &a})
}

// snapshot stores a snapshot of an owned attempt. An invalid or too large one fails the agent's part.
func (o *runOwnership) snapshot(ctx context.Context, ref wire.Ref, s record.Snapshot) error {
	m := o.mailbox(ref, s.Agent)
	if m == nil || m.snapshots == nil {
		return wire.ErrNoAttempt
	}
	err := wire.CheckData(m.task, &s)
	if err == nil && m.observers[s.Agent] && !s.Observes() {
		err = fmt.Errorf("snapshot %d of agent %s has more than a sample of a host, although it is an observer", s.Seq,
			s.Agent)
	}
	if err != nil {
		_ = m.accept(ctx, agentReport{agent: s.Agent, err: err}) // an error means that the attempt is over
		return err
	}
	err = m.snapshots.Store(ctx, s)
	if errors.Is(err, wire.ErrSnapshots) || errors.Is(err, wire.ErrFull) {
		_ = m.accept(ctx, agentReport{agent: s.Agent, err: err})
	}
	return err
}
