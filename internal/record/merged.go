package record

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Merged is the merged record of one task, and of each of its groups. Snapshots may be added in any order, and
// repeatedly. It is safe for concurrent use. The caller owns the results of its methods. Each of its more than 25
// methods reads one quantity, and each of its more than 20 fields has one, under the same lock.
type Merged struct {
	mu            sync.Mutex
	groups        map[string]*Merged // nil: no groups
	seen          map[increment]struct{}
	windows       windowSums
	ledger        ledger
	hosts         map[string][]HostSample
	busiest       map[string]PublisherTimes
	observed      map[string]map[string][]HostSample // by broker and observer
	events        []Event
	probes        []ProbeSample
	gaps          []Gap
	bindings      bindings
	clocks        map[string]string
	last          map[string]Last
	firstDelivery int64
	clockSamples  map[string][]ClockSample
	reportedUntil map[string]int64
	skews         map[string]time.Duration
	epoch         time.Time
	begin, base   int64 // see Begin and Rebase; Rebase must handle every field with times
	memory        int   // see Memory
}

type increment struct {
	agent string
	seq   uint64
}

// NewMerged returns an empty record.
func NewMerged() *Merged {
	return &Merged{seen: map[increment]struct{}{}, windows: windowSums{},
		ledger:   ledger{publishers: map[int]*publisherSets{}, arrived: map[int]int64{}},
		bindings: bindings{sent: bitmap{}, received: bitmap{}, first: map[uint64]BindingDelivery{}},
		hosts:    map[string][]HostSample{}, busiest: map[string]PublisherTimes{},
		observed: map[string]map[string][]HostSample{}, clocks: map[string]string{}, skews: map[string]time.Duration{},
		last: map[string]Last{}, clockSamples: map[string][]ClockSample{}, reportedUntil: map[string]int64{}}
}

// Add merges a snapshot, which is not changed. It returns false and changes nothing if it already has this increment of
// this agent.
func (m *Merged) Add(s Snapshot) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := increment{s.Agent, s.Seq}
	if _, already := m.seen[i]; already {
		return false
	}
	m.seen[i] = struct{}{}
	m.begin = max(m.begin, s.Begin)
	for i := range s.Windows {
		m.memory += m.windows.add(&s.Windows[i])
	}
	if s.Group != "" { // each group numbers its publishers from 0
		part := s
		part.Group = ""
		group := m.group(s.Group)
		m.memory -= group.Memory()
		group.Add(part)
		m.memory += group.Memory()
		s.Sets, s.Bindings = nil, nil
	}
	for _, pages := range s.Sets {
		applied, grown := m.bindings.apply(pages)
		if !applied {
			grown = m.ledger.apply(pages)
		}
		m.memory += grown
	}
	m.memory += memorySnapshot + memoryGap*len(s.Gaps) +
		memoryElement*(len(s.Bindings)+len(s.Probes)+len(s.Events)+len(s.Clocks))
	if s.Host != (HostSample{}) {
		m.memory += memoryHost
	}
	if _, known := m.last[s.Agent]; !known {
		m.memory += memoryAgent
	}
	s.texts(func(text string) { m.memory += len(text) })
	for _, r := range s.Bindings {
		m.bindings.receive(r)
	}
	m.probes = append(m.probes, s.Probes...)
	m.addNotes(s)
	m.last[s.Agent] = m.last[s.Agent].or(Last{Send: s.LastSend, Confirm: s.LastConfirm, Delivery: s.LastDelivery})
	if m.firstDelivery == 0 || s.FirstDelivery != 0 && s.FirstDelivery < m.firstDelivery {
		m.firstDelivery = s.FirstDelivery
	}
	if s.Busiest.Active > 0 {
		m.busiest[s.Agent] = s.Busiest
	}
	return true
}

// Memory returns an upper bound of the bytes that the record keeps. Windows and pages of several snapshots that are
// merged count once: agents report each incomplete page again after every change, so a sum over snapshots would exceed
// the memory of long tasks many times. Decoded snapshots have no recent samples, which do not count.
func (m *Merged) Memory() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.memory
}

// Group returns the record of one of the task's groups; "" is the whole task. The group need not have a record yet. In
// a task with groups, Accounting, AllIn, Bindings and BindingDeliveries of the whole are empty: sum those of the
// groups.
func (m *Merged) Group(name string) *Merged {
	if name == "" {
		return m
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.group(name)
}

// group is Group for callers that hold mu.
func (m *Merged) group(name string) *Merged {
	g := m.groups[name]
	if g == nil {
		if m.groups == nil {
			m.groups = map[string]*Merged{}
		}
		g = NewMerged()
		m.groups[name] = g
		m.memory += memoryGroup
	}
	return g
}

// Groups returns the names of the groups with a record, sorted.
func (m *Merged) Groups() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.groups))
}

