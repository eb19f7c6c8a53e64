package controller

import (
	"fmt"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// An agent that says that it does nothing, this often and for so long, while it should work on a task, has not got its assignment and will not:
// it reads assignments within moments, or some seconds after a server of a cluster that served it has died.
const (
	idleBeats = 3
	idleFor   = 15 * time.Second
)

// awaited is what an agent should work on, and how it has not since.
type awaited struct {
	ref   wire.Ref // zero: nothing
	beats int
	since time.Time
}

// hear compares what an agent says with what it should do, and tells whether that has just shown its assignment to be lost.
func (w *awaited) hear(h wire.Heartbeat) bool {
	if w.ref == (wire.Ref{}) || h.Protocol == 0 { // it does not say what it works on
		return false
	}
	if h.Try != (wire.Ref{}) { // another one is being ended
		w.beats = 0
		return false
	}
	if w.beats++; w.beats == 1 {
		w.since = time.Now()
	}
	return w.idle()
}

func (w *awaited) idle() bool { return w.beats >= idleBeats && time.Since(w.since) >= idleFor }

// expect notes that an agent's process was given a task.
func (f *fleet) expect(a wire.AgentInfo, ref wire.Ref) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[a.Agent]; m != nil && m.Instance == a.Instance {
		m.awaited = awaited{ref: ref}
	}
}

// idles tells whether an agent does nothing although it was given this task.
func (f *fleet) idles(a wire.AgentInfo, ref wire.Ref) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[a.Agent]
	return m != nil && m.Instance == a.Instance && m.awaited.ref == ref && m.idle()
}

// lookForIdle finds agents whose assignment was lost: nothing is to be waited for from them.
func (c *conduct) lookForIdle() {
	for _, p := range c.parts {
		if p.dropped || p.failed || p.at[wire.StepFinish] || !c.agents.idles(p.agent, c.ref) {
			continue
		}
		p.failed, p.dropped, p.kind = true, true, plan.FailedConnect
		p.Error = fmt.Sprintf("agent %s says that it does nothing, %d times since it was assigned its part: the assignment was lost", p.Agent, idleBeats)
		c.remark(p.Agent, "error", p.Error)
	}
}
