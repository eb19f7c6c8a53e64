// Package runview reduces the entries of a run's record to the state of the run. Clients, the web page, copies,
// schedules and the leader use it. It does not judge: the results are in the outcomes.
package runview

import (
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/sampling"
	"example.org/lockstep/lockstep/internal/wire"
)

// State is the state of a run after the entries of its record so far. The fields are read-only for callers. One
// goroutine uses a State. Each of its more than 20 fields is a fact that pages, terminals and leaders show or continue
// from.
type State struct {
	Run     plan.Run // ID "": not known yet
	Planned bool     // the record has a plan

	Accepted bool      // the last submission that began has not ended
	Began    time.Time // start of that submission; zero: none
	End      *wire.End // end of the last submission, unless a later one has begun
	Ended    time.Time // the time of End
	Ran      int       // outcomes in the last submission that began
	Failed   int       // the part of Ran that is not valid

	// TaskN is the place, from 1, of Task among the Of tasks of the run. Task is the last task with a known place.
	Task  string
	TaskN int
	Of    int
	// Attempt is the attempt in flight; nil: none, as between two attempts of a task.
	Attempt *Attempt
	// Note is why the run waits, or the last incident, until a task begins or ends.
	Note string

	// Retries are the attempts of this submission that do not count, by task without an outcome: failed attempts that
	// are repeated, and attempts without an end. Those of a search are of all its steps.
	Retries  map[string][]plan.FailedAttempt
	Searches map[string]Search // by task without an outcome, of this submission
	// Unreachable has the reason for each broker that agents could not reach before the first task of this submission,
	// by plan.Broker.ID.
	Unreachable map[string]string
	Rounds      *sampling.Rounds
	Pace        *Pace

	tasks    map[string]taskKey
	done     map[string]plan.Verdict // "": the outcome is not in the record
	verdicts map[plan.Verdict]int
	inFlight string // the task that has begun and has no outcome, also between attempts; "": none
	since    time.Time
}

type taskKey struct{ cell, repetition int }

// Search is the progress of a task's search.
type Search struct {
	Steps   []plan.Step
	Started time.Time    // of the first step
	Last    plan.Outcome // of the last step
}

// With returns the search with another step.
func (f Search) With(s plan.Step, o plan.Outcome) Search {
	if len(f.Steps) == 0 {
		f.Started = o.Started
	}
	f.Steps, f.Last = append(f.Steps, s), o
	return f
}

// New returns the state of a run before its record is read. A run without an ID is read from the record.
func New(run plan.Run) *State {
	s := &State{Retries: map[string][]plan.FailedAttempt{}, Searches: map[string]Search{},
		Unreachable: map[string]string{},
		done:        map[string]plan.Verdict{}, verdicts: map[plan.Verdict]int{}}
	s.plan(run)
	return s
}

func (s *State) plan(run plan.Run) {
	s.Run, s.Rounds = run, sampling.New(run)
	cells := make(map[string]int, len(run.Cells))
	for i, c := range run.Cells {
		cells[c.ID] = i
	}
	tasks := run.Tasks()
	s.tasks = make(map[string]taskKey, len(tasks))
	for _, t := range tasks {
		s.tasks[t.ID] = taskKey{cells[t.Cell.ID], t.Repetition}
	}
	s.Pace = newPace(run, s.Rounds, tasks)
}

// AddDone adds tasks whose outcomes are stored elsewhere, with their numbers: see wire.Submission. Outcomes in the
// record have precedence.
func (s *State) AddDone(tasks []string, numbers map[string]float64) {
	for _, id := range tasks {
		t, planned := s.TaskOf(id)
		if _, done := s.done[id]; done || !planned {
			continue
		}
		s.done[id] = ""
		s.Pace.done(id)
		var number *float64
		if n, has := numbers[id]; has {
			number = &n
		}
		s.Rounds.AddDone(t.Cell.ID, t.Repetition, number)
	}
	for cell := range s.Pace.cells {
		s.Pace.spare(cell)
	}
}

// TaskOf returns the task with an id; false: the run has no such task.
func (s *State) TaskOf(id string) (plan.Task, bool) {
	k, has := s.tasks[id]
	if !has {
		return plan.Task{}, false
	}
	return plan.Task{Run: s.Run.ID, ID: id, Cell: s.Run.Cells[k.cell], Repetition: k.repetition,
		Metrics: s.Run.Metrics}, true
}

// Tasks returns the number of planned tasks.
func (s *State) Tasks() int { return len(s.tasks) }

// AllDone returns the ids of tasks that have an outcome, in the record or elsewhere.
func (s *State) AllDone() map[string]bool {
	all := make(map[string]bool, len(s.done))
	for id := range s.done {
		all[id] = true
	}
	return all
}

// Count returns the number of outcomes in the record with a verdict.
func (s *State) Count(v plan.Verdict) int { return s.verdicts[v] }

