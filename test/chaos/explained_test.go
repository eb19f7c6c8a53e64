package chaos

import (
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
)

// faultPeriod is a period of a fault, and the maximum number of tasks that it may affect.
type faultPeriod struct {
	from, to time.Time
	tasks    int
}

// addFaultPeriod records a fault that lasts from the given time until now.
func (f *fleet) addFaultPeriod(from time.Time, tasks int) {
	f.faultPeriods = append(f.faultPeriods, faultPeriod{from, time.Now(), tasks})
}

// checkInvalidTasks checks that every task is valid, except tasks that overlap with the period of a fault.
func (c *recordCheck) checkInvalidTasks(periods []faultPeriod) {
	c.t.Helper()
	remaining := slices.Clone(periods)
	for _, id := range slices.Sorted(maps.Keys(c.outcomes)) {
		o := c.outcomes[id]
		if o.Verdict == plan.Valid {
			continue
		}
		i := slices.IndexFunc(remaining, func(h faultPeriod) bool {
			return h.tasks > 0 && o.Started.Before(h.to) &&
				o.Ended.After(h.from)
		})
		if i < 0 {
			c.t.Errorf("task %s (%v to %v), without a fault in this period: got verdict %s, want valid: %q", id,
				o.Started, o.Ended, o.Verdict, o.Reasons)
			continue
		}
		remaining[i].tasks--
	}
}

// checkTakeovers checks the first event of each controller that took over an active run: it reports the takeover. The
// task in flight must be repeated.
func (c *recordCheck) checkTakeovers() {
	c.t.Helper()
	active, leader, inFlight := false, "", wire.RunEvent{}
	for _, s := range c.messages {
		var e wire.RunEvent
		switch s.kind {
		case "event":
			c.decode(s, &e)
		case "outcome":
			if s.task == inFlight.Task {
				inFlight = wire.RunEvent{}
			}
		default:
			continue
		}
		if active && s.epoch != leader && e.Kind != wire.WaitingAgents {
			if e.Kind != wire.TakenOver && e.Kind != wire.RunEnded {
				c.reportLoss("first message of epoch %s, number %d of the record: got %s %s, want an event of kind %s",
					s.epoch, s.seq,
					s.kind, e.Kind, wire.TakenOver)
			}
			leader = s.epoch
		}
		switch e.Kind {
		case wire.RunAccepted:
			active, leader = true, s.epoch
		case wire.RunEnded:
			active = false
		case wire.TaskStarted:
			inFlight = e
		case wire.TaskInterrupted, wire.AttemptEnded, wire.StepEnded:
			inFlight = wire.RunEvent{}
		case wire.TakenOver:
			c.checkTakeover(s.seq, e, inFlight)
		}
	}
}

// checkTakeover checks whether the event of a takeover names the task in flight.
func (c *recordCheck) checkTakeover(seq uint64, e, inFlight wire.RunEvent) {
	c.t.Helper()
	repeated := strings.HasSuffix(e.Detail, ": the task in flight is repeated")
	idle := strings.HasSuffix(e.Detail, ": no task was in flight")
	switch {
	case e.Task != inFlight.Task || e.Attempt != inFlight.Attempt || idle != (e.Task == "") || !idle && !repeated:
		c.reportLoss("takeover, message %d: got task %q, attempt %q, %q, want the task in flight: %q, attempt %q",
			seq, e.Task, e.Attempt, e.Detail, inFlight.Task, inFlight.Attempt)
	case repeated && c.countedAttempt(e.Task) == e.Attempt:
		c.reportLoss("outcome of task %s, repeated after a takeover (message %d): got attempt %s, want a later attempt",
			e.Task,
			seq, e.Attempt)
	}
}

// checkLateSnapshot reports a snapshot that was stored after the outcome, unless its agent was lost.
func (c *recordCheck) checkLateSnapshot(task string, s message, snapshot record.Snapshot) {
	c.t.Helper()
	if !slices.ContainsFunc(c.outcomes[task].Agents,
		func(p plan.AgentPart) bool { return p.Agent == snapshot.Agent && p.Lost }) {
		c.reportLoss("snapshot %d of agent %s, which was not lost in task %s, was stored after the outcome: message %d",
			snapshot.Seq, snapshot.Agent, task, s.seq)
	}
}

// checkSnapshotNumbers checks that no snapshot of an agent is missing. Agents number them from 1.
func (c *recordCheck) checkSnapshotNumbers(task string, snapshots map[string]record.Snapshot) {
	c.t.Helper()
	numbers := map[string][]uint64{}
	for _, s := range snapshots {
		if s.Seq < 1<<32 { // larger numbers are parts of a divided snapshot
			numbers[s.Agent] = append(numbers[s.Agent], s.Seq)
		}
	}
	for _, agent := range slices.Sorted(maps.Keys(numbers)) {
		all := numbers[agent]
		slices.Sort(all)
		if all[0] != 1 || all[len(all)-1] != uint64(len(all)) {
			c.reportLoss("snapshots of agent %s in task %s: got numbers %d, want 1 to n without gaps", agent, task, all)
		}
	}
}
