package sink

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// The number of tasks of a run is a maximum if cells are repeated until a value is known well enough.
func TestTheStartOfARunHasItsTasks(t *testing.T) {
	run := someRun(nil)
	run.Repeat = 5
	for want, until := range map[string]*plan.StopRule{"run run-1 started: 5 tasks": nil,
		"run run-1 started: at most 5 tasks": {Within: 0.1, Confidence: 0.9}} {
		run.Until = until
		if got := newStream(run).begin()[0].Fields; got["text"] != want || got["tasks"] != int64(5) {
			t.Errorf("%v, want %q and 5", got, want)
		}
	}
}

// TestPointsSayWhatTheRecordSays proves that counters of points add up to those of the record, and that points have the
// times of the seconds.
func TestPointsSayWhatTheRecordSays(t *testing.T) {
	x := newWorld(nil)
	x.steady(5 * time.Second)
	m := stored{}.write(x.stream())
	for _, c := range []struct {
		measurement, field string
		tags               []string
		sum                float64
		n                  int
	}{
		{measureWindow, "sent", []string{"phase", "measure", "agent", "a1", "role", "publisher"}, 350, 4},
		{measureWindow, "sent", []string{"phase", "warm-up", "measured", "false"}, 100, 1},
		{measureWindow, "received", []string{"phase", "measure", "agent", "a2", "role", "consumer"}, 350, 4},
		{measureWindow, "publish.rate", []string{"phase", "measure"}, 400, 4}, // the last second is half as long
		{measureWindow, "received", []string{"agent", "a1"}, 0, 0},
		{measureTotal, "sent", []string{"phase", "measure"}, 350, 4},
		{measureTotal, "received", []string{"phase", "measure"}, 350, 4},
		{measureTotal, "expected", []string{"phase", "measure"}, 350, 4},
		{measureWindow, "expected", nil, 0, 0},
		{measureOutcome, "name", nil, 0, 1},
		{measureTotal, "publish.count", []string{"measured", "true"}, 350, 4},
		{measureTotal, "e2e.p99", []string{"phase", "measure"}, 4 * 0.002, 4},
		{measureWindow, "unconfirmed", []string{"agent", "a1", "phase", "measure"}, 0, 4},
		{measureOutcome, "publish.rate", []string{"verdict", "valid"}, 100, 1},
		{measureOutcome, "e2e.p99", nil, 0, 0},
		{measureEvent, "text", []string{"kind", "task-start"}, 0, 1},
		{measureEvent, "text", []string{"kind", "task-stop"}, 0, 1},
		{measureEvent, "tasks", []string{"kind", "run-start", "run", "run-1", "matrix", "quick"}, 1, 1},
		{measureEvent, "reason", []string{"kind", "run-stop"}, 0, 1},
	} {
		sum, n := m.sum(c.measurement, c.field, c.tags...)
		if n != c.n || sum < c.sum*0.999 || sum > c.sum*1.001 {
			t.Errorf("%s %s %v: %v in %d points, want %v in %d", c.measurement, c.field, c.tags, sum, n, c.sum, c.n)
		}
	}
	h := x.merge.Hist(record.Publish)
	for _, p := range m {
		if p.Measurement == measureWindow && p.Tags["phase"] == "measure" && p.Fields["publish.p50"] != nil {
			if got := p.Fields["publish.max"].(float64); got > time.Duration(h.Max()).Seconds() || got < 0.001 {
				t.Errorf("publish.max is %v s, the record's is %v", got, time.Duration(h.Max()))
			}
		}
		if p.Measurement == measureTotal && p.Time.Sub(x.epoch)%time.Second != 0 {
			t.Errorf("a second begins at %v, T0 is %v", p.Time, x.epoch)
		}
		if want := map[string]string{"run": "run-1", "cell": "c0ffee", "repetition": "1", "attempt": "1",
			"broker": "rabbit", "driver": "rabbitmq",
			"mode": "confirm-window", "axis_threads": "5",
			"axis_disk_type": "ssd, fast"}; p.Measurement != measureEvent {
			for key, value := range want {
				if p.Tags[key] != value {
					t.Errorf("%s has %s=%q, want %q", p.Measurement, key, p.Tags[key], value)
				}
			}
			if _, there := p.Tags["axis_broker"]; there {
				t.Error("the broker is a tag twice")
			}
		}
	}
}

