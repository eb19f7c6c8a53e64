package judge

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// loseOnePercent loses every 100th message: 110 of 11,000.
func loseOnePercent(n int, sent time.Duration) (time.Duration, bool) {
	return sent + time.Millisecond, n%100 != 0
}

func TestBrokenGuarantees(t *testing.T) {
	cases := []struct {
		name      string
		happens   func(*taskBuilder)
		guarantee plan.Guarantees
		reason    string
	}{
		{"confirmed messages are lost", func(x *taskBuilder) { x.steadyLoad(1000, loseOnePercent) },
			plan.Guarantees{ConfirmedKept: true}, "110 messages that the broker had confirmed were lost"},
		{"messages are lost without a broken link", func(x *taskBuilder) { x.steadyLoad(1000, loseOnePercent) },
			plan.Guarantees{SentKept: true}, "110 messages were lost although no link broke"},
		{"a message is received twice", func(x *taskBuilder) {
			x.steadyLoad(1000, deliverAtOnce)
			x.receive(7, 0,
				time.Second)
		}, plan.Guarantees{NoDuplicates: true}, "1 message was received again although no link broke"},
		{"messages are received out of order", func(x *taskBuilder) {
			x.steadyLoad(1000, deliverAtOnce)
			x.count(0,
				record.Reordered, 3)
		}, plan.Guarantees{Ordered: true}, "3 messages were received after a later one"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			guaranteed := newTaskBuilder(nil)
			guaranteed.task.Cell.Guarantees = c.guarantee
			c.happens(guaranteed)
			checkVerdict(t, guaranteed.judge(), plan.Invalid, c.reason)

			unguaranteed := newTaskBuilder(nil)
			unguaranteed.task.Cell.Guarantees = plan.Guarantees{}
			c.happens(unguaranteed)
			checkVerdict(t, unguaranteed.judge(), plan.Valid, "")
		})
	}
}

// TestBrokenLinks proves that a broken link excuses only guarantees that hold for unbroken links.
func TestBrokenLinks(t *testing.T) {
	x := newTaskBuilder(nil)
	x.task.Cell.Guarantees = plan.Guarantees{SentKept: true, NoDuplicates: true}
	x.steadyLoad(1000, loseOnePercent)
	x.receive(7, 0, time.Second)
	x.count(time.Second, record.Reconnects, 1)
	o := x.judge()
	checkVerdict(t, o, plan.Valid, "")
	checkValue(t, o, "lost", 110)
	checkValue(t, o, "duplicated", 1)
	checkValue(t, o, "reconnects", 1)

	x = newTaskBuilder(nil)
	x.steadyLoad(1000, loseOnePercent)
	x.count(time.Second, record.Reconnects, 1)
	checkVerdict(t, x.judge(), plan.Invalid, "that the broker had confirmed were lost") // confirms are final
}

// TestLinkLostPermanentlyBreaksNoGuarantee covers a link that was never opened again, so that there is no reconnect.
func TestLinkLostPermanentlyBreaksNoGuarantee(t *testing.T) {
	for _, e := range []record.Event{{Kind: "closed", Detail: "consumer 0: EOF"}, {Kind: record.EventGap, Nanos: 1e9},
		{Kind: "notice"}} {
		x := newTaskBuilder(nil)
		x.task.Cell.Guarantees = plan.Guarantees{SentKept: true, NoDuplicates: true}
		x.steadyLoad(1000, loseOnePercent)
		x.receive(7, 0, time.Second)
		x.last.Events = []record.Event{e}
		want, reason := plan.Valid, ""
		if e.Kind == "notice" {
			want, reason = plan.Invalid, "although no link broke"
		}
		o := x.judge()
		checkVerdict(t, o, want, reason)
		checkWarnings(t, o, e.Kind == record.EventGap, "not opened again: 1")
	}
}

