package record

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"
)

// Kinds of events that have a meaning for judging.
const (
	EventGap          = "gap"           // a publisher or consumer had no link, for Nanos
	EventClockStep    = "clock-step"    // an agent's clock deviated from its estimate
	EventCalendarStep = "calendar-step" // a host's wall clock was set; no measurement uses it
)

// EventFault is the kind of the event of an injected fault, which ended after Nanos. Its detail is plan.Fault.Detail.
const EventFault = "fault"

// Event is an event of one agent during a task.
type Event struct {
	At     int64  `json:"at"`              // beginning, ns since T0
	Agent  string `json:"agent,omitempty"` // set by Merged.Add
	Kind   string `json:"kind"`
	Detail string `json:"detail,omitempty"`
	Nanos  int64  `json:"nanos,omitempty"` // duration, where it applies
	// Lasting is set for a gap that lasted until its publisher or consumer ended.
	Lasting bool `json:"lasting,omitempty"`
}

// HostSample holds measurements of an agent's host since its previous sample, one field per metric in the record's
// format. Hence it has more than 20.
type HostSample struct {
	At       int64   `json:"at,omitempty"` // ns since T0; Merged.Add sets a missing one to the snapshot's
	AgentCPU float64 `json:"agentCPU"`     // cores since the previous sample
	AgentRSS int64   `json:"agentRSS"`     // bytes
	// AgentSpin is the part of AgentCPU that pacing spent polling the clock; it is an upper bound. AgentWaited is the
	// fraction of their runnable time for which threads of the process waited for a CPU: 0 to 1.
	AgentSpin   float64 `json:"agentSpin,omitempty"`
	AgentWaited float64 `json:"agentWaited,omitempty"`
	PID         int     `json:"pid,omitempty"` // of the agent's process; several agents may share it
	// cores used by all processes of the host, and by its hypervisor, since the previous sample
	HostCPU   float64 `json:"hostCPU,omitempty"`
	HostCores int     `json:"hostCores,omitempty"`
	// LocalBroker is set if connections of the driver lead to this host, or the broker is in the agent's process.
	LocalBroker bool `json:"localBroker,omitempty"`
	// DriverThread is the fraction of the time for which the busiest thread of an external driver ran. AgentCPU and
	// AgentRSS include the driver's processes.
	DriverThread float64 `json:"driverThread,omitempty"`
	BrokerCPU    float64 `json:"brokerCPU,omitempty"`
	BrokerRSS    int64   `json:"brokerRSS,omitempty"`
	// all processes of the broker were found on this host
	HasBroker bool `json:"hasBroker,omitempty"`

	// Rates since the previous sample, in bytes per second. DiskRead and DiskWrite are those of the broker's processes.
	// NetIn and NetOut are those of all interfaces of their network namespaces. NoDisk and NoNet are the reasons why
	// they are not known; empty: they are known.
	DiskRead  float64 `json:"diskRead,omitempty"`
	DiskWrite float64 `json:"diskWrite,omitempty"`
	NetIn     float64 `json:"netIn,omitempty"`
	NetOut    float64 `json:"netOut,omitempty"`
	NoDisk    string  `json:"noDisk,omitempty"`
	NoNet     string  `json:"noNet,omitempty"`

	// Broker is the name of the broker that an observer measured; empty: the sample is from an agent with load. An
	// observer has no metrics of its own process. Place is a host and a network namespace. Node is how the observer
	// identifies the processes there. Samples with the same Place and Node are of the same processes.
	Broker string `json:"broker,omitempty"`
	Place  string `json:"place,omitempty"`
	Node   string `json:"node,omitempty"`
}

