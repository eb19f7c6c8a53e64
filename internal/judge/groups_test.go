package judge

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// groupPair is a task of two groups, each with its own taskBuilder: bulk on agents a and b, small on c and d.
type groupPair struct {
	task        plan.Task
	facts       Facts
	bulk, small *taskBuilder
}

func newGroupPair() *groupPair {
	x := &groupPair{}
	x.bulk = newTaskBuilder(func(w *plan.Workload) { w.Message.Size = 10_000 })
	x.small = newTaskBuilder(func(w *plan.Workload) { w.Publishers.Rate = 100 })
	x.task = x.bulk.task
	for i, g := range []*taskBuilder{x.bulk, x.small} {
		w, name := g.task.Cell.Workload, []string{"bulk", "small"}[i]
		x.task.Cell.Workload.Groups = append(x.task.Cell.Workload.Groups,
			plan.Group{Name: name, Publishers: w.Publishers, Consumers: w.Consumers,
				Topology: w.Topology, Message: w.Message, Guarantees: g.task.Cell.Guarantees})
		for _, a := range g.facts.Agents {
			a.Agent, a.Index, a.Group = string(rune('a'+len(x.facts.Agents))), len(x.facts.Agents), name
			x.facts.Agents = append(x.facts.Agents, a)
		}
	}
	d := plan.Default()
	w := &x.task.Cell.Workload
	w.Publishers, w.Consumers, w.Topology, w.Message = d.Publishers, d.Consumers, d.Topology, d.Message
	return x
}

func (x *groupPair) merge() *record.Merged {
	m := record.NewMerged()
	for group, g := range map[string]*taskBuilder{"bulk": x.bulk, "small": x.small} {
		s := g.snapshot()
		s.Group, s.Agent = group, map[string]string{"bulk": "a", "small": "c"}[group]
		m.Add(s)
		m.Add(s) // repeated: it is counted once
	}
	return m
}

func (x *groupPair) judge() plan.Outcome { return Judge(x.task, x.merge(), x.facts) }

func TestGroupsAddUp(t *testing.T) {
	x := newGroupPair()
	x.bulk.steadyLoad(1000, deliverAtOnce)
	x.small.steadyLoad(100, deliverAtOnce)
	o := x.judge()
	if o.Verdict != plan.Valid || len(o.Warnings) > 0 {
		t.Errorf("got verdict %s, reasons %q, warnings %q, want valid, no warnings", o.Verdict, o.Reasons, o.Warnings)
	}
	bulk, small := o.Groups[0], o.Groups[1]
	if bulk.Ledger.Sent != 11_000 || small.Ledger.Sent != 1100 || o.Ledger.Sent != 12_100 ||
		o.Ledger.Received != 12_100 || o.Ledger.Lost != 0 {
		t.Errorf("ledgers: got bulk %+v, small %+v, cell %+v, want 11,000, 1100, 12,100 sent", bulk.Ledger,
			small.Ledger, o.Ledger)
	}
	for name, want := range map[string]float64{"publish.rate": 1100, "bulk/publish.rate": 1000,
		"small/publish.rate": 100, "consume.rate": 1100, "throughput": 1100,
		"sent": 12_100, "small/received": 1100, "small/publish.max": 0.001} {
		v, has := o.Value(name)
		if !has || v.NA != "" || math.Abs(v.Number-want) > 0.02*want {
			t.Errorf("%s: got %+v, want %v", name, v, want)
		}
	}
	// Two populations have no common quantile. A value that no group has is n/a in the cell for the same reason.
	for name, why := range map[string]string{"publish.p50": naEachGroup, "e2e.max": naEachGroup,
		"publish.p99.highest": naNoInterval, "gap.confirm": NANotMeasured} {
		each := bulk.Values[name].NA == "" && small.Values[name].NA == ""
		if v := o.Values[name]; v.NA != why || each != (why == naEachGroup) {
			t.Errorf("%s of the cell: got %+v, want %q; both groups have a number: %v", name, v, why, each)
		}
	}
	for _, v := range plan.Values() {
		if _, in := bulk.Values[v.Name]; in {
			if _, whole := o.Values[v.Name]; !whole {
				t.Errorf("value %s is missing in the cell, but its groups have it", v.Name)
			}
		}
	}
}

