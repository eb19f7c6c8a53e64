package chaos

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/process"
)

// lostWithin is the maximum silence of an agent before the controller reports it as lost. It is checked in make
// test-long only.
const lostWithin = 5 * time.Second

// phases are the phases in which processes are killed.
var phases = []string{inPrepare, inReady, inWarmup, inMeasure, inDrain, inTeardown}

func agentFaults() (all []fault) {
	for _, phase := range phases {
		all = append(all, fault{name: "agent killed/" + phase, short: phase == inMeasure,
			do: func(r *row) { r.agentKilled(phase) }})
	}
	return append(all,
		fault{name: "agent killed/restarted at once", do: agentRestarted},
		fault{name: "agent stopped/3 s", do: agentPaused},
		fault{name: "agent stopped/30 s", do: agentStopped},
		fault{name: "agent clock stepped", short: true, do: clockStepped},
	)
}

// agentKilled kills one of two agents and starts it again when it is reported as lost. Its task is repeated.
func (r *row) agentKilled(phase string) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	victim := r.oneOf("a1", "a2")
	b := f.reach(r, 2, phase)
	r.did("kill -9 of agent %s in %s", victim, phase)
	at := f.agents[victim].Kill()
	lost := f.event(b.place, wire.AgentLost, stepLimit)
	f.restart(victim)
	a := f.ends(0)
	a.noticed(r, at, victim)
	r.line.wentOn = a.wentOn(at)
	if why := a.repeated(lost.Task); !strings.Contains(why, victim) { // the next task, if the kill was late
		r.t.Errorf("event %+v, reason %q: want agent %s lost", lost.RunEvent, why, victim)
	}
}

// agentRestarted kills an agent and starts it again at once, before the controller notices.
func agentRestarted(r *row) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	victim := r.oneOf("a1", "a2")
	b := f.reach(r, 2, r.oneOf(inReady, inWarmup, inMeasure, inDrain))
	r.did("kill -9 of agent %s, restarted at once", victim)
	at := f.agents[victim].Kill()
	f.restart(victim)
	a := f.ends(0)
	a.noticed(r, at, victim)
	r.line.wentOn = a.wentOn(at)
	a.repeated(b.Task)
}

// agentPaused stops an agent for less than wire.LostAfter. On a slow machine it may be lost, but not earlier.
func agentPaused(r *row) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	victim := r.oneOf("a1", "a2")
	phase := r.oneOf(phases...)
	b := f.reach(r, 2, phase)
	r.did("SIGSTOP of agent %s for 3 s in %s", victim, phase)
	at := time.Now()
	f.agents[victim].Signal(syscall.SIGSTOP)
	r.pass(3 * time.Second)
	f.agents[victim].Signal(syscall.SIGCONT)
	a := f.ends(0, 3)
	r.line.wentOn = a.wentOn(at)
	if e, ok := a.first(wire.AgentLost, at); ok {
		if early := e.At.Sub(at); early < wire.LostAfter-wire.HeartbeatEvery-500*time.Millisecond {
			r.t.Errorf("agent %s was lost after %v: heartbeats come once a second, and %v of silence are allowed",
				victim, early, wire.LostAfter)
		}
		a.repeated(b.Task)
	}
}

// agentStopped stops an agent until it is lost and another one replaces it. Then it continues and returns to the fleet.
func agentStopped(r *row) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2", "a3"}})
	f.submit(f.matrix(8, "")) // longer than the agent is stopped
	phase := r.oneOf(phases...)
	b := f.reach(r, 2, phase)
	victim := b.Agents[r.random.IntN(len(b.Agents))]
	r.did("SIGSTOP of agent %s for 30 s in %s", victim, phase)
	at := time.Now()
	f.agents[victim].Signal(syscall.SIGSTOP)
	r.pass(30 * time.Second)
	f.agents[victim].Signal(syscall.SIGCONT)
	a := f.ends(0, 3)
	a.noticed(r, at, victim)
	r.line.wentOn = a.wentOn(at)
	a.repeated(b.Task)
	// Its run continues with the agents that it has.
	process.Eventually(r.t, "the stopped agent there again", func() bool { return f.there() == 3 })
}

// clockStepped steps an agent's clock during a task. The outcome of that task has an event for it.
func clockStepped(r *row) {
	after := r.between(60*time.Second, 65*time.Second).Round(time.Millisecond)
	victim := r.oneOf("a1", "a2")
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"},
		variables: map[string][]string{victim: {"LOCKSTEP_CLOCK=step=100ms@" + after.String()}}})
	f.agents[victim].Kill() // the step is counted from the agent's start, which must be just before the run
	process.Eventually(r.t, "one agent gone", func() bool { return f.there() == 1 })
	one := strings.NewReplacer(`["confirm-window", "confirm-each"]`, `["confirm-window"]`,
		fmt.Sprintf("measure: %q", measure), `measure: "69s"`, "rate: 300", "rate: 100")
	f.restart(victim)
	f.submit(one.Replace(f.matrix(1, "")))
	stepped := f.agents[victim].Begun.Add(after)
	r.did("clock of agent %s stepped by 100 ms, %v after its start", victim, after)
	a := f.ends(0, 3)
	hit := false
	for id, o := range a.outcomes {
		told := slices.ContainsFunc(o.Events, func(e plan.Event) bool {
			return e.Kind == "clock-step" &&
				e.Agent == victim
		})
		if told {
			r.line.said = append(r.line.said, "clock-step of agent "+victim)
		}
		inside := stepped.After(o.Started.Add(2*time.Second)) && stepped.Before(o.Ended.Add(-2*time.Second))
		hit = hit || inside
		if inside && !told {
			r.t.Errorf("task %s, from %v to %v, says nothing of the clock that was stepped at %v", id, o.Started,
				o.Ended, stepped)
		}
	}
	if !hit {
		r.t.Errorf("the clock was stepped at %v, and no task was under way: %+v", stepped, a.outcomes)
	}
}

// noticed records the time from a fault until the event that an agent was lost.
func (a *account) noticed(r *row, at time.Time, agent string) {
	a.t.Helper()
	e, ok := a.first(wire.AgentLost, at)
	if !ok || !strings.Contains(e.Detail, "agent "+agent) {
		a.t.Errorf("the record does not say that agent %s was lost", agent)
		return
	}
	r.line.noticed = e.At.Sub(at)
	if e.Silence <= 0 || long() && e.Silence.D() > lostWithin {
		a.t.Errorf("agent %s was noticed as lost after %v without a word of it, want more than 0 and at most %v", agent,
			e.Silence, lostWithin)
	}
}

func (r *row) oneOf(names ...string) string { return names[r.random.IntN(len(names))] }
