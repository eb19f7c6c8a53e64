package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
)

// This file is the life of a task, in the order of execution:
//
//	task      measures the task and stores its outcome; a search (capacity.go) measures each of its steps
//	measure   makes attempts until one counts
//	attempt   waits for agents, assigns roles to them, stores the start, and judges at the end
//	run       executes, and always closes and tears down
//	execute   sessions, topology, consumers, publishers, start time, warm-up, measurement, drain
//
// The steps follow in this order. The functions that wait for agents and handle reports are at the end of the file.

// Limits of the wait for observers: before the load, and at the end for their last samples.
const (
	observerReady = 10 * time.Second
	observerLast  = 10 * time.Second
)

// Margins beyond the agents' own timeouts of a step, so that the agents' errors arrive first.
const (
	stepMargin  = 8 * time.Second
	finishLimit = 38 * time.Second // to leave a stuck driver, close everything and report the rest
	doneLimit   = 15 * time.Second
)

// attempt is the controller's side of one attempt of a task, for one goroutine. Each of its many methods is a step.
type attempt struct {
	lease  *wire.Leader
	agents *fleet
	record *wire.Recorder
	log    *slog.Logger
	rtt    func(context.Context) (time.Duration, error) // to the control plane

	task   plan.Task
	work   plan.Workload
	groups []plan.Task // the groups of the cell; without groups, the whole task
	parts  []*part
	// observers measure the processes of the cell's brokers and have no role. The attempt never fails because of them.
	observers []*part
	byName    map[string]*part // parts and observers
	mailbox   *mailbox
	merged    *record.Merged
	traffic   traffic
	facts     judge.Facts

	// zero is clock.Now() at T0: the start of the measurement or, with warmup "auto", of the load. 0: not agreed yet.
	zero      int64
	origin    int64 // the same for the start of the measurement; zero until it is known
	measuring bool  // the start of the measurement is known
}

type part struct {
	summary plan.AgentPart // for the outcome, unless it is an observer
	agent   wire.AgentInfo
	observe []plan.Observation // of an observer; nil for agents
	at      map[wire.Step]bool // steps that it has reached
	begin   int64              // the start of the measurement that it has set, ns since T0
	failed  bool
	apart   bool             // a consumer had no link when the last snapshot was made
	latest  int64            // time of the last message by the agent's clock, ns since T0
	quiet   int              // last snapshots, one per second, without a message after the one before
	kind    plan.FailureKind // of the failure; empty: unknown
	arrival wire.Arrival     // the last one
	dropped bool             // not waited for: it was lost, does not answer, or is a failed observer
	subject *plan.Subject
}

type failure struct {
	kind plan.FailureKind // empty: unknown
	text string
}

func (f *failure) Error() string { return f.text }

// result is the result of an attempt that has ended or could not begin.
type result struct {
	attempt string // name; empty: too few agents, see failure
	task    plan.Task
	failure string // empty: none
	outcome plan.Outcome
}

// task runs one task. An error ends the run.
func (x *execution) task(ctx context.Context, t plan.Task, n int) error {
	if t.Cell.Workload.Search != nil {
		return x.search(ctx, t, n)
	}
	r, retries, err := x.measure(ctx, t, n, "", x.retries[t.ID])
	if err != nil {
		return err
	}
	return x.outcome(ctx, withRetries(r.outcome, retries))
}

// measure repeats a task, or a step of its search, until an attempt counts. The cell's policy (plan.Cell.Retry) names
// the failures that are repeated. A failed attempt is stored in the record with its outcome. After the run's settle
// time the next attempt begins with the agents that live then.
//
// It returns the result that counts, and retries with the failed attempts. detail: of the step. An error ends the run.
//
// An attempt that broke a guarantee always counts, as that is a result of the broker.
func (x *execution) measure(ctx context.Context, t plan.Task, n int, detail string,
	retries []plan.FailedAttempt) (result, []plan.FailedAttempt, error) {
	for {
		r, err := x.attempt(ctx, t, n, detail)
		if err != nil {
			return r, retries, err
		}
		kind, why := failureOf(r.outcome, r.failure)
		if kind == "" || !t.Cell.Retry.Again(kind, retries) {
			return r, retries, nil
		}
		o := withRetries(r.outcome, retries)
		failed := plan.FailedAttempt{Name: r.attempt, Kind: kind, Reason: why}
		retries = append(slices.Clone(retries), failed)
		x.log.Warn("retrying task", "task", t.ID, "attempt", len(retries), "why", failed.String())
		x.nothingInFlight(ctx)
		e := wire.RunEvent{Kind: wire.AttemptEnded, Task: o.Task, Attempt: failed.Name, N: n, Detail: failed.String(),
			FailedAttempt: &failed, Outcome: &o}
		if err := x.event(ctx, e); err != nil {
			return result{}, retries, err
		}
		if err := wire.Wait(x.between, x.run.Settle.D()); err != nil {
			return result{}, retries, err
		}
	}
}

