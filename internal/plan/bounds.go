package plan

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Limits of runs and workloads. The memory use of agents and controllers is proportional to each of these sizes.
const (
	maxWait           = 366 * 24 * time.Hour // settle time between tasks, and grace for agents
	maxRounds         = 200                  // repetitions of a run that repeats until its values are precise enough
	maxGroups         = 1000                 // per cell
	maxAgents         = 20_000               // per cell
	maxTaskTime       = 24 * time.Hour       // per duration; records have one window per second
	maxTaskRest       = 2 * time.Hour        // Limit may exceed maxTaskTime by this
	maxInFlight       = 10_000_000           // messages per agent
	maxAllPublishers  = 1_000_000            // over all agents
	maxPublisherPairs = 10_000_000           // per agent; each consumer has one set of messages per publisher
	maxChurn          = 10_000               // bindings per second, and messages per second per binding
	maxNodes          = 500                  // of a cluster of brokers
	maxNodeName       = 256                  // bytes
)

// Limits of workloads that other packages check, too.
const (
	MinMessageSize   = 64          // bytes: the size of the envelope
	MaxMessageSize   = 104_857_600 // bytes
	MaxInFlightBytes = 4 << 30     // bodies of messages in flight, bytes per agent
	MaxThreads       = 100_000     // per role and agent
	MaxQueues        = 100_000
	MaxSubscriptions = 10_000
)

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
	for _, c := range r.Cells {
		if err := c.Bounded(); err != nil {
			errs = append(errs, err)
			break
		}
	}
	return errors.Join(errs...)
}

// Bounded returns an error that names the cell if it has too many groups or agents. It also returns an error if one of
// its workloads is not bounded.
func (c Cell) Bounded() error {
	if n := len(c.Workload.Groups); n > maxGroups {
		return fmt.Errorf("cell %s (%s) has %d groups: want at most %d", c.ID, c.Name(), n, maxGroups)
	}
	for _, w := range c.Workload.Parts() {
		if err := w.Bounded(); err != nil {
			return fmt.Errorf("cell %s (%s) has %w", c.ID, c.Name(), err)
		}
	}
	if n := c.Agents(); n < 1 || n > maxAgents {
		return fmt.Errorf("cell %s (%s) needs %d agents: want 1 to %d", c.ID, c.Name(), n, maxAgents)
	}
	return nil
}