// TestEventsOfBrokenLinksAreLimited breaks links 4,000 times at each of two agents. The outcome has one event with the
// number of the others, and its values are those of the whole record, also when the task is judged again.
func TestEventsOfBrokenLinksAreLimited(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(1000, deliverAtOnce)
	for _, agent := range []string{"a", "b"} {
		s := record.Snapshot{Task: x.task.ID, Agent: agent, Seq: 1000}
		for i := range 4000 {
			s.Events = append(s.Events, record.Event{At: int64(i), Kind: "closed", Detail: "publisher 0: EOF"},
				record.Event{At: int64(i), Kind: record.EventGap, Nanos: int64(i) * 1e6})
		}
		s.Events = append(s.Events, record.Event{At: 1, Kind: record.EventFault, Detail: "kill"})
		x.merge.Add(s)
	}
	o := x.judge()
	checkValue(t, o, "gap.longest", 3.999)
	var more []string
	kinds := map[string]int{}
	for _, e := range o.Events {
		kinds[e.Kind]++
		if strings.Contains(e.Detail, "more events") {
			more = append(more, e.Agent+": "+e.Detail)
		}
	}
	if n := kinds["closed"] + kinds["gap"]; n != maxLinkEvents+2 || kinds["fault"] != 2 {
		t.Errorf("got %d events of broken links, %d of faults, want %d, 2", n, kinds["fault"], maxLinkEvents+2)
	}
	if want := []string{"a: 7000 more events of broken links: the record contains them",
		"b: 7000 more events of broken links: the record contains them"}; !slices.Equal(more, want) {
		t.Errorf("events that count the others: got %q, want %q", more, want)
	}
	if again := Again(x.task, x.merge, o); !reflect.DeepEqual(again.Values, o.Values) || !reflect.DeepEqual(again.Events, o.Events) {
		t.Errorf("new judgement: got %d events, want %d, and the same values", len(again.Events), len(o.Events))
	}
}

func TestCorruptIsInvalidWithoutAnyGuarantee(t *testing.T) {
	x := newTaskBuilder(nil)
	x.task.Cell.Guarantees = plan.Guarantees{}
	x.steadyLoad(100, deliverAtOnce)
	x.count(0, record.Corrupt, 1)
	checkVerdict(t, x.judge(), plan.Invalid, "1 message was received corrupt")
}

func TestForeignIsAWarning(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(100, deliverAtOnce)
	x.count(0, record.Foreign, 2)
	o := x.judge()
	checkVerdict(t, o, plan.Valid, "")
	checkWarnings(t, o, true, "2 messages of another task were received")
}

func TestUndrainedIsNotLost(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(1000, loseOnePercent)
	x.facts.DrainCut = true
	o := x.judge()
	checkVerdict(t, o, plan.Valid, "") // undrained messages may not be lost
	checkValue(t, o, "undrained", 110)
	checkNA(t, o, "lost", NAUndrained)
	checkWarnings(t, o, true, "110 messages")
}

func TestRejectedIsNotLost(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(1000, deliverAtOnce)
	for range 5 { // sent and rejected
		x.set(record.SetSent, 0).Add(x.next)
		x.set(record.SetRejected, 0).Add(x.next)
		x.count(0, record.Sent, 1)
		x.count(0, record.Rejected, 1)
		x.next++
	}
	o := x.judge()
	checkVerdict(t, o, plan.Valid, "")
	checkValue(t, o, "rejected", 5)
	checkValue(t, o, "lost", 0)
}

func TestLostAgentDegradesAllValues(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(1000, loseOnePercent)
	x.receive(7, 0, time.Second) // redelivered after the loss of the consumer
	x.facts.Agents[1].Lost, x.facts.Agents[1].Phase = true, plan.PhaseMeasure
	o := x.judge()
	checkVerdict(t, o, plan.Unknown, "agent b lost in phase measure; at least 110 messages unknown")
	checkValue(t, o, "unknown", 110)
	checkValue(t, o, "lost", 0)
	for _, v := range plan.Values() {
		checkFlag(t, o, plan.Degraded, true, v.Name)
	}
}