// attempt executes a task once and judges the record. An error ends the run.
func (x *execution) attempt(ctx context.Context, t plan.Task, n int, detail string) (result, error) {
	agents, short, err := x.awaitAgents(x.between, t, n)
	if err != nil {
		return result{}, err
	}
	if short != "" {
		return result{task: t, failure: short, outcome: outcomeWithout(t, "", short)}, nil
	}
	a := newAttempt(x, t, agents)
	event := wire.RunEvent{Kind: wire.TaskStarted, Task: t.ID, Attempt: a.task.Attempt, N: n, Agents: names(agents),
		Detail: detail, At: time.Now(), Of: x.of}
	for _, o := range a.observers {
		event.Observers = append(event.Observers, wire.Observer{Agent: o.agent.Agent, Observe: o.observe})
	}
	if detail != "" {
		event.Load = &wire.Load{Rate: t.Cell.Workload.Publishers.Rate, Measure: t.Cell.Workload.Measure}
	}
	a.facts.Started = event.At // one time for both, so that live views and reports made later agree
	if err = x.inFlight(ctx, t.ID); err == nil {
		err = x.record.Event(ctx, event)
	}
	if err != nil {
		return result{}, err
	}
	closeMailbox := a.mailbox.open(x.leader.lease, x.record, a.merged)
	disown := x.leader.ownership.own(a.mailbox)
	a.run(ctx)
	disown()
	closeMailbox()
	a.facts.SinceT0(judge.Cut(a.work, a.merged)) // no more snapshots are stored
	if lease := x.leader.lease.Context(); lease.Err() != nil {
		return result{}, context.Cause(lease)
	}
	why := a.mailbox.snapshots.Full()
	if a.facts.Cancelled {
		if why = context.Cause(ctx); errors.Is(why, context.Canceled) {
			why = errors.New("the controller was stopped")
		}
	}
	if why != nil {
		e := wire.RunEvent{Kind: wire.TaskInterrupted, Task: t.ID, Attempt: a.task.Attempt, N: n, Detail: why.Error()}
		return result{}, errors.Join(why, x.event(ctx, e))
	}
	return result{attempt: a.task.Attempt, task: a.task, failure: a.facts.Failure,
		outcome: judged(x.log, x.leader.conn.MaxEntry(), a.task, a.merged, a.facts)}, nil
}

// awaitAgents chooses the agents of a task. short describes a shortage that lasted longer than the grace of the run.
func (x *execution) awaitAgents(ctx context.Context, t plan.Task, n int) (all []wire.AgentInfo, short string,
	err error) {
	recorded := false
	err = x.leader.agents.await(ctx, nil, nil, func() (time.Duration, error) {
		var missing *wire.End
		if all, missing = assignAgents(t.Cell, x.usableAgents(ctx)); missing == nil {
			x.short = time.Time{}
			return 0, nil
		}
		x.short = cmp.Or(x.short, time.Now())
		left := x.run.Grace.D() - time.Since(x.short)
		if left <= 0 {
			short = fmt.Sprintf("%s, after a grace of %v", missing.Detail, x.run.Grace)
			return 0, nil
		}
		if recorded {
			return left, nil
		}
		recorded, x.state.Waiting = true, missing.Detail
		x.nothingInFlight(ctx)
		return left, x.event(ctx, wire.RunEvent{Kind: wire.WaitingAgents, Task: t.ID, N: n, Detail: missing.Detail})
	})
	x.state.Waiting = "" // stored with the next state
	return all, short, err
}

// newAttempt returns an attempt with these agents and with the observers of the cell's brokers.
func newAttempt(x *execution, t plan.Task, agents []wire.AgentInfo) *attempt {
	t.Attempt = wire.NewName()
	a := &attempt{lease: x.leader.lease, agents: x.leader.agents, record: x.record, log: x.log, rtt: x.leader.conn.RTT,
		task: t, work: t.Cell.Workload, groups: t.Parts(), byName: map[string]*part{}, merged: record.NewMerged(),
		facts: judge.Facts{Cores: map[string]int{}}}
	for i, agent := range agents {
		a.parts = append(a.parts, &part{agent: agent, at: map[wire.Step]bool{},
			summary: plan.AgentPart{Agent: agent.Agent, Index: i, Host: agent.Host, Clock: agent.Clock,
				Version: agent.Version, Phase: plan.PhasePrepare}})
		a.facts.Cores[agent.Agent] = agent.Cores
	}
	a.findObservers()
	all := slices.Concat(a.parts, a.observers)
	for _, p := range all {
		a.byName[p.agent.Agent] = p
	}
	a.mailbox = newMailbox(x.log, a.task, all)
	return a
}