// addNotes adds the data that is kept per agent.
func (m *Merged) addNotes(s Snapshot) {
	if s.Host != (HostSample{}) {
		if s.Host.At == 0 {
			s.Host.At = s.At
		}
		m.addHost(s.Agent, s.Host)
	}
	for _, g := range s.Gaps {
		g.Agent = s.Agent
		m.gaps = append(m.gaps, g)
	}
	for _, e := range s.Events {
		e.Agent = s.Agent
		m.events = append(m.events, e)
	}
	if s.Clock != "" {
		m.clocks[s.Agent] = s.Clock
	}
	if len(s.Clocks) > 0 {
		m.clockSamples[s.Agent] = append(m.clockSamples[s.Agent], s.Clocks...)
	}
	if at, any := m.reportedUntil[s.Agent]; !any || s.At > at {
		m.reportedUntil[s.Agent] = s.At
	}
	if s.Skew != 0 {
		m.skews[s.Agent] = s.Skew
	}
	if !s.Epoch.IsZero() && (m.epoch.IsZero() || s.Epoch.Before(m.epoch)) {
		m.epoch = s.Epoch
	}
}

func (m *Merged) addHost(agent string, h HostSample) {
	to := m.hosts
	if h.Broker != "" {
		if m.observed[h.Broker] == nil {
			m.observed[h.Broker] = map[string][]HostSample{}
		}
		to = m.observed[h.Broker]
	}
	to[agent] = append(to[agent], h)
}

// Windows returns the windows summed over the agents, by time. Within a second, those not measured come first.
func (m *Merged) Windows() []Window {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Window, 0, len(m.windows))
	for _, w := range m.windows.sorted() {
		list = append(list, w.clone())
	}
	return list
}

// Hist returns the distribution of a series over the measured windows of all agents.
func (m *Merged) Hist(s Series) *Hist {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := NewHist()
	for k, w := range m.windows {
		if k.measured && w.Hists[s] != nil {
			sum.Merge(w.Hists[s])
		}
	}
	return sum
}

// Sum returns the sum of a counter over the windows with from ≤ Index < to, measured or not.
func (m *Merged) Sum(c Counter, from, to int) (n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, w := range m.windows {
		if from <= k.index && k.index < to {
			n += w.Counts[c]
		}
	}
	return n
}

// Total returns the sum of a counter over all windows.
func (m *Merged) Total(c Counter) int64 { return m.Sum(c, math.MinInt, math.MaxInt) }

// Hosts returns the host samples of each agent, by time. Samples of observers are not included.
func (m *Merged) Hosts() map[string][]HostSample {
	m.mu.Lock()
	defer m.mu.Unlock()
	return byTime(m.hosts, func(s HostSample) int64 { return s.At })
}

// Observed returns the samples of each observer of a broker, by time. Observers belong to no group: samples for a
// group's broker are in the whole record.
func (m *Merged) Observed(broker string) map[string][]HostSample {
	m.mu.Lock()
	defer m.mu.Unlock()
	return byTime(m.observed[broker], func(s HostSample) int64 { return s.At })
}

// byTime returns sorted copies of each agent's samples.
func byTime[T any](samples map[string][]T, at func(T) int64) map[string][]T {
	sorted := make(map[string][]T, len(samples))
	for agent, of := range samples {
		sorted[agent] = slices.SortedStableFunc(slices.Values(of),
			func(a, b T) int { return cmp.Compare(at(a), at(b)) })
	}
	return sorted
}

// Events returns the events of all agents, by time, each with its agent's name.
func (m *Merged) Events() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(m.events), func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Agent, b.Agent))
	})
}

// Gaps returns the gaps of all owners, unsorted.
func (m *Merged) Gaps() []Gap {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.gaps)
}

// Clocks returns the id of each agent's clock.
func (m *Merged) Clocks() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.clocks)
}

// Last holds the times of an agent's last send, confirm and delivery, in ns since T0; 0 is never.
type Last struct{ Send, Confirm, Delivery int64 }

// or returns the later of each two times.
func (l Last) or(o Last) Last {
	later := func(a, b int64) int64 {
		if a == 0 || b == 0 {
			return a + b
		}
		return max(a, b)
	}
	return Last{later(l.Send, o.Send), later(l.Confirm, o.Confirm), later(l.Delivery, o.Delivery)}
}

// LastOfEach returns the last times of each agent.
func (m *Merged) LastOfEach() map[string]Last {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.last)
}

