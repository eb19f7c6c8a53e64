package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
	"lockstep/internal/sampling"
	"lockstep/internal/wire"
)

// errEnded tells that a former leader had recorded the run's end.
var errEnded = errors.New("the run has ended")

// history is what the record of a run tells a leader that takes it up.
type history struct {
	submission  uint64
	planned     bool
	accepted    bool      // by a former leader, which did not come to the end
	ended       *wire.End // of this submission
	outcomes    map[string]bool
	rounds      *sampling.Rounds
	ran, failed int            // outcomes of this submission
	began, over time.Time      // of this submission; zero: not yet
	flight      *wire.RunEvent // the last try that was begun, if nothing tells that it ended
	at          uint64         // where in the record that is
}

// read takes the next entry.
func (h *history) read(e wire.Entry) {
	switch {
	case e.Plan != nil:
		h.planned = true
	case e.Outcome != nil:
		h.outcomes[e.Outcome.Task] = true
		h.rounds.Add(*e.Outcome)
		h.ran++
		if e.Outcome.Failed() {
			h.failed++
		}
		h.flight = nil
	case e.Event != nil:
		h.event(e.Event, e.Seq)
	}
}

func (h *history) event(e *wire.RunEvent, seq uint64) {
	switch e.Kind {
	case wire.RunAccepted:
		h.accepted, h.ran, h.failed, h.flight, h.began = true, 0, 0, nil, e.At
	case wire.TaskStarted:
		h.flight, h.at = e, seq
	case wire.TaskInterrupted, wire.TryEnded:
		h.flight = nil
	case wire.RunEnded:
		h.accepted, h.flight = false, nil
		if e.End != nil && e.End.Submission == h.submission {
			h.ended, h.over = e.End, e.At
		}
	}
}

// times puts right when a run began and ended: its record counts, what was noted of it may be lost.
func (h *history) times(s *wire.RunState) {
	if h.accepted || h.ended != nil {
		s.Started = h.began
	}
	s.Ended = h.over
}

// takeOver goes on with a run that a former leader had begun.
func (x *execution) takeOver(ctx context.Context, h history) error {
	x.end.Ran, x.end.Failed = h.ran, h.failed
	had := x.queue.names(x.claim)
	if h.flight != nil {
		had = append(had, h.flight.Agents...)
		x.queue.reserve(x.claim, h.flight.Agents)
	}
	x.agents.meet(ctx, had)
	x.queue.met(x.claim)
	if h.flight != nil {
		x.flight, x.from = h.flight, h.at
		return nil // goOn says what becomes of it
	}
	x.charge.settle(x.run.ID)
	return x.record.Event(ctx, wire.RunEvent{At: time.Now(), Kind: wire.TakenOver, Of: x.of, Detail: x.changed() + ": no task was in flight"})
}

// changed says in words that another leads.
func (x *execution) changed() string {
	if x.record.Former() == x.lease.Epoch() {
		return fmt.Sprintf("controller %s (epoch %d) leads the run on after an error of the control plane", x.lease.Name(), x.lease.Epoch())
	}
	return fmt.Sprintf("controller %s (epoch %d) leads the run on after epoch %d", x.lease.Name(), x.lease.Epoch(), x.record.Former())
}

// goOn sees to the try of a task that a former leader had begun, if there is one: it leads it to its end if its load was started, and gives it up
// otherwise.
func (x *execution) goOn(ctx context.Context, t plan.Task, n int) (y tried, concluded bool, err error) {
	f := x.flight
	if f == nil || f.Task != t.ID {
		return tried{}, false, nil
	}
	x.flight = nil
	c, why := x.rejoin(ctx, t, f)
	if err := context.Cause(ctx); err != nil {
		x.flight = f
		return tried{}, false, err
	}
	x.charge.lead(c.ref)
	x.charge.settle(x.run.ID)
	detail := x.changed() + ": the task in flight is concluded"
	if why != "" {
		detail = fmt.Sprintf("%s: the task in flight is repeated: %s", x.changed(), why)
	}
	x.log.Warn("took a run over", "task", t.ID, "try", f.Try, "what", detail)
	e := wire.RunEvent{At: time.Now(), Kind: wire.TakenOver, Task: t.ID, Try: f.Try, N: n, Of: x.of, Detail: detail}
	if err := x.record.Event(ctx, e); err != nil {
		return tried{}, false, err
	}
	if why != "" {
		return tried{}, false, x.abandon(c, n, detail)
	}
	c.remark("", string(wire.TakenOver), detail)
	y, err = x.see(ctx, c, n, c.goOn)
	return y, true, err
}

