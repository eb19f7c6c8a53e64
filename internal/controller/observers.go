package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"lockstep/internal/judge"
	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// Nobody waits longer for an observer: before the load, and at the end for its last samples.
const (
	observerReady = 2 * time.Second
	observerLast  = 3 * time.Second
)

// observer is an agent that measures brokers' processes beside a task. It is no part of it: the task neither fails nor waits for it, but for the
// moments above. What it does not see is said in the outcome.
type observer struct {
	agent   wire.AgentInfo
	fit     []plan.Observation
	at      map[wire.Step]bool
	arrival wire.Arrival
	over    bool // lost, or failed, or not waited for any more
}

// observers finds those of a cell's brokers among the agents that are there, besides those that are taken, which observe on their own. What
// cannot be seen is said, by broker.
func observers(c plan.Cell, taken, there, away []wire.AgentInfo) (all []*observer, lacks []lack) {
	brokers := c.Brokers()
	for _, a := range there {
		fit, unclear := plan.Observe(brokers, a.Observes)
		for _, name := range unclear {
			lacks = append(lacks, lack{name, a.Agent, "the driver's name fits several brokers of the cell: name it after the broker in --observe"})
		}
		if len(fit) > 0 && !slices.ContainsFunc(taken, func(t wire.AgentInfo) bool { return t.Agent == a.Agent }) {
			all = append(all, &observer{agent: a, fit: fit, at: map[wire.Step]bool{}})
		}
	}
	for _, a := range away {
		fit, _ := plan.Observe(brokers, a.Observes)
		for _, x := range fit {
			lacks = append(lacks, lack{x.Broker, a.Agent, "the agent is away"})
		}
	}
	return all, lacks
}

// lack is why an observer does not see a broker.
type lack struct{ broker, agent, why string }

// observe assigns the observers their brokers. They get nothing of the task that they do not need, and no options of brokers.
func (c *conduct) observe(deadline plan.Duration) {
	for _, o := range c.observers {
		t := plan.Task{Run: c.task.Run, ID: c.task.ID, Attempt: c.task.Attempt, Repetition: c.task.Repetition,
			Cell: plan.Cell{ID: c.task.Cell.ID, Workload: plan.Workload{Warmup: c.work.Warmup, Measure: c.work.Measure}}}
		c.command(o.agent, wire.Command{Assignment: &plan.Assignment{Protocol: plan.Protocol, Task: t,
			Agent: o.agent.Agent, Observe: o.fit, Deadline: deadline}})
	}
	for _, l := range c.lacks {
		c.remark(l.agent, judge.EventNotObserved, judge.NotObserved(l.broker, l.agent, l.why))
	}
}

// unobserved records that an observer does not see its brokers from now on.
func (c *conduct) unobserved(o *observer, why string) {
	if o.over {
		return
	}
	o.over = true
	c.log.Warn("not observed", "task", c.task.ID, "observer", o.agent.Agent, "why", why)
	for _, x := range o.fit {
		c.remark(o.agent.Agent, judge.EventNotObserved, judge.NotObserved(x.Broker, o.agent.Agent, why))
	}
}

// sees takes one report of an observer.
func (c *conduct) sees(o *observer, r agentReport) {
	switch {
	case r.err != nil:
		c.unobserved(o, r.err.Error())
	case r.arrival != nil:
		if o.arrival = *r.arrival; r.arrival.Error != "" {
			c.unobserved(o, r.arrival.Error)
		}
		o.at[r.arrival.Step] = true
	}
}

// lookForUnobserved finds observers that have vanished.
func (c *conduct) lookForUnobserved() {
	for _, o := range c.observers {
		if !o.over && !o.at[wire.StepFinish] && !c.agents.lives(o.agent) {
			c.unobserved(o, "the agent was lost")
		}
	}
}

// meetObservers waits a moment until those that are there have arrived at a step. Who is late is gone on without; the
// error is that ctx ended.
func (c *conduct) meetObservers(ctx context.Context, step wire.Step, limit time.Duration) error {
	late := time.NewTimer(limit)
	defer late.Stop()
	waited := func(o *observer) bool { return !o.over && !o.at[step] }
	for {
		changed := c.agents.watch(ctx)
		c.lookForUnobserved()
		if !slices.ContainsFunc(c.observers, waited) {
			return nil
		}
		select {
		case r := <-c.reports:
			c.take(r)
		case <-changed:
		case <-late.C:
			for _, o := range c.observers {
				if waited(o) {
					c.unobserved(o, fmt.Sprintf("no answer of the agent within %v", limit))
				}
			}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// observer is the one of that name, nil if there is none.
func (c *conduct) observer(name string) *observer {
	i := slices.IndexFunc(c.observers, func(o *observer) bool { return o.agent.Agent == name })
	if i < 0 {
		return nil
	}
	return c.observers[i]
}

// watchers are the observers of a task as its record names them.
func (c *conduct) watchers() (all []wire.Observer) {
	for _, o := range c.observers {
		all = append(all, wire.Observer{Agent: o.agent.Agent, Observe: o.fit})
	}
	return all
}
