package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/judge"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire"
)

// Margins beyond what the agents allow themselves for a step, so that their own words come first.
const (
	stepMargin  = 8 * time.Second
	finishLimit = 38 * time.Second // to leave a stuck driver, close everything and hand over the rest
	doneLimit   = 15 * time.Second
)

// conduct is one try of a task: the controller's side of its life.
type conduct struct {
	*execution
	ref    wire.Ref
	task   plan.Task
	work   plan.Workload
	groups []plan.Task // of the cell; one that is the whole task, if it has none
	parts  []*part
	byName map[string]*part
	// observers are no parts; lacks is what no observer sees.
	observers []*observer
	lacks     []lack
	reports   chan agentReport
	ended     <-chan struct{} // closed when no report is taken any more
	commands  map[string]chan wire.Command
	snapshots *wire.SnapshotStore
	merge     *record.Merge
	facts     judge.Facts
	zero      int64 // the controller's clock.Now() at T0, when the measurement or, with warmup "auto", the load begins; 0: not agreed yet
	origin    int64 // the same when the measurement begins: zero, as long as that is to be found out

	measuring bool // it is known when the measurement begins

	// The controller's clock.Now() of the last that is known of; 0: nothing is.
	moved     int64 // of a message sent or received
	confirmed int64
	// redelivered is until when messages that were delivered and not acknowledged may come again; 0: none may.
	redelivered int64
}

// part is one agent in the task.
type part struct {
	plan.AgentPart
	agent   wire.AgentInfo
	at      map[wire.Step]bool // steps it arrived at
	begin   int64              // what it set for the beginning of the measurement, ns since T0
	failed  bool
	apart   bool             // a consumer of its had no link when its last snapshot was taken
	kind    plan.FailureKind // of the failure; empty: none that is told apart
	arrival wire.Arrival     // the last one
	dropped bool             // lost, or not answering any more: nobody waits for it
	subject *plan.Subject
}

// failure is why a task is given up.
type failure struct {
	kind  plan.FailureKind // empty: none that is told apart
	words string
}

func (f *failure) Error() string { return f.words }

func newConduct(x *execution, t plan.Task, try string, agents []wire.AgentInfo) *conduct {
	t.Attempt = try
	c := &conduct{execution: x, ref: wire.RefOf(t), task: t, work: t.Cell.Workload, groups: t.Parts(),
		byName: map[string]*part{}, reports: make(chan agentReport, 64), merge: record.NewMerge()}
	for i, a := range agents {
		p := &part{agent: a, at: map[wire.Step]bool{}, AgentPart: plan.AgentPart{Agent: a.Agent, Index: i, Host: a.Host, Clock: a.Clock,
			Version: a.Version, Phase: plan.PhasePrepare}}
		c.parts = append(c.parts, p)
		c.byName[a.Agent] = p
	}
	return c
}

// conduct leads the agents through the task, and returns what there is to know about it besides their records.
func (c *conduct) conduct(ctx context.Context) judge.Facts {
	c.facts.Cores = map[string]int{}
	for _, p := range c.parts {
		c.facts.Cores[p.agent.Agent] = p.agent.Cores
	}
	err := c.lead(ctx)
	rest := wire.WithProgress(c.lease.Context(), func(d time.Duration) { wire.Progress(ctx, d) }) // the end is not cut short by anything else
	if rest.Err() != nil {
		return c.facts // the next leader decides
	}
	reason := ""
	var f *failure
	switch {
	case err == nil:
	case ctx.Err() != nil:
		c.facts.Cancelled = true
		reason = context.Cause(ctx).Error()
	case errors.As(err, &f):
		c.facts.Failure, c.facts.Kind, reason = f.words, f.kind, f.words
	default: // the control plane does not take the controller's messages
		c.facts.Failure = err.Error()
		reason = c.facts.Failure
	}
	c.finish(rest, reason)
	c.teardown(rest)
	c.dismiss(rest)
	for _, p := range c.parts {
		c.facts.Agents = append(c.facts.Agents, p.AgentPart)
	}
	if !c.facts.Cancelled {
		c.facts.Kind = cmp.Or(c.facts.Kind, c.lostAny())
	}
	return c.facts
}

