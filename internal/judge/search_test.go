package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// newStep is a step of 1000 messages per second for a second, with n messages that were sent and received.
func newStep(n int, edit func(*taskBuilder)) (plan.Task, plan.Outcome) {
	x := newTaskBuilder(func(w *plan.Workload) {
		w.Measure, w.Publishers.Rate = plan.Duration(time.Second), 1000
	})
	for i := range n {
		at := time.Duration(i) * time.Millisecond
		x.receive(x.send(at), 0, at)
		x.sample(record.EndToEnd, time.Millisecond)
		x.sample(record.SendDelay, 0)
	}
	if edit != nil {
		edit(x)
	}
	return x.task, x.judge()
}

// busyHost is a host whose CPUs are fully used by the load generator and the broker.
func busyHost(at time.Duration) record.HostSample {
	return record.HostSample{At: int64(at), AgentCPU: 2, BrokerCPU: 2, HasBroker: true, HostCPU: 4, HostCores: 4,
		AgentWaited: 0.5}
}

func TestAnswerOfAStep(t *testing.T) {
	s := plan.Search{While: "p99 < 5ms && lost == 0", Within: 0.02, Repeats: 1}
	unsure := func(x *taskBuilder) {
		x.addClockSamples("a", "h1", "h2", -2, 11, 0, 200, 0)
		x.facts.Agents[1].Clock = "h2"
	}
	for _, x := range []struct {
		name   string
		sent   int
		edit   func(*taskBuilder)
		while  string
		answer plan.Answer
		why    string
	}{
		{"held", 1000, nil, "", plan.AnswerHeld, ""},
		{"within half of the width and a stall of 50 ms", 941, nil, "", plan.AnswerHeld, ""},
		{"below both", 935, nil, "", plan.AnswerFailed, "actual publish rate 935/s"},
		{"unsent at the end of the drain", 1000, func(x *taskBuilder) { x.count(0, record.Unsent, 3) }, "",
			plan.AnswerFailed, "backlog: 3 messages due and not sent"},
		{"a tail of few samples", 1000, nil, "p99.9 < 5ms", plan.AnswerHeld, ""},
		{"condition", 1000, nil, "p99 < 1us", plan.AnswerFailed, "p99 is 2.00 ms, not < 1us"},
		{"within the bound of clocks", 1000, unsure, "p99 < 2100us", plan.AnswerFailed,
			"p99 is 2.00 ms ± 200 µs: whether it is < 2100us is not known"},
		{"beyond the bound of clocks", 1000, unsure, "p99 < 1700us", plan.AnswerFailed,
			"p99 is 2.00 ms ± 200 µs, not < 1700us"},
		{"guarantee", 1000, func(x *taskBuilder) { x.send(0) }, "p99 < 5ms", plan.AnswerFailed, "broken guarantee"},
		{"lost agent", 1000, func(x *taskBuilder) { x.facts.Agents[0].Lost = true }, "", plan.AnswerUnknown,
			"agent a lost"},
		{"client at its limit", 500, func(x *taskBuilder) { x.count(0, record.PortsExhausted, 1) }, "",
			plan.Answer(plan.ClientBound), "client-bound: the agents: 1 connections"},
		{"CPUs shared with the broker", 500, func(x *taskBuilder) {
			x.samples = []record.HostSample{busyHost(0), busyHost(time.Second)}
		}, "", plan.Answer(plan.SharedHost), "shared-host: "},
		{"client at its limit, broken guarantee", 1000,
			func(x *taskBuilder) { x.send(0); x.count(0, record.PortsExhausted, 1) }, "", plan.AnswerFailed,
			"broken guarantee"},
		{"drain ended by its timeout", 1000, func(x *taskBuilder) { x.send(0); x.facts.DrainCut = true }, "lost == 0",
			plan.AnswerFailed, "lost has no number: undrained"},
		{"client at its limit, held", 1000, func(x *taskBuilder) { x.count(0, record.PortsExhausted, 1) }, "",
			plan.AnswerHeld, ""},
	} {
		task, o := newStep(x.sent, x.edit)
		search := s
		if x.while != "" {
			search.While = x.while
		}
		answer, why := Answer(search, task, o)
		if answer != x.answer || !strings.Contains(why, x.why) || (why == "") != (x.why == "") {
			t.Errorf("%s: got answer %s, reason %q, want %s, %q", x.name, answer, why, x.answer, x.why)
		}
	}
}