// Without missing messages, the reasons do not mention messages: the number that the lost agent had is unknown.
func TestLostAgentWithoutMissingMessages(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(1000, deliverAtOnce)
	x.facts.Agents[1].Lost, x.facts.Agents[1].Phase = true, plan.PhaseMeasure
	o := x.judge()
	if got := strings.Join(o.Reasons, "\n"); o.Verdict != plan.Unknown || got != "agent b lost in phase measure" {
		t.Errorf("got verdict %s, reasons %q, want unknown, only the lost agent", o.Verdict, got)
	}
}

func TestFailedAndCancelledTasksAreUnknown(t *testing.T) {
	x := newTaskBuilder(nil)
	x.facts.Failure = "connect to 10.0.0.9:5672: connection refused"
	checkVerdict(t, x.judge(), plan.Unknown, "the task failed: connect to 10.0.0.9:5672: connection refused")

	x = newTaskBuilder(nil)
	x.steadyLoad(1000, loseOnePercent)
	x.facts.Cancelled = true
	o := x.judge()
	checkVerdict(t, o, plan.Unknown, "the task was cancelled")
	checkValue(t, o, "undrained", 110)
	checkNA(t, o, "lost", NAUndrained)
}

func TestABrokenGuaranteeStaysBrokenWhenTheTaskFails(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(1000, deliverAtOnce)
	x.count(0, record.Corrupt, 1)
	x.facts.Failure = "teardown failed"
	checkVerdict(t, x.judge(), plan.Invalid, "corrupt")
}

