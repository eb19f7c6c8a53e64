package results

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// world is a task as its agents recorded it, written down event by event.
type world struct {
	task    plan.Task
	facts   Facts
	merge   *record.Merge
	log     *record.Collector
	rec     *record.Recorder // of events
	lat     *record.Recorder // of latencies
	sets    map[record.SetKey]*record.Set
	last    record.Snapshot
	samples []record.HostSample
	next    uint64
}

// newWorld is a cell of one publisher and one consumer agent on one clock, measuring for 10 s, with all promises.
func newWorld(edit func(*plan.Workload)) *world {
	w := plan.Default()
	if edit != nil {
		edit(&w)
	}
	cell := plan.Cell{ID: "c0ffee", Workload: w, Promises: plan.Promises{ConfirmedKept: true, SentKept: true, NoDuplicates: true, Ordered: true}}
	x := &world{task: plan.Task{Run: "r1", ID: "c0ffee-r1", Cell: cell, Repetition: 1}, merge: record.NewMerge(),
		log: record.NewCollector(w.Measure.D()), sets: map[record.SetKey]*record.Set{}}
	x.rec, x.lat = x.log.Recorder(), x.log.Recorder()
	for i := range cell.Agents() {
		x.facts.Agents = append(x.facts.Agents, plan.AgentPart{Agent: string(rune('a' + i)), Index: i, Host: "h", Clock: "clock-1", Phase: plan.PhaseTeardown})
	}
	return x
}

func (x *world) set(kind record.SetKind, subscription int) *record.Set {
	k := record.SetKey{Kind: kind, Subscription: subscription}
	if x.sets[k] == nil {
		x.sets[k] = x.rec.Set(k)
	}
	return x.sets[k]
}

func (x *world) measured(at time.Duration) bool {
	return at >= 0 && at < x.task.Cell.Workload.Measure.D()
}

// count adds n of a counter at a time, for messages due in the measurement if the time is in it.
func (x *world) count(at time.Duration, c record.Counter, n int64) {
	x.rec.Window(int64(at), x.measured(at)).Counts[c] += n
}

// sample adds a latency of a message of the measurement.
func (x *world) sample(s record.Series, latency time.Duration) {
	x.lat.Window(int64(time.Second/2), true).Record(s, int64(latency))
}

// send is one message sent, and confirmed in confirmed modes; it returns its number.
func (x *world) send(at time.Duration) uint64 {
	n := x.next
	x.next++
	x.set(record.SetSent, 0).Add(n)
	x.count(at, record.Sent, 1)
	x.last.LastSend = max(x.last.LastSend, int64(at))
	if Confirmed(x.task.Cell.Workload.Publishers.Mode) {
		x.set(record.SetConfirmed, 0).Add(n)
		x.count(at, record.Confirmed, 1)
		x.last.LastConfirm = max(x.last.LastConfirm, int64(at))
		x.sample(record.Send, time.Millisecond)
	}
	return n
}

// receive is one receipt in a subscription.
func (x *world) receive(n uint64, subscription int, at time.Duration) {
	x.count(at, record.Received, 1)
	if x.set(record.SetReceived, subscription).Add(n) {
		x.count(at, record.Unique, 1)
	} else {
		x.count(at, record.Duplicated, 1)
	}
	x.last.LastReceipt = max(x.last.LastReceipt, int64(at))
	x.sample(record.Processing, 2*time.Millisecond)
}

// steady sends rate messages a second from -1 s to the end of the measurement; received tells when and whether each comes.
func (x *world) steady(rate int, received func(n int, sent time.Duration) (time.Duration, bool)) {
	every := time.Second / time.Duration(rate)
	end := x.task.Cell.Workload.Measure.D()
	type receipt struct {
		n  uint64
		at time.Duration
	}
	var receipts []receipt
	for i, at := 0, -time.Second; at < end; i, at = i+1, at+every {
		n := x.send(at)
		if got, ok := received(i, at); ok {
			receipts = append(receipts, receipt{n, got})
		}
	}
	slices.SortFunc(receipts, func(a, b receipt) int { return int(a.at - b.at) })
	for _, r := range receipts {
		x.receive(r.n, 0, r.at)
	}
}

