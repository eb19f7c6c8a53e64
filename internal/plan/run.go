package plan

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Run is one execution of a matrix: all decisions that were made before it began.
type Run struct {
	Version  int        `json:"version"` // RecordFormat
	ID       string     `json:"id"`
	Name     string     `json:"name"` // name of the matrix
	Cells    []Cell     `json:"cells"`
	Excluded []Excluded `json:"excluded,omitempty"`
	Tables   []Table    `json:"tables"`
	Repeat   int        `json:"repeat"` // repetitions per cell; with Until, the maximum
	Until    *StopRule  `json:"until,omitempty"`
	Order    Order      `json:"order"`
	Settle   Duration   `json:"settle"`
	Grace    Duration   `json:"grace"`  // how long a task waits for missing agents
	Strict   bool       `json:"strict"` // flags count as failures
	Source   Source     `json:"source"`
	Started  time.Time  `json:"started"`
	Agents   int        `json:"agents"` // maximum that any cell needs
	Axes     []string   `json:"axes"`   // in the order of the matrix
	Influx   *Influx    `json:"influx,omitempty"`
	Bases    []Base     `json:"bases,omitempty"` // baselines with which rules compare it
	// Ceilings are the limits of the load generator for the loads of the run. Empty: it was not asked to measure them.
	Ceilings []Ceiling `json:"ceilings,omitempty"`
}

// Same reports whether two plans are of one run, with the same tasks. A run may be resumed, and its record has one plan.
func (r Run) Same(o Run) bool {
	sameTask := func(a, b Task) bool { return a.ID == b.ID }
	return r.Started.Equal(o.Started) && r.Source.SHA256 == o.Source.SHA256 &&
		slices.EqualFunc(r.Tasks(), o.Tasks(), sameTask)
}

// CheckRunID returns an error unless an id of a run can name a folder, in which its record is stored.
func CheckRunID(id string) error {
	if id == "" || id == "latest" || id[0] == '.' || strings.ContainsAny(id, "/\\") ||
		strings.ContainsFunc(id, unicode.IsControl) {
		return fmt.Errorf("invalid id of a run: %.80q is not the name of a folder; "+
			"use letters, digits, \".\", \"_\" and \"-\", with a letter or digit first", id)
	}
	return nil
}

// Order is the order of tasks: repetitions interleaved, optionally shuffled by a seed.
type Order struct {
	Random bool   `json:"random,omitempty"`
	Seed   uint64 `json:"seed,omitempty"`
}

// Source describes the origin of a run's matrix, and its changes.
type Source struct {
	File   string `json:"file"`   // base name
	Path   string `json:"path"`   // absolute path
	SHA256 string `json:"sha256"` // of the original file, including secrets
	Text   string `json:"text"`   // redacted
	// Omitted is set if the text is not recorded. Text is then a comment with the reason.
	Omitted bool     `json:"omitted,omitempty"`
	Quick   bool     `json:"quick,omitempty"`
	Set     []string `json:"set,omitempty"`
	Filter  []string `json:"filter,omitempty"`
	Server  string   `json:"server,omitempty"` // URL of the fleet, redacted; empty: a local run
}

// Flags returns the changes of the matrix as command-line flags without quotes: "--quick", "--set NAME=VALUE",
// "--filter AXIS=VALUE".
func (s Source) Flags() []string {
	var all []string
	if s.Quick {
		all = append(all, "--quick")
	}
	for _, set := range s.Set {
		all = append(all, "--set "+set)
	}
	for _, only := range s.Filter {
		all = append(all, "--filter "+only)
	}
	return all
}

// Task is one repetition of one cell.
type Task struct {
	Run        string `json:"run"`
	ID         string `json:"id"` // cell id and repetition: "3f9c2d81aa07-r1"
	Cell       Cell   `json:"cell"`
	Repetition int    `json:"repetition"`      // from 1
	Group      string `json:"group,omitempty"` // the group whose workload Cell has; see Parts
	// Attempt is the name of the attempt; empty: the task as a whole.
	Attempt string `json:"attempt,omitempty"`
}

// attemptDigits is the number of final characters of an attempt's name that names at a broker contain. They distinguish
// the attempts of one task. The length of names at a broker is limited.
const attemptDigits = 6