// giveUp ends the try that a former leader had begun: its run was cancelled while nobody led.
func (x *execution) giveUp(why string) {
	ctx, cancel := context.WithTimeout(x.lease.Context(), stopTimeout)
	defer cancel()
	i := slices.IndexFunc(x.run.Tasks(), func(t plan.Task) bool { return t.ID == x.flight.Task })
	if i < 0 {
		return
	}
	watching, stop := context.WithCancel(x.lease.Context())
	watched := make(chan struct{})
	x.entries = make(chan wire.Entry, 64)
	go func() {
		defer close(watched)
		x.watch(watching)
	}()
	defer func() {
		stop()
		<-watched
	}()
	c, _ := x.rejoin(ctx, x.run.Tasks()[i], x.flight)
	if err := x.abandon(c, x.flight.N, why); err != nil {
		x.log.Error("give up a task", "task", x.flight.Task, "err", err)
	}
}

// rejoin makes the conduct of a try that a former leader had begun: it reads what the agents have said in it since. why is why it cannot go on.
func (x *execution) rejoin(ctx context.Context, t plan.Task, f *wire.RunEvent) (c *conduct, why string) {
	x.agents.meet(ctx, f.Agents)
	agents := make([]wire.AgentInfo, len(f.Agents))
	for i, name := range f.Agents {
		agents[i] = x.agents.find(name)
		if i < len(f.Instances) && agents[i].Instance != f.Instances[i] { // gone, or another process by now
			agents[i] = wire.AgentInfo{Heartbeat: wire.Heartbeat{Agent: name, Instance: f.Instances[i]}}
		}
	}
	c = newConduct(x, t, f.Try, agents)
	c.facts.Started = f.At
	c.rewatch(f.Observers)
	if err := c.replay(ctx); err != nil {
		return c, err.Error()
	}
	made, err := x.released(ctx, c.ref)
	if err != nil {
		return c, err.Error()
	}
	for i, a := range plan.Assign(t, names(agents)) {
		c.parts[i].Group = a.Task.Group
	}
	return c, c.adopt(made, f)
}

// released reads the releases that were made. It goes on trying: for want of an answer nothing is repeated.
func (x *execution) released(ctx context.Context, ref wire.Ref) ([]wire.Release, error) {
	for {
		made, err := x.conn.Released(ctx, ref)
		if err == nil || errors.Is(err, wire.ErrUnreadable) || pause(ctx, againLeast) != nil {
			return made, err
		}
		x.log.Warn("take a task over", "task", ref.Task, "err", err)
	}
}