// atOnce delivers everything after a millisecond.
func atOnce(_ int, sent time.Duration) (time.Duration, bool) { return sent + time.Millisecond, true }

// snapshot is what was recorded until now.
func (x *world) snapshot() record.Snapshot {
	x.rec.Flush()
	x.lat.Flush()
	s := x.last
	s.Protocol, s.Task, s.Agent, s.At, s.Clock = plan.Protocol, x.task.ID, "a", int64(10*time.Second), "clock-1"
	s.Seq = x.last.Seq
	x.last.Seq++
	s.Windows, s.Sets = x.log.Take()
	return s
}

func (x *world) judge() plan.Outcome {
	x.merge.Add(x.snapshot())
	for i, h := range x.samples {
		x.merge.Add(record.Snapshot{Protocol: plan.Protocol, Task: x.task.ID, Agent: "a", Seq: uint64(1000 + i), At: h.At, Host: h})
	}
	return Judge(x.task, x.merge, x.facts)
}

func near(t *testing.T, o plan.Outcome, name string, want float64) {
	t.Helper()
	v := o.Values[name]
	if v.NA != "" || math.Abs(v.Number-want) > 0.005*math.Abs(want)+1e-9 {
		t.Errorf("%s is %+v, want %v", name, v, want)
	}
}

func na(t *testing.T, o plan.Outcome, name, want string) {
	t.Helper()
	if got := o.Values[name].NA; got != want {
		t.Errorf("%s: n/a because of %q, want %q", name, got, want)
	}
}

func flagged(t *testing.T, o plan.Outcome, f plan.Flag, want bool, names ...string) {
	t.Helper()
	for _, name := range names {
		if got := slices.Contains(o.Values[name].Flags, f); got != want {
			t.Errorf("%s: flag %s is %v, want %v (flags %v)", name, f, got, want, o.Values[name].Flags)
		}
	}
}

func verdict(t *testing.T, o plan.Outcome, want plan.Verdict, reason string) {
	t.Helper()
	if o.Verdict != want {
		t.Errorf("verdict %s, want %s; reasons %q", o.Verdict, want, o.Reasons)
	}
	if reason != "" && !strings.Contains(strings.Join(o.Reasons, "\n"), reason) {
		t.Errorf("reasons %q do not say %q", o.Reasons, reason)
	}
}

func TestAQuietTaskIsValid(t *testing.T) {
	x := newWorld(nil)
	x.steady(1000, atOnce)
	o := x.judge()
	verdict(t, o, plan.Valid, "")
	near(t, o, "send.rate", 1000)
	near(t, o, "confirm.rate", 1000)
	near(t, o, "receive.rate", 1000)
	near(t, o, "throughput", 1000)
	near(t, o, "send.p99", 0.001)
	near(t, o, "processing.max", 0.002)
	near(t, o, "sent", 11000) // the warm-up counts in the account
	near(t, o, "received", 11000)
	near(t, o, "lost", 0)
	na(t, o, "send.due.p50", NAClosedLoop)
	na(t, o, "lateness.p99", NAClosedLoop)
	na(t, o, "blocked.max", NAClosedLoop)
	na(t, o, "broker.cpu", NANoProcess)
	for name, v := range o.Values {
		if len(v.Flags) > 0 {
			t.Errorf("%s has flags %v for no reason", name, v.Flags)
		}
	}
	if o.Measured.D() != 10*time.Second || len(o.Warnings) > 0 {
		t.Errorf("measured %v, warnings %q", o.Measured, o.Warnings)
	}
}

// TestEveryValueIsInEveryOutcome: a value that is left out would look like one that a table misspelt.
func TestEveryValueIsInEveryOutcome(t *testing.T) {
	for name, o := range map[string]plan.Outcome{
		"measured": func() plan.Outcome { x := newWorld(nil); x.steady(100, atOnce); return x.judge() }(),
		"failed":   Judge(newWorld(nil).task, record.NewMerge(), Facts{Failure: "no broker"}),
		"no consumers": func() plan.Outcome {
			x := newWorld(func(w *plan.Workload) { w.Consumers.Nodes = 0 })
			x.send(0)
			return x.judge()
		}(),
	} {
		for _, v := range plan.Values() {
			if _, has := o.Values[v.Name]; !has {
				t.Errorf("%s: no value %s", name, v.Name)
			}
		}
		if len(o.Values) != len(plan.Values()) {
			t.Errorf("%s: %d values, plan knows %d", name, len(o.Values), len(plan.Values()))
		}
	}
}

