package plan

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Task is one repetition of one cell.
type Task struct {
	Run        string `json:"run"`
	ID         string `json:"id"` // cell id and repetition: "3f9c2d81aa07-r1"
	Cell       Cell   `json:"cell"`
	Repetition int    `json:"repetition"`      // from 1
	Group      string `json:"group,omitempty"` // the group whose workload Cell has; see Parts
	// Attempt is the name of the attempt; empty: the task as a whole.
	Attempt string  `json:"attempt,omitempty"`
	Metrics Metrics `json:"-"` // those of the run; nil in an assignment
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
// A prefix longer than maxTopic ends with a hash instead. It still begins with "lockstep-", the run and "-", by which
// cleanup finds it.
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

// Parts returns the tasks that a task consists of. Without groups it is the task itself. With groups there is one task
// per group. Each has the group's workload, driver declaration and broker, and its own names at the broker.
func (t Task) Parts() []Task {
	groups := t.Cell.Workload.Groups
	if len(groups) == 0 || t.Group != "" {
		return []Task{t}
	}
	parts := make([]Task, len(groups))
	for i, g := range groups {
		p := t
		p.Group = g.Name
		p.Cell.Workload = t.Cell.Workload.With(g)
		if g.Broker != nil {
			p.Cell.Broker = *g.Broker
		}
		p.Cell.Label, p.Cell.Guarantees, p.Cell.CopiesBody, p.Cell.InProcess = g.Label, g.Guarantees, g.CopiesBody,
			g.InProcess
		p.Cell.RedeliverAfter, p.Cell.Resilience = g.RedeliverAfter, g.Resilience
		parts[i] = p
	}
	return parts
}

// trialDrain is the maximum duration of a trial's drain beyond drain.idle.
const trialDrain = time.Second

// Step returns the task with the load of one trial of its search. A trial has failed if messages remain unsent soon
// after its measurement. Its drain is therefore only long enough to detect lost messages.
func (t Task) Step(rate float64, measure Duration) Task {
	w := &t.Cell.Workload
	w.Publishers.Rate, w.Measure, w.Search = rate, measure, nil
	w.Drain.Timeout = min(w.Drain.Timeout, w.Drain.Idle+Duration(trialDrain))
	return t
}

// RecordLimit returns the maximum distance of a record's times from T0: Limit, plus the time for redelivery, plus an
// hour for agents that hang.
func RecordLimit(t Task) time.Duration {
	redelivery := time.Duration(0)
	for _, part := range t.Parts() {
		redelivery = max(redelivery, part.Cell.RedeliverAfter.D())
	}
	return Limit(t.Cell.Workload) + min(redelivery, maxTaskTime) + time.Hour
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

// Assign distributes a task over agents, in the given order. Group by group, it first takes the agents of the
// publishers, then those of the consumers, or the same agents if they are colocated. It returns one assignment per
// agent. In a task with faults the remaining agents only inject faults.
func Assign(t Task, agents []string) []Assignment {
	var all []Assignment
	for _, part := range t.Parts() {
		all = append(all, assign(part, agents[len(all):])...)
	}
	for i := len(all); i < len(agents) && len(t.Cell.Workload.Faults) > 0; i++ {
		a := all[0]
		a.Agent, a.Index, a.Publishers, a.Consumers = agents[i], i, Share{Total: a.Publishers.Total},
			Share{Total: a.Consumers.Total}
		all = append(all, a)
	}
	return all
}

// assign distributes a task without groups.
func assign(t Task, agents []string) []Assignment {
	w := t.Cell.Workload
	out := make([]Assignment, w.agents())
	for i := range out {
		out[i] = Assignment{Protocol: Protocol, Task: t, Agent: agents[i], Index: i, Deadline: Duration(Limit(w))}
	}
	p, c := w.Publishers, w.Consumers
	for i := range out { // every agent gets the total of each role
		out[i].Publishers.Total, out[i].Consumers.Total = p.Nodes*p.Threads, c.Nodes*c.Threads
	}
	for i := range p.Nodes {
		out[i].Publishers.First, out[i].Publishers.Count = i*p.Threads, p.Threads
	}
	first := p.Nodes
	if c.Colocate {
		first = 0
	}
	for i := range c.Nodes {
		out[first+i].Consumers.First, out[first+i].Consumers.Count = i*c.Threads, c.Threads
	}
	return out
}

// CheckProtocol returns an error if an assignment has another protocol version than this program.
func (a Assignment) CheckProtocol() error {
	if a.Protocol != Protocol {
		return fmt.Errorf("assignment has protocol %d and this agent has %d: install the same release of Lockstep on both",
			a.Protocol, Protocol)
	}
	return nil
}

// Check returns an error that names the invalid fields of an assignment. It rejects another protocol version, a
// workload beyond its limits, and a share outside the workload. No matrix produces such an assignment.
func (a Assignment) Check() error {
	if err := a.CheckProtocol(); err != nil {
		return err
	}
	w := a.Task.Cell.Workload
	if err := w.Bounded(); err != nil {
		return fmt.Errorf("assignment has %w", err)
	}
	p, c := w.Publishers, w.Consumers
	for _, x := range []struct {
		name             string
		value, from, top int
	}{
		{"publishers", a.Publishers.Count, 0, p.Threads},
		{"publishers of all agents", a.Publishers.Total, a.Publishers.Count, p.Nodes * p.Threads},
		{"first publisher", a.Publishers.First, 0, a.Publishers.Total - a.Publishers.Count},
		{"consumers", a.Consumers.Count, 0, c.Threads}, {"first consumer", a.Consumers.First, 0, c.Nodes * c.Threads},
		{"queues", w.Topology.Queues, 1, math.MaxInt}, {"subscriptions", w.Topology.Subscriptions, 1, math.MaxInt},
		{"bindings", w.Topology.Bindings, 1, math.MaxInt},
		{"bytes of a message", w.Message.Size, MinMessageSize, math.MaxInt},
	} {
		switch {
		case x.value < x.from && x.top == math.MaxInt:
			return fmt.Errorf("assignment has %d %s: want at least %d", x.value, x.name, x.from)
		case x.value < x.from || x.value > x.top:
			return fmt.Errorf("assignment has %d %s: want %d to %d", x.value, x.name, x.from, x.top)
		}
	}
	return nil
}

// Observation instructs an observer to measure one broker of a task. An observer is an agent that measures a broker's
// processes on their host, and generates no load.
type Observation struct {
	Broker string `json:"broker"` // its name in the matrix
	As     string `json:"as"`     // the observer's own name for it: the broker's name, or its driver's
}

// Observe returns the brokers of a task that an observer measures, given the names in its own configuration. A name is
// a broker's, or else a driver's. ambiguous are brokers that match the same driver's name: the observed process could
// belong to any of them.
func Observe(brokers []Broker, names []string) (fit []Observation, ambiguous []string) {
	drivers := map[string][]string{}
	for _, b := range brokers {
		switch {
		case slices.Contains(names, b.Name):
			fit = append(fit, Observation{b.Name, b.Name})
		case slices.Contains(names, b.Driver):
			drivers[b.Driver] = append(drivers[b.Driver], b.Name)
		}
	}
	for _, b := range brokers {
		switch alike := drivers[b.Driver]; {
		case !slices.Contains(alike, b.Name):
		case len(alike) > 1:
			ambiguous = append(ambiguous, b.Name)
		default:
			fit = append(fit, Observation{b.Name, b.Driver})
		}
	}
	return fit, ambiguous
}
