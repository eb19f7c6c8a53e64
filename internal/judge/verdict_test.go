package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// losing loses every message whose number is divisible by 100: 110 of 11,000.
func losing(n int, sent time.Duration) (time.Duration, bool) {
	return sent + time.Millisecond, n%100 != 0
}

func TestBrokenPromises(t *testing.T) {
	cases := []struct {
		name    string
		happens func(*world)
		promise plan.Promises
		reason  string
	}{
		{"a confirmed message is lost", func(x *world) { x.steady(1000, losing) },
			plan.Promises{ConfirmedKept: true}, "110 messages that the broker had confirmed were lost"},
		{"a message is lost on a whole link", func(x *world) { x.steady(1000, losing) },
			plan.Promises{SentKept: true}, "110 messages were lost although no link broke"},
		{"a message comes twice", func(x *world) { x.steady(1000, atOnce); x.receive(7, 0, time.Second) },
			plan.Promises{NoDuplicates: true}, "1 message was received again although no link broke"},
		{"a message comes late", func(x *world) { x.steady(1000, atOnce); x.count(0, record.Reordered, 3) },
			plan.Promises{Ordered: true}, "3 messages were received after a later one"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			promised := newWorld(nil)
			promised.task.Cell.Promises = c.promise
			c.happens(promised)
			verdict(t, promised.judge(), plan.Invalid, c.reason)

			unpromised := newWorld(nil)
			unpromised.task.Cell.Promises = plan.Promises{}
			c.happens(unpromised)
			verdict(t, unpromised.judge(), plan.Valid, "")
		})
	}
}

// TestBrokenLinks: a link that broke excuses what is promised for whole links only.
func TestBrokenLinks(t *testing.T) {
	x := newWorld(nil)
	x.task.Cell.Promises = plan.Promises{SentKept: true, NoDuplicates: true}
	x.steady(1000, losing)
	x.receive(7, 0, time.Second)
	x.count(time.Second, record.Reconnects, 1)
	o := x.judge()
	verdict(t, o, plan.Valid, "")
	near(t, o, "lost", 110)
	near(t, o, "duplicated", 1)
	near(t, o, "reconnects", 1)

	x = newWorld(nil)
	x.steady(1000, losing)
	x.count(time.Second, record.Reconnects, 1)
	verdict(t, x.judge(), plan.Invalid, "that the broker had confirmed were lost") // confirmed is confirmed
}

// TestALinkThatStaysBrokenExcusesToo: it was never opened again, so no reconnect tells of it.
func TestALinkThatStaysBrokenExcusesToo(t *testing.T) {
	for _, e := range []record.Event{{Kind: "closed", Detail: "consumer 0: EOF"}, {Kind: record.EventGap, Nanos: 1e9}, {Kind: "notice"}} {
		x := newWorld(nil)
		x.task.Cell.Promises = plan.Promises{SentKept: true, NoDuplicates: true}
		x.steady(1000, losing)
		x.receive(7, 0, time.Second)
		x.last.Events = []record.Event{e}
		want, reason := plan.Valid, ""
		if e.Kind == "notice" {
			want, reason = plan.Invalid, "although no link broke"
		}
		o := x.judge()
		verdict(t, o, want, reason)
		if told := strings.Contains(strings.Join(o.Warnings, "\n"), "not opened again: 1"); told != (e.Kind == record.EventGap) {
			t.Errorf("after %q the warnings are %q", e.Kind, o.Warnings)
		}
	}
}

func TestCorruptIsInvalidWithoutAnyPromise(t *testing.T) {
	x := newWorld(nil)
	x.task.Cell.Promises = plan.Promises{}
	x.steady(100, atOnce)
	x.count(0, record.Corrupt, 1)
	verdict(t, x.judge(), plan.Invalid, "1 message was received corrupt")
}

func TestForeignIsAWarning(t *testing.T) {
	x := newWorld(nil)
	x.steady(100, atOnce)
	x.count(0, record.Foreign, 2)
	o := x.judge()
	verdict(t, o, plan.Valid, "")
	if !strings.Contains(strings.Join(o.Warnings, "\n"), "2 messages of another task were received") {
		t.Errorf("warnings %q do not tell of foreign messages", o.Warnings)
	}
}

func TestUndrainedIsNotLost(t *testing.T) {
	x := newWorld(nil)
	x.steady(1000, losing)
	x.facts.DrainCut = true
	o := x.judge()
	verdict(t, o, plan.Valid, "") // nothing proves that they would not have come
	near(t, o, "undrained", 110)
	na(t, o, "lost", NAUndrained)
	if !strings.Contains(strings.Join(o.Warnings, "\n"), "110 messages") {
		t.Errorf("warnings %q do not tell what the drain left", o.Warnings)
	}
}