// TestExpectedDeliveries proves that each subscription is expected to receive every message that the broker accepted,
// and that no delivery is expected without consumers.
func TestExpectedDeliveries(t *testing.T) {
	several := newWorld(func(c *plan.Cell) { c.Workload.Topology.Subscriptions = 3 })
	several.steady(3 * time.Second)
	w := several.window(0, 2*time.Second)
	w.Counts[record.Returned], w.Counts[record.Rejected] = 5, 2
	several.report(0, 3*time.Second, nil)
	if sum, _ := (stored{}).write(several.stream()).sum(measureTotal, "expected"); sum != 3*(400-7) {
		t.Errorf("%v deliveries are expected of 393 messages that the broker kept, by three subscriptions", sum)
	}
	nobody := newWorld(func(c *plan.Cell) { c.Workload.Consumers.Nodes = 0 })
	nobody.agents = append(nobody.agents, nobody.agents[0])
	nobody.steady(3 * time.Second)
	if _, n := (stored{}).write(nobody.stream()).sum(measureTotal, "expected"); n != 0 {
		t.Errorf("%d seconds expect deliveries, and there are no consumers", n)
	}
}

// TestTheSameRecordGivesTheSamePoints proves that points written again, or computed later from the record, are the
// same, and that repeated snapshots count once.
func TestTheSameRecordGivesTheSamePoints(t *testing.T) {
	x := newWorld(nil)
	x.steady(5 * time.Second)
	x.report(0, 6*time.Second, func(s *record.Snapshot) {
		s.Events = []record.Event{{At: 5, Kind: "closed", Detail: "publisher 0: a"},
			{At: 5, Kind: "closed", Detail: "publisher 1: b"}}
		s.Host = record.HostSample{AgentCPU: 0.5, AgentRSS: 100}
		s.Probes = []record.ProbeSample{{At: 7, Name: "memory", Value: 5}, {At: 7, Name: "connections", Value: 2},
			{At: 7, Name: "memory", Node: "n1", Value: 3}}
	})
	once := lines(t, x.stream())
	if again := lines(t, x.stream()); !slices.Equal(once, again) {
		t.Error("the same record gave other points")
	}
	first := stored{}.write(x.stream())
	if second := (stored{}).write(x.stream()).write(x.stream()); len(second) != len(first) {
		t.Errorf("writing twice makes %d points of %d", len(second), len(first))
	}
	if len(first) != len(once) {
		t.Errorf("%d points were made and %d are there: a run that goes well writes each once", len(once), len(first))
	}
	doubled := *x
	doubled.snapshots = nil
	for _, s := range x.snapshots {
		doubled.snapshots = append(doubled.snapshots, s, s)
	}
	if again := lines(t, doubled.stream()); !slices.Equal(once, again) {
		t.Error("snapshots that came twice gave other points")
	}
	if _, n := first.sum(measureEvent, "text", "kind", "closed", "agent", "a1"); n != 2 {
		t.Errorf("of two events at one time %d are left", n)
	}
	if sum, n := first.sum(measureBroker, "memory"); n != 2 || sum != 8 {
		t.Errorf("memory of the broker is %v in %d points, want 5 and 3", sum, n)
	}
	if _, n := first.sum(measureAgent, "cpu", "agent", "a1", "role", "publisher"); n != 1 {
		t.Errorf("%d samples of the host", n)
	}
}

// TestWhatComesLateCounts covers publishers that report a second only with their next event. For any division and delay
// of the increments, the final points add up, and their distributions are those of the record.
func TestWhatComesLateCounts(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		x := newWorld(func(c *plan.Cell) { c.Workload.Measure = plan.Duration(20 * time.Second) })
		a := x.agents[0]
		stalled := a.collector.Recorder()
		for at := time.Duration(0); at < 20*time.Second; at += 100 * time.Millisecond {
			x.window(0, at).Counts[record.Sent]++
			if r.IntN(50) == 0 {
				w := stalled.Window(int64(at), true) // reports earlier events late
				w.Counts[record.Sent] += 10
				w.Record(record.Publish, int64(time.Second))
			}
			if r.IntN(8) == 0 {
				x.report(0, at, nil)
			}
		}
		stalled.Flush()
		x.report(0, 21*time.Second, nil)
		x.report(1, 21*time.Second, nil)
		m := stored{}.write(x.stream())
		want := float64(x.merge.Total(record.Sent))
		for _, measurement := range []string{measureWindow, measureTotal} {
			if sum, _ := m.sum(measurement, "sent"); sum != want {
				t.Errorf("seed %d: %s adds up to %v sent, the record to %v", seed, measurement, sum, want)
			}
			if sum, _ := m.sum(measurement, "publish.count"); sum != float64(x.merge.Hist(record.Publish).Count()) {
				t.Errorf("seed %d: %s has %v samples of send, the record %d", seed, measurement, sum,
					x.merge.Hist(record.Publish).Count())
			}
		}
	}
}

