package page

import (
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/report"
)

// TestSideBySideBrokersAreDrawnApart proves that metrics and processes of two side-by-side brokers are drawn
// separately, also with equal names.
func TestSideBySideBrokersAreDrawnApart(t *testing.T) {
	work := plan.Default()
	task := plan.Task{ID: "t", Cell: plan.Cell{Workload: work}}
	m := record.NewMerged()
	for i, name := range []string{"hare", "tortoise"} {
		task.Cell.Workload.Groups = append(task.Cell.Workload.Groups,
			plan.Group{Name: name, Broker: &plan.Broker{Name: name}, Publishers: work.Publishers,
				Consumers: work.Consumers})
		for seq := range 3 {
			at := int64(seq+1) * 1e9
			m.Add(record.Snapshot{Task: "t", Group: name, Agent: "agent-" + name, Seq: uint64(seq + 1), At: at,
				Windows: []record.Window{{Index: seq, Start: int64(seq) * 1e9, Length: 1e9, Measured: true}},
				Host:    record.HostSample{HasBroker: true, BrokerCPU: float64(seq + 10*i), AgentCPU: 1},
				Probes:  []record.ProbeSample{{At: at, Name: "queue_depth", Value: float64(seq + 9000*i)}}})
		}
	}
	drawn := map[string]string{}
	for _, f := range timeFigures(detail{task: task, outcome: plan.Outcome{Measured: plan.Duration(3 * time.Second)}},
		m, nil) {
		drawn[f.Title] = string(f.SVG) + string(f.Key)
	}
	for name, other := range map[string]string{"hare": "tortoise", "tortoise": "hare"} {
		if _, is := drawn["Broker: queue depth, group "+name+" on "+name]; !is {
			t.Errorf("no queue depth of %s by itself", name)
		}
		cpu, is := drawn["Broker "+name+", CPU of its processes"]
		if !is || !strings.Contains(cpu, "agent-"+name) || strings.Contains(cpu, "agent-"+other) {
			t.Errorf("the CPU of %s is that of the wrong processes, or of none", name)
		}
	}
	if _, is := drawn["Broker: queue depth"]; is {
		t.Error("the queues of two brokers are drawn as those of one")
	}
}

// TestTimesThatCannotBeAreNotDrawn covers a window thousands of years away, which would make the axis of time endless.
func TestTimesThatCannotBeAreNotDrawn(t *testing.T) {
	m := record.NewMerged()
	m.Add(record.Snapshot{Task: "t", Agent: "a", Seq: 1,
		Windows: []record.Window{{Index: 0, Start: 9.2e18, Length: 4000}, {Index: 1, Start: 1e9, Length: 1e9}}})
	if periods, _ := periodsOf(m); len(periods) != 1 || periods[0].from != 1 || periods[0].to != 2 {
		t.Errorf("%+v", periods)
	}
}

// TestScalesHaveRoomForBounds proves that all facets have one scale, which also includes the bounds of values.
func TestScalesHaveRoomForBounds(t *testing.T) {
	number := func(x float64) report.Field { return report.Field{Number: &x} }
	d := drawing{measure: measures[0]}
	d.limit([]spot{{values: map[string]report.Field{"capacity": number(100), "capacity.low": number(90),
		"capacity.high": number(180)}}})
	if d.y.Max != 180 {
		t.Errorf("the scale ends at %v", d.y.Max)
	}
}

// TestRatesThatAreFarApartHaveALogarithmicScale proves that a low rate beside a high one is visible: rates with a ratio
// of at least 100 are signs on a logarithmic scale, with their numbers, and a rate of zero is at its lower end.
func TestRatesThatAreFarApartHaveALogarithmicScale(t *testing.T) {
	for low, log := range map[float64]bool{2000: true, 2001: false} {
		var all []spot
		for i, rate := range []float64{200_000, low} {
			published, consumed := rate, float64(0)
			all = append(all, spot{at: map[string]string{"mode": []string{"window", "each"}[i]}, values: map[string]report.Field{
				"publish.rate": {Number: &published, Text: "the rate", Unit: plan.PerSecond},
				"consume.rate": {Number: &consumed, Text: "none", Unit: plan.PerSecond}}})
		}
		figures := drawAxis("mode", nil, all).Figures
		if len(figures) != 1 {
			t.Fatalf("%d figures", len(figures))
		}
		svg := string(figures[0].SVG)
		if got := strings.Contains(svg, "msg/s (log)"); got != log {
			t.Errorf("low rate %v: log %v, want %v", low, got, log)
		}
		bars, signs := strings.Count(svg, "<rect"), strings.Count(svg, `<g class="m `)
		if log && (bars != 0 || signs != 4) || !log && (bars != 4 || signs != 0) {
			t.Errorf("low rate %v: %d bars and %d signs", low, bars, signs)
		}
		if strings.Count(svg, ">the rate<") != 2 || strings.Count(svg, "consume none msg/s") != 2 {
			t.Errorf("low rate %v: the texts are missing in %s", low, svg)
		}
	}
}