// Check returns an error if a placement has more nodes than a cluster can have, or names that are too long.
func (p Placement) Check() error {
	for _, nodes := range []map[string]int{p.Leaders, p.Publishers, p.Consumers} {
		if len(nodes) > maxNodes {
			return fmt.Errorf("a placement has %d nodes: want at most %d", len(nodes), maxNodes)
		}
		for name := range nodes {
			if len(name) > maxNodeName {
				return fmt.Errorf("the name of a node has %d bytes: want at most %d", len(name), maxNodeName)
			}
		}
	}
	return nil
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

// Bounded returns an error that names the fields of a workload without groups that are beyond their limits. Such a
// workload is a mistake or hostile, and could use unlimited memory.
func (w Workload) Bounded() error {
	p, c, t := w.Publishers, w.Consumers, w.Topology
	var s Search
	if w.Search != nil {
		s = *w.Search
	}
	var errs []error
	for _, x := range []struct {
		name             string
		value, from, top int
	}{
		{"nodes of publishers", p.Nodes, 0, 10_000}, {"threads of publishers", p.Threads, 0, MaxThreads},
		{"maxInFlight", p.MaxInFlight, 0, 100_000_000},
		{"minimum batch of publishers", p.Batch.Min, 0, 100_000_000},
		{"maximum batch of publishers", p.Batch.Max, 0, 100_000_000},
		{"stages of the profile", len(p.Profile), 0, 100_000},
		{"nodes of consumers", c.Nodes, 0, 10_000}, {"threads of consumers", c.Threads, 0, MaxThreads},
		{"prefetch", c.Prefetch, 0, 1_000_000},
		{"batch of consumers", c.Batch, 0, 1_000_000}, {"ackEvery", c.AckEvery, 0, 1_000_000},
		{"queues", t.Queues, 0, MaxQueues}, {"subscriptions", t.Subscriptions, 0, MaxSubscriptions},
		{"bindings", t.Bindings, 0, 1_000_000},
		{"channels", t.Channels, 0, 65_535}, {"message size", w.Message.Size, 0, MaxMessageSize},
		{"message sizes", len(w.Message.Sizes), 0, 10_000},
		{"faults", len(w.Faults), 0, 10_000}, {"steps of the search", s.Steps, 0, 1000},
		{"repeats of the search", s.Repeats, 0, 100},
	} {
		if x.value < x.from || x.value > x.top {
			errs = append(errs, fmt.Errorf("%d %s: want %d to %d", x.value, x.name, x.from, x.top))
		}
	}
	for _, s := range w.Message.Sizes {
		if s.Min < 0 || s.Max < s.Min || s.Max > MaxMessageSize {
			errs = append(errs, fmt.Errorf("%d to %d bytes of a message: want at most %d", s.Min, s.Max, MaxMessageSize))
			break
		}
	}
	for _, x := range []struct {
		name  string
		value Duration
	}{
		{"warmup", w.Warmup}, {"measure", w.Measure}, {"interval", w.Interval}, {"connect", w.Connect},
		{"idle time of the drain", w.Drain.Idle},
		{"timeout of the drain", w.Drain.Timeout}, {"maximum of steady", w.Steady.Max}, {"step of the search", s.Step},
		{"latency", w.Network.Latency}, {"jitter", w.Network.Jitter}, {"pause", p.Pause},
		{"ackInterval", c.AckInterval},
	} {
		if x.value < 0 || x.value.D() > maxTaskTime {
			errs = append(errs, fmt.Errorf("%v of %s: want 0 to %v", x.value, x.name, maxTaskTime))
		}
	}
	churns := t.Churn.Rate > 0 && t.Churn.Rate <= maxChurn && t.Churn.Probes > 0 && t.Churn.Probes <= maxChurn &&
		t.Churn.Hold > 0
	if t.Churn.Rate != 0 && !churns {
		errs = append(errs,
			fmt.Errorf("%v bindings per second for %v with %v messages per second each: want all above 0, and at most %d per second",
				t.Churn.Rate, t.Churn.Hold, t.Churn.Probes, maxChurn))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return w.productsBounded()
}

// productsBounded checks products and sums of fields. Each field is within its own limit, so no product overflows.
func (w Workload) productsBounded() error {
	p := w.Publishers
	all, inFlight := p.Nodes*p.Threads, p.Threads*p.InFlight()
	if w.Search != nil {
		w.Measure = max(w.Measure, w.Search.Step)
	}
	var errs []error
	for _, x := range []struct {
		name       string
		value, top int
	}{
		{"publishers (nodes × threads)", all, maxAllPublishers},
		{"messages in flight per agent (threads × max in flight or batch)", inFlight, maxInFlight},
		{"bytes in flight per agent (threads × max in flight or batch × message size)",
			min(inFlight, maxInFlight) * w.Message.Size, MaxInFlightBytes},
		{"pairs of a publisher and a consumer per agent (publishers × subscriptions × threads of consumers)",
			all * w.Topology.Subscriptions * w.Consumers.Threads, maxPublisherPairs},
	} {
		if x.value > x.top {
			errs = append(errs, fmt.Errorf("%d %s: want at most %d", x.value, x.name, x.top))
		}
	}
	if limit := Limit(w); limit > maxTaskTime+maxTaskRest {
		errs = append(errs,
			fmt.Errorf("tasks of up to %v (4 × connect, warmup, measure, 2 × timeout of the drain, and undoing faults): want at most %v",
				limit, maxTaskTime+maxTaskRest))
	}
	return errors.Join(errs...)
}
