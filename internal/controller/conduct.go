package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	// observers have no part in the task: it neither fails nor waits for one, but for the moments of meetObservers.
	observers []*part
	byName    map[string]*part // both
	reports   chan agentReport
	ended     <-chan struct{} // closed when no report is taken any more
	snapshots *wire.SnapshotStore
	merge     *record.Merged
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

// part is one agent in the task, or an observer of it.
type part struct {
	plan.AgentPart
	agent    wire.AgentInfo
	commands chan wire.Command
	observe  []plan.Observation // of an observer
	at       map[wire.Step]bool // steps it arrived at
	begin    int64              // what it set for the beginning of the measurement, ns since T0
	failed   bool
	apart    bool             // a consumer of its had no link when its last snapshot was taken
	kind     plan.FailureKind // of the failure; empty: none that is told apart
	arrival  wire.Arrival     // the last one
	dropped  bool             // lost, or not answering any more, or an observer that failed: nobody waits for it
	subject  *plan.Subject
}

// failure is why a task is given up.
type failure struct {
	kind  plan.FailureKind // empty: none that is told apart
	words string
}

func (f *failure) Error() string { return f.words }

// newConduct is an attempt with these agents, and with the observers of the cell's brokers among the others that are there.
func newConduct(x *execution, t plan.Task, agents []wire.AgentInfo) *conduct {
	t.Attempt = wire.NewName()
	c := &conduct{execution: x, ref: wire.RefOf(t), task: t, work: t.Cell.Workload, groups: t.Parts(),
		byName: map[string]*part{}, reports: make(chan agentReport, 64), merge: record.NewMerged(), facts: judge.Facts{Cores: map[string]int{}}}
	for i, a := range agents {
		p := &part{agent: a, at: map[wire.Step]bool{}, AgentPart: plan.AgentPart{Agent: a.Agent, Index: i, Host: a.Host, Clock: a.Clock,
			Version: a.Version, Phase: plan.PhasePrepare}}
		c.parts = append(c.parts, p)
		c.byName[a.Agent] = p
		c.facts.Cores[a.Agent] = a.Cores
	}
	c.findObservers()
	return c
}

