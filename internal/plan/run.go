package plan

import (
	"fmt"
	"time"
)

// Run is one execution of a matrix: everything that was decided before it began.
type Run struct {
	Version  int        `json:"version"` // RecordFormat
	ID       string     `json:"id"`
	Name     string     `json:"name"` // the matrix's
	Cells    []Cell     `json:"cells"`
	Excluded []Excluded `json:"excluded,omitempty"`
	Tables   []Table    `json:"tables"`
	Repeat   int        `json:"repeat"` // with Until: at most
	Until    *StopRule  `json:"until,omitempty"`
	Order    Order      `json:"order"`
	Settle   Duration   `json:"settle"`
	Grace    Duration   `json:"grace"`  // how long a cell waits for agents that are missing
	Strict   bool       `json:"strict"` // flags count as failures
	Source   Source     `json:"source"`
	Started  time.Time  `json:"started"`
	Agents   int        `json:"agents"` // most that any cell needs
	Axes     []string   `json:"axes"`   // in the order of the matrix
	Influx   *Influx    `json:"influx,omitempty"`
	Bases    []Base     `json:"bases,omitempty"` // what rules compare it with
}

// Order is the order of tasks: interleaved repetitions, or shuffled with a seed.
type Order struct {
	Random bool   `json:"random,omitempty"`
	Seed   uint64 `json:"seed,omitempty"`
}

// Source is where a run's matrix came from and how it was changed.
type Source struct {
	File   string `json:"file"`   // base name
	Path   string `json:"path"`   // as given, absolute
	SHA256 string `json:"sha256"` // of the file as it was, secrets included
	Text   string `json:"text"`   // redacted
	// Omitted: Text is a comment that says why the text is not recorded.
	Omitted bool     `json:"omitted,omitempty"`
	Quick   bool     `json:"quick,omitempty"`
	Set     []string `json:"set,omitempty"`
	Filter  []string `json:"filter,omitempty"`
	Server  string   `json:"server,omitempty"` // of the fleet, redacted; empty: a local run
}

// Flags are how the matrix was changed for the run, as on the command line but without quotes: "--quick", "--set
// NAME=VALUE", "--filter AXIS=VALUE".
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
	Group      string `json:"group,omitempty"` // of Parts: the one that Cell is the workload of
	// Attempt names the attempt at the task; empty: it is not about one.
	Attempt string `json:"attempt,omitempty"`
}

// attemptDigits is how much of an attempt's name is in names at a broker, where its length counts. The end of the name
// tells attempts of one task apart.
const attemptDigits = 6

// Topic is the name that everything the task declares at a broker begins with. That of an attempt begins with the
// task's, that of a group with the attempt's. Each attempt has names of its own: an agent that was cut off and
// continues with an earlier attempt neither loads the queues of the next one nor deletes them.
func (t Task) Topic() string {
	topic := "lockstep-" + t.Run + "-" + t.ID
	if t.Attempt != "" {
		topic += "-" + t.Attempt[max(0, len(t.Attempt)-attemptDigits):]
	}
	if t.Group != "" {
		topic += "-" + t.Group
	}
	return topic
}

// Assignment is one agent's part of a task; where the cell has groups, Task is that of the agent's group.
type Assignment struct {
	Protocol int    `json:"protocol"`
	Task     Task   `json:"task"`
	Agent    string `json:"agent"`
	// among the agents of the task, or of its group, from 0; agent 0 does Setup and Teardown
	Index      int      `json:"index"`
	Publishers Share    `json:"publishers"`
	Consumers  Share    `json:"consumers"`
	Targets    []string `json:"targets,omitempty"` // what this agent is to disturb on its host
	// Observe has this agent measure brokers' processes, and nothing else: it opens no session, and its Task has no
	// options of a broker.
	Observe []Observation `json:"observe,omitempty"`
	// Deadline is how long after delivery the agent gives up by itself, whatever the controller says.
	Deadline Duration `json:"deadline"`
}

// Share is the part of a role's threads that one agent has: numbers First … First+Count-1 of Total.
type Share struct {
	First int `json:"first"`
	Count int `json:"count"`
	Total int `json:"total"`
}

// Phase is where a task is. Agents cross each together.
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

// Tasks lists a run's tasks in the order to execute them: all cells once, then all again (interleaved), or shuffled
// within each repetition by the seed.
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

// Notes lists what drivers remark about the run's cells, each remark once for each broker.
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
