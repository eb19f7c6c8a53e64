package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire"
)

// attempt returns the attempt of that name; nil if this leadership does not lead it, or the agent neither has a part in it nor
// observes it.
func (l *leader) attempt(ref wire.Ref, agent string) *conduct {
	if c, led := l.attempts.Load(ref); led && c.(*conduct).byName[agent] != nil {
		return c.(*conduct)
	}
	return nil
}

// heartbeat takes a heartbeat, and reports whether the attempt that the agent works on is over: its controller died, or its
// run was ended while the agent was cut off.
func (l *leader) heartbeat(h wire.Heartbeat) (over bool, refuse error) {
	if why := l.agents.heard(h); why != "" {
		return false, errors.New(why)
	}
	return h.Try != (wire.Ref{}) && l.attempt(h.Try, h.Agent) == nil, nil
}

// arrive hands an arrival to its attempt.
func (l *leader) arrive(ctx context.Context, a wire.Arrival) error {
	c := l.attempt(a.Ref, a.Agent)
	if c == nil {
		return wire.ErrNoAttempt
	}
	return c.hand(ctx, agentReport{agent: a.Agent, arrival: &a})
}

// snapshot stores a snapshot, unless its agent or its attempt cannot have it. One that they cannot have fails the agent's
// part: something is missing from it.
func (l *leader) snapshot(ctx context.Context, ref wire.Ref, s record.Snapshot) error {
	c := l.attempt(ref, s.Agent)
	if c == nil {
		return wire.ErrNoAttempt
	}
	if err := s.CheckTimes(plan.RecordLimit(c.task)); err != nil {
		_ = c.hand(ctx, agentReport{agent: s.Agent, err: err}) // the attempt is over otherwise
		return err
	}
	err := c.snapshots.Store(ctx, s)
	if errors.Is(err, wire.ErrSnapshots) || errors.Is(err, wire.ErrFull) {
		_ = c.hand(ctx, agentReport{agent: s.Agent, err: err})
	}
	return err
}

// Limits of the bytes that an agent may have stored in one attempt: ten times what agents with the most connections need.
const (
	snapshotBytes       = 64 << 20
	snapshotBytesSecond = 256 << 10 // of the time that the attempt may take
)

// open makes an attempt known to its agents' requests until closed is called. What it commands is sent meanwhile.
func (c *conduct) open() (closed func()) {
	ctx, cancel := context.WithCancel(c.lease.Context())
	c.ended = ctx.Done()
	limit := snapshotBytes + int(plan.RecordLimit(c.task).Seconds()*snapshotBytesSecond)
	c.snapshots = c.record.Snapshots(ctx, c.ref, limit, func(s record.Snapshot) {
		// What is stored counts, also if the attempt takes no report any more.
		r := agentReport{agent: s.Agent, snapshot: &s}
		r.err = wire.Guard(c.log, "snapshot of agent "+s.Agent, func() error { c.merge.Add(s); return nil })
		_ = c.hand(ctx, r)
	})
	var sending sync.WaitGroup
	for _, p := range c.byName {
		p.commands = make(chan wire.Command, maxCommands)
		sending.Go(func() { c.send(ctx, p) })
	}
	c.attempts.Store(c.ref, c)
	return func() {
		c.attempts.Delete(c.ref)
		cancel()
		sending.Wait()
		c.snapshots.Wait()
	}
}

// maxCommands is more than an agent is sent in an attempt: an assignment, and a release to each step.
const maxCommands = 16

// send sends commands to one agent, in order, each until the agent has it. An agent that refuses one fails.
func (c *conduct) send(ctx context.Context, p *part) {
	for {
		select {
		case command := <-p.commands:
			err := c.lease.Command(ctx, p.agent.Agent, command)
			if err != nil && ctx.Err() == nil {
				_ = c.hand(ctx, agentReport{agent: p.agent.Agent, err: fmt.Errorf("agent %s refused: %w", p.agent.Agent, err)})
			}
		case <-ctx.Done():
			return
		}
	}
}

// command has a command sent to an agent's process.
func (c *conduct) command(p *part, command wire.Command) {
	command.Instance, command.Ref = p.agent.Instance, c.ref
	p.commands <- command
}

// agentReport is what an agent reported: exactly one field besides its name is set.
type agentReport struct {
	agent    string
	arrival  *wire.Arrival
	snapshot *record.Snapshot // stored
	err      error            // it reported what it cannot have, or refused a command
}

// hand gives the attempt a report. It returns when the attempt has it.
func (c *conduct) hand(ctx context.Context, r agentReport) error {
	select {
	case c.reports <- r:
		return nil
	case <-c.ended:
		return wire.ErrNoAttempt
	case <-ctx.Done():
		return fmt.Errorf("take report: %w: %w", wire.ErrNotStored, context.Cause(ctx))
	}
}