// TestLimitations proves which limitation is reported if the load generator reached less than the configured load.
func TestLimitations(t *testing.T) {
	open := func(w *plan.Workload) { w.Publishers.Rate = 1000 }
	host := func(s record.HostSample) func(*taskBuilder) {
		return func(x *taskBuilder) {
			x.facts.Cores = map[string]int{"a": 4}
			for at := time.Second; at <= 10*time.Second; at += time.Second {
				s.At, s.AgentRSS = int64(at), 1<<20
				x.samples = append(x.samples, s)
			}
		}
	}
	late := func(sendDelay, blocked, due time.Duration) func(*taskBuilder) {
		return func(x *taskBuilder) {
			x.last.Busiest = record.PublisherTimes{Active: 1000, Waited: 1000}
			x.sample(record.SendDelay, sendDelay)
			x.sample(record.Backpressure, blocked)
			x.sample(record.PublishIntended, due)
		}
	}
	scheduled := func(wait, send time.Duration) func(*taskBuilder) {
		return func(x *taskBuilder) {
			for range 20_000 { // in addition to the 1 ms of each message
				x.sample(record.Publish, send)
			}
			x.sample(record.Scheduling, wait)
		}
	}
	publisher := func(busy float64) func(*taskBuilder) {
		return func(x *taskBuilder) {
			host(record.HostSample{AgentCPU: 1, HostCPU: 1.2, HostCores: 16})(x)
			x.last.Busiest = record.PublisherTimes{Active: 1000, Waited: int64(1000 * (1 - busy))}
		}
	}
	both := func(all ...func(*taskBuilder)) func(*taskBuilder) {
		return func(x *taskBuilder) {
			for _, f := range all {
				f(x)
			}
		}
	}
	embedded := func(f func(*taskBuilder)) func(*taskBuilder) {
		return func(x *taskBuilder) {
			x.task.Cell.InProcess = true
			f(x)
		}
	}
	ms := time.Millisecond
	for _, c := range []struct {
		name  string
		edit  func(*plan.Workload)
		world func(*taskBuilder)
		want  plan.Flag // "": none
		cause plan.LimitationCause
	}{
		{"no limitation", nil, func(*taskBuilder) {}, "", ""},
		{"ports", nil, func(x *taskBuilder) { x.count(0, record.PortsExhausted, 1) }, plan.ClientBound,
			plan.CausePorts},

		{"late by 5 ms of 8", open, late(5*ms, 0, 8*ms), plan.ClientBound, plan.CauseSendDelay},
		{"late by 5 ms of 800", open, late(5*ms, 0, 800*ms), "", ""},
		{"late by 500 µs of 600", open, late(500*time.Microsecond, 0, 600*time.Microsecond), "", ""},
		{"blocked by the broker", open, late(0, time.Second, time.Second), "", ""},
		{"late by 5 ms with a back-pressure of a second", open, late(5*ms, time.Second, 8*ms), "", ""},
		{"late while other processes use the CPU", open,
			both(late(5*ms, 0, 8*ms), host(record.HostSample{AgentCPU: 0.1, HostCPU: 4, HostCores: 4})),
			plan.HostBusy, plan.CauseSendDelay},
		{"late while other processes use the CPU in bursts", open,
			both(late(5*ms, 0, 8*ms), host(record.HostSample{AgentCPU: 0.1, AgentWaited: 0.5, HostCPU: 1.5,
				HostCores: 4})), plan.HostBusy, plan.CauseSendDelay},
		{"late on a fully used host that it shares with the broker", open,
			both(late(5*ms, 0, 8*ms), host(record.HostSample{AgentCPU: 1, HostCPU: 3.9, HostCores: 4,
				LocalBroker: true})), plan.SharedHost, plan.CauseSendDelay},
		{"late on an idle host that it shares with the broker", open,
			both(late(5*ms, 0, 8*ms), host(record.HostSample{AgentCPU: 1, HostCPU: 2, HostCores: 4,
				LocalBroker: true})), plan.ClientBound, plan.CauseSendDelay},

		{"95 % of the CPUs, used by the agent", nil, host(record.HostSample{AgentCPU: 3.8, HostCPU: 3.8, HostCores: 4}),
			plan.ClientBound, plan.CauseCPU},
		{"half of the CPUs", nil, host(record.HostSample{AgentCPU: 2, HostCPU: 2, HostCores: 4}), "", ""},
		{"all of its quota on a larger host", nil, host(record.HostSample{AgentCPU: 3.9, HostCPU: 9, HostCores: 64}),
			plan.ClientBound, plan.CauseCPU},
		{"the quota of a process on a host of unknown size", nil, host(record.HostSample{AgentCPU: 3.9}),
			plan.ClientBound, plan.CauseCPU},
		{"95 % of the CPUs, most of it polling the clock", open,
			host(record.HostSample{AgentCPU: 3.8, AgentSpin: 3, HostCPU: 3.8, HostCores: 4, LocalBroker: true}), "",
			""},
		{"1.5 cores beside a broker of 2.4", nil, host(record.HostSample{AgentCPU: 1.5, BrokerCPU: 2.4, HasBroker: true,
			HostCPU: 3.9, HostCores: 4}),
			plan.SharedHost, plan.CauseCPU},
		{"0.2 cores beside a broker of 0.3 and 3.5 of others", nil,
			host(record.HostSample{AgentCPU: 0.2, BrokerCPU: 0.3, HasBroker: true, HostCPU: 4, HostCores: 4}),
			plan.HostBusy, plan.CauseCPU},
		{"all of the quota of a process that contains the broker", nil,
			embedded(host(record.HostSample{AgentCPU: 3.9, HostCPU: 5, HostCores: 16})), plan.SharedHost, plan.CauseCPU},
		{"0.1 cores beside 3.9 of others", nil, host(record.HostSample{AgentCPU: 0.1, HostCPU: 4, HostCores: 4}),
			plan.HostBusy, plan.CauseCPU},
		{"threads that wait a little on an idle host", nil,
			host(record.HostSample{AgentCPU: 0.1, AgentWaited: 0.6, HostCPU: 0.3, HostCores: 4}), "", ""},

		{"one publisher that works all the time on a host of 16 cores", nil, publisher(0.97), plan.ClientBound,
			plan.CausePublisher},
		{"publishers that wait for a fifth of the time", nil, publisher(0.8), "", ""},
		{"a publisher that works all the time and is not late", open, publisher(0.97), "", ""},
		{"a driver's process whose busiest thread ran all the time", nil,
			host(record.HostSample{AgentCPU: 1, DriverThread: 0.97, HostCPU: 1, HostCores: 64}),
			plan.ClientBound, plan.CauseThread},
		{"a driver's process with several busy threads", nil,
			host(record.HostSample{AgentCPU: 2, DriverThread: 0.6, HostCPU: 2, HostCores: 64}), "", ""},

		{"goroutines waited 3 ms of 8", nil, scheduled(3*ms, 8*ms), plan.ClientBound, plan.CauseScheduling},
		{"goroutines waited 3 ms of 8 in a process that contains the broker", nil,
			embedded(both(scheduled(3*ms, 8*ms), host(record.HostSample{AgentCPU: 1, HostCPU: 1.2, HostCores: 4}))),
			plan.SharedHost, plan.CauseScheduling},
		{"late in a process that contains the broker, while other processes use the CPU in bursts", open,
			embedded(both(late(5*ms, 0, 8*ms), host(record.HostSample{AgentCPU: 0.1, AgentWaited: 0.5, HostCPU: 1.5,
				HostCores: 4}))), plan.HostBusy, plan.CauseSendDelay},
		{"one publisher that works all the time in a process that contains the broker, on a host of 16 cores", nil,
			embedded(publisher(0.97)), plan.ClientBound, plan.CausePublisher},
		{"goroutines waited 3 ms of 80", nil, scheduled(3*ms, 80*ms), "", ""},
		{"goroutines waited 200 µs of 300", nil, scheduled(200*time.Microsecond, 300*time.Microsecond), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTaskBuilder(c.edit)
			x.steadyLoad(1000, deliverAtOnce)
			c.world(x)
			o := x.judge()
			checkVerdict(t, o, plan.Valid, "")
			for _, f := range []plan.Flag{plan.ClientBound, plan.SharedHost, plan.HostBusy} {
				checkFlag(t, o, f, f == c.want, "publish.rate", "throughput", "publish.p99")
				checkFlag(t, o, f, false, "lost", "agent.cpu")
			}
			found := slices.ContainsFunc(o.Limitations,
				func(l plan.Limitation) bool { return l.Flag == c.want && l.Cause == c.cause })
			if found != (c.want != "") || len(o.Limitations) > 0 && c.want == "" {
				t.Errorf("limitations: got %v, want flag %q, cause %q", o.Limitations, c.want, c.cause)
			}
		})
	}
}

