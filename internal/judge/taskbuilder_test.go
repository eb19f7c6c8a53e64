package judge

import (
	"slices"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// taskBuilder creates a task with the record of its agents, event by event.
type taskBuilder struct {
	task    plan.Task
	facts   Facts
	merge   *record.Merged
	log     *record.Collector
	rec     *record.Recorder // of events
	lat     *record.Recorder // of latencies
	sets    map[record.SetKey]*record.Set
	last    record.Snapshot
	samples []record.HostSample
	next    uint64
	begin   time.Duration // start of steadyLoad
}

// newTaskBuilder returns a cell of one publishing and one consuming agent with one clock, a measurement of 10 s, and
// all guarantees.
func newTaskBuilder(edit func(*plan.Workload)) *taskBuilder {
	w := plan.Default()
	if edit != nil {
		edit(&w)
	}
	cell := plan.Cell{ID: "c0ffee", Workload: w, Guarantees: plan.Guarantees{ConfirmedKept: true, SentKept: true,
		NoDuplicates: true, Ordered: true}}
	x := &taskBuilder{task: plan.Task{Run: "r1", ID: "c0ffee-r1", Cell: cell, Repetition: 1}, merge: record.NewMerged(),
		log: record.NewCollector(w.Measure.D()), sets: map[record.SetKey]*record.Set{}, begin: -time.Second}
	x.rec, x.lat = x.log.Recorder(), x.log.Recorder()
	for i := range cell.Agents() {
		x.facts.Agents = append(x.facts.Agents, plan.AgentPart{Agent: string(rune('a' + i)), Index: i, Host: "h",
			Clock: "clock-1", Phase: plan.PhaseTeardown})
	}
	return x
}

func (x *taskBuilder) set(kind record.SetKind, subscription int) *record.Set {
	k := record.SetKey{Kind: kind, Subscription: subscription}
	if x.sets[k] == nil {
		x.sets[k] = x.rec.Set(k)
	}
	return x.sets[k]
}

func (x *taskBuilder) measured(at time.Duration) bool {
	return at >= 0 && at < x.task.Cell.Workload.Measure.D()
}

// count adds n to a counter at a time. The messages belong to the measurement if the time does.
func (x *taskBuilder) count(at time.Duration, c record.Counter, n int64) {
	x.rec.Window(int64(at), x.measured(at)).Counts[c] += n
}

// sample adds a latency of a message in the measurement.
func (x *taskBuilder) sample(s record.Series, latency time.Duration) {
	x.lat.Window(int64(time.Second/2), true).Record(s, int64(latency))
}

// send sends one message, confirmed if the mode has confirms, and returns its number.
func (x *taskBuilder) send(at time.Duration) uint64 {
	n := x.next
	x.next++
	x.set(record.SetSent, 0).Add(n)
	x.count(at, record.Sent, 1)
	x.rec.Window(int64(at), x.measured(at)).Publish(0, 1)
	x.last.LastSend = max(x.last.LastSend, int64(at))
	if x.task.Cell.Workload.Publishers.Confirmed() {
		x.set(record.SetConfirmed, 0).Add(n)
		x.count(at, record.Confirmed, 1)
		x.last.LastConfirm = max(x.last.LastConfirm, int64(at))
		x.sample(record.Publish, time.Millisecond)
	}
	return n
}

// receive adds one delivery in a subscription.
func (x *taskBuilder) receive(n uint64, subscription int, at time.Duration) {
	x.count(at, record.Received, 1)
	if x.set(record.SetReceived, subscription).Add(n) {
		x.count(at, record.Unique, 1)
		x.rec.Window(int64(at), x.measured(at)).Deliver(subscription)
	} else {
		x.count(at, record.Duplicated, 1)
	}
	x.last.LastDelivery = max(x.last.LastDelivery, int64(at))
	x.sample(record.EndToEnd, 2*time.Millisecond)
}

// receiveMeasured adds one delivery in the only subscription. measured states whether the message belongs to the
// measurement.
func (x *taskBuilder) receiveMeasured(n uint64, at time.Duration, measured bool) {
	w := x.rec.Window(int64(at), measured)
	w.Counts[record.Received]++
	w.Counts[record.Unique]++
	x.set(record.SetReceived, 0).Add(n)
	x.last.LastDelivery = max(x.last.LastDelivery, int64(at))
}

// steadyLoad sends rate messages per second from begin (-1 s) to the end of the measurement. received returns the time
// of the delivery, and whether there is one.
func (x *taskBuilder) steadyLoad(rate int, received func(n int, sent time.Duration) (time.Duration, bool)) {
	every := time.Second / time.Duration(rate)
	end := x.task.Cell.Workload.Measure.D()
	type delivery struct {
		n  uint64
		at time.Duration
	}
	var deliveries []delivery
	for i, at := 0, x.begin; at < end; i, at = i+1, at+every {
		n := x.send(at)
		if got, ok := received(i, at); ok {
			deliveries = append(deliveries, delivery{n, got})
		}
	}
	slices.SortFunc(deliveries, func(a, b delivery) int { return int(a.at - b.at) })
	for _, r := range deliveries {
		x.receive(r.n, 0, r.at)
	}
}

// deliverAtOnce delivers every message after a millisecond.
func deliverAtOnce(_ int, sent time.Duration) (time.Duration, bool) {
	return sent + time.Millisecond, true
}

// deliverAfter delivers every message after a delay.
func deliverAfter(delay time.Duration) func(int, time.Duration) (time.Duration, bool) {
	return func(_ int, sent time.Duration) (time.Duration, bool) { return sent + delay, true }
}

// addSecond adds the counts of one second: messages published to each queue, and delivered in each flow. Negative
// seconds are in the warm-up.
func (x *taskBuilder) addSecond(index int, published, delivered []int64) {
	w := x.rec.Window(int64(index)*int64(time.Second), x.measured(time.Duration(index)*time.Second))
	for queue, n := range published {
		w.Publish(queue, n)
		w.Counts[record.Sent] += n
		w.Counts[record.Confirmed] += n
		x.last.LastSend = max(x.last.LastSend, int64(index+1)*int64(time.Second)-1)
		x.last.LastConfirm = x.last.LastSend
	}
	for flow, n := range delivered {
		for range n {
			w.Deliver(flow)
		}
		w.Counts[record.Received] += n
		w.Counts[record.Unique] += n
		x.last.LastDelivery = x.last.LastSend
	}
}

// snapshot returns a snapshot of the data recorded so far.
func (x *taskBuilder) snapshot() record.Snapshot {
	x.rec.Flush()
	x.lat.Flush()
	s := x.last
	s.Task, s.Agent, s.At, s.Clock = x.task.ID, "a", int64(10*time.Second), "clock-1"
	s.Seq = x.last.Seq
	x.last.Seq++
	s.Windows, s.Sets = x.log.Take()
	return s
}

func (x *taskBuilder) judge() plan.Outcome {
	x.merge.Add(x.snapshot())
	for i, h := range x.samples {
		x.merge.Add(record.Snapshot{Task: x.task.ID, Agent: "a", Seq: uint64(1000 + i), At: h.At, Host: h})
	}
	return Judge(x.task, x.merge, x.facts)
}
