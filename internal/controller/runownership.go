package controller

import (
	"context"
	"errors"
	"slices"
	"sync"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire"
)

// runOwnership has the attempts that this leadership owns, and answers the requests of agents: for an owned attempt, or
// that theirs is stale. Safe for concurrent use.
type runOwnership struct {
	agents        *fleet
	ownedAttempts sync.Map // wire.Ref to *mailbox
}

// own makes an attempt known until disown is called.
func (o *runOwnership) own(m *mailbox) (disown func()) {
	o.ownedAttempts.Store(m.ref, m)
	return func() { o.ownedAttempts.Delete(m.ref) }
}

// mailbox returns that of an attempt; nil if this leadership does not own it, or the agent neither has a part in it nor
// observes it.
func (o *runOwnership) mailbox(ref wire.Ref, agent string) *mailbox {
	if m, owned := o.ownedAttempts.Load(ref); owned && m.(*mailbox).commands[agent] != nil {
		return m.(*mailbox)
	}
	return nil
}

// heartbeat takes a heartbeat. It reports whether the attempt that the agent works on is stale: its controller died, or
// its run was ended while the agent was cut off.
func (o *runOwnership) heartbeat(h wire.Heartbeat) (stale bool, refuse error) {
	if why := o.agents.heard(h); why != "" {
		return false, errors.New(why)
	}
	return h.Attempt != (wire.Ref{}) && o.mailbox(h.Attempt, h.Agent) == nil, nil
}

// arrive hands an arrival to its attempt.
func (o *runOwnership) arrive(ctx context.Context, a wire.Arrival) error {
	m := o.mailbox(a.Ref, a.Agent)
	if m == nil {
		return wire.ErrNoAttempt
	}
	return m.hand(ctx, agentReport{agent: a.Agent, arrival: &a})
}

// snapshot stores a snapshot, unless its agent or its attempt cannot have it. One that they cannot have fails the
// agent's part: something is missing from it.
func (o *runOwnership) snapshot(ctx context.Context, ref wire.Ref, s record.Snapshot) error {
	m := o.mailbox(ref, s.Agent)
	if m == nil {
		return wire.ErrNoAttempt
	}
	if err := s.CheckTimes(plan.RecordLimit(m.task)); err != nil {
		_ = m.hand(ctx, agentReport{agent: s.Agent, err: err}) // the attempt is over otherwise
		return err
	}
	err := m.snapshots.Store(ctx, s)
	if errors.Is(err, wire.ErrSnapshots) || errors.Is(err, wire.ErrFull) {
		_ = m.hand(ctx, agentReport{agent: s.Agent, err: err})
	}
	return err
}

// awaitStaleAttempt waits until no agent works on an attempt that is stale, for a limited time: its load would disturb
// the next one.
func (o *runOwnership) awaitStaleAttempt(ctx context.Context, ref wire.Ref) {
	o.agents.awaitThat(ctx, finishLimit, func() bool {
		return !slices.ContainsFunc(o.agents.list(), func(a wire.AgentInfo) bool { return a.Attempt == ref })
	})
}