// TestOneLimitationOfAProcess proves that agents of one process have one limitation.
func TestOneLimitationOfAProcess(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(1000, deliverAtOnce)
	x.facts.Cores = map[string]int{"a": 2, "b": 2}
	for i := range 10 {
		at := int64(time.Duration(i+1) * time.Second)
		h := record.HostSample{At: at, AgentCPU: 1.9, AgentRSS: 1, PID: 7, HostCPU: 1.9, HostCores: 2}
		x.samples = append(x.samples, h)
		x.merge.Add(record.Snapshot{Agent: "b", Seq: uint64(i), At: at, Host: h})
	}
	if o := x.judge(); len(o.Limitations) != 1 || !slices.Equal(o.Limitations[0].Agents, []string{"a", "b"}) {
		t.Errorf("limitations: got %v, want one of agents a and b", o.Limitations)
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
		{"unknown clock", func(a []plan.AgentPart) { a[1].Clock = "" }, false, true},
		{"colocated on one agent of an unknown clock", func(a []plan.AgentPart) { a[0].Clock = "" }, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTaskBuilder(func(w *plan.Workload) { w.Consumers.Colocate = c.coloc })
			x.steadyLoad(100, deliverAtOnce)
			c.edit(x.facts.Agents)
			o := x.judge()
			checkFlag(t, o, plan.ClockUnsafe, c.want, "e2e.p50", "e2e.max")
			checkFlag(t, o, plan.ClockUnsafe, false, "publish.p50", "publish.rate")
		})
	}
}

