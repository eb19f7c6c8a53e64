package wire

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// Submission is an expanded run to execute. It contains secrets as written, so it is deleted when the run has ended.
type Submission struct {
	Run  plan.Run `json:"run"`
	Done []string `json:"done,omitempty"` // ids of tasks that already have an outcome and are not run again
	// Numbers are the results of repetitions in Done, for the value of plan.Run.Until. Not all have one.
	Numbers  map[string]float64 `json:"numbers,omitempty"`
	By       string             `json:"by,omitempty"`       // user@host
	Schedule string             `json:"schedule,omitempty"` // the name of the schedule that submitted it
}

// readSubmission decodes a compressed submission of a run. size: its estimated memory in bytes. The error also means
// that it is of another run, that its record cannot be copied, or that a name is too long.
func readSubmission(run string, packed []byte) (s *Submission, size int, err error) {
	s = &Submission{}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err == nil {
		size, err = plan.DecodeSized(z, plan.MaxDocument, s)
	}
	if err == nil && s.Run.ID != run {
		err = fmt.Errorf("it contains run %.20q", s.Run.ID)
	}
	if err == nil {
		err = plan.CheckRunID(run)
	}
	if err == nil {
		names := []string{s.Schedule, s.Run.Name, s.By}
		for _, t := range s.Run.Cells {
			names = append(names, t.ID+"-r"+strconv.Itoa(s.Run.Repeat)) // the longest name of its tasks
		}
		err = subject.CheckNames(names...)
	}
	if err != nil {
		return nil, size, fmt.Errorf("read submission: %w", err)
	}
	return s, size, nil
}