// run executes the attempt and ends it in order. Afterwards facts has everything that the agents' records do not have.
func (a *attempt) run(ctx context.Context) {
	err := a.execute(ctx)
	// nothing else shortens the end of the attempt
	rest := wire.WithProgress(a.lease.Context(), func(d time.Duration) { wire.Progress(ctx, d) })
	if rest.Err() != nil {
		return // the next leader repeats the task
	}
	reason := ""
	switch {
	case err == nil:
	case ctx.Err() != nil:
		a.facts.Cancelled = true
		reason = context.Cause(ctx).Error()
	default:
		reason = err.Error()
		a.facts.Failure = reason
		var f *failure
		if errors.As(err, &f) { // else the control plane does not answer the controller
			a.facts.Kind = f.kind
		}
	}
	a.finish(rest, reason)
	a.teardown(rest)
	a.release(wire.Release{Step: wire.StepDone})
	_ = a.settle(rest, a.parts, wire.StepDone, doneLimit) // if the lease is lost, the next leader does the rest
	for _, p := range a.parts {
		a.facts.Agents = append(a.facts.Agents, p.summary)
		if p.summary.Lost && !a.facts.Cancelled {
			a.facts.Kind = cmp.Or(a.facts.Kind, plan.FailedAgentLost) // in any phase
		}
	}
}

func (a *attempt) execute(ctx context.Context) error {
	if err := a.assign(); err != nil {
		return err
	}
	connect := a.work.Connect.D()
	// sessions are open, and agent 0 has declared the topology
	if err := a.await(ctx, wire.StepOpen, 2*connect+stepMargin); err != nil {
		return err
	}
	if err := a.settle(ctx, a.observers, wire.StepOpen, observerReady); err != nil {
		return err
	}
	a.storeSubjects()
	for _, step := range []wire.Step{wire.StepConsumers, wire.StepPublishers} {
		if err := a.step(ctx, wire.Release{Step: step}, connect+stepMargin); err != nil {
			return err
		}
	}
	start, ahead, err := a.start(ctx)
	if err != nil {
		return err
	}
	a.release(start)
	if a.work.Steady.Auto {
		if err := a.warmUp(ctx); err != nil {
			return err
		}
	}
	limit := ahead + a.work.LongestWarmup() + a.work.Measure.D() + a.work.Drain.Timeout.D() + stepMargin
	if err := a.await(ctx, wire.StepStart, limit); err != nil {
		return err
	}
	if !slices.ContainsFunc(a.groups, consumes) {
		return nil
	}
	return a.drain(ctx)
}

func (a *attempt) assign() error {
	agents := make([]wire.AgentInfo, len(a.parts))
	for i, p := range a.parts {
		agents[i] = p.agent
	}
	_, targets, _ := faultAgents(a.work, agents, agents)
	var longest plan.Duration
	assignments := plan.Assign(a.task, names(agents))
	if err := oneProcess(a.parts, assignments); err != nil {
		for _, p := range a.parts {
			p.dropped = true
		}
		return err
	}
	for i, assignment := range assignments {
		longest = max(longest, assignment.Deadline)
		a.parts[i].summary.Group, assignment.Targets = assignment.Task.Group, targets[assignment.Agent]
		a.mailbox.command(a.parts[i].agent, wire.Command{Assignment: &assignment})
	}
	t := plan.Task{Run: a.task.Run, ID: a.task.ID, Attempt: a.task.Attempt, Repetition: a.task.Repetition,
		Cell: plan.Cell{ID: a.task.Cell.ID, Workload: plan.Workload{Warmup: a.work.Warmup, Measure: a.work.Measure}}}
	for _, o := range a.observers { // without options of brokers, as these may contain secrets
		a.mailbox.command(o.agent, wire.Command{Assignment: &plan.Assignment{Protocol: plan.Protocol, Task: t,
			Agent: o.agent.Agent, Observe: o.observe, Deadline: longest}})
	}
	return nil
}

// oneProcess rejects an in-process broker if the agents of a group are in several processes, which have one each.
func oneProcess(parts []*part, assignments []plan.Assignment) error {
	first := map[string]wire.AgentInfo{} // by group
	for i, a := range assignments {
		agent, broker := parts[i].agent, a.Task.Cell.Broker
		one, met := first[a.Task.Group]
		if !met {
			first[a.Task.Group] = agent
			continue
		}
		if a.Task.Cell.InProcess && agent.Memory != "" && one.Memory != "" && agent.Memory != one.Memory {
			return &failure{text: fmt.Sprintf("broker %s runs in the process of an agent, but %s and %s are separate processes; "+
				"set a server in its options, start one agent with enough slots (lockstep-agent --slots), or run the matrix locally (--context local)", broker.Name, one.Agent, agent.Agent)}
		}
	}
	return nil
}

// storeSubjects stores the broker description of the first group's first agent and, for side-by-side brokers, of each
// group.
func (a *attempt) storeSubjects() {
	for _, p := range slices.Backward(a.parts) { // the first part is set last
		if p.subject == nil {
			continue
		}
		s := *p.subject
		s.Fingerprint = plan.Fingerprint(s)
		a.facts.Subject = s
		if a.work.SideBySide() {
			if a.facts.Subjects == nil {
				a.facts.Subjects = map[string]plan.Subject{}
			}
			a.facts.Subjects[p.summary.Group] = s
		}
	}
}

