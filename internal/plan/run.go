package plan

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode"

	"example.org/lockstep/lockstep/pkg/drivers"
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
	Metrics  Metrics    `json:"metrics,omitempty"`
	Influx   *Influx    `json:"influx,omitempty"`
	Bases    []Base     `json:"bases,omitempty"` // baselines with which rules compare it
	// Ceilings are the limits of the load generator for the loads of the run. Empty: it was not asked to measure them.
	Ceilings []Ceiling `json:"ceilings,omitempty"`
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

// Same reports whether two plans are of one run, with the same tasks. A run may be resumed, and its record has one
// plan.
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
			"use a name without slashes and control characters that does not begin with a dot", id)
	}
	return nil
}

// Tasks returns a run's tasks in the order of execution. Each repetition contains all cells, in the order of the matrix
// or shuffled by the seed.
func (r Run) Tasks() []Task {
	tasks := make([]Task, 0, len(r.Cells)*r.Repeat)
	for rep := 1; rep <= r.Repeat; rep++ {
		for _, i := range r.Order.permutation(len(r.Cells), rep) {
			c := r.Cells[i]
			tasks = append(tasks, Task{Run: r.ID, ID: fmt.Sprintf("%s-r%d", c.ID, rep), Cell: c, Repetition: rep,
				Metrics: r.Metrics})
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

// Bounded returns an error that names the fields of a run beyond their limits, or its first cell that is not bounded.
// The error wraps ErrTooLarge if the run has too many tasks.
func (r Run) Bounded() error {
	if err := r.CheckTasks(); err != nil {
		return fmt.Errorf("the run has %w", err)
	}
	var errs []error
	if r.Settle < 0 || r.Settle > Duration(maxWait) || r.Grace < 0 || r.Grace > Duration(maxWait) {
		errs = append(errs, fmt.Errorf("the run settles for %v and waits %v for agents: want 0 to %v", r.Settle,
			r.Grace, maxWait))
	}
	if u := r.Until; u != nil && (!(u.Within > 0) || !(u.Confidence > 0.5 && u.Confidence < 1) ||
		r.Repeat > maxRounds) {
		errs = append(errs,
			fmt.Errorf("the run repeats until %q, within %v at %v, at most %d times: the maximum is %d, and parts are between 0 and 1",
				u.Rule, u.Within, u.Confidence, r.Repeat, maxRounds))
	}
	if len(r.Metrics) > maxMetrics {
		errs = append(errs, fmt.Errorf("the run has %d metrics: want at most %d", len(r.Metrics), maxMetrics))
	} else if err := drivers.CheckMetrics(r.Metrics); err != nil {
		errs = append(errs, fmt.Errorf("the run has an invalid %w", err))
	}
	for _, c := range r.Cells {
		if err := c.bounded(); err != nil {
			errs = append(errs, err)
			break
		}
	}
	return errors.Join(errs...)
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

// CheckTasks returns an error if the run has too many cells or tasks for Tasks. It does not create tasks.
func (r Run) CheckTasks() error {
	if len(r.Cells) > MaxCells {
		return fmt.Errorf("%d cells: want at most %d: %w", len(r.Cells), MaxCells, ErrTooLarge)
	}
	if r.Repeat < 0 || r.Repeat > MaxTasks/max(1, len(r.Cells)) {
		return fmt.Errorf("%d cells × %d repetitions: want at most %d tasks: %w", len(r.Cells), r.Repeat, MaxTasks,
			ErrTooLarge)
	}
	return nil
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

// permutation returns the order of n cells in one repetition.
func (o Order) permutation(n, repetition int) []int {
	if o.Random {
		return rand.New(rand.NewPCG(o.Seed, uint64(repetition))).Perm(n)
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// BaselineOf returns the name of the baseline of a rule.
func (r Run) BaselineOf(rule Regression) string {
	if rule.Baseline != "" {
		return rule.Baseline
	}
	return r.Name
}

// BaseOf returns the numbers of a baseline in the plan.
func (r Run) BaseOf(name string) Base {
	for _, b := range r.Bases {
		if b.Name == name {
			return b
		}
	}
	return Base{Name: name, Why: NoBaseline(name, "")}
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

// Redacted returns the run without its secrets, for records and display. Names of brokers are never changed. r is not
// changed.
func (r Run) Redacted() Run {
	key := func(b Broker) string { return b.Name + " " + b.Via + " " + string(b.Options) }
	brokers := map[string]Broker{}
	for _, c := range r.Cells {
		brokers[key(c.Broker)] = c.Broker
		for _, g := range c.Workload.Groups {
			if g.Broker != nil {
				brokers[key(*g.Broker)] = *g.Broker
			}
		}
	}
	var secrets []Secret
	for _, b := range brokers {
		secrets = append(secrets, b.secrets()...)
	}
	if r.Influx != nil {
		secrets = append(secrets, r.Influx.Secrets()...)
	}
	scrub := NewScrubber(secrets)
	for k, b := range brokers {
		brokers[k] = b.redacted(scrub)
	}
	r.Cells = slices.Clone(r.Cells)
	for i, c := range r.Cells {
		r.Cells[i].Broker = brokers[key(c.Broker)]
		r.Cells[i].Workload.Groups = slices.Clone(c.Workload.Groups)
		for k, g := range r.Cells[i].Workload.Groups {
			if g.Broker != nil {
				b := brokers[key(*g.Broker)]
				r.Cells[i].Workload.Groups[k].Broker = &b
			}
		}
		if scrub != nil {
			r.Cells[i].Notes = scrub.all(c.Notes)
			r.Cells[i].Coordinates = scrub.coordinates(c.Coordinates)
		}
	}
	if scrub != nil {
		r.Excluded = slices.Clone(r.Excluded)
		for i, x := range r.Excluded {
			r.Excluded[i].Reason, r.Excluded[i].Coordinates = scrub.Scrub(x.Reason), scrub.coordinates(x.Coordinates)
		}
	}
	r.Influx = r.Influx.Redacted()
	r.Source.Text, r.Source.Set, r.Source.Filter = scrub.Scrub(r.Source.Text), scrub.all(r.Source.Set),
		scrub.all(r.Source.Filter)
	return r
}

// Redacted returns the source without secrets. If a secret does not occur literally in the source, or is too short, the
// text and the values of --set are omitted.
func (s Source) Redacted(secrets []Secret) Source {
	all := s.Text + "\n" + strings.Join(s.Set, "\n")
	for _, x := range secrets {
		var why string
		switch {
		case len(x.Value) < minSecret && x.inURL: // Redact replaces it
			continue
		case len(x.Value) < minSecret:
			why = fmt.Sprintf("is shorter than %d characters", minSecret)
		case !slices.ContainsFunc(forms(x.Value), func(form string) bool { return strings.Contains(all, form) }):
			why = "does not occur in it as one text"
		default:
			continue
		}
		s = s.Omit(fmt.Sprintf("the secret in %s %s", x.Path, why))
		break
	}
	scrub := NewScrubber(secrets)
	s.Text, s.Set, s.Filter = scrub.Scrub(s.Text), scrub.all(s.Set), scrub.all(s.Filter)
	return s
}

// Omit removes the text and the values of --set. Text then states the reason.
func (s Source) Omit(why string) Source {
	s.Text, s.Omitted, s.Set = fmt.Sprintf("// The matrix is not recorded: %s.\n", why), true, slices.Clone(s.Set)
	for i, set := range s.Set {
		path, _, _ := strings.Cut(set, "=")
		s.Set[i] = path + "=" + stars
	}
	return s
}

// Uses returns the resources that the run accesses on a host and in its network, one per line, sorted. These are
// brokers with all options, references to secrets, payload files, and the InfluxDB. Secrets are not hidden, because the
// reader decides whether to execute another user's run. It reads and resolves nothing.
func (r Run) Uses() []string {
	lines := map[string]bool{}
	texts := func(name, driver, via string, options any) {
		var all []string
		eachValue(options, "", func(field, s string) { all = append(all, field+"="+s) })
		if via != "" {
			all = append(all, "via="+via)
		}
		slices.Sort(all)
		line := strings.Join(all, " ")
		lines[fmt.Sprintf("%s (%s): %s", name, driver, line)] = true
		for _, found := range reference.FindAllString(line, -1) {
			lines["secret "+found] = true
		}
	}
	known := map[string]bool{}
	for _, c := range r.Cells {
		for _, part := range (Task{Cell: c}).Parts() {
			b := part.Cell.Broker
			if file := part.Cell.Workload.Message.Payload.File; file != "" {
				lines["payload file "+file] = true
			}
			key := fmt.Sprintf("%q %q %q %s", b.Name, b.Driver, b.Via, b.Options)
			if known[key] {
				continue
			}
			known[key] = true
			options, err := decode(b.Options)
			if err != nil {
				options = string(b.Options)
			}
			texts("broker "+b.Name, b.Driver, b.Via, options)
		}
	}
	if i := r.Influx; i != nil {
		texts("points", "InfluxDB", "", map[string]any{"url": i.URL, "org": i.Org, "bucket": i.Bucket,
			"token": i.Token})
	}
	return slices.Sorted(maps.Keys(lines))
}

// eachValue calls f for every string, number and boolean in a tree, as text, with the path of its field.
func eachValue(tree any, path string, f func(path, s string)) {
	switch x := tree.(type) {
	case nil:
	case []any:
		for _, v := range x {
			eachValue(v, path, f)
		}
	case map[string]any:
		for k, v := range x {
			eachValue(v, strings.TrimPrefix(path+"."+k, "."), f)
		}
	default:
		f(path, fmt.Sprint(x))
	}
}