// Outcomes returns the number of tasks that have an outcome, in the record or elsewhere.
func (s *State) Outcomes() int { return len(s.done) }

// Left returns the estimated time until the run ends, without waits.
func (s *State) Left(now time.Time) time.Duration { return s.Pace.left(s.underWay(now)) }

// Part returns the completed share of the run's time, 0 to 1.
func (s *State) Part(now time.Time) float64 { return s.Pace.part(s.underWay(now)) }

// underWay returns the task that has begun and has no outcome, and the time since it began.
func (s *State) underWay(now time.Time) (task string, since time.Duration) {
	if s.inFlight == "" {
		return "", 0
	}
	return s.inFlight, max(0, now.Sub(s.since))
}

// Apply updates the state with the next entry, at the time now. It reports whether the attempt has new metrics.
// Unreadable entries, and snapshots of other attempts, change nothing.
func (s *State) Apply(e wire.Entry, now time.Time) (metrics bool) {
	switch {
	case e.Plan != nil:
		if s.Planned = true; s.Run.ID == "" {
			s.plan(*e.Plan)
		}
	case e.Event != nil:
		s.event(*e.Event, now)
	case e.Outcome != nil:
		s.outcome(*e.Outcome)
	case e.Snapshot != nil && s.Attempt.Takes(e.Ref, e.Snapshot):
		return s.Attempt.add(e.Snapshot, now)
	}
	return false
}

func (s *State) event(e wire.RunEvent, now time.Time) {
	if e.Of > 0 {
		s.Of = e.Of
	}
	if e.N > 0 {
		s.Task, s.TaskN = e.Task, e.N
	}
	retries := s.Retries[e.Task]
	last := len(retries) - 1
	open := last >= 0 && retries[last].Name == e.Attempt
	switch e.Kind {
	case wire.RunAccepted:
		s.Accepted, s.Began, s.End, s.Ended, s.Ran, s.Failed = true, e.At, nil, time.Time{}, 0, 0
		s.Attempt, s.inFlight = nil, ""
	case wire.TaskStarted:
		s.Note = ""
		s.Retries[e.Task] = append(retries, plan.FailedAttempt{Name: e.Attempt, Kind: plan.FailedInterrupted})
		s.start(e, now)
	case wire.AttemptEnded:
		s.Attempt, s.Note = nil, e.Detail
		if open && e.FailedAttempt != nil {
			retries[last] = *e.FailedAttempt
		}
	case wire.StepEnded:
		s.Attempt = nil
		if open {
			s.Retries[e.Task] = retries[:last]
		}
		if e.Step != nil && e.Outcome != nil {
			s.Searches[e.Task] = s.Searches[e.Task].With(*e.Step, *e.Outcome)
		}
	case wire.TaskInterrupted:
		s.Attempt, s.inFlight, s.Note = nil, "", e.Detail
	case wire.AgentLost, wire.WaitingAgents:
		s.Note = e.Detail
	case wire.BrokerUnreachable:
		s.Note = e.Detail
		for _, id := range e.Brokers {
			s.Unreachable[id] = e.Reason
		}
	case wire.TakenOver:
		s.Note = e.Detail
		if s.Attempt != nil {
			s.Attempt.Abandoned, s.Attempt.Series = true, nil
		}
	case wire.RunEnded:
		s.Accepted, s.Attempt, s.inFlight = false, nil, ""
		clear(s.Searches)
		clear(s.Retries)
		clear(s.Unreachable)
		if e.End != nil {
			s.End, s.Ended = e.End, e.At
		}
	}
}

// start starts an attempt.
func (s *State) start(e wire.RunEvent, now time.Time) {
	at := now
	if e.At.Before(now) && !e.At.IsZero() {
		at = e.At
	}
	if s.inFlight != e.Task {
		s.inFlight, s.since = e.Task, at
	}
	t, _ := s.TaskOf(e.Task)
	if e.Load != nil {
		t = t.Step(e.Load.Rate, e.Load.Measure)
	}
	s.Attempt = &Attempt{Ref: wire.Ref{Run: s.Run.ID, Task: e.Task, Attempt: e.Attempt}, Started: e, At: at, Task: t,
		meter: newMeter(t, len(e.Agents))}
}

func (s *State) outcome(o plan.Outcome) {
	s.Attempt, s.Note = nil, ""
	if s.inFlight == o.Task {
		s.inFlight = ""
	}
	s.Ran++
	if o.Failed() {
		s.Failed++
	}
	delete(s.Retries, o.Task)
	delete(s.Searches, o.Task)
	if before := s.done[o.Task]; before != "" {
		s.verdicts[before]--
	}
	s.done[o.Task] = o.Verdict
	s.verdicts[o.Verdict]++
	s.Rounds.Add(o)
	s.Pace.ended(o)
}