// TestStallsAreZeros proves that a second without events, which has no window in the record, is a point. A second that
// was not reported has no point.
func TestStallsAreZeros(t *testing.T) {
	x := newWorld(func(c *plan.Cell) { c.Workload.Measure = plan.Duration(30 * time.Second) })
	x.window(0, 0).Counts[record.Sent] = 5
	x.report(0, time.Second, nil)
	x.report(1, time.Second, nil)
	x.report(0, 8*time.Second, nil) // lost at 8 s
	x.report(1, 8*time.Second, nil)
	m := stored{}.write(x.stream())
	if sum, n := m.sum(measureWindow, "sent", "agent", "a1"); n != 8 || sum != 5 {
		t.Errorf("%v sent in %d seconds, want 5 in the 8 that were reported", sum, n)
	}
	if sum, n := m.sum(measureTotal, "consume.rate"); n != 8 || sum != 0 {
		t.Errorf("received %v in %d seconds, want 0 in 8", sum, n)
	}
	counted := newWorld(func(c *plan.Cell) { c.Workload.Publishers.Count = 5 })
	counted.window(0, 0).Counts[record.Sent] = 5
	counted.report(0, 3*time.Second, nil)
	if _, n := (stored{}).write(counted.stream()).sum(measureWindow, "sent"); n != 1 {
		t.Errorf("%d seconds: where a count ends the measurement, nobody knows when it is over", n)
	}
}

// TestWithoutConfirms proves that values that do not exist have no field.
func TestWithoutConfirms(t *testing.T) {
	x := newWorld(func(c *plan.Cell) { c.Workload.Publishers.Mode = "fire-and-forget" })
	x.window(0, 0).Counts[record.Sent] = 5
	x.report(0, 2*time.Second, nil)
	m := stored{}.write(x.stream())
	for _, field := range []string{"confirmed", "confirm.rate", "rejected", "unconfirmed"} {
		if _, n := m.sum(measureWindow, field); n != 0 {
			t.Errorf("%s is there without confirms", field)
		}
	}
}

// TestLiveSeconds proves that a second is written during the task, when all agents have reported it.
func TestLiveSeconds(t *testing.T) {
	x := newWorld(func(c *plan.Cell) { c.Workload.Measure = plan.Duration(time.Minute) })
	s := newStream(x.run)
	s.start(x.start())
	m := stored{}
	for at := time.Duration(0); at < 20*time.Second; at += time.Second {
		x.window(0, at).Counts[record.Sent] = 5
		x.report(0, at+time.Second, nil)
		if at < 10*time.Second { // then a2 is silent
			x.report(1, at+time.Second, nil)
		}
	}
	for _, snapshot := range x.snapshots {
		m.write(s.snapshot(snapshot))
	}
	if _, n := m.sum(measureWindow, "sent", "agent", "a1"); n != 18 {
		t.Errorf("after 20 s %d seconds of a1 are written, want all but the last two", n)
	}
	if _, n := m.sum(measureTotal, "sent"); n != 12 {
		t.Errorf("after 20 s %d seconds of all are written, want 12: those that a2 told of, and those for which it has been waited long enough", n)
	}
	m.write(s.giveUp(x.task.ID, began.Add(time.Minute), "run was cancelled"))
	if _, n := m.sum(measureTotal, "sent"); n != 20 {
		t.Errorf("in the end %d seconds are written, want 20", n)
	}
	if points := s.snapshot(x.snapshots[0]); points != nil {
		t.Errorf("of an attempt that was given up came %v", points)
	}
}

// TestLongTasksForgetDistributions proves that reports that are more than a minute late correct counters, but no
// quantiles.
func TestLongTasksForgetDistributions(t *testing.T) {
	x := newWorld(func(c *plan.Cell) { c.Workload.Measure = plan.Duration(time.Hour) })
	stalled := x.agents[0].collector.Recorder()
	early := stalled.Window(int64(time.Second/2), true)
	for at := time.Duration(0); at < 200*time.Second; at += time.Second {
		w := x.window(0, at)
		w.Counts[record.Sent] = 5
		w.Record(record.Publish, int64(time.Millisecond))
		x.report(0, at+time.Second, nil)
	}
	early.Counts[record.Sent] = 7
	early.Record(record.Publish, int64(time.Second))
	stalled.Flush()
	x.report(0, 201*time.Second, nil)
	s := newStream(x.run)
	s.start(x.start())
	m := stored{}
	for _, snapshot := range x.snapshots {
		m.write(s.snapshot(snapshot))
	}
	q := s.tasks[x.task.ID].parts["a1"]
	held := 0
	for _, w := range q.windows {
		if w.data.Hists[record.Publish] != nil {
			held++
		}
	}
	if held > 65 {
		t.Errorf("distributions of %d seconds are held", held)
	}
	m.write(s.giveUp(x.task.ID, began, ""))
	if sum, _ := m.sum(measureWindow, "sent"); sum != 1007 {
		t.Errorf("%v sent, want 1007", sum)
	}
	if sum, _ := m.sum(measureWindow, "publish.count"); sum != 200 {
		t.Errorf("%v samples, want the 200 that came in time", sum)
	}
}

