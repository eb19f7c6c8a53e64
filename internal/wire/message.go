package wire

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire/subject"
)

// Submission is a run to execute, expanded and ready. It carries the options as they were written, so it is deleted
// from the control plane when the run has ended.
type Submission struct {
	Run  plan.Run `json:"run"`
	Done []string `json:"done,omitempty"` // ids of tasks that have an outcome already: not run again
	// Numbers are what repetitions in Done measured of the value that plan.Run.Until is about; those without one have
	// none.
	Numbers map[string]float64 `json:"numbers,omitempty"`
	By      string             `json:"by,omitempty"` // user@host
	// Schedule names the schedule that submitted it.
	Schedule string `json:"schedule,omitempty"`
}

// check returns an error unless the submission is of a run, and all its names may be parts of subjects.
func (s Submission) check(run string) error {
	if s.Run.ID != run {
		return fmt.Errorf("read submission: it holds run %.20q", s.Run.ID)
	}
	names := []string{s.Schedule, s.Run.Name, s.By}
	for _, t := range s.Run.Cells {
		names = append(names, t.ID+"-r"+strconv.Itoa(s.Run.Repeat)) // the longest of its tasks' names
	}
	if err := subject.CheckNames(names...); err != nil {
		return fmt.Errorf("read submission: %w", err)
	}
	return nil
}

// cancellation asks for the end of a run. Earlier releases send none.
type cancellation struct {
	By string `json:"by,omitempty"` // user@host
}