// minAhead and maxAhead limit the lead time of the start, so that every agent already waits for it.
const minAhead, maxAhead = 50 * time.Millisecond, 2 * time.Second

// start chooses the start of the load, a little ahead, and expresses it in the clock of every agent and in the
// controller's. Agents with the same clock start at the same time: the offset with the smallest bound is used.
func (a *attempt) start(ctx context.Context) (r wire.Release, ahead time.Duration, err error) {
	rtt, err := a.rtt(ctx)
	if err != nil {
		return r, 0, fmt.Errorf("measure the round-trip time to the control plane: %w", err)
	}
	ahead = max(minAhead, 3*rtt)
	now, wall := clock.Now(), time.Now().UnixNano()
	best, loaded := map[string]Offset{}, map[string]bool{}
	for i, p := range slices.Concat(a.parts, a.observers) {
		if !p.at[wire.StepOpen] { // an observer that failed
			continue
		}
		o := offset(p.arrival, clock.ID(), now, wall)
		load := i < len(a.parts)
		loaded[o.Clock] = loaded[o.Clock] || load
		// an observer sets no start for the clock of an agent with load
		if b, known := best[o.Clock]; !known || o.Bound < b.Bound && (load || !loaded[o.Clock]) {
			best[o.Clock] = o
		}
		if o.Bound < int64(maxAhead/4) { // at least half of a round trip to the agent
			ahead = max(ahead, rtt+time.Duration(4*o.Bound))
		}
	}
	begin := now + ahead.Nanoseconds()
	r = wire.Release{Step: wire.StepStart, Clock: clock.ID(), Start: map[string]int64{clock.ID(): begin}}
	for id, o := range best {
		r.Start[id] = begin + o.Add
	}
	a.zero = begin + a.work.Warmup.D().Nanoseconds()
	a.origin, a.measuring = a.zero, !a.work.Steady.Auto
	return r, ahead, nil
}

const (
	lookEvery = time.Second
	// maxLag is the maximum allowance for publishers that send rarely: they report a second with a later message.
	maxLag = 5 * time.Second
)

// warmUp waits until the load is steady on all agents together, but at most Steady.Max. Then it begins the measurement
// at a whole second of the load, which lies ahead and which every agent must confirm.
func (a *attempt) warmUp(ctx context.Context) error {
	longest := a.work.Steady.Max.D()
	for next := a.work.Steady.Min.D(); ; next += lookEvery {
		until := a.zero + min(next, longest).Nanoseconds()
		err := a.wait(ctx, func() (time.Duration, error) { return time.Duration(until - clock.Now()), trouble(a.parts) })
		if err != nil {
			return err
		}
		if why := a.notSteady(); why == "" || next >= longest {
			a.facts.NotSteady = why
			return a.beginMeasurement(ctx)
		}
	}
}

// notSteady returns why the load is not steady, by the seconds that all agents have reported; empty: it is.
func (a *attempt) notSteady() string {
	reported := a.merged.ReportedUntil()
	known, publishers := time.Duration(1<<62), 0
	for _, p := range a.parts {
		known = min(known, time.Duration(reported[p.agent.Agent]))
	}
	confirmed := false
	for _, t := range a.groups {
		w := t.Cell.Workload
		publishers += w.Publishers.Nodes * w.Publishers.Threads
		confirmed = confirmed || w.Publishers.Confirmed()
	}
	seconds := judge.LoadSamples(a.merged, confirmed, known)
	sent := 0.0
	for _, s := range seconds[len(seconds)/2:] {
		sent += s.Sent
	}
	if rate := sent / float64(max(1, len(seconds)-len(seconds)/2)); rate > 0 {
		gap := time.Duration(float64(publishers) / rate * 1e9)
		known -= min(3*gap, maxLag)
	}
	return judge.NotSteady(seconds[:max(0, min(len(seconds), int(known/time.Second)))], confirmed,
		slices.ContainsFunc(a.groups, consumes))
}

// beginMeasurement sets the second at which the measurement begins. An agent that set another start fails the task.
func (a *attempt) beginMeasurement(ctx context.Context) error {
	at := time.Duration(clock.Now()-a.zero) + plan.MeasureAhead
	at = (at + time.Second - 1).Truncate(time.Second)
	if err := a.step(ctx, wire.Release{Step: wire.StepMeasure, Begin: at.Nanoseconds()}, stepMargin); err != nil {
		return err
	}
	if i := slices.IndexFunc(a.parts, func(p *part) bool { return !p.dropped && p.begin != at.Nanoseconds() }); i >= 0 {
		return &failure{plan.FailedRun,
			fmt.Sprintf("agent %s started the measurement %v after the start of the load instead of %v",
				a.parts[i].agent.Agent, time.Duration(a.parts[i].begin), at)}
	}
	a.origin = a.zero + at.Nanoseconds()
	a.measuring = true
	return nil
}