// Heartbeat is the report of an agent about itself, sent every HeartbeatEvery.
type Heartbeat struct {
	Agent    string            `json:"agent"`
	Instance string            `json:"instance"` // id of the process: a restarted agent has another
	Host     string            `json:"host"`
	Clock    string            `json:"clock"` // id of the host's clock
	Version  string            `json:"version,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Cores    int               `json:"cores"`
	Busy     string            `json:"busy,omitempty"` // id of the task that it works on
	Leaving  bool              `json:"leaving,omitempty"`
	// Draining reports that the agent leaves after its task and accepts no further one.
	Draining bool `json:"draining,omitempty"`
	// Targets are the targets of faults on its host, by name, with the kinds of faults.
	Targets map[string][]string `json:"targets,omitempty"`
	Offset  *Offset             `json:"offset,omitempty"` // nil: not known yet
	// Observes names the brokers whose processes it measures: by name, or driver. An Observer does nothing else.
	Observes []string `json:"observes,omitempty"`
	Observer bool     `json:"observer,omitempty"`
	Protocol int      `json:"protocol,omitempty"` // its protocol version
	Process  string   `json:"process,omitempty"`  // name of the first slot of its process, which has Slots slots
	Slots    int      `json:"slots,omitempty"`
	// Memory is an id of its process. Agents with the same id share in-process brokers.
	Memory  string `json:"memory,omitempty"`
	Attempt Ref    `json:"attempt,omitzero"` // the attempt that it works on; Busy is its task
}

// HeartbeatAnswer is the answer of the leader to a heartbeat.
type HeartbeatAnswer struct {
	Over bool `json:"over,omitempty"` // no controller leads the attempt in the heartbeat
}

// Offset is the difference between an agent's clock and the reference clock. The agent's reading minus Offset is the
// reference's reading, with an error of at most Bound.
type Offset struct {
	Reference string  `json:"reference"` // id of the reference's clock
	At        int64   `json:"at"`        // time of the agent's clock, ns
	Offset    int64   `json:"offset"`    // ns; 0, with Bound 0, if both are the same clock
	Bound     int64   `json:"bound"`     // ns
	Drift     float64 `json:"drift"`     // parts per million: growth of Offset while neither clock is slewed
	Slew      int64   `json:"slew"`      // ns, the part of Offset caused by slewing: see clock.Offset
	SlewBound int64   `json:"slewBound"` // ns, the part of Bound caused by slewing
}

// String formats the offset in milliseconds, with its bound. The receiver may be nil.
func (o *Offset) String() string {
	if o == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.3f ms ± %.3f", float64(o.Offset)/1e6, float64(o.Bound)/1e6)
}

// AgentInfo is an agent as the controller sees it.
type AgentInfo struct {
	Heartbeat
	Seen time.Time `json:"seen"`
	// Refused is the reason why the controller refuses the agent, which gets no task. Empty: it is accepted.
	Refused string `json:"refused,omitempty"`
}

// State returns the state of an agent as one word. AgentStates lists all of them.
func (a AgentInfo) State() string {
	switch {
	case a.Refused != "":
		return "refused"
	case a.Draining:
		return "leaves"
	case a.Busy != "":
		return "busy"
	case a.Observer:
		return "observes"
	}
	return "free"
}

// AgentStates returns the results of AgentInfo.State.
func AgentStates() []string { return []string{"free", "busy", "observes", "leaves", "refused"} }

// Command is an assignment or a release for one process of an agent. An assignment may contain secrets.
type Command struct {
	Epoch      uint64           `json:"epoch"` // of the leadership; Leader.Command sets it
	Instance   string           `json:"instance"`
	Ref        Ref              `json:"ref"`
	Assignment *plan.Assignment `json:"assignment,omitempty"`
	Release    *Release         `json:"release,omitempty"`
}

// RefOf returns the attempt of an assigned task.
func RefOf(t plan.Task) Ref { return Ref{Run: t.Run, Task: t.ID, Attempt: t.Attempt} }

// Step is a point at which the agents of a task wait for each other. The controller releases them to the next one.
type Step string

// The steps in order: the state of an agent that arrives, and its work after a release to the step.
const (
	StepOpen       Step = "open"       // session open; agent 0: topology declared, broker described
	StepConsumers  Step = "consumers"  // this agent's consumers are connected
	StepPublishers Step = "publishers" // this agent's publishers are connected: ready
	StepStart      Step = "start"      // released with the start time; agents arrive when their publishers have stopped
	// warmup "auto": released during the load with the start of the measurement; agents arrive when they have set it
	StepMeasure Step = "measure"
	// released when all publishers have stopped: agents send snapshots often, and arrive with the first
	StepDrain    Step = "drain"
	StepFinish   Step = "finish"   // everything closed, last snapshot stored; a release to it ends any earlier step
	StepTeardown Step = "teardown" // the named agent has removed the topology
	StepDone     Step = "done"     // session closed, no resources left
)

var steps = []Step{StepOpen, StepConsumers, StepPublishers, StepStart, StepMeasure, StepDrain, StepFinish, StepTeardown,
	StepDone}

// Release sends the agents of a task to the next step.
type Release struct {
	Step Step `json:"step"`
	// StepStart: start of the load, by id of the clock that Start is read with, ns
	Start  map[string]int64 `json:"start,omitempty"`
	Begin  int64            `json:"begin,omitempty"`  // StepMeasure: start of the measurement, ns since T0
	Clock  string           `json:"clock,omitempty"`  // StepStart: id of the reference clock; Start has it, too
	Agent  string           `json:"agent,omitempty"`  // StepTeardown: the agent that does it
	Reason string           `json:"reason,omitempty"` // StepFinish: why the task is given up; empty: it is complete
}

// Arrival is the report of an agent that it has reached a step, or failed before it.
type Arrival struct {
	Ref
	Agent   string        `json:"agent"`
	Step    Step          `json:"step"`
	Error   string        `json:"error,omitempty"` // why it did not reach the step; without secrets
	Phase   plan.Phase    `json:"phase"`           // current phase of the agent
	Host    string        `json:"host,omitempty"`
	Clock   string        `json:"clock,omitempty"`
	Version string        `json:"version,omitempty"`
	Now     int64         `json:"now,omitempty"`  // reading of the agent's clock when it sent this, ns
	Wall    int64         `json:"wall,omitempty"` // the same instant of the host's wall clock, Unix ns
	Offset  *Offset       `json:"offset,omitempty"`
	Begin   int64         `json:"begin,omitempty"` // StepMeasure: the start that the agent has set, ns since T0
	Skew    plan.Duration `json:"skew,omitempty"`  // StepStart: actual minus agreed start, by the agent's clock
	Subject *plan.Subject `json:"subject,omitempty"`
	// StepOpen, from the agent with index 0: duration of the declaration of the topology
	Declared plan.Duration `json:"declared,omitempty"`
	Limits   *plan.Limits  `json:"limits,omitempty"` // the result of an assignment with Ceiling
	// StepPublishers: connections of this agent; from the agent with index 0, also leaders
	Placement *plan.Placement `json:"placement,omitempty"`
}

// check returns an error if a field is invalid or too large. Attempts and outcomes keep these fields of each agent.
func (a Arrival) check() error {
	if !slices.Contains(steps, a.Step) {
		return fmt.Errorf("unknown step %.20q", a.Step)
	}
	if a.Placement != nil {
		if err := a.Placement.Check(); err != nil {
			return err
		}
	}
	return subject.CheckNames(string(a.Phase), a.Host, a.Clock, a.Version)
}

// RunEvent is an event of a run, other than snapshots and outcomes.
type RunEvent struct {
	At        time.Time  `json:"at"`
	Kind      EventKind  `json:"kind"`
	Task      string     `json:"task,omitempty"`
	Attempt   string     `json:"attempt,omitempty"`
	N         int        `json:"n,omitempty"`         // TaskStarted: place among the tasks of the run, from 1
	Of        int        `json:"of,omitempty"`        // number of tasks of the run
	Agents    []string   `json:"agents,omitempty"`    // TaskStarted: names of its agents, by index
	Observers []Observer `json:"observers,omitempty"` // TaskStarted: agents that measure processes of brokers
	Detail    string     `json:"detail,omitempty"`
	// AgentLost: time since the last message of the agent; 0: not known.
	Silence plan.Duration `json:"silence,omitempty"`
	Brokers []string      `json:"brokers,omitempty"` // BrokerUnreachable: plan.Broker.ID of each
	Reason  string        `json:"reason,omitempty"`  // BrokerUnreachable: why no session could be opened
	// TaskStarted: the load of a step of a search, which replaces the task's own
	Load          *Load               `json:"load,omitempty"`
	End           *End                `json:"end,omitempty"`
	FailedAttempt *plan.FailedAttempt `json:"failedAttempt,omitempty"` // AttemptEnded: the attempt that does not count
	Step          *plan.Step          `json:"step,omitempty"`          // StepEnded: the result of the step
	Outcome       *plan.Outcome       `json:"outcome,omitempty"`       // AttemptEnded, StepEnded: of the attempt
}

// Observer is an agent that measures processes of brokers during a task.
type Observer struct {
	Agent   string             `json:"agent"`
	Observe []plan.Observation `json:"observe"`
}

// Load is the rate and the duration of a step of a search.
type Load struct {
	Rate    float64       `json:"rate"`
	Measure plan.Duration `json:"measure"`
}

// CheckData returns an error unless t can have the group, the texts and the times of a snapshot, which all use memory.
func CheckData(t plan.Task, s *record.Snapshot) error {
	named := func(g plan.Group) bool { return g.Name == s.Group }
	if s.Group != "" && !slices.ContainsFunc(t.Cell.Workload.Groups, named) {
		return fmt.Errorf("snapshot %d of agent %s is of the group %.80q, which the task does not have", s.Seq, s.Agent,
			s.Group)
	}
	return cmp.Or(s.CheckTexts(), s.CheckTimes(plan.RecordLimit(t)))
}

// EventKind classes a RunEvent.
type EventKind string

// The kinds of run events.
const (
	RunAccepted EventKind = "accepted" // a submission of the run has begun
	TaskStarted EventKind = "task"     // assigned to its agents
	// an attempt failed, does not count and is followed by another; FailedAttempt, Outcome
	AttemptEnded EventKind = "attempt"
	StepEnded    EventKind = "step" // a step of a search has ended; Step, Outcome
	// given up without an outcome: the run was cancelled, the controller stopped, or the record is full
	TaskInterrupted EventKind = "interrupted"
	AgentLost       EventKind = "agent-lost" // Detail: the agent and its phase
	// another controller leads the run; Detail: the consequence for the task in flight
	TakenOver     EventKind = "taken-over"
	WaitingAgents EventKind = "waiting" // too few agents: waits for them during plan.Run.Grace
	// agents could not open a session with brokers before the first task; Brokers, Reason; Detail: both and the remedy
	BrokerUnreachable EventKind = "unreachable"
	RunEnded          EventKind = "end" // the last event of a submission
)

// End describes how a run ended.
type End struct {
	Reason EndReason `json:"reason"`
	Detail string    `json:"detail,omitempty"`
	Ran    int       `json:"ran"`    // tasks that got an outcome in this submission
	Failed int       `json:"failed"` // the part of Ran that is not valid
	// Submission is the sequence number of the submission that ended: a resumed run ends more than once.
	Submission uint64 `json:"submission"`
}

// EndReason classes an End.
type EndReason string

// The reasons for which runs end.
const (
	EndDone     EndReason = "done"      // every task has an outcome
	EndNoAgents EndReason = "no-agents" // too few agents from the start: no task was run
	// no agent can inject the faults into their targets: no task was run; Detail: the reason
	EndNoTarget    EndReason = "no-target"
	EndInterrupted EndReason = "interrupted" // cancelled: the task in flight has no outcome
	EndRefused     EndReason = "refused"     // the submission is invalid
	EndFailed      EndReason = "failed"      // permanent error, such as data that cannot be stored; Detail: the reason
	// several controllers failed with the same task in flight, or before the first one
	EndQuarantined EndReason = "quarantined"
)

type snapshotReport struct {
	Ref      Ref             `json:"ref"`
	Snapshot record.Snapshot `json:"snapshot"`
}

// clockAnswer has the times at which a clock request was received and answered. The sender adds its own two times.
type clockAnswer struct {
	Clock    string `json:"clock"`
	Arrived  int64  `json:"arrived"`
	Answered int64  `json:"answered"`
	// Slew is how far the clock is ahead of CLOCK_MONOTONIC_RAW, with an error of at most SlewBound: see clock.Slew.
	Slew      int64 `json:"slew"`
	SlewBound int64 `json:"slewBound"`
}

const clockTimeout = time.Second

type (
	// BaselineQuery requests a baseline from a run. An empty Name means the name of the run's matrix.
	BaselineQuery struct{ Name, Run, By string }
	// BaselineAnswer has the stored baseline. Note names the part of the run that later runs cannot be compared with.
	BaselineAnswer struct {
		Baseline plan.Baseline
		Note     string
	}
)

func (q BaselineQuery) check() error {
	return errors.Join(subject.CheckName(q.Run), subject.CheckNames(q.Name, q.By))
}

// RunState is the state of a run in lists. It is one value of a bucket, stored at once: hence its more than 20 fields.
type RunState struct {
	Run       string    `json:"run"`
	Name      string    `json:"name"`
	State     string    `json:"state"`             // StateQueued, StateRunning, or the EndReason
	Waiting   string    `json:"waiting,omitempty"` // the reason
	Submitted time.Time `json:"submitted,omitzero"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	By        string    `json:"by,omitempty"`       // user@host
	Schedule  string    `json:"schedule,omitempty"` // the schedule that submitted it
	Tasks     int       `json:"tasks"`
	// Tasks is a maximum: cells are repeated until they are known well enough
	AtMost bool     `json:"atMost,omitempty"`
	Done   int      `json:"done"`             // tasks that have an outcome
	Failed int      `json:"failed,omitempty"` // the part of Done that is not valid
	Detail string   `json:"detail,omitempty"` // the reason of its end
	Agents []string `json:"agents,omitempty"` // reserved for it
	Key    string   `json:"key,omitempty"`    // of the submission
	Copied bool     `json:"copied,omitempty"` // a controller's folder has a complete copy of its record
	// InFlight is the id of the task with an attempt in flight, or StartInFlight. Empty: nothing is in flight, or the
	// leader ended in order. Crashes are the epochs of consecutive leaderships that failed with Blamed in flight.
	InFlight string   `json:"inFlight,omitempty"`
	Blamed   string   `json:"blamed,omitempty"`
	Crashes  []uint64 `json:"crashes,omitempty"`
	Seq      uint64   `json:"seq"`   // sequence number of the submission
	Epoch    uint64   `json:"epoch"` // of the leader that wrote this

	revision uint64 // of the value in the bucket; 0: none was read
}