// conduct leads the agents through the task, and returns what there is to know about it besides their records.
func (c *conduct) conduct(ctx context.Context) judge.Facts {
	err := c.lead(ctx)
	rest := wire.WithProgress(c.lease.Context(), func(d time.Duration) { wire.Progress(ctx, d) }) // the end is not cut short by anything else
	if rest.Err() != nil {
		return c.facts // the next leader decides
	}
	reason := ""
	switch {
	case err == nil:
	case ctx.Err() != nil:
		c.facts.Cancelled = true
		reason = context.Cause(ctx).Error()
	default:
		reason = err.Error()
		c.facts.Failure = reason
		var f *failure
		if errors.As(err, &f) { // or the control plane does not answer the controller
			c.facts.Kind = f.kind
		}
	}
	c.finish(rest, reason)
	c.teardown(rest)
	c.dismiss(rest)
	for _, p := range c.parts {
		c.facts.Agents = append(c.facts.Agents, p.AgentPart)
		if p.Lost && !c.facts.Cancelled {
			c.facts.Kind = cmp.Or(c.facts.Kind, plan.FailedAgentLost) // whenever that was
		}
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
	start, ahead, err := c.start(ctx)
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
	for _, p := range slices.Backward(c.parts) { // the first is the last to be set
		if p.subject == nil {
			continue
		}
		s := *p.subject
		s.Fingerprint = plan.Fingerprint(s)
		c.facts.Subject = s
		if c.work.Contends() {
			if c.facts.Subjects == nil {
				c.facts.Subjects = map[string]plan.Subject{}
			}
			c.facts.Subjects[p.Group] = s
		}
	}
}

// assign sends every agent its part.
func (c *conduct) assign() error {
	agents := make([]wire.AgentInfo, len(c.parts))
	for i, p := range c.parts {
		agents[i] = p.agent
	}
	_, targets, _ := disturbers(c.work, agents, agents)
	var longest plan.Duration
	assignments := plan.Assign(c.task, names(agents))
	if err := c.oneProcess(assignments); err != nil {
		for _, p := range c.parts {
			p.dropped = true
		}
		return err
	}
	for i, a := range assignments {
		longest = max(longest, a.Deadline)
		c.parts[i].Group, a.Targets = a.Task.Group, targets[a.Agent]
		c.command(c.parts[i], wire.Command{Assignment: &a})
	}
	c.assignObservers(longest)
	return nil
}

// oneProcess refuses a broker that lives in the memory of a process, where its agents are of several: each would have one of its own, and receive nothing.
func (c *conduct) oneProcess(assignments []plan.Assignment) error {
	first := map[string]wire.AgentInfo{} // by group
	for i, a := range assignments {
		agent, broker := c.parts[i].agent, a.Task.Cell.Broker
		one, met := first[a.Task.Group]
		if !met {
			first[a.Task.Group] = agent
			continue
		}
		if a.Task.Cell.InProcess && agent.Memory != "" && one.Memory != "" && agent.Memory != one.Memory {
			return &failure{words: fmt.Sprintf("broker %s lives in the process of an agent, and %s and %s are two processes that each have one: "+
				"name a server in its options, give an agent enough slots (agent --slots), or run the matrix without --server", broker.Name, one.Agent, agent.Agent)}
		}
	}
	return nil
}

// step releases the agents and waits until all have arrived.
func (c *conduct) step(ctx context.Context, r wire.Release, limit time.Duration) error {
	c.release(r)
	return c.await(ctx, r.Step, limit)
}

// release sends the agents on, and the observers, or the one that the release names.
func (c *conduct) release(r wire.Release) {
	to := c.parts
	if r.Step == wire.StepStart || r.Step == wire.StepFinish {
		to = slices.Concat(c.parts, c.observers)
	}
	for _, p := range to {
		if r.Agent == "" && !p.dropped || r.Agent == p.Agent {
			c.command(p, wire.Command{Release: &r})
		}
	}
}

// await waits until every agent has arrived at a step. The first that fails, is lost or is late ends it.
func (c *conduct) await(ctx context.Context, step wire.Step, limit time.Duration) error {
	remaining := c.within(limit)
	return c.wait(ctx, func() (time.Duration, error) {
		waiting := waitingFor(c.parts, step)
		if err := c.trouble(); err != nil || waiting == nil {
			return 0, err
		}
		left := remaining()
		if left <= 0 {
			return 0, &failure{plan.FailedTimeout, fmt.Sprintf("%s on agent %s: no answer within %v", verb(step), waiting.Agent, limit)}
		}
		return left, nil
	})
}

// settle waits like await, but continues without agents that are lost or late: at the end of a task nobody may hold up the others.
func (c *conduct) settle(ctx context.Context, parts []*part, step wire.Step, limit time.Duration) {
	remaining := c.within(limit)
	_ = c.wait(ctx, func() (time.Duration, error) { // who leads no more leaves the rest to the next
		p := waitingFor(parts, step)
		if p == nil {
			return 0, nil
		}
		left := remaining()
		for ; left <= 0 && p != nil; p = waitingFor(parts, step) {
			p.dropped = true
			if p.Error == "" {
				p.Error = fmt.Sprintf("%s: no answer within %v", verb(step), limit)
			}
			c.remark(p.Agent, "error", p.Error)
			c.agents.blame(p.agent, c.task.ID)
		}
		return left, nil
	})
}

// wait takes reports and looks for lost agents, for as long as left says: see fleet.await.
func (c *conduct) wait(ctx context.Context, left func() (time.Duration, error)) error {
	return c.agents.await(ctx, c.reports, c.take, func() (time.Duration, error) {
		c.lookForLost(ctx)
		return left()
	})
}

// within returns what is left of a limit. It does not run while the lease has lapsed: nothing is heard of the agents then. It
// does run if the attempt was cancelled.
func (c *conduct) within(limit time.Duration) (remaining func() time.Duration) {
	began, lapsed := time.Now(), c.lease.Lapsed()
	return func() time.Duration {
		left := limit - time.Since(began)
		if !c.facts.Cancelled {
			left += c.lease.Lapsed() - lapsed
		}
		return left
	}
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

// waitingFor returns the first of these agents that is waited for at a step; nil: all have arrived.
func waitingFor(parts []*part, step wire.Step) *part {
	i := slices.IndexFunc(parts, func(p *part) bool { return !p.dropped && !p.at[step] })
	if i < 0 {
		return nil
	}
	return parts[i]
}

// take takes one report of an agent. One that it panics at fails the task.
func (c *conduct) take(r agentReport) {
	err := wire.Guard(c.log, "report of agent "+r.agent, func() error { c.handle(r); return nil })
	if p := c.byName[r.agent]; err != nil {
		p.failed, p.Error = true, err.Error()
	}
}

func (c *conduct) handle(r agentReport) {
	p := c.byName[r.agent]
	c.agents.alive(p.agent)
	switch {
	case p.observe != nil:
		c.sees(p, r)
	case r.err != nil:
		p.failed, p.Error = true, r.err.Error()
		if !p.at[wire.StepOpen] {
			p.kind = plan.FailedConnect
		}
		c.log.Error("refused", "task", c.task.ID, "agent", r.agent, "err", r.err)
	case r.snapshot != nil:
		c.hear(p, r.snapshot)
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
	case wire.StepOpen, wire.StepConsumers, wire.StepPublishers:
		p.failed, p.kind = true, plan.FailedConnect
	default:
		p.failed, p.kind = true, plan.FailedRun
	}
}

// lookForLost finds agents and observers that have vanished.
func (c *conduct) lookForLost(ctx context.Context) {
	for _, o := range c.observers {
		if lives, _, _ := c.agents.process(o.agent); !lives && !o.at[wire.StepFinish] {
			c.unobserved(o, "the agent was lost")
		}
	}
	for _, p := range c.parts {
		if p.dropped {
			continue
		}
		lives, left, silence := c.agents.process(p.agent)
		if lives {
			continue
		}
		p.dropped, p.Left = true, left
		if p.Left && p.at[wire.StepFinish] {
			c.remark(p.Agent, "notice", "it left when it had handed in its part")
			continue
		}
		p.Lost = true
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
	now := clock.Now() - c.origin - silence.Nanoseconds() // since the measurement began
	switch {
	case c.origin == 0 || p.at[wire.StepFinish] || p.at[wire.StepDrain]:
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

// finish has all agents close and hand over what they have. An empty reason is the regular end.
func (c *conduct) finish(ctx context.Context, reason string) {
	c.release(wire.Release{Step: wire.StepFinish, Reason: reason})
	c.settle(ctx, c.parts, wire.StepFinish, finishLimit+c.work.LongestUndo())
	c.facts.Ended = time.Now()
	_ = c.meetObservers(ctx, wire.StepFinish, observerLast) // see settle
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
		c.settle(ctx, []*part{p}, wire.StepTeardown, c.work.Connect.D()+stepMargin)
		if p.at[wire.StepTeardown] {
			return true
		}
	}
	return false
}

// dismiss ends the task for the agents.
func (c *conduct) dismiss(ctx context.Context) {
	c.release(wire.Release{Step: wire.StepDone})
	c.settle(ctx, c.parts, wire.StepDone, doneLimit)
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