func TestModesWithoutConfirms(t *testing.T) {
	for mode, why := range map[string]string{"fire-and-forget": NAFireAndForget, "connection-per-message": NANoConfirms} {
		x := newWorld(func(w *plan.Workload) { w.Publishers.Mode, w.Publishers.Rate = mode, 100 })
		x.steady(100, atOnce)
		x.sample(record.Lateness, time.Microsecond)
		x.sample(record.Blocked, time.Microsecond)
		o := x.judge()
		verdict(t, o, plan.Valid, "")
		for _, name := range []string{"send.p50", "send.due.p99", "confirm.rate", "confirmed", "rejected"} {
			na(t, o, name, why)
		}
		near(t, o, "lateness.p50", 1e-6)
		if o.Ledger.Unconfirmed != 0 {
			t.Errorf("%s: %d messages unconfirmed in a mode without confirms", mode, o.Ledger.Unconfirmed)
		}
	}
}

func TestWithoutConsumers(t *testing.T) {
	x := newWorld(func(w *plan.Workload) { w.Consumers.Nodes = 0 })
	x.steady(100, func(int, time.Duration) (time.Duration, bool) { return 0, false })
	o := x.judge()
	verdict(t, o, plan.Valid, "")
	for _, name := range []string{"receive.rate", "received", "lost", "undrained", "unknown", "duplicated", "reordered", "processing.p99"} {
		na(t, o, name, NANoConsumers)
	}
	near(t, o, "throughput", 100)
	flagged(t, o, plan.Backlog, false, "throughput", "send.rate")
}

func TestMeasurementByCount(t *testing.T) {
	x := newWorld(func(w *plan.Workload) { w.Publishers.Count = 1000; w.Warmup = 0 })
	for i := range 1000 {
		at := time.Duration(i) * 4 * time.Millisecond
		x.receive(x.send(at), 0, at+time.Millisecond)
	}
	o := x.judge()
	verdict(t, o, plan.Valid, "")
	near(t, o, "send.rate", 1000/3.996)
	near(t, o, "receive.rate", 1000/3.997)
	flagged(t, o, plan.Backlog, false, "throughput")
	if o.Measured.D() != 3996*time.Millisecond {
		t.Errorf("measured %v, want the time of the last confirm", o.Measured)
	}
}

func TestByCountASlowReceiverIsABacklog(t *testing.T) {
	x := newWorld(func(w *plan.Workload) { w.Publishers.Count = 1000 })
	for i := range 1000 {
		at := time.Duration(i) * time.Millisecond
		x.receive(x.send(at), 0, 2*at)
	}
	o := x.judge()
	flagged(t, o, plan.Backlog, true, "throughput")
	na(t, o, "processing.p50", NABacklog)
	near(t, o, "receive.rate", 500)
}

func TestOutcomeOfNothing(t *testing.T) {
	o := newWorld(nil).judge()
	verdict(t, o, plan.Unknown, "nothing was sent in the measurement")
	na(t, o, "send.rate", NANotMeasured)
	na(t, o, "send.p50", NANoSamples)
	x := newWorld(nil)
	x.receive(x.send(-time.Second), 0, -time.Second/2)
	verdict(t, x.judge(), plan.Unknown, "nothing was sent in the measurement") // warm-up only
}

func TestJudgeIsPure(t *testing.T) {
	x := newWorld(nil)
	x.steady(100, atOnce)
	x.facts.Events = []plan.Event{{At: 5, Kind: "notice", Agent: "b", Detail: "seen by the controller"}}
	first := x.judge()
	second := Judge(x.task, x.merge, x.facts)
	a, _ := json.Marshal(first)
	b, _ := json.Marshal(second)
	if string(a) != string(b) {
		t.Errorf("judging twice gives two outcomes:\n%s\n%s", a, b)
	}
}