// maxTopic limits the result of Topic, in bytes. The strictest broker is SQS: 80 bytes, of which the driver's suffix
// "_q99999.fifo" takes 12.
const maxTopic = 68

// Topic returns the prefix of all names that the task declares at a broker. It contains the attempt and the group, if
// set. Each attempt has its own names. An agent that was cut off and continues an earlier attempt therefore does not
// affect the queues of the next one.
//
// A prefix longer than maxTopic ends with a hash instead. It still begins with "lockstep-", the run and "-", by which cleanup finds it.
func (t Task) Topic() string {
	topic := "lockstep-" + t.Run + "-" + t.ID
	if t.Attempt != "" {
		topic += "-" + t.Attempt[max(0, len(t.Attempt)-attemptDigits):]
	}
	if t.Group != "" {
		topic += "-" + t.Group
	}
	if len(topic) <= maxTopic {
		return topic
	}
	sum := sha256.Sum256([]byte(topic))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
	return topic[:maxTopic-len(hash)-1] + "-" + hash
}

// Assignment is one agent's part of a task. In a cell with groups, Task is that of the agent's group.
type Assignment struct {
	Protocol int    `json:"protocol"`
	Task     Task   `json:"task"`
	Agent    string `json:"agent"`
	// index among the agents of the task or group, from 0; agent 0 calls Setup and Teardown
	Index      int      `json:"index"`
	Publishers Share    `json:"publishers"`
	Consumers  Share    `json:"consumers"`
	Targets    []string `json:"targets,omitempty"` // targets on this agent's host into which it injects faults
	// Observe lists the broker processes to measure. An agent with such an assignment does nothing else: it opens no
	// session, and its Task has no broker options.
	Observe []Observation `json:"observe,omitempty"`
	// Contact makes the agent only open and close a session with the broker. It then arrives at the first step.
	Contact bool `json:"contact,omitempty"`
	// Ceiling makes the agent only measure its own limits with the task's load. It then arrives at the first step.
	Ceiling bool `json:"ceiling,omitempty"`
	// Deadline is the time after delivery at which the agent aborts, independent of the controller.
	Deadline Duration `json:"deadline"`
}

// Share is one agent's part of a role's threads: numbers First … First+Count-1 of Total.
type Share struct {
	First int `json:"first"`
	Count int `json:"count"`
	Total int `json:"total"`
}

// Phase is a phase of a task. All agents enter each phase together.
type Phase string

// The phases, in order.
const (
	PhasePrepare  Phase = "prepare"
	PhaseReady    Phase = "ready"
	PhaseWarmup   Phase = "warm-up"
	PhaseMeasure  Phase = "measure"
	PhaseDrain    Phase = "drain"
	PhaseTeardown Phase = "teardown"
)

// Tasks returns a run's tasks in the order of execution. Each repetition contains all cells, in the order of the matrix
// or shuffled by the seed.
func (r Run) Tasks() []Task {
	tasks := make([]Task, 0, len(r.Cells)*r.Repeat)
	for rep := 1; rep <= r.Repeat; rep++ {
		for _, i := range r.Order.permutation(len(r.Cells), rep) {
			c := r.Cells[i]
			tasks = append(tasks, Task{Run: r.ID, ID: fmt.Sprintf("%s-r%d", c.ID, rep), Cell: c, Repetition: rep})
		}
	}
	return tasks
}

// Notes returns the notes of drivers about the run's cells, each once per broker.
func (r Run) Notes() []string {
	type remark struct{ broker, text string }
	var order []remark
	cells, first := map[remark]int{}, map[remark]string{}
	all := map[string]int{}
	for _, c := range r.Cells {
		all[c.Broker.Name]++
		for _, text := range c.Notes {
			x := remark{c.Broker.Name, text}
			if cells[x]++; cells[x] == 1 {
				order = append(order, x)
				first[x] = c.Name()
			}
		}
	}
	lines := make([]string, len(order))
	for i, x := range order {
		switch n := cells[x]; {
		case n == 1:
			lines[i] = first[x]
		case n == all[x.broker]:
			lines[i] = "broker=" + x.broker
		default:
			lines[i] = fmt.Sprintf("%s and %d more of broker=%s", first[x], n-1, x.broker)
		}
		lines[i] += ": " + x.text
	}
	return lines
}