// The states of runs that have not ended.
const (
	StateQueued  = "queued"
	StateRunning = "running"
)

// StartInFlight marks the time between a leader's start of a run and its first task, or its wait for agents.
const StartInFlight = "start"

// Over reports whether the run has ended.
func (s RunState) Over() bool { return s.State != StateQueued && s.State != StateRunning }

// maxEnded is the maximum number of ended runs without streams in the list.
const maxEnded = 1000

func keyRun(run string) string { return "run." + subject.EncodeToken(run) }

// ErrNoSchedule is wrapped by errors about a schedule that does not exist.
var ErrNoSchedule = errors.New("no such schedule")

// ErrChanged is wrapped by the error of a change to a schedule that was changed since it was read.
var ErrChanged = errors.New("it was modified concurrently")

// KeptSchedule is a schedule as stored on the control plane. Err is set if it cannot be used.
type KeptSchedule struct {
	Name     string
	Revision uint64 // of the value; grows with each change; 0: nothing was read yet
	Schedule schedule.Schedule
	Err      error

	stored time.Time // of the value; a server that came back without its data may repeat a revision
}

// maxSchedules bounds the memory of schedules, which the leader has decoded: each has at most 2 MiB, with its history.
const maxSchedules = 100

func readSchedule(key string, value []byte, revision uint64) KeptSchedule {
	kept := KeptSchedule{Revision: revision}
	if kept.Name, kept.Err = subject.DecodeToken(key); kept.Err != nil {
		kept.Name = key[:min(len(key), MaxName)]
		return kept
	}
	z, err := gzip.NewReader(bytes.NewReader(value))
	if err == nil {
		kept.Schedule, err = schedule.Read(z)
	}
	if err == nil && kept.Schedule.Name != kept.Name {
		err = fmt.Errorf("read schedule %s: its stored name is %s", kept.Name, kept.Schedule.Name)
	}
	kept.Err = err
	return kept
}