func TestOutcomeOfATaskThatNeverBegan(t *testing.T) {
	x := newWorld(nil)
	s := newStream(x.run)
	o := x.outcome()
	o.Verdict, o.Reasons = plan.Unknown, []string{`too few agents for amqp://u:hunter2@h/`}
	o.Events = []plan.Event{{At: 5, Kind: "agent-lost", Agent: "a1", Detail: "in warm-up"},
		{Kind: plan.EventCores, Agent: "a1", Detail: "2"}}
	points := s.outcome(o, Start{Task: x.task, Attempt: 3})
	all := strings.Join(lines(t, points), "\n")
	if strings.Contains(all, "hunter2") || strings.Contains(all, plan.EventCores) {
		t.Errorf("a password, or what is for no eye, is in\n%s", all)
	}
	for _, want := range []string{"kind=task-start", "kind=task-stop", "kind=agent-lost", "verdict=unknown",
		"attempt=3", "too few agents"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}

// Events of an agent at one time stay separate points, also if there are many of them.
func TestEventsAtOneTime(t *testing.T) {
	x := newWorld(nil)
	work := newStream(x.run).newTask(Start{Task: x.task, Attempt: 1})
	const n = 200_000 // trying each time again would be 2·10¹⁰ steps
	seen := map[time.Time]bool{}
	for range n {
		seen[work.event("gap", "a1", time.Unix(5, 0), 0, "").Time] = true
	}
	for i := range time.Duration(n) {
		seen[work.event("gap", "a1", time.Unix(5, 0).Add(i), 0, "").Time] = true
	}
	if len(seen) != 2*n {
		t.Errorf("got %d different times, want %d", len(seen), 2*n)
	}
}

// TestHostileNames proves that names of a matrix or a broker cannot break a line or grow without limit.
func TestHostileNames(t *testing.T) {
	x := newWorld(func(c *plan.Cell) {
		c.Broker.Name = "a b,c=d\\"
		c.Coordinates[2].Axis = "x y\n"
		c.Coordinates[2].Value = []byte(`"` + strings.Repeat("ü", 200) + `"`)
	})
	x.report(0, time.Second, func(s *record.Snapshot) {
		s.Events = []record.Event{{Kind: "odd\nkind ", Detail: "line\nbreak \"quoted\" \\ and \xff"}}
	})
	for _, line := range lines(t, x.stream()) {
		if strings.ContainsAny(line, "\n\r") || !strings.HasPrefix(line, "lockstep_") {
			t.Errorf("broken line %q", line)
		}
		if len(line) > 3000 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

// The last seconds of a step of a search are written when the next step starts, which is an attempt of the same task.
func TestLastSecondsOfAStep(t *testing.T) {
	x := newWorld(nil)
	x.steady(4 * time.Second)
	s := newStream(x.run)
	points := s.start(x.start())
	for _, snapshot := range x.snapshots {
		points = append(points, s.snapshot(snapshot)...)
	}
	early, _ := stored{}.write(points).sum(measureTotal, "sent", "phase", "measure")
	points = append(points, s.start(x.start())...)
	if sum, _ := (stored{}).write(points).sum(measureTotal, "sent", "phase", "measure"); sum != 350 || early >= 350 {
		t.Errorf("messages of the step: got %v before the next step and %v after it, want less than 350 and 350", early,
			sum)
	}
}

// A consumer of an existing queue receives messages that nothing in the cell has published: they are no backlog.
func TestExpectedDeliveriesWithoutPublishers(t *testing.T) {
	x := newWorld(func(c *plan.Cell) { c.Workload.Publishers.Nodes, c.Workload.Consumers.Nodes = 0, 2 })
	w := x.window(1, time.Second)
	w.Counts[record.Received], w.Counts[record.Unique] = 70, 60
	x.report(0, 3*time.Second, nil)
	x.report(1, 3*time.Second, nil)
	m := stored{}.write(x.stream())
	expected, n := m.sum(measureTotal, "expected")
	if unique, _ := m.sum(measureTotal, "unique"); n == 0 || expected != 60 || unique != 60 {
		t.Errorf("expected and unique deliveries: got %v and %v in %d seconds, want 60 and 60", expected, unique, n)
	}
}