// drain waits for the last messages. It ends:
//
//   - when all messages have arrived,
//   - after Drain.Idle without a delivery,
//   - at Drain.Timeout, which begins when the publishers have stopped.
//
// A confirm shows that the broker is alive, so it restarts the idle time. It is not a delivery, so at the timeout it
// does not count as progress. The idle time does not end while a consumer has no link, or before the agents have
// reported most of its seconds: a host without free CPUs may receive nothing. Before the timeout, the drain does not
// end while the broker may redeliver unacknowledged messages.
func (a *attempt) drain(ctx context.Context) error {
	stopped := clock.Now()
	limit := stopped + a.work.Drain.Timeout.D().Nanoseconds()
	silence := a.work.Drain.Idle.D().Nanoseconds()
	if err := a.step(ctx, wire.Release{Step: wire.StepDrain}, stepMargin); err != nil {
		return err
	}
	a.traffic.moved = cmp.Or(a.traffic.moved, stopped)
	return a.wait(ctx, func() (time.Duration, error) {
		if err := trouble(a.parts); err != nil {
			return 0, err
		}
		now, until := clock.Now(), a.traffic.redelivered
		allIn := !slices.ContainsFunc(a.groups, func(t plan.Task) bool { // all sent messages have arrived, in every group
			return consumes(t) && !a.merged.Group(t.Group).AllIn(t.Cell.Workload.Topology.Subscriptions)
		})
		switch {
		case allIn:
		case a.uncertain():
			until = math.MaxInt64
		default:
			until = max(a.traffic.moved, a.traffic.confirmed, a.traffic.redelivered) + silence
		}
		if now >= limit && now < until {
			a.facts.DrainCut = !allIn && (a.uncertain() || now < max(a.traffic.moved, a.traffic.redelivered)+silence)
		}
		return time.Duration(min(until, limit) - now), nil
	})
}

// uncertain reports whether the absence of deliveries proves nothing: a consumer of an agent has no link, or an agent
// has reported fewer seconds without a message than the idle time has, less one.
func (a *attempt) uncertain() bool {
	seconds := int(a.work.Drain.Idle.D() / time.Second)
	return slices.ContainsFunc(a.parts, func(p *part) bool { return !p.dropped && (p.apart || p.quiet < seconds-1) })
}

// finish makes all agents close and report the rest. An empty reason is the regular end.
func (a *attempt) finish(ctx context.Context, reason string) {
	a.release(wire.Release{Step: wire.StepFinish, Reason: reason})
	_ = a.settle(ctx, a.parts, wire.StepFinish, finishLimit+a.work.LongestUndo()) // see run
	a.facts.Ended = time.Now()
	_ = a.settle(ctx, a.observers, wire.StepFinish, observerLast)
}

// maxTeardowns is the maximum number of agents of a group that try to tear down: a broker may not answer.
const maxTeardowns = 3

// teardown makes one agent of each group remove its topology: the first that has finished, or the next after a failure.
func (a *attempt) teardown(ctx context.Context) {
	for _, g := range a.groups {
		attempts := 0
		down := slices.ContainsFunc(a.parts, func(p *part) bool {
			if p.summary.Group != g.Group || p.dropped || !p.at[wire.StepFinish] || attempts == maxTeardowns {
				return false
			}
			attempts++
			a.release(wire.Release{Step: wire.StepTeardown, Agent: p.agent.Agent})
			_ = a.settle(ctx, []*part{p}, wire.StepTeardown, a.work.Connect.D()+stepMargin)
			return p.at[wire.StepTeardown] && p.arrival.Error == ""
		})
		if !down && g.Cell.Workload.Topology.Existing == "" {
			a.remark("", "error",
				"no agent could tear down: queues and topics of the task may be left on the broker, named "+g.Topic())
		}
	}
}

// judged judges an attempt. If reported data make the judge panic, or make an outcome that cannot be stored, the
// outcome is unknown, with the error as the failure: such data must not end the run. maxEntry is the maximum size of a
// message in the record, in bytes. Events contain outcomes.
func judged(log *slog.Logger, maxEntry int, t plan.Task, m *record.Merged, f judge.Facts) (o plan.Outcome) {
	err := wire.Guard(log, "judge task "+t.ID, func() error {
		o = judge.Judge(t, m, f)
		text, err := json.Marshal(o)
		if limit := maxEntry / 4 * 3; err == nil && len(text) > limit {
			err = fmt.Errorf("%d bytes exceed the limit of %d", len(text), limit)
		}
		if err != nil {
			err = fmt.Errorf("store outcome with the reports of its agents: %w", err)
		}
		return err
	})
	if err != nil {
		o = judge.Judge(t, record.NewMerged(), judge.Facts{Failure: err.Error(), Started: f.Started, Ended: f.Ended})
	}
	return o
}

// outcomeWithout returns the outcome of a task without an attempt: for lack of agents, or of a reachable broker.
func outcomeWithout(t plan.Task, kind plan.FailureKind, why string) plan.Outcome {
	now := time.Now()
	return judge.Judge(t, record.NewMerged(), judge.Facts{Failure: why, Kind: kind, Started: now, Ended: now})
}