// FirstDelivery returns the time of the first delivery to any agent, in ns since T0; 0: there was none.
func (m *Merged) FirstDelivery() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.firstDelivery
}

// Last returns the last times of all agents together.
func (m *Merged) Last() (last Last) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.last {
		last = last.or(l)
	}
	return last
}

// ClockSamples returns the clock samples of each agent, by time.
func (m *Merged) ClockSamples() map[string][]ClockSample {
	m.mu.Lock()
	defer m.mu.Unlock()
	return byTime(m.clockSamples, func(s ClockSample) int64 { return s.At })
}

// ReportedUntil returns the time of each agent's latest snapshot, in ns since T0 by its own clock.
func (m *Merged) ReportedUntil() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.reportedUntil)
}

// Skews returns by how much each agent started late, by its own clock. Agents without skew are omitted.
func (m *Merged) Skews() map[string]time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.skews)
}

// Accounting is the exact delivery accounting of a task. Received, Dropped, Missing, MissingConfirmed, Duplicated and
// Reordered are summed over subscriptions.
type Accounting struct {
	Sent             uint64 // accepted by Publish
	Uncertain        uint64 // Publish returned an error; may have been sent
	Confirmed        uint64
	Rejected         uint64 // refused by the broker
	Unconfirmed      uint64 // sent, neither confirmed nor rejected
	Returned         uint64
	Received         uint64 // distinct messages
	Dropped          uint64 // rejected by a consumer at the broker's maximum number of deliveries, not received
	Missing          uint64 // sent, neither returned nor rejected, neither received nor dropped
	MissingConfirmed uint64 // confirmed, not returned, neither received nor dropped
	Duplicated       uint64 // deliveries of messages that any consumer of the subscription had received before
	Reordered        uint64
	Corrupt          uint64
	Foreign          uint64
}

// Accounting returns the accounting of a task with this many subscriptions, numbered from 0. It reads all pages.
func (m *Merged) Accounting(subscriptions int) Accounting {
	m.mu.Lock()
	defer m.mu.Unlock()
	var t Accounting
	for _, a := range m.ledger.publishers {
		a.accounting(&t, subscriptions)
	}
	var counts [numCounters]int64
	for _, w := range m.windows {
		for c, n := range w.Counts {
			counts[c] += n
		}
	}
	t.Reordered, t.Corrupt, t.Foreign = positive(counts[Reordered]), positive(counts[Corrupt]), positive(counts[Foreign])
	// A message that two owners recorded as unique was received twice. The sum is negative while a part of the record
	// is missing.
	t.Duplicated = positive(counts[Duplicated] + counts[Unique] - int64(t.Received))
	return t
}

func positive(n int64) uint64 { return uint64(max(n, 0)) }

// AllIn reports whether every subscription has received all expected messages, and every message through a new binding
// has arrived. Expected are sent messages that were not returned, rejected or dropped. Its cost depends only on the
// number of messages through new bindings.
func (m *Merged) AllIn(subscriptions int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ledger.allIn(subscriptions) && (subscriptions == 0 || m.bindings.accounting().Missing == 0)
}

// Busiest returns the times of the busiest publisher of each agent.
func (m *Merged) Busiest() map[string]PublisherTimes {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.busiest)
}

// Bindings returns the accounting of the messages through bindings made during the load.
func (m *Merged) Bindings() BindingAccounting {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bindings.accounting()
}

// BindingDeliveries returns the first delivery of each binding, by its number. others are deliveries that were the
// first on their agent, but later than one on another agent.
func (m *Merged) BindingDeliveries() (first, others []BindingDelivery) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(m.bindings.first)) {
		first = append(first, m.bindings.first[n])
	}
	others = slices.SortedFunc(slices.Values(m.bindings.others), func(a, b BindingDelivery) int {
		return cmp.Or(cmp.Compare(a.Binding, b.Binding), cmp.Compare(a.At, b.At), cmp.Compare(a.Sent, b.Sent))
	})
	return first, others
}

// hlogTag marks the messages that are not measured. Tools ignore tagged lines by default.
const hlogTag = "warm-up"

// WriteHlog writes a series as an HdrHistogram interval log (format 1.3), one line per window with samples, in order of
// time. Times are seconds, maxima milliseconds, and values of the histograms nanoseconds. Lines of messages outside the
// measurement have the tag warm-up. Negative samples are not included.
func (m *Merged) WriteHlog(w io.Writer, s Series) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := bufio.NewWriter(w)
	if err := cmp.Or(m.writeHlog(b, s), b.Flush()); err != nil {
		return fmt.Errorf("write %v histograms: %w", s, err)
	}
	return nil
}