// replay takes what agents had said of the try when this leader took the run up.
func (c *conduct) replay(ctx context.Context) error {
	late := time.NewTimer(replayLimit)
	defer late.Stop()
	for {
		select {
		case e := <-c.entries:
			if e.Epoch != 0 && e.Seq >= c.record.Since() {
				return nil
			}
			if p := c.byName[e.Agent]; p != nil && e.Ref == c.ref && e.Arrival != nil {
				p.Host, p.Clock, p.Version = e.Arrival.Host, e.Arrival.Clock, e.Arrival.Version
			}
			c.take(e)
			late.Reset(replayLimit)
		case <-late.C:
			return fmt.Errorf("what agents had said of it could not be read within %v", replayLimit)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// adopt takes over the releases that a former leader made. The words say why the try cannot go on.
func (c *conduct) adopt(made []wire.Release, f *wire.RunEvent) (why string) {
	var begin *wire.Release
	for i, r := range made {
		c.made[stepOf(r)] = c.followed(r)
		if !c.followed(r) && (r.Step == wire.StepStart || r.Step == wire.StepMeasure) {
			c.unsure = append(c.unsure, r)
		}
		switch r.Step {
		case wire.StepStart:
			begin = &made[i]
			at, known := c.startOf(r)
			if !known {
				return "when its load was started is not known by this host's clock"
			}
			c.zero = at + c.work.Warmup.D().Nanoseconds()
			c.origin, c.measuring = c.zero, !c.work.Steady.Auto
		case wire.StepMeasure:
			c.origin, c.measuring, c.facts.NotSteady = c.zero+r.Begin, true, r.NotSteady
		case wire.StepFinish:
			c.finishing = true
			c.gaveUp, c.facts.Kind, c.abandoned, c.facts.DrainCut = r.Reason, r.Kind, r.Abandoned, r.DrainCut
		}
	}
	switch {
	case f.Load != nil:
		return "it was a step of a search, which is begun again"
	case c.abandoned:
		return "the former leader had given it up: " + c.gaveUp
	case begin == nil && c.gaveUp == "":
		return "its load was not started yet"
	case begin != nil && !c.measuring && c.gaveUp == "":
		return "its measurement had not begun yet"
	}
	return ""
}

// followed tells whether all whom a release sent on have arrived.
func (c *conduct) followed(r wire.Release) bool {
	return !slices.ContainsFunc(c.parts, func(p *part) bool { return !p.dropped && !p.at[r.Step] && (r.Agent == "" || r.Agent == p.Agent) })
}

// startOf is when the load began, by this clock: as was agreed, by that of an agent which is compared with this one. While none is, it is as long ago as the
// release was stored; calendars of hosts are not asked.
func (c *conduct) startOf(r wire.Release) (int64, bool) {
	if at, same := r.Start[clock.ID()]; same {
		return at, true
	}
	now := clock.Now()
	best := Offset{Bound: unknown}
	for _, p := range c.parts {
		a := p.arrival
		if _, named := r.Start[a.Clock]; !named || p.agent.Offset == nil {
			continue
		}
		a.Offset = p.agent.Offset
		if o := offset(a, clock.ID(), now, 0); o.Bound < best.Bound {
			best = o
		}
	}
	if best.Bound < unknown {
		return r.Start[best.Clock] - best.Add, true
	}
	return now - (r.Age - leastAhead).Nanoseconds(), r.Age > 0
}

// goOn leads the agents from where the former leader left them to the end of the drain.
func (c *conduct) goOn(ctx context.Context) error {
	c.learn()
	if c.gaveUp != "" {
		return &failure{words: c.gaveUp, kind: c.facts.Kind}
	}
	if c.finishing {
		return nil
	}
	for _, r := range c.unsure {
		if err := c.release(ctx, r); err != nil {
			return err
		}
	}
	until := c.zero + (c.work.LongestWarmup() - c.work.Warmup.D() + c.work.Measure.D() + c.work.Drain.Most.D()).Nanoseconds()
	if err := c.await(ctx, wire.StepStart, max(0, time.Duration(until-clock.Now()))+stepMargin); err != nil {
		return err
	}
	if !c.consumes() {
		return nil
	}
	return c.drain(ctx)
}

// abandon ends a try that a former leader had begun, and records that it has no outcome. Nobody waits for agents that do not work on it.
func (x *execution) abandon(c *conduct, n int, why string) error {
	ctx := x.lease.Context()
	if err := x.record.Unassign(ctx, c.ref); err != nil { // who has not begun does not
		return err
	}
	for _, p := range c.parts {
		p.dropped = p.dropped || !x.agents.engaged(p.agent, c.ref)
	}
	c.abandoned = true
	c.finish(ctx, why)
	c.teardown(ctx)
	c.dismiss(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	x.left = c
	return x.interrupted(c, n, why)
}
