package controller

import (
	"log/slog"
	"slices"
	"time"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// Limits of the wait for observers: before the load, and at the end for their last samples.
const (
	observerReady = 2 * time.Second
	observerLast  = 3 * time.Second
)

// observers are the agents that measure the processes of a cell's brokers during an attempt. They have no role in it.
// The attempt waits for them only within the limits above, and never fails because of them.
type observers struct {
	parts  []*part
	task   plan.Task
	log    *slog.Logger
	remark func(agent, kind, detail string) // adds an event to the outcome
}

// findObservers finds the observers of the cell's brokers among the agents that have no role in the attempt.
func findObservers(a *attempt, agents *fleet) *observers {
	o := &observers{task: a.task, log: a.log, remark: a.remark}
	brokers := a.task.Cell.Brokers()
	for _, agent := range agents.fit() {
		observe, unclear := plan.Observe(brokers, agent.Observes)
		for _, name := range unclear {
			o.notObserved(name, agent.Agent,
				"the driver name matches several brokers of the cell; use the name of the broker in --observe")
		}
		if len(observe) > 0 && !slices.ContainsFunc(a.parts, func(p *part) bool { return p.Agent == agent.Agent }) {
			o.parts = append(o.parts, &part{AgentPart: plan.AgentPart{Agent: agent.Agent}, agent: agent,
				observe: observe, at: map[wire.Step]bool{}})
		}
	}
	for _, agent := range agents.away() {
		observe, _ := plan.Observe(brokers, agent.Observes)
		for _, x := range observe {
			o.notObserved(x.Broker, agent.Agent, "the agent is not connected")
		}
	}
	return o
}

// notObserved adds an event to the outcome: an observer does not measure a broker.
func (o *observers) notObserved(broker, observer, why string) {
	o.remark(observer, judge.EventNotObserved, judge.NotObserved(broker, observer, why))
}

// assignment returns the assignment of an observer. It has no options of brokers, as these may hold secrets.
func (o *observers) assignment(p *part, deadline plan.Duration) *plan.Assignment {
	work := o.task.Cell.Workload
	t := plan.Task{Run: o.task.Run, ID: o.task.ID, Attempt: o.task.Attempt, Repetition: o.task.Repetition,
		Cell: plan.Cell{ID: o.task.Cell.ID, Workload: plan.Workload{Warmup: work.Warmup, Measure: work.Measure}}}
	return &plan.Assignment{Protocol: plan.Protocol, Task: t, Agent: p.Agent, Observe: p.observe, Deadline: deadline}
}

func (o *observers) take(p *part, r agentReport) {
	switch {
	case r.err != nil:
		o.drop(p, r.err.Error())
	case r.arrival != nil:
		if p.arrival = *r.arrival; r.arrival.Error != "" {
			o.drop(p, r.arrival.Error)
		}
		p.at[r.arrival.Step] = true
	}
}

// drop excludes an observer from the attempt and adds the reason to the outcome.
func (o *observers) drop(p *part, why string) {
	if p.dropped {
		return
	}
	p.dropped = true
	o.log.Warn("broker not observed", "task", o.task.ID, "observer", p.Agent, "why", why)
	for _, x := range p.observe {
		o.notObserved(x.Broker, p.Agent, why)
	}
}

func (o *observers) list() (all []wire.Observer) {
	for _, p := range o.parts {
		all = append(all, wire.Observer{Agent: p.Agent, Observe: p.observe})
	}
	return all
}