// ErrNoBaseline is wrapped by errors about a baseline that does not exist.
var ErrNoBaseline = errors.New("no such baseline on the control plane; list its baselines with ctl history baseline list, and those of a folder with --context local --runs DIR")

// Headers of messages. Each message has the number of its format. A refusal has the text of an error instead of a body.
const (
	headerProtocol = "Lockstep-Protocol" // of requests and answers: plan.Protocol
	headerFormat   = "Lockstep-Format"   // of messages in the record and the queue: plan.RecordFormat
	headerError    = "Lockstep-Error"
)

// ErrProtocol is wrapped by the error of a message of another format, stored or not.
var ErrProtocol = errors.New("different protocol versions")

// ErrTooLarge is wrapped by the error of a message that the control plane would not accept.
var ErrTooLarge = errors.New("message is too large for the control plane")

// ErrUnreadable is wrapped by the error of stored data that can never be read.
var ErrUnreadable = errors.New("stored data cannot be decoded")

// wrap puts text before an error, unless it is nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// Hopeless reports whether an operation would fail again at every attempt: the message is too large or cannot be
// encoded, its stream is full, or the credentials do not allow it. Other errors of the control plane may be temporary.
func Hopeless(err error) bool {
	var value *json.UnsupportedValueError
	var kind *json.UnsupportedTypeError
	return errors.Is(err, ErrTooLarge) || errors.Is(err, ErrFull) || errors.Is(err, nats.ErrMaxPayload) ||
		errors.Is(err, nats.ErrPermissionViolation) || errors.As(err, &value) || errors.As(err, &kind) ||
		codeOf(err) == 10054 // the server refuses its size
}

