package controller

import (
	"context"
	"errors"
	"sync"

	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
)

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
	return m.hand(ctx, agentReport{agent: a.Agent, arrival: &a})
}

// snapshot stores a snapshot of an owned attempt. An invalid or too large one fails the agent's part.
func (o *runOwnership) snapshot(ctx context.Context, ref wire.Ref, s record.Snapshot) error {
	m := o.mailbox(ref, s.Agent)
	if m == nil {
		return wire.ErrNoAttempt
	}
	if err := wire.CheckData(m.task, &s); err != nil {
		_ = m.hand(ctx, agentReport{agent: s.Agent, err: err}) // an error means that the attempt is over
		return err
	}
	err := m.snapshots.Store(ctx, s)
	if errors.Is(err, wire.ErrSnapshots) || errors.Is(err, wire.ErrFull) {
		_ = m.hand(ctx, agentReport{agent: s.Agent, err: err})
	}
	return err
}