// Heartbeat is what an agent says of itself once a second.
type Heartbeat struct {
	Agent    string            `json:"agent"`
	Instance string            `json:"instance"` // of the process: a restarted agent has another
	Host     string            `json:"host"`
	Clock    string            `json:"clock"` // id of the host's clock
	Version  string            `json:"version,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Cores    int               `json:"cores"`
	Busy     string            `json:"busy,omitempty"` // id of the task it works on
	Leaving  bool              `json:"leaving,omitempty"`
	// Draining says that it leaves when it is idle, and wants no further task.
	Draining bool `json:"draining,omitempty"`
	// Targets are what can be disturbed on its host, by name, with the kinds of faults.
	Targets map[string][]string `json:"targets,omitempty"`
	Offset  *Offset             `json:"offset,omitempty"` // nil: not known yet
	// Observes names the brokers whose processes it measures, by their names in matrices or their drivers. Observer: it
	// does nothing else.
	Observes []string `json:"observes,omitempty"`
	Observer bool     `json:"observer,omitempty"`
	Protocol int      `json:"protocol,omitempty"` // that it speaks
	Process  string   `json:"process,omitempty"`  // name of the first slot of its process, and how many slots that has
	Slots    int      `json:"slots,omitempty"`
	// Memory is an id of its process: agents with one id share the brokers that live in a process.
	Memory  string `json:"memory,omitempty"`
	Attempt Ref    `json:"attempt,omitzero"` // that it works on; Busy is its task
}

// HeartbeatAnswer is what the controller that leads answers to a heartbeat.
type HeartbeatAnswer struct {
	Over bool `json:"over,omitempty"` // nobody leads the attempt that the heartbeat names
}

// Offset is how far an agent's clock is from the reference: its own reading less Offset, give or take Bound, is the
// reference's.
type Offset struct {
	Reference string  `json:"reference"` // id of the reference's clock
	At        int64   `json:"at"`        // by the agent's clock, ns
	Offset    int64   `json:"offset"`    // ns; 0, with no bound, where both read one clock
	Bound     int64   `json:"bound"`     // ns
	Drift     float64 `json:"drift"`     // parts per million: how fast Offset grows while neither clock is slewed
	Slew      int64   `json:"slew"`      // ns, the part of Offset that came of slewing: see clock.Offset
	SlewBound int64   `json:"slewBound"` // ns, the part of Bound that it has
}

// AgentInfo is one agent as the controller sees it.
type AgentInfo struct {
	Heartbeat
	Seen time.Time `json:"seen"`
	// Refused is why the controller does not take it; it gets no task, and ends. Empty: it is taken.
	Refused string `json:"refused,omitempty"`
}

// Command is an assignment, or a release, for one process of an agent. An assignment carries secrets if the options do.
type Command struct {
	Epoch      uint64           `json:"epoch"` // of the leadership; Leader.Command sets it
	Instance   string           `json:"instance"`
	Ref        Ref              `json:"ref"`
	Assignment *plan.Assignment `json:"assignment,omitempty"`
	Release    *Release         `json:"release,omitempty"`
}

// RefOf names the attempt that a task of an assignment is about.
func RefOf(t plan.Task) Ref { return Ref{Run: t.Run, Task: t.ID, Attempt: t.Attempt} }

// Step is a place where agents wait for each other. An agent arrives at it; the controller releases all of them towards
// the next.
type Step string

// The steps in order: what an agent has done when it arrives, and what it does when released to it.
const (
	StepOpen       Step = "open"       // session open; agent 0: topology declared, broker described
	StepConsumers  Step = "consumers"  // this agent's consumers are connected
	StepPublishers Step = "publishers" // this agent's publishers are connected: ready
	StepStart      Step = "start"      // released with the start time; arrives when its publishers have stopped
	// warmup "auto": released while the load runs, with the beginning of the measurement; arrives when it is set
	StepMeasure Step = "measure"
	// released when all publishers have stopped: snapshots come often; arrives with the first
	StepDrain    Step = "drain"
	StepFinish   Step = "finish"   // everything closed, last snapshot stored; releasing to it ends any step early
	StepTeardown Step = "teardown" // the named agent has removed the topology
	StepDone     Step = "done"     // session closed, nothing left
)

// Release sends the agents of a task on.
type Release struct {
	Step Step `json:"step"`
	// StepStart: begin of warm-up, by id of the clock that reads it, ns
	Start map[string]int64 `json:"start,omitempty"`
	Begin int64            `json:"begin,omitempty"` // StepMeasure: when the measurement begins, ns since T0
	// StepStart: id of the clock that all compare theirs with; Start names it
	Clock  string `json:"clock,omitempty"`
	Agent  string `json:"agent,omitempty"`  // StepTeardown: who does it
	Reason string `json:"reason,omitempty"` // StepFinish: why the task is given up; empty: it is complete
}

// Arrival is an agent's report that it has reached a step, or failed on the way to it.
type Arrival struct {
	Ref
	Agent   string        `json:"agent"`
	Step    Step          `json:"step"`
	Error   string        `json:"error,omitempty"` // why it could not get there; scrubbed of secrets
	Phase   plan.Phase    `json:"phase"`           // of the agent, now
	Host    string        `json:"host,omitempty"`
	Clock   string        `json:"clock,omitempty"`
	Version string        `json:"version,omitempty"`
	Now     int64         `json:"now,omitempty"`  // the agent's clock when it sent this, ns
	Wall    int64         `json:"wall,omitempty"` // the same instant by the host's calendar, Unix ns
	Offset  *Offset       `json:"offset,omitempty"`
	Begin   int64         `json:"begin,omitempty"` // StepMeasure: what was set
	Skew    plan.Duration `json:"skew,omitempty"`  // StepStart: actual minus agreed start, by the agent's clock
	Subject *plan.Subject `json:"subject,omitempty"`
}

// RunEvent is something that happened in a run, besides snapshots and outcomes.
type RunEvent struct {
	At        time.Time  `json:"at"`
	Kind      EventKind  `json:"kind"`
	Task      string     `json:"task,omitempty"`
	Attempt   string     `json:"attempt,omitempty"`
	N         int        `json:"n,omitempty"`         // TaskStarted: its place among the tasks of the run, from 1
	Of        int        `json:"of,omitempty"`        // how many tasks the run has
	Agents    []string   `json:"agents,omitempty"`    // TaskStarted: names of its agents, by index
	Observers []Observer `json:"observers,omitempty"` // TaskStarted: who besides measures brokers' processes
	Detail    string     `json:"detail,omitempty"`
	// AgentLost: for how long the controller had not heard of it; 0: that is not known.
	Silence plan.Duration `json:"silence,omitempty"`
	// TaskStarted: of the step of a search, instead of the task's own
	Load          *Load               `json:"load,omitempty"`
	End           *End                `json:"end,omitempty"`
	FailedAttempt *plan.FailedAttempt `json:"failedAttempt,omitempty"` // AttemptEnded: the attempt that does not count
	Step          *plan.Step          `json:"step,omitempty"`          // StepEnded: the result of the step
	Outcome       *plan.Outcome       `json:"outcome,omitempty"`       // AttemptEnded, StepEnded: of the attempt
}

// Observer is an agent that measures brokers' processes beside a task.
type Observer struct {
	Agent   string             `json:"agent"`
	Observe []plan.Observation `json:"observe"`
}

// Load is what a step of a search sends, and for how long it is measured.
type Load struct {
	Rate    float64       `json:"rate"`
	Measure plan.Duration `json:"measure"`
}

// CheckSnapshot returns an error unless a snapshot is of an agent that takes part in the attempt of t that began with
// e, and has times that t can have.
func (e RunEvent) CheckSnapshot(t plan.Task, s *record.Snapshot) error {
	observes := func(o Observer) bool { return o.Agent == s.Agent }
	if !slices.Contains(e.Agents, s.Agent) && !slices.ContainsFunc(e.Observers, observes) {
		return fmt.Errorf("agent %s has no part in task %s", s.Agent, t.ID)
	}
	return s.CheckTimes(plan.RecordLimit(t))
}

// EventKind classes a RunEvent.
type EventKind string

// The kinds of run events.
const (
	RunAccepted EventKind = "accepted" // the controller has begun with the run
	TaskStarted EventKind = "task"     // assigned to its agents
	// failed, does not count, and is followed by another; FailedAttempt, Outcome
	AttemptEnded EventKind = "attempt"
	StepEnded    EventKind = "step" // of a search; Step, Outcome
	// given up without an outcome: the run was cancelled or the controller stopped
	TaskInterrupted EventKind = "interrupted"
	AgentLost       EventKind = "agent-lost" // Detail says which, and where
	// another controller leads the run on; Detail says what becomes of the task in flight
	TakenOver     EventKind = "taken-over"
	WaitingAgents EventKind = "waiting" // too few agents: waiting for Grace
	RunEnded      EventKind = "end"     // the last one
)

// End is how a run ended.
type End struct {
	Reason EndReason `json:"reason"`
	Detail string    `json:"detail,omitempty"`
	Have   int       `json:"have"`   // EndNoAgents: how many are there, and
	Need   int       `json:"need"`   // how many the run needs
	Ran    int       `json:"ran"`    // tasks that got an outcome now
	Failed int       `json:"failed"` // of these: not valid
	// Submission numbers the submission that ended: a run that is resumed ends more than once.
	Submission uint64 `json:"submission"`
}

// EndReason classes an End.
type EndReason string

// The reasons for which runs end.
const (
	EndDone     EndReason = "done"      // every task has an outcome
	EndNoAgents EndReason = "no-agents" // too few from the start: nothing was run
	// nobody may disturb what the faults name: nothing was run; Detail says more
	EndNoTarget    EndReason = "no-target"
	EndInterrupted EndReason = "interrupted" // cancelled: the task in flight has no outcome
	EndRefused     EndReason = "refused"     // the submission was not understood
	EndFailed      EndReason = "failed"      // the control plane did not take what had to be stored; Detail says why
	// controllers failed repeatedly with the same task in flight, or before the first one
	EndQuarantined EndReason = "quarantined"
)

// snapshotReport is a snapshot with the attempt that it is of.
type snapshotReport struct {
	Ref      Ref             `json:"ref"`
	Snapshot record.Snapshot `json:"snapshot"`
}

// clockAnswer is what a peer's clock read when it heard a question, and when it answered. The asker knows the other two
// times.
type clockAnswer struct {
	Clock    string `json:"clock"`
	Heard    int64  `json:"heard"`
	Answered int64  `json:"answered"`
	// Slew is by how much the clock is ahead of CLOCK_MONOTONIC_RAW, give or take SlewBound: see clock.Slew.
	Slew      int64 `json:"slew"`
	SlewBound int64 `json:"slewBound"`
}

const clockTimeout = time.Second

type (
	// BaselineQuery asks for a run to be a baseline. The name is optional: without one it is that of the run's matrix.
	BaselineQuery struct{ Name, Run, By string }
	// BaselineAnswer is the baseline that was stored. Note says which part of the run has nothing to compare with.
	BaselineAnswer struct {
		Baseline plan.Baseline
		Note     string
	}
)