// lead goes from assignment to the end of the drain.
func (c *conduct) lead(ctx context.Context) error {
	if err := c.assign(); err != nil {
		return err
	}
	connect := c.work.Connect.D()
	if err := c.await(ctx, wire.StepOpen, 2*connect+stepMargin); err != nil {
		return err
	}
	if err := c.meetObservers(ctx, wire.StepOpen, observerReady); err != nil {
		return err
	}
	c.learn()
	for _, step := range []wire.Step{wire.StepConsumers, wire.StepPublishers} {
		if err := c.step(ctx, wire.Release{Step: step}, connect+stepMargin); err != nil {
			return err
		}
	}
	start, ahead, err := c.start()
	if err != nil {
		return err
	}
	c.release(start)
	if c.work.Steady.Auto {
		if err := c.warmUp(ctx); err != nil {
			return err
		}
	}
	limit := ahead + c.work.LongestWarmup() + c.work.Measure.D() + c.work.Drain.Most.D() + stepMargin
	if err := c.await(ctx, wire.StepStart, limit); err != nil {
		return err
	}
	if !c.consumes() {
		return nil
	}
	return c.drain(ctx)
}

// learn takes what agent 0, of the first group, found out about the broker; of contenders, what that of each did.
func (c *conduct) learn() {
	first := true
	for _, p := range c.parts {
		if p.subject == nil {
			continue
		}
		s := *p.subject
		s.Fingerprint = plan.Fingerprint(s)
		if first {
			c.facts.Subject, first = s, false
		}
		if c.work.Contends() {
			if c.facts.Subjects == nil {
				c.facts.Subjects = map[string]plan.Subject{}
			}
			c.facts.Subjects[p.Group] = s
		}
	}
}

// step releases the agents and waits until all have arrived.
func (c *conduct) step(ctx context.Context, r wire.Release, limit time.Duration) error {
	c.release(r)
	return c.await(ctx, r.Step, limit)
}

// release sends the agents on, and the observers, or the one that the release names.
func (c *conduct) release(r wire.Release) {
	for _, p := range c.parts {
		if r.Agent == "" && !p.dropped || r.Agent == p.Agent {
			c.command(p.agent, wire.Command{Release: &r})
		}
	}
	for _, o := range c.observers {
		if r.Agent == "" && !o.over && (r.Step == wire.StepStart || r.Step == wire.StepFinish) {
			c.command(o.agent, wire.Command{Release: &r})
		}
	}
}

