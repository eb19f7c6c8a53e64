package controller

import (
	"context"
	"sync"
	"time"

	"lockstep/internal/wire"
)

// An orphan is a try that an agent says it works on and that nobody leads: its controller died and the task was repeated elsewhere, its run was
// ended while the agent was cut off, or the control plane came back without memory. The agent would hold on to it until the task's deadline.
const (
	orphanAfter = 3 * time.Second  // for so long an agent has to say so: it says a moment longer what has just ended
	orphanClose = 2 * time.Second  // from the word to finish to the last one: its topology is removed when everything is closed
	orphanAgain = 30 * time.Second // and then all of it once more, if it still says so
)

// charge is which tries a leadership leads. The zero value leads none. Safe for concurrent use.
type charge struct {
	mu   sync.Mutex
	runs map[string]*standing // that are executed
}

// standing is what is known of the tries of a run.
type standing struct {
	settled bool     // none that a former leader had begun is still to be taken over
	try     wire.Ref // that is led, or was last
}

// take notes that a run is taken up: any of its tries may be gone on with.
func (c *charge) take(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[string]*standing{}
	}
	c.runs[run] = &standing{}
}

// settle notes that no try of a run will be taken over any more.
func (c *charge) settle(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.runs[run]; s != nil {
		s.settled = true
	}
}

// lead notes which try of a run is led from now on.
func (c *charge) lead(ref wire.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.runs[ref.Run]; s != nil {
		s.try = ref
	}
}

// drop notes that a run is not executed any more.
func (c *charge) drop(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs, run)
}

// of tells whether the run of a try is executed, and whether the try is led or may still be taken over.
func (c *charge) of(ref wire.Ref) (executed, led bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.runs[ref.Run]
	return s != nil, s != nil && (!s.settled || s.try == ref)
}

// orphan is a try that nobody leads.
type orphan struct {
	agents []string  // that say they work on it
	since  time.Time // when that was first heard
	told   time.Time // when they were told to finish; zero: not yet
	ended  bool      // and that it is done
}

// orphans releases the agents of tries that nobody leads. One goroutine at a time.
type orphans struct {
	*leader
	known map[wire.Ref]*orphan
}

// releaseOrphans looks after what agents say they do, until ctx ends.
func (l *leader) releaseOrphans(ctx context.Context) {
	o := orphans{leader: l, known: map[wire.Ref]*orphan{}}
	tick := time.NewTicker(wire.HeartbeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = wire.Guard(l.cfg.Log, "attempts without a leader", func() error { o.look(ctx, l.agents.list(), time.Now()); return nil })
		case <-ctx.Done():
			return
		}
	}
}

// look compares what agents say they do with what is led.
func (o *orphans) look(ctx context.Context, agents []wire.AgentInfo, now time.Time) {
	for _, x := range o.known {
		x.agents = nil
	}
	for _, a := range agents {
		if a.Try == (wire.Ref{}) {
			continue
		}
		if _, led := o.charge.of(a.Try); led {
			continue
		}
		x := o.known[a.Try]
		if x == nil {
			x = &orphan{since: now}
			o.known[a.Try] = x
		}
		x.agents = append(x.agents, a.Agent)
	}
	for ref, x := range o.known {
		if len(x.agents) == 0 {
			delete(o.known, ref)
			o.forget(ctx, ref, x)
			continue
		}
		if now.Sub(x.since) >= orphanAfter {
			o.end(ctx, ref, x, now)
		}
	}
}

// end has the agents of a try that nobody leads finish. They remove its topology only if its run is not executed: the names at the broker are those
// of the task, and another try of it may be under way, which removes them at its end.
func (o *orphans) end(ctx context.Context, ref wire.Ref, x *orphan, now time.Time) {
	first, last := x.told.IsZero() || now.Sub(x.told) >= orphanAgain, !x.ended && now.Sub(x.told) >= orphanClose
	if !first && !last {
		return
	}
	executed, _ := o.charge.of(ref)
	if !executed {
		if queued, err := o.conn.Queued(ctx, ref.Run); queued || err != nil { // who takes it up decides
			return
		}
	}
	var releases []wire.Release
	switch {
	case first:
		x.told, x.ended = now, false
		o.cfg.Log.Warn("agents work on a try that nobody leads: it is ended", "run", ref.Run, "task", ref.Task, "try", ref.Try, "agents", x.agents)
		releases = []wire.Release{{Step: wire.StepFinish, Reason: "nobody leads this try any more", Abandoned: true}}
	case executed:
		x.ended = true
		releases = []wire.Release{{Step: wire.StepDone}}
	default:
		x.ended = true
		for _, name := range x.agents {
			releases = append(releases, wire.Release{Step: wire.StepTeardown, Agent: name})
		}
		releases = append(releases, wire.Release{Step: wire.StepDone})
	}
	for _, r := range releases {
		one, cancel := context.WithTimeout(ctx, releaseLimit)
		err := o.lease.Release(one, ref, r)
		cancel()
		if err != nil {
			o.cfg.Log.Warn("end a try that nobody leads", "task", ref.Task, "try", ref.Try, "err", err)
			x.told, x.ended = time.Time{}, false // from the beginning, at the next look
			return
		}
	}
}

// forget deletes what is left on the control plane of an orphan that is gone.
func (o *orphans) forget(ctx context.Context, ref wire.Ref, x *orphan) {
	if _, led := o.charge.of(ref); led || x.told.IsZero() {
		return
	}
	if err := o.lease.Clear(ctx, ref); err != nil && ctx.Err() == nil {
		o.cfg.Log.Warn("clear away after a try that nobody led", "task", ref.Task, "try", ref.Try, "err", err)
	}
}