// TestLossOfOneGroup proves that loss in one group makes the cell invalid, with the group in the reason.
func TestLossOfOneGroup(t *testing.T) {
	x := newGroupPair()
	x.bulk.steadyLoad(1000, deliverAtOnce)
	x.small.steadyLoad(100, func(n int, at time.Duration) (time.Duration, bool) { return at, n != 500 })
	o := x.judge()
	if o.Verdict != plan.Invalid || !reflect.DeepEqual(o.Reasons, prefixed("group small: ", o.Groups[1].Reasons)) ||
		!strings.Contains(o.Reasons[0], "1 message that the broker had confirmed was lost") {
		t.Errorf("got verdict %s, reasons %q, want invalid with the group", o.Verdict, o.Reasons)
	}
	if o.Groups[0].Verdict != plan.Valid || o.Groups[1].Verdict != plan.Invalid || o.Ledger.Lost != 1 ||
		o.Groups[0].Ledger.Lost != 0 {
		t.Errorf("got bulk %s, small %s, %d lost, want valid, invalid, 1", o.Groups[0].Verdict, o.Groups[1].Verdict,
			o.Ledger.Lost)
	}
	if v := o.Values["lost"]; v.Number != 1 {
		t.Errorf("lost: got %+v, want 1", v)
	}
}

func prefixed(prefix string, all []string) (out []string) {
	for _, text := range all {
		out = append(out, prefix+text)
	}
	return out
}

// TestBacklogOfOneGroup proves that a backlog hides the end-to-end latency of its group and of the cell, but not that
// of the other group.
func TestBacklogOfOneGroup(t *testing.T) {
	x := newGroupPair()
	x.bulk.steadyLoad(1000, func(n int, at time.Duration) (time.Duration, bool) {
		return at + time.Duration(n)*time.Millisecond/2, true
	})
	x.small.steadyLoad(100, deliverAtOnce)
	o := x.judge()
	for name, backlog := range map[string]bool{"e2e.p99": true, "bulk/e2e.p99": true, "small/e2e.p99": false} {
		if v, _ := o.Value(name); (v.NA == NABacklog) != backlog || slices.Contains(v.Flags, plan.Backlog) != backlog {
			t.Errorf("%s: got %+v, want backlog %v", name, v, backlog)
		}
	}
	if v := o.Values["throughput"]; !slices.Contains(v.Flags, plan.Backlog) {
		t.Errorf("throughput: got %+v, want flag backlog", v)
	}
}

// TestFlagsOfOneGroup proves that flags of a group are flags of the cell, also for values that each group has
// separately.
func TestFlagsOfOneGroup(t *testing.T) {
	x := newGroupPair()
	x.bulk.steadyLoad(1000, deliverAtOnce)
	x.small.steadyLoad(100, deliverAtOnce)
	x.small.count(0, record.PortsExhausted, 1)
	o := x.judge()
	for name, want := range map[string]bool{"publish.p99": true, "publish.rate": true, "small/publish.p99": true,
		"bulk/publish.p99": false} {
		if v, _ := o.Value(name); slices.Contains(v.Flags, plan.ClientBound) != want {
			t.Errorf("%s: got %+v, want client-bound %v", name, v, want)
		}
	}
	if v := o.Values["publish.p99"]; v.NA != naEachGroup {
		t.Errorf("publish.p99 of the cell: got %+v, want %q", v, naEachGroup)
	}
}

// TestGroupsShareTheMeasuredTime proves that summed rates use the seconds in which the agents of all groups ran.
func TestGroupsShareTheMeasuredTime(t *testing.T) {
	x := newGroupPair()
	x.small.last.Skew = 5 * time.Second // 3 s after warm-up
	for second := range 10 {
		at := time.Duration(second) * time.Second
		x.bulk.count(at, record.Sent, 1000+int64(btoi(second < 3))*4000)
		x.small.count(at, record.Sent, int64(btoi(second >= 3))*100)
	}
	o := x.judge()
	for name, want := range map[string]float64{"publish.rate": 1100, "bulk/publish.rate": 1000,
		"small/publish.rate": 100} {
		if v, _ := o.Value(name); v.NA != "" || v.Number != want {
			t.Errorf("%s: got %+v, want %v", name, v, want)
		}
	}
	if o.Measured.D() != 7*time.Second {
		t.Errorf("time of the rates: got %v, want 7s", o.Measured.D())
	}
}

// TestModesOfGroups proves that a value that one group cannot have is only that of the other group.
func TestModesOfGroups(t *testing.T) {
	x := newGroupPair()
	x.task.Cell.Workload.Groups[0].Publishers.Mode, x.bulk.task.Cell.Workload.Publishers.Mode = "fire-and-forget",
		"fire-and-forget"
	x.bulk.steadyLoad(1000, deliverAtOnce)
	x.small.steadyLoad(100, deliverAtOnce)
	o := x.judge()
	if v := o.Values["confirm.rate"]; v.NA != "" || v.Number != 100 {
		t.Errorf("confirm.rate: got %+v, want 100: that of small", v)
	}
	if v := o.Groups[0].Values["publish.p99"]; v.NA != NAFireAndForget {
		t.Errorf("publish.p99 of bulk: got %+v, want %q", v, NAFireAndForget)
	}
	if v := o.Values["publish.p99"]; v.NA != "" {
		t.Errorf("publish.p99: got %+v, want that of small", v)
	}
}

