package controller

import (
	"context"
	"fmt"
	"time"

	"lockstep/internal/wire"
)

// settle waits like await, but continues without agents that are lost or late: at the end of a task nobody may hold up the others.
func (c *conduct) settle(ctx context.Context, step wire.Step, limit time.Duration, waiting func() *part) {
	late := c.within(limit)
	defer late.timer.Stop()
	for {
		changed := c.agents.watch(ctx)
		c.lookForLost(ctx)
		if waiting() == nil {
			return
		}
		select {
		case r := <-c.reports:
			c.take(r)
		case <-changed:
		case <-late.timer.C:
			if !late.over() {
				continue
			}
			for p := waiting(); p != nil; p = waiting() {
				p.dropped = true
				if p.Error == "" {
					p.Error = fmt.Sprintf("%s: no answer within %v", verb(step), limit)
				}
				c.remark(p.Agent, "error", p.Error)
				c.agents.blame(p.agent, c.task.ID)
			}
			return
		case <-ctx.Done():
			return
		}
	}
}

// finish has all agents close and hand over what they have. An empty reason is the regular end.
func (c *conduct) finish(ctx context.Context, reason string) {
	c.release(wire.Release{Step: wire.StepFinish, Reason: reason})
	c.settle(ctx, wire.StepFinish, finishLimit+c.work.LongestUndo(), func() *part { return c.waitingFor(wire.StepFinish) })
	c.facts.Ended = time.Now()
	_ = c.meetObservers(ctx, wire.StepFinish, observerLast) // who leads no more leaves the rest to the next
}

// teardown has one agent of each group remove its topology: agent 0, or the first that is left.
func (c *conduct) teardown(ctx context.Context) {
	for _, g := range c.groups {
		if !c.tornDown(ctx, g.Group) {
			c.remark("", "error", "no agent was left to tear down: what the task declared at the broker may still be there, named "+g.Topic())
		}
	}
}

func (c *conduct) tornDown(ctx context.Context, group string) bool {
	for _, p := range c.parts {
		if p.Group != group || p.dropped || !p.at[wire.StepFinish] {
			continue
		}
		c.release(wire.Release{Step: wire.StepTeardown, Agent: p.Agent})
		c.settle(ctx, wire.StepTeardown, c.work.Connect.D()+stepMargin, func() *part {
			if p.dropped || p.at[wire.StepTeardown] {
				return nil
			}
			return p
		})
		if p.at[wire.StepTeardown] {
			return true
		}
	}
	return false
}

// dismiss ends the task for the agents.
func (c *conduct) dismiss(ctx context.Context) {
	c.release(wire.Release{Step: wire.StepDone})
	c.settle(ctx, wire.StepDone, doneLimit, func() *part { return c.waitingFor(wire.StepDone) })
}

// verb says in words what agents do on the way to a step.
func verb(s wire.Step) string {
	switch s {
	case wire.StepOpen:
		return "open session"
	case wire.StepConsumers:
		return "connect consumers"
	case wire.StepPublishers:
		return "connect publishers"
	case wire.StepStart:
		return "run"
	case wire.StepTeardown:
		return "tear down"
	}
	return string(s)
}