// codec encodes and decodes the messages of one connection, within the limits of its server.
type codec struct {
	protocol   int          // plan.Protocol, except in tests
	maxPayload func() int64 // maximum message size of the server, in bytes
}

// encode returns a message with v: bytes as they are, other values as JSON.
func (c codec) encode(to string, v any) (*nats.Msg, error) {
	body, encoded := v.([]byte)
	if !encoded {
		var err error
		if body, err = json.Marshal(v); err != nil {
			return nil, fmt.Errorf("encode %T: %w", v, err)
		}
	}
	limit := c.limit()
	recorded := strings.HasPrefix(to, subject.Events) || strings.HasPrefix(to, subject.Snapshots)
	if recorded {
		limit = c.entryLimit()
		if !structured(body) {
			limit = limit * 3 / 4 // in an answer it is base64
		}
	}
	if len(body) > limit {
		return nil, fmt.Errorf("send %s: %d bytes exceed the limit of %d (max_payload of its NATS server): %w", to,
			len(body), limit, ErrTooLarge)
	}
	m := nats.NewMsg(to)
	if recorded || strings.HasPrefix(to, subject.Queue) {
		m.Header.Set(headerFormat, strconv.Itoa(plan.RecordFormat))
	} else {
		m.Header.Set(headerProtocol, strconv.Itoa(c.protocol))
	}
	m.Data = body
	return m, nil
}