func (m *Merged) writeHlog(w io.Writer, s Series) error {
	var lines []*Window
	for _, x := range m.windows.sorted() {
		if h := x.Hists[s]; h != nil && h.Count() > 0 {
			lines = append(lines, x)
		}
	}
	log := hdrhistogram.NewHistogramLogWriter(w)
	origin, zero := m.hlogTimes(lines)
	log.SetBaseTime(zero)
	if err := errors.Join(log.OutputComment(fmt.Sprintf("[Lockstep series %v, values in nanoseconds]", s)),
		log.OutputLogFormatVersion(), log.OutputBaseTime(zero), log.OutputStartTime(zero),
		log.OutputLegend()); err != nil {
		return err
	}
	for _, x := range lines {
		if err := log.OutputIntervalPackedHistogram(hlogLine(x, s, origin)); err != nil {
			return err
		}
	}
	return nil
}

// hlogTimes returns T0 and the base time of the log, in ms since 1970. The base is a whole second, because the header
// has no fractions. It is not after the first line, because readers do not support negative times. Without a wall clock
// it is 0.
func (m *Merged) hlogTimes(lines []*Window) (origin, zero int64) {
	first := int64(0)
	if len(lines) > 0 {
		first = min(lines[0].Start/int64(time.Millisecond), 0)
	}
	if m.epoch.IsZero() {
		return -first, 0
	}
	origin = m.epoch.UnixMilli()
	zero = max(origin+first, 0)
	return origin, zero - zero%1000
}

func hlogLine(x *Window, s Series, origin int64) *hdrhistogram.PackedHistogram {
	h := x.Hists[s]
	h.settle()
	p := h.settled.Clone()
	start := origin + x.Start/int64(time.Millisecond)
	p.SetStartTimeMs(start)
	p.SetEndTimeMs(start + x.Length/int64(time.Millisecond))
	if !x.Measured {
		p.SetTag(hlogTag)
	}
	return p
}

// Probes returns the metrics that the broker reported, by time, name and node.
func (m *Merged) Probes() []ProbeSample {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(m.probes), func(a, b ProbeSample) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node))
	})
}

// Begin returns the beginning of the measurement since T0, if it was determined during the load (Snapshot.Begin). It
// returns 0 if no agent has reported one.
func (m *Merged) Begin() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.begin)
}

// End returns the end of the last window since T0, rounded up to a whole second.
func (m *Merged) End() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	end := int64(0)
	for _, w := range m.windows {
		end = max(end, m.base+w.Start+w.Length)
	}
	return time.Duration((end + second - 1) / second * second)
}

// Rebase makes all times of the record count from the time from after T0, which must be whole seconds. It is used when
// the measurement does not begin at T0. It may be called repeatedly, but only when the record is complete: times of
// snapshots that are added later remain relative to T0.
func (m *Merged) Rebase(from time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	by := int64(from) - m.base
	if by == 0 {
		return
	}
	m.base = int64(from)
	m.shift(by)
	for _, g := range m.groups {
		g.mu.Lock()
		g.shift(by)
		g.mu.Unlock()
	}
}

// shift subtracts by from all times. The caller holds mu.
func (m *Merged) shift(by int64) {
	old := m.windows
	m.windows = make(windowSums, len(old))
	for _, w := range old {
		w.shift(by)
		m.windows[windowKey{w.Index, w.Measured}] = w
	}
	for _, samples := range m.hosts {
		shift(samples, by, hostTimes)
	}
	for _, agents := range m.observed {
		for _, samples := range agents {
			shift(samples, by, hostTimes)
		}
	}
	shift(m.events, by, eventTimes)
	shift(m.probes, by, probeTimes)
	for binding, r := range m.bindings.first {
		m.bindings.first[binding] = r.shifted(by)
	}
	for i, r := range m.bindings.others {
		m.bindings.others[i] = r.shifted(by)
	}
	for _, samples := range m.clockSamples {
		shift(samples, by, clockTimes)
	}
	shift(m.gaps, by, gapTimes)
	for agent := range m.reportedUntil {
		m.reportedUntil[agent] -= by
	}
	for agent, l := range m.last {
		m.last[agent] = Last{shiftLast(l.Send, by), shiftLast(l.Confirm, by), shiftLast(l.Delivery, by)}
	}
	m.firstDelivery = shiftLast(m.firstDelivery, by)
	if !m.epoch.IsZero() {
		m.epoch = m.epoch.Add(time.Duration(by))
	}
}

// Range calls f with each window summed over the agents, unsorted, while it holds the lock. f must not keep or change
// the window.
func (m *Merged) Range(f func(*Window)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.windows {
		f(w)
	}
}