// failureOf returns the kind and the reason of an attempt's failure; empty: it did not fail, or broke a guarantee.
func failureOf(o plan.Outcome, reason string) (plan.FailureKind, string) {
	switch {
	case o.Verdict == plan.Invalid:
		return "", ""
	case o.Failure != "":
		return o.Failure, cmp.Or(reason, strings.Join(o.Reasons, "; "))
	}
	for _, v := range o.Values {
		if slices.Contains(v.Flags, plan.Skewed) {
			return plan.FailedSkewed, "the agents did not start together"
		}
	}
	return "", ""
}

// withRetries returns the outcome that counts, with the failed attempts before it.
func withRetries(o plan.Outcome, retries []plan.FailedAttempt) plan.Outcome {
	o.FailedAttempts = retries
	if o.Attempt = 1; o.Search == nil {
		o.Attempt += len(retries)
	}
	return o
}

// The functions below wait for agents and handle their reports.

func (a *attempt) step(ctx context.Context, r wire.Release, limit time.Duration) error {
	a.release(r)
	return a.await(ctx, r.Step, limit)
}

// release sends a release to all agents that are not dropped, or to the one it names. Observers get start and finish.
func (a *attempt) release(r wire.Release) {
	to := a.parts
	if r.Step == wire.StepStart || r.Step == wire.StepFinish {
		to = slices.Concat(a.parts, a.observers)
	}
	for _, p := range to {
		if r.Agent == "" && !p.dropped || r.Agent == p.agent.Agent {
			a.mailbox.command(p.agent, wire.Command{Release: &r})
		}
	}
}

// await waits until every agent has arrived at a step. A failed, lost or late agent ends the wait with an error.
func (a *attempt) await(ctx context.Context, step wire.Step, limit time.Duration) error {
	remaining := a.within(limit)
	return a.wait(ctx, func() (time.Duration, error) {
		waiting := waitingFor(a.parts, step)
		if err := trouble(a.parts); err != nil || waiting == nil {
			return 0, err
		}
		left := remaining()
		if left <= 0 {
			return 0, &failure{plan.FailedTimeout,
				fmt.Sprintf("%s on agent %s: no response within %v", verb(step), waiting.agent.Agent, limit)}
		}
		return left, nil
	})
}

// settle waits like await, but drops agents and observers that are late, and continues without lost ones. At the end of
// a task no agent may delay the others. An error means that ctx ended.
func (a *attempt) settle(ctx context.Context, parts []*part, step wire.Step, limit time.Duration) error {
	began, remaining := time.Now(), a.within(limit)
	return a.wait(ctx, func() (time.Duration, error) {
		left, p := remaining(), waitingFor(parts, step)
		if p != nil && p.observe != nil { // an outage of the control plane does not prolong the wait
			left = limit - time.Since(began)
		}
		for ; left <= 0 && p != nil; p = waitingFor(parts, step) {
			if p.observe != nil {
				a.dropObserver(p, fmt.Sprintf("no response of the agent within %v", limit))
				continue
			}
			p.dropped = true
			p.summary.Error = cmp.Or(p.summary.Error, fmt.Sprintf("%s: no response within %v", verb(step), limit))
			a.remark(p.agent.Agent, "error", p.summary.Error)
			a.agents.markStuck(p.agent, a.task.ID)
		}
		if p == nil {
			return 0, nil
		}
		return left, nil
	})
}

// wait handles reports and looks for lost agents until left returns no remaining time: see fleet.await.
func (a *attempt) wait(ctx context.Context, left func() (time.Duration, error)) error {
	return a.agents.await(ctx, a.mailbox.reports, a.take, func() (time.Duration, error) {
		a.dropLost(ctx)
		return left()
	})
}

// within returns the remaining time of a limit. Time in which the lease had lapsed counts only after a cancellation.
func (a *attempt) within(limit time.Duration) (remaining func() time.Duration) {
	began, lapsed := time.Now(), a.lease.Lease.Lapsed()
	return func() time.Duration {
		left := limit - time.Since(began)
		if !a.facts.Cancelled {
			left += a.lease.Lease.Lapsed() - lapsed
		}
		return left
	}
}

// trouble returns the first failure of an agent: a lost agent before any other failure.
func trouble(parts []*part) error {
	for _, p := range parts {
		if p.summary.Lost {
			how := "was lost"
			if p.summary.Left {
				how = "left"
			}
			return &failure{plan.FailedAgentLost, fmt.Sprintf("agent %s %s in %s", p.agent.Agent, how, p.summary.Phase)}
		}
	}
	for _, p := range parts {
		if p.failed {
			return &failure{p.kind, p.summary.Error}
		}
	}
	return nil
}

// waitingFor returns the first agent that is waited for at a step; nil: all have arrived.
func waitingFor(parts []*part, step wire.Step) *part {
	i := slices.IndexFunc(parts, func(p *part) bool { return !p.dropped && !p.at[step] })
	if i < 0 {
		return nil
	}
	return parts[i]
}