// TestTwoPublisherHostsAndNoConsumer proves that different clocks are flagged only between publishers and consumers.
func TestTwoPublisherHostsAndNoConsumer(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Publishers.Nodes = 2 })
	x.facts.Agents[1].Clock = "clock-2" // a and b publish, c consumes with a's clock
	x.steadyLoad(100, deliverAtOnce)
	checkFlag(t, x.judge(), plan.ClockUnsafe, true, "e2e.p50")
	x = newTaskBuilder(func(w *plan.Workload) { w.Publishers.Nodes, w.Consumers.Nodes = 2, 0 })
	x.facts.Agents[1].Clock = "clock-2"
	x.send(0)
	checkFlag(t, x.judge(), plan.ClockUnsafe, false, "publish.p50", "e2e.p50")
}

func TestNegativeLatenciesAreCounted(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(100, deliverAtOnce)
	x.sample(record.EndToEnd, -time.Millisecond)
	o := x.judge()
	checkWarnings(t, o, true, "1 of 1101 end-to-end latencies were negative")
}

func TestClipped(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(100, deliverAtOnce)
	x.sample(record.Publish, 1000*time.Hour)
	o := x.judge()
	checkFlag(t, o, plan.Clipped, true, "publish.max", "publish.p50")
	checkFlag(t, o, plan.Clipped, false, "e2e.max")
	for name, over := range map[string]uint64{"publish.max": 1, "publish.p50": 0, "e2e.max": 0} {
		if got := o.Values[name].Over; got != over {
			t.Errorf("%s number of samples beyond the range: got %d, want %d", name, got, over)
		}
	}
	if !slices.ContainsFunc(o.Warnings, func(w string) bool {
		return strings.HasPrefix(w,
			"1 publish samples exceeded")
	}) {
		t.Errorf("warnings: got %q, want the number of clipped samples", o.Warnings)
	}
}

func TestSkewed(t *testing.T) {
	for skew, want := range map[time.Duration]bool{time.Millisecond: false, 19 * time.Millisecond: false,
		21 * time.Millisecond: true, -200 * time.Millisecond: true} {
		x := newTaskBuilder(nil)
		x.steadyLoad(100, deliverAtOnce)
		x.last.Skew = skew + time.Second // both started one second late: no skew
		x.merge.Add(record.Snapshot{Agent: "b", Clock: "clock-1", Skew: time.Second})
		o := x.judge()
		checkFlag(t, o, plan.Skewed, want, "publish.rate", "e2e.p99")
		checkFlag(t, o, plan.Skewed, false, "lost", "start.skew")
		checkValue(t, o, "start.skew", max(skew, -skew).Seconds())
		if got := o.Agents[0].Skew.D(); got != skew+time.Second {
			t.Errorf("skew of agent a: got %v, want %v", got, skew+time.Second)
		}
	}
}