func TestRejectedIsNotLost(t *testing.T) {
	x := newWorld(nil)
	x.steady(1000, atOnce)
	for range 5 { // sent and refused
		x.set(record.SetSent, 0).Add(x.next)
		x.set(record.SetRejected, 0).Add(x.next)
		x.count(0, record.Sent, 1)
		x.count(0, record.Rejected, 1)
		x.next++
	}
	o := x.judge()
	verdict(t, o, plan.Valid, "")
	near(t, o, "rejected", 5)
	near(t, o, "lost", 0)
}

func TestALostAgentMakesAllDoubtful(t *testing.T) {
	x := newWorld(nil)
	x.steady(1000, losing)
	x.receive(7, 0, time.Second) // redelivered from the lost consumer
	x.facts.Agents[1].Lost, x.facts.Agents[1].Phase = true, plan.PhaseMeasure
	o := x.judge()
	verdict(t, o, plan.Unknown, "agent b lost in phase measure; at least 110 messages unknown")
	near(t, o, "unknown", 110)
	near(t, o, "lost", 0)
	for _, v := range plan.Values() {
		flagged(t, o, plan.Degraded, true, v.Name)
	}
}

func TestFailedAndCancelledTasksAreUnknown(t *testing.T) {
	x := newWorld(nil)
	x.facts.Failure = "connect to 10.0.0.9:5672: connection refused"
	verdict(t, x.judge(), plan.Unknown, "the task failed: connect to 10.0.0.9:5672: connection refused")

	x = newWorld(nil)
	x.steady(1000, losing)
	x.facts.Cancelled = true
	o := x.judge()
	verdict(t, o, plan.Unknown, "the task was cancelled")
	near(t, o, "undrained", 110)
	na(t, o, "lost", NAUndrained)
}

func TestABrokenPromiseStaysBrokenWhenTheTaskFails(t *testing.T) {
	x := newWorld(nil)
	x.steady(1000, atOnce)
	x.count(0, record.Corrupt, 1)
	x.facts.Failure = "teardown failed"
	verdict(t, x.judge(), plan.Invalid, "corrupt")
}

// Pauses make doubtful what they can explain, and nothing else.
func TestPausesExplainATail(t *testing.T) {
	for _, c := range []struct {
		name   string
		pauses int
		each   time.Duration
		bound  []string
		sound  []string
	}{
		{"short ones", 10_000, 100 * time.Microsecond, nil, []string{"send.max", "send.p99"}},
		{"one as long as the longest", 1, 15 * time.Millisecond, []string{"send.max"}, []string{"send.p99", "send.p50", "send.rate"}},
		{"one that is too short for it", 1, 5 * time.Millisecond, nil, []string{"send.max", "send.p99"}},
		{"one of 4 ms of the longest of 6", 1, 4 * time.Millisecond, nil, []string{"send.max", "send.p99"}},
		{"many", 20, 15 * time.Millisecond, []string{"send.max", "send.p99"}, []string{"send.p90", "send.rate"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newWorld(nil)
			x.steady(1000, atOnce)
			longest := 20 * time.Millisecond
			if c.each == 4*time.Millisecond {
				longest = 6 * time.Millisecond
			}
			for range 500 { // of 10,000
				x.sample(record.Send, longest)
			}
			x.sample(record.Processing, longest)
			for range c.pauses {
				x.sample(record.GCPause, c.each)
			}
			o := x.judge()
			flagged(t, o, plan.ClientBound, true, c.bound...)
			flagged(t, o, plan.ClientBound, false, c.sound...)
			if told := strings.Contains(strings.Join(o.Warnings, "\n"), "garbage collection"); told != (len(c.bound) > 0) {
				t.Errorf("warnings %q", o.Warnings)
			}
		})
	}
}

