package record

import "time"

// Kinds of events that are more than words.
const (
	EventGap          = "gap"           // a publisher or consumer was without its link, for Nanos
	EventClockStep    = "clock-step"    // an agent's clock left what was known of it
	EventCalendarStep = "calendar-step" // a host's calendar was set; no metric is read from it
)

// EventFault is the kind of the event of a fault that was injected, and removed after Nanos. Its detail is
// plan.Fault.Detail.
const EventFault = "fault"

// Event is something that happened to one agent during a task.
type Event struct {
	At     int64  `json:"at"`              // nanoseconds since T0, when it began
	Agent  string `json:"agent,omitempty"` // filled in by Merged.Add
	Kind   string `json:"kind"`
	Detail string `json:"detail,omitempty"`
	Nanos  int64  `json:"nanos,omitempty"` // how long it lasted, where that makes sense
	// Lasting is set for a gap that had not ended when its publisher or consumer did.
	Lasting bool `json:"lasting,omitempty"`
}

// HostSample is what an agent saw of its host since its last sample.
type HostSample struct {
	At       int64   `json:"at,omitempty"` // nanoseconds since T0; Merged.Add fills in the snapshot's
	AgentCPU float64 `json:"agentCPU"`     // cores since the last sample
	AgentRSS int64   `json:"agentRSS"`     // bytes
	// AgentSpin is how much of AgentCPU pacing spent polling the clock, at most. AgentWaited is the part of the time in
	// which threads of the process were runnable that they waited for a CPU: 0 to 1.
	AgentSpin   float64 `json:"agentSpin,omitempty"`
	AgentWaited float64 `json:"agentWaited,omitempty"`
	PID         int     `json:"pid,omitempty"` // of the agent's process, which several agents may share
	// cores that all processes of the host used, and its hypervisor took, since the last sample
	HostCPU   float64 `json:"hostCPU,omitempty"`
	HostCores int     `json:"hostCores,omitempty"`
	// LocalBroker: connections of the driver lead to this host, or the broker is in the agent's process.
	LocalBroker bool `json:"localBroker,omitempty"`
	// DriverThread is for how much of the time the busiest thread of a driver that is a process of its own ran. Its
	// processes are in AgentCPU and AgentRSS.
	DriverThread float64 `json:"driverThread,omitempty"`
	BrokerCPU    float64 `json:"brokerCPU,omitempty"`
	BrokerRSS    int64   `json:"brokerRSS,omitempty"`
	// the broker's processes run on this host and were found, all of them
	HasBroker bool `json:"hasBroker,omitempty"`

	// Rates since the last sample, in bytes a second: what the broker's processes had the kernel read from disks and
	// write to them, and what all interfaces of their network namespaces took in and sent out. NoDisk and NoNet are why
	// they are not known; empty: they are.
	DiskRead  float64 `json:"diskRead,omitempty"`
	DiskWrite float64 `json:"diskWrite,omitempty"`
	NetIn     float64 `json:"netIn,omitempty"`
	NetOut    float64 `json:"netOut,omitempty"`
	NoDisk    string  `json:"noDisk,omitempty"`
	NoNet     string  `json:"noNet,omitempty"`

	// Broker is the name of the broker that an observer measured, which has no metrics of its own process; empty: an
	// agent with load says this. Samples of the same Place, which is a host and a network namespace of it, and the same
	// Node, which is how the observer finds the processes there, are of the same processes.
	Broker string `json:"broker,omitempty"`
	Place  string `json:"place,omitempty"`
	Node   string `json:"node,omitempty"`
}

// ClockSample is what an agent knows of its clock at a time: the reference's time since T0 is its own less Offset, give
// or take Bound.
type ClockSample struct {
	At        int64  `json:"at"`        // nanoseconds since T0
	Reference string `json:"reference"` // id of the clock that all agents of the task compare theirs with
	// ns, own time since T0 minus the reference's: 0 if the agreed start was exact, and nothing drifts
	Offset    int64   `json:"offset"`
	Bound     int64   `json:"bound"`     // ns
	Drift     float64 `json:"drift"`     // parts per million: how fast Offset grows while neither clock is slewed
	Slew      int64   `json:"slew"`      // ns, the part of Offset that came of slewing: see clock.Offset
	SlewBound int64   `json:"slewBound"` // ns, the part of Bound that it has
	// ns that were added to this agent's times, from the sample before until At, before they were compared with another
	// clock's
	Applied int64 `json:"applied"`
}

// Kinds of Gap.
const (
	GapConfirm  = "confirm"  // no message was confirmed
	GapDelivery = "delivery" // no message was received
)

// Gap is a time in which one publisher or consumer saw nothing of a kind. Where all of them have one, and one of them
// waits, is the cell's. Times shorter than plan.Workload.MinGap, or what the owner has raised that to where they were
// ordinary, are not kept, but for the last of each.
type Gap struct {
	Agent string `json:"agent,omitempty"` // filled in by Merged.Add
	Kind  string `json:"kind"`
	Owner int    `json:"owner"` // the publisher's number; of consumers: subscription·2²⁰ + number
	From  int64  `json:"from"`  // ns since T0: the last before it, or the begin of the load
	To    int64  `json:"to"`    // the next, or, where it is Open, when the owner was closed
	// Waited is since when the owner waited: a publisher has nothing to wait for while it has nothing in flight. To: it
	// did not.
	Waited int64 `json:"waited"`
	Open   bool  `json:"open,omitempty"`
	// Min of one that is Open is what this owner kept at least in the end, in ns: every longer time of its is on
	// record. 0: what the plan says.
	Min int64 `json:"min,omitempty"`
}