// If fewer threads measured than the cell defines, there is no number. That is the case if a link is broken until the
// end, beyond the last moments of the measurement.
func TestLinkLostPermanently(t *testing.T) {
	for _, c := range []struct {
		what    string
		at      time.Duration // in a measurement of 10 s
		lasting bool
		fault   string
		want    plan.Verdict
	}{
		{"permanently broken", 3 * time.Second, true, "", plan.Unknown},
		{"permanently broken since the warm-up", -time.Second, true, "", plan.Unknown},
		{"broken at the last messages", 9900 * time.Millisecond, true, "", plan.Valid},
		{"broken in the drain", 11 * time.Second, true, "", plan.Valid},
		{"reconnected", 3 * time.Second, false, "", plan.Valid},
		{"broken by a fault of the cell", 3 * time.Second, true, plan.FaultKill, plan.Valid},
	} {
		t.Run(c.what, func(t *testing.T) {
			x := newTaskBuilder(nil)
			x.steadyLoad(100, deliverAtOnce)
			if c.fault != "" {
				x.task.Cell.Workload.Faults = []plan.Fault{{Kind: c.fault}}
				x.last.Events = append(x.last.Events,
					record.Event{Kind: record.EventFault, Detail: plan.Fault{Kind: c.fault}.Detail("")})
			}
			x.last.Events = append(x.last.Events, record.Event{At: int64(c.at), Kind: record.EventGap,
				Nanos: int64(15 * time.Second), Lasting: c.lasting, Detail: "publisher 0"})
			reason := ""
			if c.want == plan.Unknown {
				reason = "of the measurement: agent a, publisher 0"
			}
			checkVerdict(t, x.judge(), c.want, reason)
		})
	}
}

func TestGapsAndBlockedConnections(t *testing.T) {
	x := newTaskBuilder(nil)
	x.steadyLoad(100, deliverAtOnce)
	x.count(0, record.ConnBlockedNanos, int64(1500*time.Millisecond))
	x.last.Events = []record.Event{{At: 1, Kind: record.EventGap, Nanos: int64(time.Second)},
		{At: 2, Kind: record.EventGap, Nanos: int64(3 * time.Second)},
		{At: 3, Kind: "notice", Nanos: int64(time.Hour)}}
	o := x.judge()
	checkValue(t, o, "gap.longest", 3)
	checkValue(t, o, "connection.blocked", 1.5)
	if len(o.Events) != 3 || o.Events[0].Agent != "a" {
		t.Errorf("events of the outcome: got %+v, want the 3 of agent a", o.Events)
	}
}

// Messages that were published again may be delivered twice, or after later ones. The loss of a confirmed one is not
// excused. Retries of a client library excuse nothing.
func TestRepeatedMessages(t *testing.T) {
	for _, counter := range []record.Counter{record.Retries, record.Republished} {
		for _, repeated := range []int64{0, 1} {
			x := newTaskBuilder(nil)
			x.task.Cell.Guarantees = plan.Guarantees{ConfirmedKept: true, NoDuplicates: true, Ordered: true}
			x.steadyLoad(1000, deliverAtOnce)
			x.receive(7, 0, time.Second)
			x.count(0, record.Reordered, 3)
			x.count(time.Second, counter, repeated)
			if o := x.judge(); (o.Verdict == plan.Valid) != (counter == record.Republished && repeated > 0) {
				t.Errorf("%s %d: got verdict %s: %v, want valid only for republished messages", counter, repeated,
					o.Verdict, o.Reasons)
			}
		}
		x := newTaskBuilder(nil)
		x.steadyLoad(1000, loseOnePercent)
		x.count(time.Second, counter, 1)
		o := x.judge()
		checkVerdict(t, o, plan.Invalid, "that the broker had confirmed were lost")
		checkValue(t, o, counter.String(), 1)
	}
}

// A message that the broker dropped at its maximum number of deliveries is not lost.
func TestDroppedMessages(t *testing.T) {
	x := newTaskBuilder(nil)
	x.task.Cell.Guarantees = plan.Guarantees{ConfirmedKept: true, SentKept: true}
	x.steadyLoad(1000, loseOnePercent)
	for n := range x.next {
		if n%100 == 0 {
			x.set(record.SetDropped, 0).Add(n)
		}
	}
	x.set(record.SetDropped, 0).Add(1) // also received, by another delivery
	o := x.judge()
	checkVerdict(t, o, plan.Valid, "")
	checkValue(t, o, "dropped", 110)
	checkValue(t, o, "lost", 0)
	checkWarnings(t, o, true, "110 messages were dropped by the broker")
}
