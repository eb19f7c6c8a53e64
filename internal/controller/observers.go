package controller

import (
	"context"
	"fmt"
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

// findObservers finds the observers of the cell's brokers among the agents that are there, besides those that have a part.
func (c *conduct) findObservers() {
	brokers := c.task.Cell.Brokers()
	for _, a := range c.agents.fit() {
		observe, unclear := plan.Observe(brokers, a.Observes)
		for _, name := range unclear {
			c.notObserved(name, a.Agent, "the driver's name fits several brokers of the cell: name it after the broker in --observe")
		}
		if len(observe) > 0 && c.byName[a.Agent] == nil {
			o := &part{AgentPart: plan.AgentPart{Agent: a.Agent}, agent: a, observe: observe, at: map[wire.Step]bool{}}
			c.observers = append(c.observers, o)
			c.byName[a.Agent] = o
		}
	}
	for _, a := range c.agents.away() {
		observe, _ := plan.Observe(brokers, a.Observes)
		for _, x := range observe {
			c.notObserved(x.Broker, a.Agent, "the agent is away")
		}
	}
}

// notObserved has the outcome say that an observer does not see a broker.
func (c *conduct) notObserved(broker, observer, why string) {
	c.remark(observer, judge.EventNotObserved, judge.NotObserved(broker, observer, why))
}

// assignObservers assigns the observers their brokers. They get nothing of the task that they do not need, and no options of brokers.
func (c *conduct) assignObservers(deadline plan.Duration) {
	t := plan.Task{Run: c.task.Run, ID: c.task.ID, Attempt: c.task.Attempt, Repetition: c.task.Repetition,
		Cell: plan.Cell{ID: c.task.Cell.ID, Workload: plan.Workload{Warmup: c.work.Warmup, Measure: c.work.Measure}}}
	for _, o := range c.observers {
		c.command(o, wire.Command{Assignment: &plan.Assignment{Protocol: plan.Protocol, Task: t,
			Agent: o.Agent, Observe: o.observe, Deadline: deadline}})
	}
}

// unobserved notes that an observer does not see its brokers from now on.
func (c *conduct) unobserved(o *part, why string) {
	if o.dropped {
		return
	}
	o.dropped = true
	c.log.Warn("not observed", "task", c.task.ID, "observer", o.Agent, "why", why)
	for _, x := range o.observe {
		c.notObserved(x.Broker, o.Agent, why)
	}
}

// sees takes one report of an observer.
func (c *conduct) sees(o *part, r agentReport) {
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

// meetObservers waits a moment until those that are there have arrived at a step. Who is late is gone on without; the
// error is that ctx ended.
func (c *conduct) meetObservers(ctx context.Context, step wire.Step, limit time.Duration) error {
	began := time.Now()
	return c.wait(ctx, func() (time.Duration, error) {
		left := limit - time.Since(began)
		o := waitingFor(c.observers, step)
		for ; left <= 0 && o != nil; o = waitingFor(c.observers, step) {
			c.unobserved(o, fmt.Sprintf("no answer of the agent within %v", limit))
		}
		if o == nil {
			return 0, nil
		}
		return left, nil
	})
}

// watchers are the observers of a task as its record names them.
func (c *conduct) watchers() (all []wire.Observer) {
	for _, o := range c.observers {
		all = append(all, wire.Observer{Agent: o.Agent, Observe: o.observe})
	}
	return all
}