// await waits until every agent has arrived at a step. The first that fails, is lost or is late ends it.
func (c *conduct) await(ctx context.Context, step wire.Step, limit time.Duration) error {
	late := c.within(limit)
	defer late.timer.Stop()
	for {
		changed := c.agents.watch(ctx)
		c.lookForLost(ctx)
		if err := c.trouble(); err != nil {
			return err
		}
		waiting := c.waitingFor(step)
		if waiting == nil {
			return nil
		}
		select {
		case r := <-c.reports:
			c.take(r)
		case <-changed:
		case <-late.timer.C:
			if !late.over() {
				continue
			}
			return &failure{plan.FailedTimeout, fmt.Sprintf("%s on agent %s: no answer within %v", verb(step), waiting.Agent, limit)}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// patience is a time limit that does not run while the lease has lapsed: nothing is heard of the agents then. It does run
// if the attempt was cancelled.
type patience struct {
	timer  *time.Timer
	lease  *wire.Lease
	lapsed time.Duration // of the lease, when the timer was set
	hasty  bool
}

func (c *conduct) within(limit time.Duration) *patience {
	return &patience{time.NewTimer(limit), c.lease, c.lease.Lapsed(), c.facts.Cancelled}
}

// over reports, when the timer has fired, whether the limit is over. Otherwise it sets the timer again.
func (p *patience) over() bool {
	more := p.lease.Lapsed() - p.lapsed
	if p.hasty || more <= 0 {
		return true
	}
	p.lapsed += more
	p.timer.Reset(more)
	return false
}

// trouble is the first failure of an agent.
func (c *conduct) trouble() error {
	for _, p := range c.parts {
		if p.Lost {
			how := "was lost"
			if p.Left {
				how = "left"
			}
			return &failure{plan.FailedAgentLost, fmt.Sprintf("agent %s %s in %s", p.Agent, how, p.Phase)}
		}
	}
	for _, p := range c.parts {
		if p.failed {
			return &failure{p.kind, p.Error}
		}
	}
	return nil
}

func (c *conduct) waitingFor(step wire.Step) *part {
	for _, p := range c.parts {
		if !p.dropped && !p.at[step] {
			return p
		}
	}
	return nil
}

// take takes one report of an agent. One that it panics at fails the task.
func (c *conduct) take(r agentReport) {
	err := wire.Guard(c.log, "report of agent "+r.agent, func() error { c.handle(r); return nil })
	if p := c.byName[r.agent]; err != nil && p != nil {
		p.failed, p.Error = true, err.Error()
	}
}

func (c *conduct) handle(r agentReport) {
	p := c.byName[r.agent]
	if p == nil {
		o := c.observer(r.agent)
		c.agents.alive(o.agent)
		c.sees(o, r)
		return
	}
	c.agents.alive(p.agent)
	switch {
	case r.err != nil:
		p.failed, p.Error = true, r.err.Error()
		if !p.at[wire.StepOpen] {
			p.kind = plan.FailedConnect
		}
		c.log.Error("refused", "task", c.task.ID, "agent", r.agent, "err", r.err)
	case r.snapshot != nil:
		c.hear(r.snapshot)
	case r.arrival != nil:
		c.arrived(p, *r.arrival)
	}
}

func (c *conduct) arrived(p *part, a wire.Arrival) {
	if a.Step == p.arrival.Step && a.Now == p.arrival.Now {
		return // sent again, as the answer was lost
	}
	if a.Error != "" && p.at[a.Step] {
		return // the first of a step counts
	}
	p.arrival = a
	if a.Subject != nil {
		p.subject = a.Subject
	}
	if a.Phase != "" {
		p.Phase = a.Phase
	}
	if a.Step == wire.StepMeasure {
		p.begin = a.Begin
	}
	if a.Step == wire.StepStart {
		p.Skew = a.Skew
	}
	if a.Error == "" {
		p.at[a.Step] = true
		return
	}
	if p.Error == "" || !p.failed {
		c.log.Warn("agent failed", "task", c.task.ID, "agent", p.Agent, "step", a.Step, "err", a.Error)
	}
	p.Error = cmp.Or(p.Error, a.Error)
	switch a.Step {
	case wire.StepFinish, wire.StepTeardown, wire.StepDone: // the measurement is over by then: a remark, not a failure
		p.at[a.Step] = true
		c.remark(p.Agent, "error", a.Error)
	default:
		p.failed, p.kind = true, stepKind(a.Step)
	}
}

// lookForLost finds agents that have vanished.
func (c *conduct) lookForLost(ctx context.Context) {
	c.lookForUnobserved()
	for _, p := range c.parts {
		if p.dropped || c.agents.lives(p.agent) {
			continue
		}
		p.dropped, p.Left = true, c.agents.left(p.agent)
		if p.Left && p.at[wire.StepFinish] {
			c.remark(p.Agent, "notice", "it left when it had handed in its part")
			continue
		}
		p.Lost = true
		silence := c.agents.silence(p.agent)
		p.Phase = c.phase(p, silence)
		where := "in " + string(p.Phase)
		if p.Left {
			where += ": it left"
		}
		c.remark(p.Agent, string(wire.AgentLost), where)
		e := wire.RunEvent{At: time.Now(), Kind: wire.AgentLost, Task: c.task.ID, Try: c.ref.Try, Detail: "agent " + p.Agent + " " + where, Silence: plan.Duration(silence)}
		said, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		if err := c.record.Event(said, e); err != nil {
			c.log.Error("record event", "err", err)
		}
		cancel()
	}
}

// phase is where an agent was, that cannot say so itself, when the last was heard of it.
func (c *conduct) phase(p *part, silence time.Duration) plan.Phase {
	now, agreed := c.now()
	now -= silence.Nanoseconds()
	switch {
	case !agreed || p.at[wire.StepFinish] || p.at[wire.StepDrain]:
		return p.Phase
	case now < -c.work.Warmup.D().Nanoseconds():
		return plan.PhaseReady
	case now < 0 || !c.measuring:
		return plan.PhaseWarmup
	case now < c.work.Measure.D().Nanoseconds() && !p.at[wire.StepStart]:
		return plan.PhaseMeasure
	}
	return plan.PhaseDrain
}

// remark adds an event of the controller's own, at a time since T0.
func (c *conduct) remark(agent, kind, detail string) {
	at := plan.Duration(0)
	if c.zero != 0 {
		at = plan.Duration(clock.Now() - c.zero)
	}
	c.facts.Events = append(c.facts.Events, plan.Event{At: at, Agent: agent, Kind: kind, Detail: detail})
}
