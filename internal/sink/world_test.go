package sink

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var began = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// someRun is a run of one cell with a publishing and a consuming agent, for 3.5 s.
func someRun(edit func(*plan.Cell)) plan.Run {
	w := plan.Default()
	w.Measure = plan.Duration(3500 * time.Millisecond)
	c := plan.Cell{ID: "c0ffee", Workload: w, Broker: plan.Broker{Name: "rabbit", Driver: "rabbitmq"}, Label: "on disk",
		Coordinates: []plan.Coordinate{
			{Axis: "broker", Value: json.RawMessage(`"rabbit"`)}, {Axis: "threads", Value: json.RawMessage(`5`)},
			{Axis: "disk type", Value: json.RawMessage(`"ssd, fast"`)}}}
	if edit != nil {
		edit(&c)
	}
	return plan.Run{ID: "run-1", Name: "quick", Repeat: 1, Started: began, Cells: []plan.Cell{c}}
}

// world is a task with the reports of two agents.
type world struct {
	run       plan.Run
	task      plan.Task
	epoch     time.Time
	agents    []*worldAgent
	snapshots []record.Snapshot
	merge     *record.Merged
}

type worldAgent struct {
	name      string
	collector *record.Collector
	owner     *record.Recorder
	seq       uint64
}

func newWorld(edit func(*plan.Cell)) *world {
	run := someRun(edit)
	x := &world{run: run, task: run.Tasks()[0], epoch: began.Add(5 * time.Second), merge: record.NewMerged()}
	for i := range run.Cells[0].Agents() {
		a := &worldAgent{name: fmt.Sprintf("a%d", i+1),
			collector: record.NewCollector(run.Cells[0].Workload.Measure.D())}
		a.owner = a.collector.Recorder()
		x.agents = append(x.agents, a)
	}
	return x
}

func (x *world) start() Start {
	s := Start{Task: x.task, Attempt: 1, At: began.Add(time.Second)}
	for _, a := range x.agents {
		s.Agents = append(s.Agents, a.name)
	}
	return s
}

// window returns the window in which an agent records events at a time, of messages due then.
func (x *world) window(agent int, at time.Duration) *record.Window {
	return x.agents[agent].owner.Window(int64(at), at >= 0 && at < x.task.Cell.Workload.Measure.D())
}

// report sends an agent's report at a time. Agents have different wall clocks, read for each report.
func (x *world) report(agent int, at time.Duration, edit func(*record.Snapshot)) {
	a := x.agents[agent]
	a.seq++
	a.owner.Flush()
	s := record.Snapshot{Task: x.task.ID, Agent: a.name, Seq: a.seq, At: int64(at),
		Epoch: x.epoch.Add(time.Duration(len(x.snapshots)) * time.Microsecond)}
	s.Windows, s.Sets = a.collector.Take()
	if edit != nil {
		edit(&s)
	}
	x.snapshots = append(x.snapshots, s)
	x.merge.Add(s)
}

// steady records and reports 100 sent and received messages per second, from second -1 on.
func (x *world) steady(until time.Duration) {
	for at := -time.Second; at < until; at += time.Second {
		for i := range 100 {
			moment := at + time.Duration(i)*10*time.Millisecond
			if moment >= x.task.Cell.Workload.Measure.D() {
				break
			}
			p := x.window(0, moment)
			p.Counts[record.Sent]++
			p.Counts[record.Confirmed]++
			p.Record(record.Publish, int64(time.Millisecond)+int64(i)*1000)
			c := x.window(1, moment)
			c.Counts[record.Received]++
			c.Record(record.EndToEnd, int64(2*time.Millisecond))
		}
		for agent := range x.agents {
			x.report(agent, at+time.Second, nil)
		}
	}
}

func (x *world) outcome() plan.Outcome {
	var groups []plan.GroupOutcome
	for _, g := range x.task.Cell.Workload.Groups {
		groups = append(groups, plan.GroupOutcome{Name: g.Name, Verdict: plan.Valid,
			Values:  map[string]plan.Value{"publish.rate": {Number: 50, Flags: []plan.Flag{plan.Backlog}}},
			Reasons: []string{"none"}})
	}
	return plan.Outcome{Version: plan.RecordFormat, Groups: groups, Run: x.run.ID, Task: x.task.ID,
		Cell: x.task.Cell.ID, Repetition: 1, Verdict: plan.Valid,
		Values: map[string]plan.Value{"publish.rate": {Number: 100},
			"consume.rate": {Number: 99, Flags: []plan.Flag{plan.Backlog}}, "e2e.p50": {Number: 0.001, Bound: 0.002},
			"e2e.p99": {NA: "backlog"}},
		Agents: []plan.AgentPart{{Agent: "a1"}, {Agent: "a2", Index: 1}}, Started: began.Add(time.Second),
		Ended:    began.Add(20 * time.Second),
		Measured: plan.Duration(3500 * time.Millisecond), Subject: plan.Subject{Product: "RabbitMQ", Version: "3.10.8"}}
}

// stream returns the points of the whole run.
func (x *world) stream() []Point {
	s := newStream(x.run)
	points := append(s.begin(), s.start(x.start())...)
	for _, snapshot := range x.snapshots {
		points = append(points, s.snapshot(snapshot)...)
	}
	points = append(points, s.outcome(x.outcome(), Start{})...)
	return append(points, s.end(began.Add(21*time.Second), "done")...)
}

// stored is the content of InfluxDB: one point per series and time, with the latest value of each field.
type stored map[string]Point

func (m stored) write(points []Point) stored {
	for _, p := range points {
		key := Point{p.Measurement, p.Tags, map[string]any{"x": int64(1)}, p.Time}.line()
		old, there := m[key]
		if !there {
			old = Point{p.Measurement, p.Tags, map[string]any{}, p.Time}
		}
		for k, v := range p.Fields {
			old.Fields[k] = v
		}
		m[key] = old
	}
	return m
}

// sum returns the sum of a field over the points with these tags, and their number.
func (m stored) sum(measurement, field string, tags ...string) (sum float64, n int) {
	for _, p := range m {
		fits := p.Measurement == measurement
		for i := 0; i < len(tags); i += 2 {
			fits = fits && p.Tags[tags[i]] == tags[i+1]
		}
		v, there := p.Fields[field]
		if !fits || !there {
			continue
		}
		n++
		switch v := v.(type) {
		case int64:
			sum += float64(v)
		case float64:
			sum += v
		}
	}
	return sum, n
}

func lines(t *testing.T, points []Point) (all []string) {
	t.Helper()
	for _, p := range points {
		line := p.line()
		if line == "" {
			t.Errorf("no line for %+v", p)
		}
		all = append(all, line)
	}
	return all
}