func TestSearchedOutcomes(t *testing.T) {
	task, o := newStep(1000, nil)
	values := func(rate float64) map[string]plan.Value {
		return map[string]plan.Value{"publish.rate": {Number: rate + 5}, "consume.rate": {Number: rate}}
	}
	verify := func(asked, rate float64) plan.Step {
		return plan.Step{Rate: asked, Kind: plan.StepVerify, Answer: plan.AnswerHeld, Values: values(rate)}
	}
	steps := []plan.Step{verify(900, 10), verify(1000, 998), verify(1000, 991), verify(1000, 1001)}
	sure := Searched(task, o, plan.SearchResult{Capacity: 1000, Fails: 1020, Verified: 3, Sure: true, Steps: steps})
	if sure.Verdict != plan.Valid || sure.Values["capacity"].Number != 1000 ||
		sure.Values["capacity.low"].Number != 991 || sure.Values["capacity.high"].Number != 1020 {
		t.Errorf("sure search: got %s %v, capacity %+v, low %+v, high %+v, want valid, 1000, 991, 1020", sure.Verdict,
			sure.Reasons, sure.Values["capacity"], sure.Values["capacity.low"], sure.Values["capacity.high"])
	}
	if o.Search != nil || o.Values["capacity"].NA != NANoSearch {
		t.Error("Searched changed the outcome of the step")
	}
	if above := Searched(task, o, plan.SearchResult{Capacity: 1000, Verified: 1, Sure: true,
		Steps: []plan.Step{verify(1000, 1200)}}); above.Search.Low != 1000 {
		t.Errorf("lower end with an actual rate of 1200/s at 1000/s: got %v, want 1000", above.Search.Low)
	}
	unsure := Searched(task, o, plan.SearchResult{Capacity: 1000, Fails: 1020, Verified: 1, Why: "out of steps",
		Steps: steps[:2]})
	if unsure.Verdict != plan.Unknown || unsure.Values["capacity"].NA != "out of steps" ||
		!strings.Contains(strings.Join(unsure.Reasons, ""), "out of steps") {
		t.Errorf("unsure search: got %s %v, capacity %+v, want unknown with the reason", unsure.Verdict, unsure.Reasons,
			unsure.Values["capacity"])
	}
	bound := Searched(task, o, plan.SearchResult{Capacity: 1000, Verified: 3, Sure: true, Bound: plan.SharedHost,
		Why: "shared-host at 2,000/s", Steps: steps})
	if v := bound.Values["capacity.high"]; bound.Verdict != plan.Valid || v.NA == "" ||
		bound.Values["capacity"].Flags[0] != plan.SharedHost {
		t.Errorf("search with a bound: got %s, capacity %+v, want valid, flag %s, no upper end", bound.Verdict,
			bound.Values["capacity"], plan.SharedHost)
	}
}

// A guarantee that was broken at any rate makes the outcome invalid. The capacity does not change.
func TestSearchedOutcomeShowsBrokenGuarantees(t *testing.T) {
	task, o := newStep(1000, nil)
	broken := plan.Step{Rate: 2000, Kind: plan.StepBracket, Answer: plan.AnswerFailed,
		Broken: []string{"broken guarantee: 1 message was lost"}}
	held := plan.Step{Rate: 1000, Kind: plan.StepVerify, Answer: plan.AnswerHeld}
	got := Searched(task, o, plan.SearchResult{Capacity: 1000, Verified: 1, Sure: true,
		Steps: []plan.Step{broken, held}})
	if got.Verdict != plan.Invalid || len(got.Reasons) != 1 ||
		got.Reasons[0] != "at 2,000/s: broken guarantee: 1 message was lost" || got.Values["capacity"].Number != 1000 {
		t.Errorf("broken guarantee at another rate: got %s, reasons %q, capacity %+v, want invalid, 1 reason, 1000",
			got.Verdict, got.Reasons, got.Values["capacity"])
	}
	task, o = newStep(1000, func(x *taskBuilder) { x.send(0) })
	if o.Verdict != plan.Invalid || len(o.Reasons) != 2 {
		t.Fatalf("step: got verdict %s, reasons %q, want invalid, 2 reasons", o.Verdict, o.Reasons)
	}
	broken.Rate, broken.Broken = 1000, slices.Clone(o.Reasons)
	got = Searched(task, o, plan.SearchResult{Why: "out of steps", Steps: []plan.Step{broken}})
	if got.Verdict != plan.Invalid || len(got.Reasons) != 3 || !strings.HasPrefix(got.Reasons[0], "at 1,000/s: ") {
		t.Errorf("broken guarantee of the last step: got %s, reasons %q, want invalid, 3 reasons", got.Verdict,
			got.Reasons)
	}
}

// With a planned backlog there is no end-to-end latency, and neither a search nor a rule may use it.
func TestNoEndToEndLatencyWithAPlannedBacklog(t *testing.T) {
	x := newTaskBuilder(func(w *plan.Workload) { w.Consumers.Lifetime.ConnectAt = plan.Duration(4 * time.Second) })
	x.steadyLoad(100, deliverLate)
	o := x.judge()
	for name, absent := range map[string]bool{"e2e.p99": true, "e2e.p99.highest": true, "e2e.negative": false,
		"consume.rate": false, "backlog.drain": false} {
		if why := x.task.Cell.Workload.Absent(name); (why != "") != absent || absent && o.Values[name].NA == "" {
			t.Errorf("%s: got %+v, absent because of %q, want absent %v", name, o.Values[name], why, absent)
		}
	}
}

// Values that plan.Workload.Absent excludes have no number in any outcome, and it excludes no other value.
func TestAbsentMatchesJudge(t *testing.T) {
	for _, mode := range []string{"confirm-window", "fire-and-forget", "connection-per-message"} {
		for _, consumers := range []int{0, 1} {
			for _, rate := range []float64{0, 1000} {
				x := newTaskBuilder(func(w *plan.Workload) {
					w.Publishers.Mode, w.Publishers.Rate, w.Consumers.Nodes = mode, rate, consumers
				})
				x.send(0)
				o := x.judge()
				for name, v := range o.Values {
					never := v.NA == NAFireAndForget || v.NA == NANoConfirms || v.NA == NAClosedLoop ||
						v.NA == NANoConsumers
					if strings.HasPrefix(name, "binding") || strings.HasPrefix(name, "broker") ||
						strings.HasPrefix(name, "capacity") {
						continue
					}
					if why := x.task.Cell.Workload.Absent(name); (why != "") != never {
						t.Errorf("%s, %d consumers, rate %v: %s: got %+v, but absent because of %q", mode, consumers,
							rate, name, v, why)
					}
				}
			}
		}
	}
}