// take handles one report. A panic fails the part of its agent.
func (a *attempt) take(r agentReport) {
	err := wire.Guard(a.log, "report of agent "+r.agent, func() error { a.handle(r); return nil })
	if p := a.byName[r.agent]; err != nil {
		p.failed, p.summary.Error = true, err.Error()
	}
}

func (a *attempt) handle(r agentReport) {
	p := a.byName[r.agent]
	a.agents.alive(p.agent)
	switch {
	case p.observe != nil && r.err != nil:
		a.dropObserver(p, r.err.Error())
	case p.observe != nil && r.arrival != nil:
		if p.arrival = *r.arrival; r.arrival.Error != "" {
			a.dropObserver(p, r.arrival.Error)
		}
		p.at[r.arrival.Step] = true
	case p.observe != nil: // its snapshot is stored
	case r.err != nil:
		p.failed, p.summary.Error = true, r.err.Error()
		if !p.at[wire.StepOpen] {
			p.kind = plan.FailedConnect
		}
		a.log.Error("refused", "task", a.task.ID, "agent", r.agent, "err", r.err)
	case r.snapshot != nil:
		// -1: it has no groups
		group := slices.IndexFunc(a.groups, func(t plan.Task) bool { return t.Group == p.summary.Group })
		a.traffic.add(p, r.snapshot, a.groups[max(0, group)].Cell.RedeliverAfter.D().Nanoseconds())
	case r.arrival != nil:
		a.arrived(p, *r.arrival)
	}
}

func (a *attempt) arrived(p *part, v wire.Arrival) {
	if v.Step == p.arrival.Step && v.Now == p.arrival.Now {
		return // sent again, as the answer was lost
	}
	if v.Error != "" && p.at[v.Step] {
		return // only the first arrival at a step counts
	}
	p.arrival = v
	if v.Subject != nil {
		p.subject, p.summary.Declared = v.Subject, v.Declared
	}
	p.summary.Phase = cmp.Or(v.Phase, p.summary.Phase)
	switch v.Step {
	case wire.StepMeasure:
		p.begin = v.Begin
	case wire.StepStart:
		p.summary.Skew = v.Skew
	case wire.StepPublishers:
		p.summary.Placement = v.Placement
	}
	if v.Error == "" {
		p.at[v.Step] = true
		return
	}
	if p.summary.Error == "" || !p.failed {
		a.log.Warn("agent failed", "task", a.task.ID, "agent", p.agent.Agent, "step", v.Step, "err", v.Error)
	}
	p.summary.Error = cmp.Or(p.summary.Error, v.Error)
	switch v.Step {
	case wire.StepFinish, wire.StepTeardown, wire.StepDone: // the measurement is over: an event, not a failure
		p.at[v.Step] = true
		a.remark(p.agent.Agent, "error", v.Error)
	case wire.StepOpen, wire.StepConsumers, wire.StepPublishers:
		p.failed, p.kind = true, plan.FailedConnect
	default:
		p.failed, p.kind = true, plan.FailedRun
	}
}

// dropLost drops agents and observers whose process has ended or is silent.
func (a *attempt) dropLost(ctx context.Context) {
	for _, o := range a.observers {
		if lives, _, _ := a.agents.process(o.agent); !lives && !o.at[wire.StepFinish] {
			a.dropObserver(o, "the agent was lost")
		}
	}
	for _, p := range a.parts {
		if p.dropped {
			continue
		}
		lives, left, silence := a.agents.process(p.agent)
		if lives {
			continue
		}
		p.dropped, p.summary.Left = true, left
		if p.summary.Left && p.at[wire.StepFinish] {
			a.remark(p.agent.Agent, "notice", "it left after it had submitted its results")
			continue
		}
		p.summary.Lost = true
		p.summary.Phase = a.phase(p, silence)
		where := "in " + string(p.summary.Phase)
		if p.summary.Left {
			where += ": it left"
		}
		a.remark(p.agent.Agent, plan.EventAgentLost, where)
		e := wire.RunEvent{At: time.Now(), Kind: wire.AgentLost, Task: a.task.ID, Attempt: a.task.Attempt,
			Detail: "agent " + p.agent.Agent + " " + where, Silence: plan.Duration(silence)}
		storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		if err := a.record.Event(storing, e); err != nil {
			a.log.Error("cannot record event", "err", err)
		}
		cancel()
	}
}

// phase returns the phase in which a lost agent was when it sent its last message.
func (a *attempt) phase(p *part, silence time.Duration) plan.Phase {
	now := clock.Now() - a.origin - silence.Nanoseconds() // since the measurement began
	switch {
	case a.origin == 0 || p.at[wire.StepFinish] || p.at[wire.StepDrain]:
		return p.summary.Phase
	case now < -a.work.Warmup.D().Nanoseconds():
		return plan.PhaseReady
	case now < 0 || !a.measuring:
		return plan.PhaseWarmup
	case now < a.work.Measure.D().Nanoseconds() && !p.at[wire.StepStart]:
		return plan.PhaseMeasure
	}
	return plan.PhaseDrain
}

