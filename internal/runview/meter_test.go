package runview

import (
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

const ns = int64(time.Second)

// counts are those of one agent in one second.
type counts struct{ sent, confirmed, received int64 }

// snapshotOf returns the snapshot of a second, taken 0.6 s after its end.
func snapshotOf(agent, group string, second int64, c counts, processing ...time.Duration) record.Snapshot {
	w := record.Window{Index: int(second), Measured: true, Start: second * ns, Length: ns}
	w.Counts[record.Sent], w.Counts[record.Confirmed] = c.sent, c.confirmed
	w.Counts[record.Received], w.Counts[record.Unique] = c.received, c.received
	for _, d := range processing {
		w.Record(record.EndToEnd, int64(d))
	}
	return record.Snapshot{Agent: agent, Group: group, At: (second+1)*ns + 6*ns/10, Windows: []record.Window{w}}
}

// observed returns the live metrics after snapshots.
func observed(t *testing.T, task plan.Task, seconds ...[]record.Snapshot) Metrics {
	t.Helper()
	m := newMeter(task, 2)
	for _, second := range seconds {
		for _, s := range second {
			m.add(&s)
		}
	}
	return m.metrics()
}

func aTask() plan.Task {
	w := plan.Default()
	w.Consumers.Nodes = 1
	return plan.Task{ID: "t", Cell: plan.Cell{Workload: w}}
}

// TestLiveMetrics proves that rates are those of the latest full second that both agents have reported, and that the
// lag covers all seconds until then.
func TestLiveMetrics(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	live := observed(t, aTask(),
		[]record.Snapshot{snapshotOf("p", "", 0, counts{100, 100, 0}),
			snapshotOf("c", "", 0, counts{0, 0, 90}, 2*ms, 2*ms, 8*ms)},
		[]record.Snapshot{snapshotOf("p", "", 1, counts{120, 120, 0}), snapshotOf("c", "", 1, counts{0, 0, 125}, 2*ms)},
		[]record.Snapshot{snapshotOf("p", "", 2, counts{999, 999, 0})},
	)
	f := live.Flows[0]
	if len(live.Flows) != 1 || !f.Known || f.PublishRate != 120 || f.ConsumeRate != 125 || f.Lag != 5 || f.Behind {
		t.Errorf("%+v", f)
	}
	if f.EndToEnd.Samples != 4 || f.EndToEnd.P50 < 2*ms || f.EndToEnd.P50 > 21*ms/10 || f.EndToEnd.P99 < 8*ms ||
		f.Publish.Samples != 0 {
		t.Errorf("latencies %+v, %+v", f.EndToEnd, f.Publish)
	}
	if live.Agents != 2 || live.Of != 2 {
		t.Errorf("%d of %d agents", live.Agents, live.Of)
	}
}

// TestLiveLagGrows proves that slow consumption is visible, and that messages that are never received stay in the lag.
func TestLiveLagGrows(t *testing.T) {
	t.Parallel()
	var seconds [][]record.Snapshot
	for i := range int64(12) {
		seconds = append(seconds, []record.Snapshot{snapshotOf("p", "", i, counts{100, 100, 0}),
			snapshotOf("c", "", i, counts{0, 0, 80})})
	}
	f := observed(t, aTask(), seconds...).Flows[0]
	if !f.Behind || f.Lag != 12*20 {
		t.Errorf("%+v: want 240 behind, and growing", f)
	}
	late := snapshotOf("c", "", 2, counts{0, 0, 40}) // reported late
	late.At = seconds[11][0].At
	if f := observed(t, aTask(), append(seconds, []record.Snapshot{late})...).Flows[0]; f.Lag != 200 {
		t.Errorf("lag %v after late deliveries: want 200", f.Lag)
	}
}

// TestLiveSilence proves that a second without messages is shown as such, and that a silent agent does not delay the
// metrics.
func TestLiveSilence(t *testing.T) {
	t.Parallel()
	quiet := snapshotOf("p", "", 3, counts{})
	quiet.Windows = nil
	f := observed(t, aTask(),
		[]record.Snapshot{snapshotOf("p", "", 0, counts{100, 100, 0}), snapshotOf("c", "", 0, counts{0, 0, 100})},
		[]record.Snapshot{quiet, {Agent: "c", At: quiet.At}},
	).Flows[0]
	if !f.Known || f.PublishRate != 0 || f.ConsumeRate != 0 {
		t.Errorf("%+v: want rates of 0", f)
	}
	var seconds [][]record.Snapshot
	for i := range int64(8) {
		second := []record.Snapshot{snapshotOf("p", "", i, counts{100 + i, 100, 0})}
		if i < 2 {
			second = append(second, snapshotOf("c", "", i, counts{0, 0, 100}))
		}
		seconds = append(seconds, second)
	}
	if live := observed(t, aTask(), seconds...); live.Agents != 1 || live.Flows[0].PublishRate != 107 {
		t.Errorf("%d agents, %+v: want one agent's last second", live.Agents, live.Flows[0])
	}
}

// TestLiveGroups proves that groups have separate metrics.
func TestLiveGroups(t *testing.T) {
	t.Parallel()
	task := aTask()
	w := task.Cell.Workload
	for _, name := range []string{"bulk", "small"} {
		task.Cell.Workload.Groups = append(task.Cell.Workload.Groups,
			plan.Group{Name: name, Publishers: w.Publishers, Consumers: w.Consumers, Topology: w.Topology})
	}
	live := observed(t, task,
		[]record.Snapshot{snapshotOf("b", "bulk", 0, counts{900, 900, 900}),
			snapshotOf("s", "small", 0, counts{10, 10, 10})},
		[]record.Snapshot{snapshotOf("b", "bulk", 1, counts{901, 901, 901}),
			snapshotOf("s", "small", 1, counts{11, 11, 11})},
	)
	if len(live.Flows) != 2 || live.Flows[0].Group != "bulk" || live.Flows[0].PublishRate != 901 ||
		live.Flows[1].Group != "small" || live.Flows[1].PublishRate != 11 {
		t.Errorf("%+v", live.Flows)
	}
}

// Duplicates are not in the live consume rate.
func TestLiveRatesLeaveOutDuplicates(t *testing.T) {
	t.Parallel()
	s := snapshotOf("a", "", 0, counts{100, 100, 100})
	s.Windows[0].Counts[record.Received] = 150
	if f := observed(t, aTask(), []record.Snapshot{s}).Flows[0]; !f.Known || f.ConsumeRate != 100 {
		t.Errorf("got %+v, want a consume rate of 100/s", f)
	}
}

// An agent that sends many beginnings of one window does not use more memory.
func TestWindowsOfOneNumber(t *testing.T) {
	m := newMeter(aTask(), 2)
	s := record.Snapshot{Agent: "p", At: ns}
	for i := range int64(100_000) {
		s.Windows = append(s.Windows, record.Window{Start: 5*ns + i, Length: 1})
	}
	m.add(&s)
	if n := len(m.groups[""].seconds); n != 1 { // an index has a limit, see Snapshot.CheckTimes
		t.Errorf("got %d seconds, want 1", n)
	}
}