// TestCountsOfGroups proves that rates of groups whose counts end at different times are not summed, but counts are.
func TestCountsOfGroups(t *testing.T) {
	for ends, together := range map[time.Duration]bool{time.Second: false, 9900 * time.Millisecond: true} {
		x := newGroupPair()
		x.task.Cell.Workload.Groups[0].Publishers.Count, x.bulk.task.Cell.Workload.Publishers.Count = 1000, 1000
		for n := range 1000 {
			at := time.Duration(n+1) * ends / 1000
			x.bulk.receive(x.bulk.send(at), 0, at)
		}
		x.small.steadyLoad(100, deliverAtOnce)
		o := x.judge()
		for _, name := range []string{"publish.rate", "confirm.rate", "consume.rate", "publish.bytes", "throughput"} {
			if v := o.Values[name]; (v.NA == "") != together || !together && v.NA != naEachGroup {
				t.Errorf("bulk ends after %v: %s: got %+v, want a number %v", ends, name, v, together)
			}
		}
		if v, want := o.Groups[0].Values["publish.rate"], 1000/ends.Seconds(); math.Abs(v.Number-want) > 0.01*want {
			t.Errorf("publish.rate of bulk: got %+v, want %v", v, want)
		}
		if v := o.Values["sent"]; v.Number != 2100 {
			t.Errorf("sent: got %+v, want 2100", v)
		}
	}
}

// The rates of groups are not summed if counts ended an agent of one group early: its rate covers less time.
func TestRatesOfGroupsCoverTheSameTime(t *testing.T) {
	x := newGroupPair()
	for _, p := range []*plan.Publishers{&x.task.Cell.Workload.Groups[0].Publishers,
		&x.bulk.task.Cell.Workload.Publishers} {
		p.Nodes, p.Count = 2, 1000
	}
	x.small.steadyLoad(100, deliverAtOnce)
	m := x.merge()
	for i, end := range []time.Duration{5 * time.Second, 10 * time.Second} {
		w := record.Window{Measured: true, Length: int64(time.Second)}
		w.Counts[record.Sent], w.Counts[record.Unique] = 1000, 1000
		m.Add(record.Snapshot{Group: "bulk", Agent: string(rune('a' + i)), Clock: "clock-1", Windows: []record.Window{w},
			Seq: uint64(100 + i), LastSend: int64(end), LastConfirm: int64(end), LastDelivery: int64(end)})
	}
	o := Judge(x.task, m, x.facts)
	if v := o.Groups[0].Values["publish.rate"]; v.Number != 400 {
		t.Errorf("publish.rate of bulk: got %+v, want 400: 2,000 messages in 5 s", v)
	}
	for _, name := range []string{"publish.rate", "consume.rate", "throughput"} {
		if v := o.Values[name]; v.NA != naEachGroup {
			t.Errorf("%s of the cell: got %+v, want %q: the other group was measured for 10 s", name, v, naEachGroup)
		}
	}
}

// A rate that is unknown in one group is unknown in the cell: the others alone are not its sum.
func TestUnknownRateOfOneGroup(t *testing.T) {
	for lost, want := range map[bool]string{false: NAApart, true: NANotMeasured} {
		x := newGroupPair()
		for _, g := range []*plan.Publishers{&x.task.Cell.Workload.Groups[0].Publishers,
			&x.bulk.task.Cell.Workload.Publishers} {
			g.Nodes, g.Count = 2, 100
		}
		x.facts.Agents[1].Lost = lost
		x.small.steadyLoad(100, deliverAtOnce)
		m := x.merge()
		for i, end := range []time.Duration{900 * time.Millisecond, 3 * time.Second} {
			w := record.Window{Measured: true, Length: int64(time.Second)}
			w.Counts[record.Sent], w.Counts[record.Unique] = 100, 100
			m.Add(record.Snapshot{Group: "bulk", Agent: string(rune('a' + i)), Clock: "clock-1",
				Windows: []record.Window{w}, Seq: uint64(100 + i), LastSend: int64(end), LastConfirm: int64(end),
				LastDelivery: int64(end)})
		}
		o := Judge(x.task, m, x.facts)
		for _, name := range []string{"publish.rate", "consume.rate", "throughput"} {
			if v := o.Values[name]; v.NA != want {
				t.Errorf("%s of the cell: got %+v, want %q as in group bulk: %+v", name, v, want, o.Groups[0].Values[name])
			}
		}
	}
}