// ConsumerOwner is the Owner of the gaps of a consumer.
func ConsumerOwner(subscription, consumer int) int { return subscription<<20 + consumer }

// Part is what an engine has recorded since it was asked last. The Last times are not increments: they are the latest
// so far, 0 for none.
type Part struct {
	Windows                             []Window
	Sets                                []SetPages
	Events                              []Event
	Bindings                            []BindingDelivery
	LastSend, LastConfirm, LastDelivery int64
	// LastInterrupted is when a consumer last had deliveries that can no longer be acknowledged, ns since T0; 0: never.
	// See Snapshot.
	LastInterrupted int64
	Apart           int           // consumers without a link to receive over
	Skew            time.Duration // actual minus agreed start
	Gaps            []Gap
	Busiest         PublisherTimes
}

// PublisherTimes is how one publisher spent the measurement, in ns. What is neither waiting nor pausing is the load
// generator's own work.
type PublisherTimes struct {
	Publisher int `json:"publisher"` // its number among all of the task
	// from the beginning of the measurement until it stopped, or the measurement ended
	Active int64 `json:"active"`
	Waited int64 `json:"waited"` // for the broker: confirms, free in-flight slots, blocked writes, connections
	Paused int64 `json:"paused"` // for the intended send time, or while it was to be away
}

// Busy is the part of its time in which the publisher did its own work: 0 to 1.
func (t PublisherTimes) Busy() float64 {
	return max(0, 1-float64(t.Waited+t.Paused)/float64(max(1, t.Active)))
}

// Snapshot is one increment of one agent's record, as it travels and is stored (JSON). (Agent, Seq) is unique within a
// task; snapshots may be applied in any order.
type Snapshot struct {
	Task  string `json:"task"`
	Group string `json:"group,omitempty"` // that the agent belongs to, where the task's cell has groups
	Agent string `json:"agent"`
	Seq   uint64 `json:"seq"`
	At    int64  `json:"at"` // nanoseconds since T0
	// Begin is when the measurement begins, in nanoseconds since T0, where that was found out while the load ran; 0: it
	// begins at T0, or it is not known yet.
	Begin int64  `json:"begin,omitempty"`
	Clock string `json:"clock,omitempty"`
	// T0 by the agent's wall clock, for people and .hlog files only
	Epoch        time.Time         `json:"epoch,omitzero"`
	Windows      []Window          `json:"windows,omitempty"`
	Sets         []SetPages        `json:"sets,omitempty"`
	Host         HostSample        `json:"host,omitzero"`
	Events       []Event           `json:"events,omitempty"`
	Probes       []ProbeSample     `json:"probes,omitempty"`
	Bindings     []BindingDelivery `json:"bindings,omitempty"`
	LastSend     int64             `json:"lastSend,omitempty"` // latest so far, 0 for none
	LastConfirm  int64             `json:"lastConfirm,omitempty"`
	LastDelivery int64             `json:"lastDelivery,omitempty"`
	// LastInterrupted is when a consumer's link last broke, or a consumer may last have acknowledged too late: nothing
	// had come for longer than Cell.RedeliverAfter, or that is less than what it has prefetched takes it. What it had
	// then may come again until RedeliverAfter has passed.
	LastInterrupted int64 `json:"lastInterrupted,omitempty"`
	// consumers that had no link to receive over when this was taken
	Apart  int           `json:"apart,omitempty"`
	Skew   time.Duration `json:"skew,omitempty"` // nanoseconds, actual minus agreed start
	Clocks []ClockSample `json:"clocks,omitempty"`
	Gaps   []Gap         `json:"gaps,omitempty"`
	// of the agent, once its publishers have stopped: the one that worked most
	Busiest PublisherTimes `json:"busiest,omitzero"`
	Final   bool           `json:"final,omitempty"` // the agent's last of this task
}

// Split divides a snapshot that is too large for one message into two that say the same together. The first keeps Seq;
// the caller gives the second one of its own. It returns false if there is nothing left to divide.
func (s Snapshot) Split() (first, second Snapshot, ok bool) {
	first, second = s, s
	switch {
	case len(s.Windows)+len(s.Sets) > 1:
		w, p := (len(s.Windows)+1)/2, len(s.Sets)/2
		first.Windows, second.Windows = s.Windows[:w:w], s.Windows[w:]
		first.Sets, second.Sets = s.Sets[:p:p], s.Sets[p:]
	case len(s.Sets) == 1 && len(s.Sets[0].Pages) > 1:
		all := s.Sets[0]
		n := len(all.Pages) / 2
		first.Sets = []SetPages{{Key: all.Key, Pages: all.Pages[:n:n]}}
		second.Sets = []SetPages{{Key: all.Key, Pages: all.Pages[n:]}}
	case len(s.Bindings)+len(s.Probes) > 1:
		b, p := (len(s.Bindings)+1)/2, len(s.Probes)/2
		first.Bindings, second.Bindings = s.Bindings[:b:b], s.Bindings[b:]
		first.Probes, second.Probes = s.Probes[:p:p], s.Probes[p:]
		first.Host, first.Events, first.Clocks, first.Gaps, first.Final = HostSample{}, nil, nil, nil, false
		return first, second, true
	case len(s.Gaps) > 1:
		g := len(s.Gaps) / 2
		first.Gaps, second.Gaps = s.Gaps[:g:g], s.Gaps[g:]
		first.Host, first.Events, first.Clocks, first.Final = HostSample{}, nil, nil, false
		return first, second, true
	default:
		return s, Snapshot{}, false
	}
	first.Host, first.Events, first.Clocks, first.Probes, first.Bindings, first.Gaps, first.Final = HostSample{}, nil,
		nil, nil, nil, nil, false
	return first, second, true
}