// limit returns the maximum size of a body. It leaves space for headers.
func (c codec) limit() int { return int(min(c.maxPayload(), MaxMessage)) - 1024 }

// entryLimit returns the maximum size of a body in the record, which readers get as a part of an answer.
func (c codec) entryLimit() int { return c.limit() - 1024 }

// check refuses messages of another format. who names the sender in the error.
func (c codec) check(h nats.Header, who string) error {
	if stored := h.Get(headerFormat); stored != "" {
		format, _ := strconv.Atoi(stored) // not a number: 0, which is no format
		if err := plan.CheckFormat(format); err != nil {
			return fmt.Errorf("read record of %s: %w: %w", who, err, ErrProtocol)
		}
		return nil
	}
	version := cmp.Or(h.Get(headerProtocol), "none")
	if version != strconv.Itoa(c.protocol) {
		return fmt.Errorf("%s uses protocol %.20s, this program uses protocol %d; install the same release of Lockstep on both: %w",
			who, version, c.protocol, ErrProtocol)
	}
	return nil
}

func (c codec) decode(h nats.Header, body []byte, who string, v any) error {
	if err := c.check(h, who); err != nil {
		return err
	}
	return wrap(json.Unmarshal(body, v), "read message of %s", who)
}

// refusal returns the reply to a message that was not accepted, with the reason and its identity from codes.
func (c codec) refusal(reply string, why error) *nats.Msg {
	m := nats.NewMsg(reply)
	m.Header.Set(headerProtocol, strconv.Itoa(c.protocol))
	m.Header.Set(headerError, oneLine(why.Error()))
	for code, is := range codes {
		if errors.Is(why, is) {
			m.Header.Set(headerCode, code)
		}
	}
	return m
}

// pack returns v as compressed JSON. It is for data with much repetition, such as plans.
func pack(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err == nil && len(text) > plan.MaxDocument {
		err = fmt.Errorf("%d bytes exceed the limit of %d of the control plane; split the matrix: %w", len(text), plan.MaxDocument,
			ErrTooLarge)
	}
	var b bytes.Buffer // writing to it never fails
	z := gzip.NewWriter(&b)
	_, _ = z.Write(text)
	_ = z.Close()
	return b.Bytes(), wrap(err, "encode %T", v)
}

func unzip(body []byte, who string, v any) error {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err == nil {
		err = plan.Decode(z, plan.MaxDocument, v)
	}
	return wrap(err, "read message of %s", who)
}

// maxText is the maximum length in bytes of the reasons in states and ends of runs, and in rejections. A list of runs
// that exceeds a message has at most listText bytes of each text.
const maxText, listText = 2000, 50

// cut shortens a text to at most limit bytes.
func cut(text string, limit int) string { return strings.ToValidUTF8(text[:min(len(text), limit)], "") }

// oneLine makes text valid for a header: it shortens it and replaces control characters.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, cut(text, maxText))
}
