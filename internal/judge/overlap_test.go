package judge

import (
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// With a count, rates are of the time in which all agents ran. A broker with 1,000 messages per second that serves
// agents one after the other has that rate, for any number of agents.
func TestRatesOfTheOverlapByCount(t *testing.T) {
	for _, agents := range []int{1, 2, 4, 8} {
		x := newTaskBuilder(func(w *plan.Workload) {
			w.Publishers.Nodes, w.Publishers.Count, w.Publishers.Mode, w.Warmup = agents, 1000, "confirm-each", 0
		})
		for i := range agents {
			end := int64(i+1) * int64(time.Second)
			w := record.Window{Index: i, Start: end - int64(time.Second), Measured: true, Length: int64(time.Second)}
			w.Counts[record.Sent], w.Counts[record.Confirmed], w.Counts[record.Received],
				w.Counts[record.Unique] = 1000, 1000, 1000, 1000
			x.merge.Add(record.Snapshot{Agent: string(rune('a' + i)), Seq: 1, Clock: "clock-1",
				Windows:  []record.Window{w},
				LastSend: end - 1, LastConfirm: end, LastDelivery: end})
		}
		o := Judge(x.task, x.merge, x.facts)
		for _, name := range []string{"publish.rate", "confirm.rate", "consume.rate"} {
			checkValue(t, o, name, 1000)
		}
		if o.Measured.D() != time.Second {
			t.Errorf("%d agents: measured time: got %v, want 1 s: that in which all ran", agents, o.Measured)
		}
	}
}

// Agents that end within 2 % of the time ran together to the end, which is no full second.
func TestAgentsByCountEndTogether(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Nodes, w.Publishers.Count, w.Warmup = 2, 230, 0 })
	for i, end := range []time.Duration{2270 * time.Millisecond, 2300 * time.Millisecond} {
		var windows []record.Window
		for second, n := range []int64{100, 100, 30} {
			w := record.Window{Index: second, Start: int64(second) * int64(time.Second), Measured: true,
				Length: int64(time.Second)}
			w.Counts[record.Sent], w.Counts[record.Unique] = n, n
			windows = append(windows, w)
		}
		x.merge.Add(record.Snapshot{Agent: string(rune('a' + i)), Clock: "clock-1", Windows: windows,
			LastSend: int64(end), LastConfirm: int64(end), LastDelivery: int64(end + 200*time.Millisecond)})
	}
	o := Judge(x.task, x.merge, x.facts)
	checkValue(t, o, "publish.rate", 460/2.3)
	checkValue(t, o, "consume.rate", 460/2.5)
}

// If agents end in different seconds, one of them in its first, there is no full second in which all ran. Rates are
// then n/a with a separate reason.
func TestAgentsThatEndInTheirFirstSecond(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Nodes, w.Publishers.Count, w.Warmup = 2, 100, 0 })
	for i, end := range []time.Duration{900 * time.Millisecond, 3 * time.Second} {
		w := record.Window{Measured: true, Length: int64(time.Second)}
		w.Counts[record.Sent], w.Counts[record.Unique] = 100, 100
		x.merge.Add(record.Snapshot{Agent: string(rune('a' + i)), Clock: "clock-1", Windows: []record.Window{w},
			LastSend: int64(end), LastConfirm: int64(end), LastDelivery: int64(end)})
	}
	o := Judge(x.task, x.merge, x.facts)
	checkNA(t, o, "publish.rate", NAApart)
	checkNA(t, o, "consume.bytes", NAApart)
	checkNA(t, o, "throughput", NAApart)
}

// Every agent starts some microseconds late. Within the cell's limit, that costs no second of the measurement.
func TestSkewWithinTheLimit(t *testing.T) {
	for late, measured := range map[time.Duration]bool{60 * time.Microsecond: true, 20 * time.Millisecond: true,
		21 * time.Millisecond: false} {
		x := newTaskBuilder(func(w *plan.Workload) { w.Warmup, w.Measure = 0, plan.Duration(time.Second) })
		x.last.Skew = late
		x.count(0, record.Sent, 300)
		if v := x.judge().Values["publish.rate"]; (v.NA == "") != measured || measured && v.Number != 300 {
			t.Errorf("start %v late: publish.rate: got %+v, want measured %v", late, v, measured)
		}
	}
}

// An agent that starts after the end of a short measurement leaves no time in which all ran. Counts are still known.
func TestStartAfterTheEnd(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) {
		w.Warmup, w.Measure = plan.Duration(time.Second), plan.Duration(1500*time.Millisecond)
	})
	x.last.Skew = 4200 * time.Millisecond
	x.merge.Add(record.Snapshot{Agent: "b", Clock: "clock-1"})
	x.count(-time.Second, record.Sent, 1)
	x.count(0, record.Sent, 300)
	o := x.judge()
	checkNA(t, o, "publish.rate", NANotMeasured)
	checkFlag(t, o, plan.Skewed, true, "publish.rate")
	if len(o.Reasons) > 0 {
		t.Errorf("reasons: got %q, want none", o.Reasons)
	}
}

// If an agent started late or was lost, rates are those of the seconds in which all ran.
func TestRatesOfTheOverlap(t *testing.T) {
	for name, c := range map[string]struct {
		skew     time.Duration
		lost     time.Duration
		from     int // second
		measured time.Duration
		rate     float64
	}{
		"full time":                        {0, 0, 0, 10 * time.Second, 300},
		"late, within warm-up":             {1900 * time.Millisecond, 0, 0, 10 * time.Second, 300},
		"late by 1.2 s of the measurement": {3200 * time.Millisecond, 0, 2, 8 * time.Second, 300},
		"lost after 6.5 s":                 {0, 6500 * time.Millisecond, 0, 5 * time.Second, 300},
		"late start after the loss":        {9 * time.Second, 6500 * time.Millisecond, 7, 0, 0},
	} {
		x := newTaskBuilder(nil)
		x.facts.Agents[1].Lost = c.lost > 0
		x.last.Skew = c.skew
		for second := range 10 { // 300 per second while all run, otherwise 100
			n := int64(300)
			at := time.Duration(second) * time.Second
			if at < c.skew-2*time.Second || c.lost > 0 && at > c.lost-2*time.Second {
				n = 100
			}
			x.count(at, record.Sent, n)
		}
		x.merge.Add(record.Snapshot{Agent: "b", Clock: "clock-1",
			At: int64(max(c.lost, 11*time.Second*btoi(c.lost == 0)))})
		o := x.judge()
		if c.rate == 0 {
			if v := o.Values["publish.rate"]; v.NA != NANotMeasured {
				t.Errorf("%s: got %+v, want not measured", name, v)
			}
			continue
		}
		checkValue(t, o, "publish.rate", c.rate)
		if from := MeasuredFrom(x.task.Cell.Workload, o.Cut.D(), x.merge); from != c.from || o.Measured.D() != c.measured {
			t.Errorf("%s: measured from second %d, for %v, want %d, %v", name, from, o.Measured.D(), c.from, c.measured)
		}
	}
}

func btoi(b bool) time.Duration {
	if b {
		return 1
	}
	return 0
}