// ClockSample relates an agent's clock to the reference clock. The reference's time since T0 is the agent's time minus
// Offset, with a maximum error of Bound.
type ClockSample struct {
	At        int64  `json:"at"`        // ns since T0
	Reference string `json:"reference"` // id of the clock with which all agents of the task compare theirs
	// ns, own time since T0 minus the reference's; 0 if the agreed start was exact and there is no drift
	Offset    int64   `json:"offset"`
	Bound     int64   `json:"bound"`     // ns
	Drift     float64 `json:"drift"`     // parts per million: growth of Offset while neither clock is slewed
	Slew      int64   `json:"slew"`      // ns, part of Offset caused by slewing: see clock.Offset
	SlewBound int64   `json:"slewBound"` // ns, part of Bound caused by slewing
	// ns that were added to this agent's times between the previous sample and At, for comparison with another clock
	Applied int64 `json:"applied"`
}

// Kinds of Gap.
const (
	GapConfirm  = "confirm"  // no confirm
	GapDelivery = "delivery" // no delivery
)

// Gap is a time without a confirm at one publisher, or without a delivery at one consumer. The cell has an outage when
// all owners have a gap and one of them waits. Gaps shorter than plan.Workload.MinGap, or than the owner's raised
// minimum, are not recorded. The last gap of each owner is always recorded.
type Gap struct {
	Agent string `json:"agent,omitempty"` // set by Merged.Add
	Kind  string `json:"kind"`
	Owner int    `json:"owner"` // publisher number; for consumers ConsumerOwner
	From  int64  `json:"from"`  // ns since T0: the event before it, or the beginning of the load
	To    int64  `json:"to"`    // the next event; if Open, when the owner was closed
	// Waited is the time since which the owner waited. A publisher does not wait while nothing is in flight. It equals
	// To if the owner did not wait.
	Waited int64 `json:"waited"`
	Open   bool  `json:"open,omitempty"`
	// Min is set on an open gap: the owner's final minimum, in ns. All longer gaps of this owner are recorded. 0: the
	// minimum of the plan.
	Min int64 `json:"min,omitempty"`
}

// ConsumerOwner returns the Owner of the gaps of a consumer.
func ConsumerOwner(subscription, consumer int) int { return subscription<<20 + consumer }

// PublisherTimes is the time use of one publisher during the measurement, in ns. Time that is neither waited nor paused
// is the load generator's own work.
type PublisherTimes struct {
	Publisher int `json:"publisher"` // number among all publishers of the task
	// from the beginning of the measurement until the publisher stopped or the measurement ended
	Active int64 `json:"active"`
	Waited int64 `json:"waited"` // for the broker: confirms, free in-flight slots, blocked writes, connections
	Paused int64 `json:"paused"` // until the intended send time, or while disconnected by its lifetime
}

// Busy returns the fraction of the time in which the publisher did its own work: 0 to 1.
func (t PublisherTimes) Busy() float64 {
	return max(0, 1-float64(t.Waited+t.Paused)/float64(max(1, t.Active)))
}

