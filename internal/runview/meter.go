package runview

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// Metrics are the live metrics of the task in flight over all agents. They are for people and are not recorded.
type Metrics struct {
	Since  time.Duration // see Attempt.Since
	Agents int           // agents that have reported recently or are done
	Of     int           // agents of the task
	// of the task, or of each of its groups by name: groups share no load and are not added up
	Flows []Flow
}

// Flow has the live metrics of one group. Rates are of the last complete second that all its agents have reported.
// Latencies are of the RecentSeconds before the end of that second.
type Flow struct {
	Group       string
	Known       bool    // there was such a second: PublishRate, ConsumeRate and Lag are valid
	PublishRate float64 // messages per second
	ConsumeRate float64 // messages per second, over all subscriptions
	Lag         float64 // messages sent but not received, including those in flight, over all subscriptions
	Behind      bool    // consumers do not keep up with publishers: the lag grows
	Consumes    bool    // it has consumers; else ConsumeRate, Lag and EndToEnd are meaningless
	Publish     Latency // from the publish call to the confirm
	EndToEnd    Latency
}

// Latency has two quantiles; both are 0 without samples.
type Latency struct {
	P50, P99 time.Duration
	Samples  uint64
}

// RecentSeconds is the time that live latencies cover: enough samples for a p99, and still recent.
const RecentSeconds = 5

const (
	silentAfter = 3 * time.Second        // an agent without a snapshot for this time is not waited for
	handOver    = 250 * time.Millisecond // publishers report a second with their first message of the next
	// the same tolerances as in the judgement of the lag: a share of the messages sent, plus
	tolerance = 0.02
	stall     = 50 * time.Millisecond // the messages sent in this time
)

// meter computes live metrics from snapshots.
type meter struct {
	agents  int // of the task
	reports map[string]*reports
	groups  map[string]*flowMeter
}

// reports is the state of an agent's reports.
type reports struct {
	group string
	at    int64 // ns since T0
	final bool
}

func newMeter(t plan.Task, agents int) *meter {
	m := &meter{agents: agents, reports: map[string]*reports{}, groups: map[string]*flowMeter{}}
	for _, part := range t.Parts() {
		m.groups[part.Group] = &flowMeter{part: part, seconds: map[int]*flowSecond{}}
	}
	return m
}

func (m *meter) add(s *record.Snapshot) {
	h := m.reports[s.Agent]
	if h == nil {
		h = &reports{group: s.Group}
		m.reports[s.Agent] = h
	}
	h.at, h.final = max(h.at, s.At), h.final || s.Final
	if g := m.groups[s.Group]; g != nil {
		for i := range s.Windows {
			g.add(&s.Windows[i])
		}
	}
}

// metrics returns the current metrics, without Since.
func (m *meter) metrics() Metrics {
	f := Metrics{Of: m.agents}
	latest := m.latest()
	for _, h := range m.reports {
		if h.fresh(latest) {
			f.Agents++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.groups)) {
		f.Flows = append(f.Flows, m.groups[name].flow(name, m.reportedUntil(name, latest)))
	}
	return f
}

func (m *meter) latest() (at int64) {
	at = math.MinInt64
	for _, h := range m.reports {
		at = max(at, h.at)
	}
	return at
}

func (h *reports) fresh(latest int64) bool { return h.final || h.at > latest-int64(silentAfter) }

// reportedUntil returns the time up to which all agents of a group have reported.
func (m *meter) reportedUntil(group string, latest int64) int64 {
	until := latest
	for _, h := range m.reports {
		if h.group == group && !h.final && h.fresh(latest) {
			until = min(until, h.at)
		}
	}
	return until - int64(handOver)
}

// flowSecond has the counts of a group in one second, or the sums of several.
type flowSecond struct {
	start, length          int64
	sent, refused, settled int64 // settled: confirmed, refused or given up
	unique                 int64
	publish, endToEnd      record.Hist
}

func (t *flowSecond) add(o *flowSecond) {
	t.length += o.length
	t.sent, t.refused, t.settled = t.sent+o.sent, t.refused+o.refused, t.settled+o.settled
	t.unique += o.unique
	t.publish.Merge(&o.publish)
	t.endToEnd.Merge(&o.endToEnd)
}