func TestClientBound(t *testing.T) {
	thread := func(busy float64) func(*world) {
		return func(x *world) {
			x.facts.Cores = map[string]int{"a": 64}
			for at := time.Second; at <= 10*time.Second; at += time.Second {
				x.samples = append(x.samples, record.HostSample{At: int64(at), AgentCPU: 1, AgentRSS: 1 << 20, DriverThread: busy})
			}
		}
	}
	open := func(w *plan.Workload) { w.Publishers.Rate = 1000 }
	busy := func(cores float64) func(*world) {
		return func(x *world) {
			x.facts.Cores = map[string]int{"a": 2}
			for at := time.Second; at <= 10*time.Second; at += time.Second {
				x.samples = append(x.samples, record.HostSample{At: int64(at), AgentCPU: cores, AgentRSS: 1 << 20})
			}
		}
	}
	late := func(lateness, due time.Duration) func(*world) {
		return func(x *world) { x.sample(record.Lateness, lateness); x.sample(record.SendDue, due) }
	}
	scheduled := func(wait, send time.Duration) func(*world) {
		return func(x *world) {
			for range 20_000 { // beside the 1 ms of each message
				x.sample(record.Send, send)
			}
			x.sample(record.Scheduling, wait)
		}
	}
	cases := []struct {
		name  string
		edit  func(*plan.Workload)
		world func(*world)
		want  bool
	}{
		{"nothing wrong", nil, func(*world) {}, false},
		{"ports", nil, func(x *world) { x.count(0, record.PortsExhausted, 1) }, true},
		{"late by 5 ms of 8", open, late(5*time.Millisecond, 8*time.Millisecond), true},
		{"late by 5 ms of 800", open, late(5*time.Millisecond, 800*time.Millisecond), false},
		{"late by 500 µs of 600", open, late(500*time.Microsecond, 600*time.Microsecond), false},
		{"blocked by the broker", open, func(x *world) { x.sample(record.Blocked, time.Second); x.sample(record.SendDue, time.Second) }, false},
		{"95 % of the host, closed loop", nil, busy(1.9), true},
		{"half of the host", nil, busy(1), false},
		{"a driver's process whose busiest thread ran all the time", nil, thread(0.97), true},
		{"a driver's process that does much on several threads", nil, thread(0.6), false},
		{"95 % of the host, most of it polling the clock", open, func(x *world) {
			busy(1.9)(x)
			for i := range x.samples {
				x.samples[i].AgentSpin = 1.5
			}
		}, false},
		{"half of the host, and could have had the rest", nil, func(x *world) {
			busy(1)(x)
			for i := range x.samples {
				x.samples[i].AgentWaited = 0.9
			}
		}, true},
		{"goroutines waited 3 ms of 8", nil, scheduled(3*time.Millisecond, 8*time.Millisecond), true},
		{"goroutines waited 3 ms of 80", nil, scheduled(3*time.Millisecond, 80*time.Millisecond), false},
		{"goroutines waited 200 µs of 300", nil, scheduled(200*time.Microsecond, 300*time.Microsecond), false},
		{"a host of unknown size", nil, func(x *world) { busy(1.9)(x); x.facts.Cores = nil }, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			x := newWorld(c.edit)
			x.steady(1000, atOnce)
			c.world(x)
			o := x.judge()
			verdict(t, o, plan.Valid, "")
			flagged(t, o, plan.ClientBound, c.want, "send.rate", "throughput", "send.p99")
			flagged(t, o, plan.ClientBound, false, "lost", "agent.cpu")
			if told := strings.Contains(strings.Join(o.Warnings, "\n"), "client-bound"); told != c.want {
				t.Errorf("warnings %q", o.Warnings)
			}
		})
	}
}

func TestClocks(t *testing.T) {
	for _, c := range []struct {
		name  string
		edit  func([]plan.AgentPart)
		coloc bool
		want  bool
	}{
		{"one host", func([]plan.AgentPart) {}, false, false},
		{"two hosts", func(a []plan.AgentPart) { a[1].Clock = "clock-2" }, false, true},
		{"nobody said", func(a []plan.AgentPart) { a[1].Clock = "" }, false, true},
		{"colocated on one agent of an unknown clock", func(a []plan.AgentPart) { a[0].Clock = "" }, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newWorld(func(w *plan.Workload) { w.Consumers.Colocate = c.coloc })
			x.steady(100, atOnce)
			c.edit(x.facts.Agents)
			o := x.judge()
			flagged(t, o, plan.ClockUnsafe, c.want, "processing.p50", "processing.max")
			flagged(t, o, plan.ClockUnsafe, false, "send.p50", "send.rate")
		})
	}
}

// TestTwoPublisherHostsAndNoConsumer: clocks matter between senders and receivers only.
func TestTwoPublisherHostsAndNoConsumer(t *testing.T) {
	x := newWorld(func(w *plan.Workload) { w.Publishers.Nodes = 2 })
	x.facts.Agents[1].Clock = "clock-2" // b publishes; a publishes; c consumes on a's clock
	x.steady(100, atOnce)
	flagged(t, x.judge(), plan.ClockUnsafe, true, "processing.p50")
	x = newWorld(func(w *plan.Workload) { w.Publishers.Nodes, w.Consumers.Nodes = 2, 0 })
	x.facts.Agents[1].Clock = "clock-2"
	x.send(0)
	flagged(t, x.judge(), plan.ClockUnsafe, false, "send.p50", "processing.p50")
}

