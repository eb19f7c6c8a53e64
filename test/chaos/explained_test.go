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

// harm is a period of a fault, and the maximum number of tasks that it may affect.
type harm struct {
	from, to time.Time
	tasks    int
}

// harmed records a fault that lasts from the given time until now.
func (f *fleet) harmed(from time.Time, tasks int) {
	f.harms = append(f.harms, harm{from, time.Now(), tasks})
}

// explained checks that every task is valid, except those that a fault explains.
func (a *account) explained(harms []harm) {
	a.t.Helper()
	left := slices.Clone(harms)
	for _, id := range slices.Sorted(maps.Keys(a.outcomes)) {
		o := a.outcomes[id]
		if o.Verdict == plan.Valid {
			continue
		}
		i := slices.IndexFunc(left, func(h harm) bool {
			return h.tasks > 0 && o.Started.Before(h.to) &&
				o.Ended.After(h.from)
		})
		if i < 0 {
			a.t.Errorf("task %s (%v to %v), which nothing that was done explains, is %s: %q", id, o.Started, o.Ended,
				o.Verdict, o.Reasons)
			continue
		}
		left[i].tasks--
	}
}

// handedOn checks the first event of each controller that took over an active run: it reports the takeover. The task in
// flight must be repeated.
func (a *account) handedOn() {
	a.t.Helper()
	open, leader, flight := false, "", wire.RunEvent{}
	for _, s := range a.record {
		var e wire.RunEvent
		switch s.kind {
		case "event":
			a.decode(s, &e)
		case "outcome":
			if s.task == flight.Task {
				flight = wire.RunEvent{}
			}
		default:
			continue
		}
		if open && s.epoch != leader && e.Kind != wire.WaitingAgents {
			if e.Kind != wire.TakenOver && e.Kind != wire.RunEnded {
				a.lose("message %d of the record (%s %s) is the first of epoch %s, which does not say that it took the run over", s.seq, s.kind, e.Kind, s.epoch)
			}
			leader = s.epoch
		}
		switch e.Kind {
		case wire.RunAccepted:
			open, leader = true, s.epoch
		case wire.RunEnded:
			open = false
		case wire.TaskStarted:
			flight = e
		case wire.TaskInterrupted, wire.AttemptEnded, wire.StepEnded:
			flight = wire.RunEvent{}
		case wire.TakenOver:
			a.became(s.seq, e, flight)
		}
	}
}

// became checks whether the event of a takeover names the task in flight.
func (a *account) became(seq uint64, e, flight wire.RunEvent) {
	a.t.Helper()
	repeated := strings.HasSuffix(e.Detail, ": the task in flight is repeated")
	idle := strings.HasSuffix(e.Detail, ": no task was in flight")
	switch {
	case e.Task != flight.Task || e.Attempt != flight.Attempt || idle != (e.Task == "") || !idle && !repeated:
		a.lose("message %d of the record says %q of task %q, attempt %q: in flight was task %q, attempt %q", seq,
			e.Detail, e.Task, e.Attempt, flight.Task, flight.Attempt)
	case repeated && a.counted(e.Task) == e.Attempt:
		a.lose("task %s was to be repeated (message %d), and its outcome is of the same attempt %s", e.Task, seq,
			e.Attempt)
	}
}

// late reports a snapshot that was stored after the outcome, unless its agent was lost.
func (a *account) late(task string, s stored, shot record.Snapshot) {
	a.t.Helper()
	if !slices.ContainsFunc(a.outcomes[task].Agents,
		func(p plan.AgentPart) bool { return p.Agent == shot.Agent && p.Lost }) {
		a.lose("snapshot %d of agent %s, which was not lost in task %s, was stored (message %d) after the outcome",
			shot.Seq, shot.Agent, task, s.seq)
	}
}

// unbroken checks that no snapshot of an agent is missing. Agents number them from 1.
func (a *account) unbroken(task string, had map[string]record.Snapshot) {
	a.t.Helper()
	numbers := map[string][]uint64{}
	for _, s := range had {
		if s.Seq < 1<<32 { // larger numbers are parts of a divided snapshot
			numbers[s.Agent] = append(numbers[s.Agent], s.Seq)
		}
	}
	for _, agent := range slices.Sorted(maps.Keys(numbers)) {
		all := numbers[agent]
		slices.Sort(all)
		if all[0] != 1 || all[len(all)-1] != uint64(len(all)) {
			a.lose("the snapshots of agent %s in task %s are numbered %d: some are missing", agent, task, all)
		}
	}
}