// remark adds an event of the controller to the facts, with its time since T0.
func (a *attempt) remark(agent, kind, detail string) {
	at := plan.Duration(0)
	if a.zero != 0 {
		at = plan.Duration(clock.Now() - a.zero)
	}
	a.facts.Events = append(a.facts.Events, plan.Event{At: at, Agent: agent, Kind: kind, Detail: detail})
}

// findObservers finds the observers of the cell's brokers among the agents that have no role in the attempt.
func (a *attempt) findObservers() {
	brokers := a.task.Cell.Brokers()
	for _, agent := range a.agents.available() {
		observe, unclear := plan.Observe(brokers, agent.Observes)
		for _, name := range unclear {
			a.notObserved(name, agent.Agent,
				"the driver name matches several brokers of the cell; use the name of the broker in --observe")
		}
		if len(observe) > 0 && !slices.ContainsFunc(a.parts, func(p *part) bool { return p.agent.Agent == agent.Agent }) {
			a.observers = append(a.observers, &part{agent: agent, observe: observe, at: map[wire.Step]bool{}})
		}
	}
	for _, agent := range a.agents.lostObservers() {
		observe, _ := plan.Observe(brokers, agent.Observes)
		for _, x := range observe {
			a.notObserved(x.Broker, agent.Agent, "the agent is not connected")
		}
	}
}

// notObserved adds an event to the outcome: an observer does not measure a broker.
func (a *attempt) notObserved(broker, observer, why string) {
	a.remark(observer, judge.EventNotObserved, judge.NotObserved(broker, observer, why))
}

// dropObserver excludes an observer from the attempt and adds the reason to the outcome.
func (a *attempt) dropObserver(p *part, why string) {
	if p.dropped {
		return
	}
	p.dropped = true
	a.log.Warn("broker not observed", "task", a.task.ID, "observer", p.agent.Agent, "why", why)
	for _, x := range p.observe {
		a.notObserved(x.Broker, p.agent.Agent, why)
	}
}

// traffic has the times of the last messages by the controller's clock.Now(); 0: not known.
type traffic struct {
	moved     int64 // a message was sent or delivered
	confirmed int64
	// redelivered is the end of the time in which unacknowledged messages may be redelivered; 0: none may.
	redelivered int64
}

// add adds the times of a snapshot. Only time differences within the snapshot are used, so the agent's clock does not
// matter. The transport delay makes times appear later, never earlier. redeliverAfter is that of the agent's group, in
// ns.
func (t *traffic) add(p *part, s *record.Snapshot, redeliverAfter int64) {
	now := clock.Now()
	if last := max(s.LastSend, s.LastDelivery, s.LastOther); last > p.latest {
		p.latest, p.quiet = last, 0
	} else {
		p.quiet++
	}
	note := func(last *int64, at int64) {
		if at != 0 {
			*last = max(*last, now-max(0, s.At-at))
		}
	}
	note(&t.moved, s.LastSend)
	note(&t.moved, s.LastDelivery)
	note(&t.moved, s.LastOther) // messages of the task may wait behind it
	note(&t.confirmed, s.LastConfirm)
	if p.apart && s.Apart == 0 { // messages that waited at the broker begin to arrive now
		t.moved = now
	}
	p.apart = s.Apart > 0
	if s.LastInterrupted != 0 {
		at := now - max(0, s.At-s.LastInterrupted)
		t.redelivered = max(t.redelivered, at+redeliverAfter)
	}
}

func consumes(t plan.Task) bool { return t.Cell.Workload.Consumers.Nodes > 0 }

func verb(s wire.Step) string {
	return cmp.Or(map[wire.Step]string{wire.StepOpen: "open session", wire.StepConsumers: "connect consumers",
		wire.StepPublishers: "connect publishers", wire.StepStart: "run", wire.StepTeardown: "tear down"}[s], string(s))
}

// Offset converts times of the controller's clock to those of another clock.
type Offset struct {
	Clock string // id of the other clock
	Add   int64  // ns to add to a time of the controller's clock
	// Bound is the maximum error of Add in ns; 0 for the same clock. unknown: the clocks were not compared. Then Add
	// was computed from the hosts' wall clocks, and is as accurate as they are.
	Bound int64
}

const unknown = math.MaxInt64

// offset returns the offset from this clock to that of an arrival, extrapolated to now (of this clock; wall: Unix; ns).
func offset(a wire.Arrival, id string, now, wall int64) Offset {
	o := a.Offset
	switch {
	case a.Clock == id:
		return Offset{Clock: id}
	case o != nil && o.Reference == id:
		age := float64(now + o.Offset - o.At)
		return Offset{Clock: a.Clock, Add: o.Offset + int64(o.Drift/1e6*age), Bound: o.Bound}
	}
	return Offset{Clock: a.Clock, Add: (a.Now - now) - (a.Wall - wall), Bound: unknown}
}