// flowMeter has the last seconds of a group, and the lag before them.
type flowMeter struct {
	part    plan.Task
	seconds map[int]*flowSecond // by number of the window
	kept    int64               // earlier seconds are only part of before
	before  float64             // the lag
}

func (f *flowMeter) add(w *record.Window) {
	n := w.Counts
	if w.Start < f.kept && f.kept != 0 {
		f.before += f.lag(n[record.Sent], n[record.Returned]+n[record.Rejected], n[record.Unique])
		return
	}
	t := f.seconds[w.Index]
	if t == nil {
		t = &flowSecond{start: w.Start, length: w.Length}
		f.seconds[w.Index] = t
	}
	t.sent += n[record.Sent]
	t.refused += n[record.Returned] + n[record.Rejected]
	t.settled += n[record.Confirmed] + n[record.Rejected] + n[record.Unconfirmed]
	t.unique += n[record.Unique]
	if h := w.Hists[record.Publish]; h != nil {
		t.publish.Merge(h)
	}
	if h := w.Hists[record.EndToEnd]; h != nil {
		t.endToEnd.Merge(h)
	}
}

func (f *flowMeter) lag(sent, refused, unique int64) float64 {
	return float64(sent-refused)*float64(max(1, f.part.Cell.Workload.Topology.Subscriptions)) - float64(unique)
}

// flow returns the metrics of the seconds that end by until. A second without a report counts as empty.
func (f *flowMeter) flow(group string, until int64) Flow {
	out := Flow{Group: group, Consumes: f.part.Cell.Workload.Consumers.Nodes > 0}
	whole := f.whole(until)
	out.Known = len(whole) > 0 || f.kept != 0
	out.Lag = f.before
	var recent flowSecond
	seconds := 0
	for _, t := range whole {
		out.Lag += f.lag(t.sent, t.refused, t.unique)
		if until-t.start <= (RecentSeconds+1)*int64(time.Second) {
			recent.add(t)
			seconds++
		}
		if until-t.start-t.length < int64(time.Second) { // the last second
			out.PublishRate = float64(t.sent) / time.Duration(t.length).Seconds()
			out.ConsumeRate = float64(t.unique) / time.Duration(t.length).Seconds()
		}
	}
	out.Behind = seconds > 1 && out.Consumes && f.behind(&recent)
	out.Lag = max(0, out.Lag) // clocks differ, and a delivery may be reported before its message
	out.Publish, out.EndToEnd = latencyOf(&recent.publish), latencyOf(&recent.endToEnd)
	return out
}

// whole returns the last seconds that end by until. It adds earlier seconds to the lag.
func (f *flowMeter) whole(until int64) (whole []*flowSecond) {
	for _, index := range slices.Sorted(maps.Keys(f.seconds)) {
		if t := f.seconds[index]; t.start+t.length <= until {
			whole = append(whole, t)
		}
	}
	old := max(0, len(whole)-RecentSeconds)
	for _, t := range whole[:old] {
		f.before += f.lag(t.sent, t.refused, t.unique)
		f.kept = cmp.Or(t.start+t.length, 1) // 0: none
	}
	maps.DeleteFunc(f.seconds, func(_ int, t *flowSecond) bool { return slices.Contains(whole[:old], t) })
	return whole[old:]
}

// behind reports whether consumers fell behind publishers by more than the judgement tolerates.
func (f *flowMeter) behind(recent *flowSecond) bool {
	w := f.part.Cell.Workload
	subs := float64(max(1, w.Topology.Subscriptions))
	due := float64(recent.sent-recent.refused) * subs
	slack := due * (tolerance + (stall+w.Network.Latency.D()).Seconds()/time.Duration(recent.length).Seconds())
	if unsettled := recent.sent - recent.settled; unsettled > 0 && w.Publishers.Confirmed() {
		slack += min(float64(unsettled)*subs, due/10)
	}
	return due-float64(recent.unique) > slack
}

func latencyOf(h *record.Hist) Latency {
	return Latency{P50: time.Duration(h.Quantile(0.5)), P99: time.Duration(h.Quantile(0.99)), Samples: h.Count()}
}