// Snapshot is one increment of one agent's record, in messages and in storage (JSON). (Agent, Seq) is unique within a
// task. Snapshots may be merged in any order. It has more than 20 fields, because all increments of a second are sent
// and stored together.
type Snapshot struct {
	Task  string `json:"task"`
	Group string `json:"group,omitempty"` // group of the agent, if the task's cell has groups
	Agent string `json:"agent"`
	Seq   uint64 `json:"seq"`
	At    int64  `json:"at"` // ns since T0
	// Begin is the beginning of the measurement in ns since T0, if it was determined during the load. 0: it is T0, or
	// not known yet.
	Begin int64  `json:"begin,omitempty"`
	Clock string `json:"clock,omitempty"`
	// T0 by the agent's wall clock, for display and .hlog files only
	Epoch        time.Time         `json:"epoch,omitzero"`
	Windows      []Window          `json:"windows,omitempty"`
	Sets         []SetPages        `json:"sets,omitempty"`
	Host         HostSample        `json:"host,omitzero"`
	Events       []Event           `json:"events,omitempty"`
	Probes       []ProbeSample     `json:"probes,omitempty"`
	Bindings     []BindingDelivery `json:"bindings,omitempty"`
	LastSend     int64             `json:"lastSend,omitempty"` // latest so far, ns since T0; 0: none
	LastConfirm  int64             `json:"lastConfirm,omitempty"`
	LastDelivery int64             `json:"lastDelivery,omitempty"` // of a new message
	// FirstDelivery is the first delivery of the task to this agent, ns since T0; 0: none.
	FirstDelivery int64 `json:"firstDelivery,omitempty"`
	// LastInterrupted is when a consumer's link last broke, or when a consumer last had a delivery unanswered for
	// longer than Cell.RedeliverAfter. Messages that the consumer had may be delivered again until RedeliverAfter has
	// passed.
	LastInterrupted int64 `json:"lastInterrupted,omitempty"`
	// LastOther is the time of the last delivery of another message than a new one of the task, ns since T0; 0: none.
	// It was a duplicate, or came from an existing queue and was not sent by the task.
	LastOther int64 `json:"lastOther,omitempty"`
	// active consumers without a link at this time
	Apart  int           `json:"apart,omitempty"`
	Skew   time.Duration `json:"skew,omitempty"` // ns, actual minus agreed start
	Clocks []ClockSample `json:"clocks,omitempty"`
	Gaps   []Gap         `json:"gaps,omitempty"`
	// busiest publisher of the agent, after its publishers have stopped
	Busiest PublisherTimes `json:"busiest,omitzero"`
	Final   bool           `json:"final,omitempty"` // last snapshot of the agent in this task
}

// Split divides a snapshot that is too large for one message into two with the same total content. The first keeps Seq;
// the caller assigns a new Seq to the second. ok is false if the snapshot cannot be divided.
func (s Snapshot) Split() (first, second Snapshot, ok bool) {
	first, second = s, s
	first.Host, first.Clocks, first.Final = HostSample{}, nil, false
	var windows, sets, probes, bindings, gaps, events int // numbers of those in the first
	switch {
	case len(s.Windows)+len(s.Sets) > 1:
		windows, sets = (len(s.Windows)+1)/2, len(s.Sets)/2
	case len(s.Sets) == 1 && len(s.Sets[0].Pages) > 1:
		key, pages := s.Sets[0].Key, s.Sets[0].Pages
		n := len(pages) / 2
		s.Sets, sets = []SetPages{{Key: key, Pages: pages[:n:n]}, {Key: key, Pages: pages[n:]}}, 1
	case len(s.Bindings)+len(s.Probes) > 1:
		bindings, probes = (len(s.Bindings)+1)/2, len(s.Probes)/2
	case len(s.Gaps) > 1:
		gaps = len(s.Gaps) / 2
	case len(s.Events) > 1:
		events = len(s.Events) / 2
	default:
		return s, Snapshot{}, false
	}
	first.Windows, second.Windows = s.Windows[:windows:windows], s.Windows[windows:]
	first.Sets, second.Sets = s.Sets[:sets:sets], s.Sets[sets:]
	first.Probes, second.Probes = s.Probes[:probes:probes], s.Probes[probes:]
	first.Bindings, second.Bindings = s.Bindings[:bindings:bindings], s.Bindings[bindings:]
	first.Gaps, second.Gaps = s.Gaps[:gaps:gaps], s.Gaps[gaps:]
	first.Events, second.Events = s.Events[:events:events], s.Events[events:]
	return first, second, true
}

// MaxTime is the maximum distance of a snapshot's times from T0. No task lasts so long, also with its drain.
const MaxTime = 72 * time.Hour