// TestUnmarkedEventsAreTold proves that a note counts the events that have no space in a drawing.
func TestUnmarkedEventsAreTold(t *testing.T) {
	var events []plan.Event
	for i := range maxMarks + 7 {
		events = append(events, plan.Event{At: plan.Duration(time.Duration(i) * time.Second), Kind: "notice"})
	}
	if marks, more := marksOf(events); len(marks) != maxMarks || more != 7 {
		t.Errorf("%d marks and %d more", len(marks), more)
	}
}

// TestLatencyBetweenHostsIsDrawnWithItsBound proves that drawings have the bound, as tables do.
func TestLatencyBetweenHostsIsDrawnWithItsBound(t *testing.T) {
	h := record.NewHist()
	h.Record(int64(time.Millisecond))
	for v, want := range map[string]plan.Value{
		"± 300 µs":     {Number: 0.002, Bound: 0.0003},
		"clock-unsafe": {Number: 0.002, Bound: 0.3, Flags: []plan.Flag{plan.ClockUnsafe}},
		"is not known": {Number: 0.002, Flags: []plan.Flag{plan.ClockUnsafe}}, // the clocks were not compared
	} {
		if notes := strings.Join(distribution("x", "y", []curve{{hist: h, off: between(want)}}).Notes,
			"; "); !strings.Contains(notes, v) {
			t.Errorf("the notes are %q, want %q", notes, v)
		}
		c := partPeriods{values: map[string]plan.Value{"e2e.p50": want, "publish.p50": {}}, periods: []period{{to: 1}},
			each: 1}
		if notes := strings.Join(c.latencies().Notes, "; "); !strings.Contains(notes, "e2e: ") ||
			!strings.Contains(notes, v) || strings.Contains(notes, "publish: ") {
			t.Errorf("the notes over time are %q, want %q of processing", notes, v)
		}
	}
}

// Unsent messages are drawn with their age, and a note has their number.
func TestDistributionsShowUnsentMessages(t *testing.T) {
	log := record.NewCollector(time.Second)
	w := log.Recorder().Window(0, true)
	w.RecordN(record.EndToEnd, int64(time.Millisecond), 90)
	w.RecordN(record.UnsentAge, int64(5*time.Second), 10)
	m := record.NewMerged()
	m.Add(record.Snapshot{Agent: "a", Seq: 1, Windows: []record.Window{*w}})
	var c curves
	c.add(detail{task: plan.Task{Cell: plan.Cell{Workload: plan.Default()}}}, m)
	if len(c[1]) != 1 || c[1][0].hist.Max() != int64(5*time.Second) {
		t.Fatalf("%+v", c[1])
	}
	if notes := c.figures()[0].Notes; len(notes) != 1 ||
		!strings.Contains(notes[0], "10 samples are ages of messages that were not sent or not delivered") {
		t.Errorf("notes %q", notes)
	}
}

// Without consumers, unsent messages have no end-to-end latency.
func TestPublishOnlyCellsHaveNoEndToEndLatency(t *testing.T) {
	w := record.NewCollector(time.Second).Recorder().Window(0, true)
	w.RecordN(record.UnsentAge, int64(5*time.Second), 10)
	m := record.NewMerged()
	m.Add(record.Snapshot{Agent: "a", Seq: 1, Windows: []record.Window{*w}})
	work := plan.Default()
	work.Consumers.Nodes = 0
	var c curves
	c.add(detail{task: plan.Task{Cell: plan.Cell{Workload: work}}}, m)
	if len(c[1]) > 0 {
		t.Errorf("%d curves of end-to-end latency, want none", len(c[1]))
	}
}

// Duplicates are not in the consume rate over time.
func TestRatesOverTimeLeaveOutDuplicates(t *testing.T) {
	p := period{to: 1, counts: map[record.Counter]int64{record.Sent: 120, record.Received: 150, record.Unique: 100}}
	c := partPeriods{task: plan.Task{Cell: plan.Cell{Workload: plan.Default()}}, periods: []period{p}, each: 1}
	if svg := string(c.rates().SVG); !strings.Contains(svg, "consume 100/s") {
		t.Errorf("got no consume rate of 100/s in %s", svg)
	}
}