// The processes of another group on the same host are part of the load generator.
func TestProcessesOfOtherGroupsAreLoad(t *testing.T) {
	x := newGroupPair()
	x.bulk.steadyLoad(1000, deliverAtOnce)
	x.small.steadyLoad(100, deliverAtOnce)
	m := x.merge()
	x.facts.Cores = map[string]int{}
	for i := range x.facts.Agents {
		x.facts.Agents[i].Host = "load-1"
		x.facts.Cores[x.facts.Agents[i].Agent] = 4
	}
	for group, agent := range map[string]string{"bulk": "a", "small": "c"} {
		for second := range 10 {
			at := int64(second+1) * int64(time.Second)
			m.Add(record.Snapshot{Group: group, Agent: agent, Seq: uint64(1000 + second), At: at, Host: record.HostSample{
				At: at, PID: int(agent[0]), AgentCPU: 1.8, AgentRSS: 1 << 20, HostCPU: 3.7, HostCores: 4}})
		}
	}
	o := Judge(x.task, m, x.facts)
	checkFlag(t, o, plan.ClientBound, true, "publish.rate")
	checkFlag(t, o, plan.HostBusy, false, "publish.rate")
}

// TestLostAgentOfOneGroup proves that messages are unknown only in the lost agent's group. Without any record the
// verdict is unknown, too.
func TestLostAgentOfOneGroup(t *testing.T) {
	x := newGroupPair()
	x.bulk.steadyLoad(1000, func(n int, at time.Duration) (time.Duration, bool) { return at, n < 10_000 })
	x.small.steadyLoad(100, deliverAtOnce)
	x.facts.Agents[1].Lost, x.facts.Agents[1].Phase, x.facts.Failure = true, plan.PhaseMeasure,
		"agent b was lost in measure"
	o := x.judge()
	if o.Verdict != plan.Unknown || o.Groups[0].Ledger.Unknown != 1000 || o.Groups[1].Ledger.Unknown != 0 {
		t.Errorf("got verdict %s, groups %+v, want unknown, 1000 unknown in bulk", o.Verdict, o.Groups)
	}
	checkFlag(t, o, plan.Degraded, true, "publish.rate", "start.skew") // start.skew is of the whole cell
	text := strings.Join(o.Reasons, "; ")
	if strings.Count(text, "the task failed: agent b was lost") != 1 ||
		!strings.Contains(text, "group bulk: agent b lost in phase measure") || strings.Contains(text, "group small") {
		t.Errorf("reasons: got %q, want the failure once, and only group bulk", o.Reasons)
	}
	if empty := Judge(x.task, record.NewMerged(), Facts{Failure: "too few"}); empty.Verdict != plan.Unknown ||
		len(empty.Reasons) != 1 || len(empty.Groups) != 2 {
		t.Errorf("without a record: got %+v, want unknown, 1 reason, 2 groups", empty)
	}
}

// TestMetricsOfGroups proves that metrics of the whole broker appear once, and metrics of queues per group.
func TestMetricsOfGroups(t *testing.T) {
	x := newGroupPair()
	x.bulk.steadyLoad(1000, deliverAtOnce)
	x.small.steadyLoad(100, deliverAtOnce)
	m := x.merge()
	for i, group := range []string{"bulk", "small"} {
		for s := range 10 {
			at := int64(s) * int64(time.Second)
			m.Add(record.Snapshot{Group: group, Agent: string(rune('a' + 2*i)), Seq: uint64(100 + s), At: at,
				Probes: []record.ProbeSample{
					{At: at + int64(i), Name: "memory", Value: 1000},
					{At: at + int64(i), Name: "queue_depth", Value: float64(10 * (i + 1))}}})
		}
	}
	o := Judge(x.task, m, x.facts)
	for name, want := range map[string]float64{"broker.memory.mean": 1000, "bulk/broker.memory.mean": 1000,
		"bulk/broker.queue_depth.mean": 10, "small/broker.queue_depth.max": 20} {
		if v, _ := o.Value(name); v.NA != "" || math.Abs(v.Number-want) > 1e-6 {
			t.Errorf("%s: got %+v, want %v", name, v, want)
		}
	}
	if v := o.Values["broker.queue_depth.mean"]; v.NA != naEachGroup {
		t.Errorf("broker.queue_depth.mean of the cell: got %+v, want %q", v, naEachGroup)
	}
	if len(o.Warnings) > 0 {
		t.Errorf("warnings: got %q, want none", o.Warnings)
	}
}