// UnmarshalJSON decodes a snapshot. The memory that it allocates is proportional to the encoded size.
func (s *Snapshot) UnmarshalJSON(data []byte) error {
	type plain Snapshot
	var v struct {
		plain
		Windows  list[windowText]      `json:"windows"`
		Sets     list[setPagesJSON]    `json:"sets"`
		Events   list[Event]           `json:"events"`
		Probes   list[ProbeSample]     `json:"probes"`
		Bindings list[BindingDelivery] `json:"bindings"`
		Clocks   list[ClockSample]     `json:"clocks"`
		Gaps     list[Gap]             `json:"gaps"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	read := Snapshot(v.plain)
	read.Events, read.Probes, read.Bindings, read.Clocks, read.Gaps = v.Events, v.Probes, v.Bindings, v.Clocks, v.Gaps
	left := newBudget(len(data))
	if len(v.Windows) > 0 {
		read.Windows = make([]Window, len(v.Windows))
	}
	for i := range v.Windows {
		if err := read.Windows[i].read(v.Windows[i], left); err != nil {
			return err
		}
	}
	if len(v.Sets) > 0 {
		read.Sets = make([]SetPages, len(v.Sets))
	}
	for i := range v.Sets {
		if err := read.Sets[i].read(v.Sets[i], left); err != nil {
			return err
		}
	}
	*s = read
	return nil
}

// CheckTimes returns an error if a time of the snapshot is further than limit from T0, in either direction. Call it
// before merging a snapshot of another process or person: judging allocates memory for every second that a record
// spans. Events and clock samples are not checked. They may be arbitrarily older than T0, and no memory depends on
// their times.
func (s *Snapshot) CheckTimes(limit time.Duration) error {
	times := []int64{s.At, s.Begin, s.Host.At, int64(s.Skew), s.LastSend, s.LastConfirm, s.LastDelivery,
		s.FirstDelivery, s.LastInterrupted, s.LastOther}
	for _, w := range s.Windows {
		index := max(-1<<32, min(int64(w.Index), 1<<32)) // prevents overflow of the product
		times = append(times, w.Start, index*second)
	}
	for _, g := range s.Gaps {
		times = append(times, g.From, g.To, g.Waited)
	}
	for _, p := range s.Probes {
		times = append(times, p.At)
	}
	for _, b := range s.Bindings {
		times = append(times, b.Called, b.Sent, b.At)
	}
	for _, t := range times {
		if t < -int64(limit) || t > int64(limit) {
			return fmt.Errorf("snapshot %d of agent %s has a time of %v since T0: want at most %v before or after it",
				s.Seq, s.Agent, time.Duration(t), limit)
		}
	}
	return nil
}

// MaxText is the maximum length of each text of a snapshot, in bytes.
const MaxText = 4 << 10

// CheckTexts returns an error if a text of the snapshot is too long.
func (s *Snapshot) CheckTexts() (err error) {
	s.texts(func(text string) {
		if len(text) > MaxText {
			err = fmt.Errorf("snapshot %d of agent %s has a text of %d bytes: want at most %d", s.Seq, s.Agent, len(text),
				MaxText)
		}
	})
	return err
}

// texts calls f with each text of the snapshot.
func (s *Snapshot) texts(f func(text string)) {
	for _, text := range []string{s.Task, s.Group, s.Agent, s.Clock, s.Host.NoDisk, s.Host.NoNet, s.Host.Broker,
		s.Host.Place, s.Host.Node} {
		f(text)
	}
	for _, e := range s.Events {
		f(e.Agent)
		f(e.Kind)
		f(e.Detail)
	}
	for _, p := range s.Probes {
		f(p.Name)
		f(p.Node)
	}
	for _, c := range s.Clocks {
		f(c.Reference)
	}
	for _, g := range s.Gaps {
		f(g.Agent)
		f(g.Kind)
	}
}

// Observes reports whether the snapshot has only what an observer sends: a sample of a host.
func (s Snapshot) Observes() bool {
	return reflect.DeepEqual(s, Snapshot{Task: s.Task, Agent: s.Agent, Seq: s.Seq, At: s.At, Epoch: s.Epoch, Host: s.Host,
		Final: s.Final})
}

// ProbeSample is one metric that the broker reported about itself.
type ProbeSample struct {
	At    int64   `json:"at"`             // ns since T0
	Name  string  `json:"name"`           // as declared by the driver
	Node  string  `json:"node,omitempty"` // the member of a cluster; empty: the whole broker
	Value float64 `json:"value"`
}