func TestNegativeLatenciesAreCounted(t *testing.T) {
	x := newWorld(nil)
	x.steady(100, atOnce)
	x.sample(record.Processing, -time.Millisecond)
	o := x.judge()
	if !strings.Contains(strings.Join(o.Warnings, "\n"), "1 of 1101 processing latencies were negative") {
		t.Errorf("warnings %q do not count the negative latency among all 1101", o.Warnings)
	}
}

func TestClipped(t *testing.T) {
	x := newWorld(nil)
	x.steady(100, atOnce)
	x.sample(record.Send, 1000*time.Hour)
	o := x.judge()
	flagged(t, o, plan.Clipped, true, "send.max", "send.p50")
	flagged(t, o, plan.Clipped, false, "processing.max")
	for name, over := range map[string]uint64{"send.max": 1, "send.p50": 0, "processing.max": 0} {
		if got := o.Values[name].Over; got != over {
			t.Errorf("%s says that %d samples were beyond the range, want %d", name, got, over)
		}
	}
	if !slices.ContainsFunc(o.Warnings, func(w string) bool { return strings.HasPrefix(w, "1 send samples were beyond") }) {
		t.Errorf("warnings %q do not count the clipped sample", o.Warnings)
	}
}

func TestSkewed(t *testing.T) {
	for skew, want := range map[time.Duration]bool{time.Millisecond: false, 19 * time.Millisecond: false, 21 * time.Millisecond: true, -200 * time.Millisecond: true} {
		x := newWorld(nil)
		x.steady(100, atOnce)
		x.last.Skew = skew + time.Second // both a second late: that is not apart
		x.merge.Add(record.Snapshot{Agent: "b", Clock: "clock-1", Skew: time.Second})
		o := x.judge()
		flagged(t, o, plan.Skewed, want, "send.rate", "processing.p99")
		flagged(t, o, plan.Skewed, false, "lost", "start.skew")
		near(t, o, "start.skew", max(skew, -skew).Seconds())
		if got := o.Agents[0].Skew.D(); got != skew+time.Second {
			t.Errorf("agent a: %v after the agreed start, want %v", got, skew+time.Second)
		}
	}
}

// What fewer measured than the cell asks for is no number of that cell: a link that is gone until the end, in more than the last moments of the measurement.
func TestALinkGoneForGood(t *testing.T) {
	for _, c := range []struct {
		what    string
		at      time.Duration // of a measurement of 10 s
		lasting bool
		fault   string
		want    plan.Verdict
	}{
		{"gone for good", 3 * time.Second, true, "", plan.Unknown},
		{"gone for good since the warm-up", -time.Second, true, "", plan.Unknown},
		{"gone with the last messages", 9900 * time.Millisecond, true, "", plan.Valid},
		{"gone in the drain", 11 * time.Second, true, "", plan.Valid},
		{"back again", 3 * time.Second, false, "", plan.Valid},
		{"as the cell asks", 3 * time.Second, true, plan.FaultKill, plan.Valid},
	} {
		t.Run(c.what, func(t *testing.T) {
			x := newWorld(nil)
			x.steady(100, atOnce)
			if c.fault != "" {
				x.task.Cell.Workload.Faults = []plan.Fault{{Kind: c.fault}}
				x.last.Events = append(x.last.Events, record.Event{Kind: record.EventFault, Detail: plan.Fault{Kind: c.fault}.Detail("")})
			}
			x.last.Events = append(x.last.Events, record.Event{At: int64(c.at), Kind: record.EventGap, Nanos: int64(15 * time.Second), Lasting: c.lasting, Detail: "publisher 0"})
			reason := ""
			if c.want == plan.Unknown {
				reason = "of the measurement: agent a, publisher 0"
			}
			verdict(t, x.judge(), c.want, reason)
		})
	}
}

func TestGapsAndBlockedConnections(t *testing.T) {
	x := newWorld(nil)
	x.steady(100, atOnce)
	x.count(0, record.ConnBlockedNanos, int64(1500*time.Millisecond))
	x.last.Events = []record.Event{{At: 1, Kind: record.EventGap, Nanos: int64(time.Second)}, {At: 2, Kind: record.EventGap, Nanos: int64(3 * time.Second)},
		{At: 3, Kind: "notice", Nanos: int64(time.Hour)}}
	o := x.judge()
	near(t, o, "gap.longest", 3)
	near(t, o, "connection.blocked", 1.5)
	if len(o.Events) != 3 || o.Events[0].Agent != "a" {
		t.Errorf("events of the agents are not in the outcome: %+v", o.Events)
	}
}
