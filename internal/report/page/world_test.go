package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/runs"
)

// hostile are names that break a page without escaping.
var hostile = []string{`</script><script>alert(1)</script>`, `"quoted" & 'single'`, `<img src=x onerror=alert(1)>`,
	`emoji 🐇 {{.}} ${x}`}

var begun = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

func raw(t *testing.T, v any) json.RawMessage {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// matrix returns a run of this number of cells on two axes. The first axis has hostile names.
func matrix(t *testing.T, id string, cells, repeat int) plan.Run {
	t.Helper()
	run := plan.Run{Version: plan.RecordFormat, ID: id, Name: "page", Repeat: repeat,
		Axes: []string{"broker", "threads"}, Started: begun,
		Source: plan.Source{File: "page.cue", Text: "// " + hostile[0] + "\nname: \"page\"\n", SHA256: "abc"},
		Tables: []plan.Table{
			{Title: hostile[0], Rows: []string{"broker", "threads"},
				Values: []string{"publish.rate", "consume.rate", "publish.p99", "e2e.p99", "lost"}},
			{Rows: []string{"broker"}, Columns: []string{"threads"}, Values: []string{"publish.p50"}}}}
	for i := range cells {
		name := hostile[i%len(hostile)]
		if cells > 16 {
			name = fmt.Sprintf("b%02d", i/25)
		}
		c := plan.Cell{ID: fmt.Sprintf("c%04d", i), Index: i, Workload: plan.Default(), Label: "confirmed: " + name,
			Broker: plan.Broker{Name: name, Driver: "loopback", Options: json.RawMessage("{}")},
			Coordinates: []plan.Coordinate{{Axis: "broker", Value: raw(t, name)},
				{Axis: "threads", Value: raw(t, 1+i/len(hostile))}}}
		if cells > 16 {
			c.Coordinates[1].Value = raw(t, 1+i%25)
		}
		run.Cells = append(run.Cells, c)
	}
	run.Excluded = []plan.Excluded{{Kind: "n/a", Reason: "cannot " + hostile[2], Coordinates: []plan.Coordinate{
		{Axis: "broker", Value: raw(t, hostile[0])}, {Axis: "threads", Value: raw(t, 64)}}}}
	return run
}

// keepTask writes the record and the outcome of a task. edit changes its inputs.
func keepTask(t *testing.T, dir *runs.Run, task plan.Task, edit func(*record.Snapshot, *judge.Facts)) plan.Outcome {
	t.Helper()
	s, f := measured(task)
	if edit != nil {
		edit(&s, &f)
	}
	m := record.NewMerged()
	m.Add(s)
	if err := dir.Append(task.ID, s); err != nil {
		t.Fatal(err)
	}
	o := judge.Judge(task, m, f)
	if err := dir.Finish(o); err != nil {
		t.Fatal(err)
	}
	return o
}

// measured is 10 s of load after a second of warm-up: 100 messages per second, each confirmed after 1 to 2 ms and
// received after 2 to 4 ms, in a fixed pattern, and later with more threads.
func measured(task plan.Task) (record.Snapshot, judge.Facts) {
	c := record.NewCollector(task.Cell.Workload.Measure.D())
	r, late := c.Recorder(), time.Duration(task.Cell.Index)*100*time.Microsecond
	sent, confirmed, received := r.Set(record.SetKey{Kind: record.SetSent}),
		r.Set(record.SetKey{Kind: record.SetConfirmed}), r.Set(record.SetKey{Kind: record.SetReceived})
	for n := range uint64(1100) {
		at := -time.Second + time.Duration(n)*10*time.Millisecond
		w := r.Window(int64(at), at >= 0)
		w.Counts[record.Sent]++
		w.Counts[record.Confirmed]++
		w.Counts[record.Received]++
		w.Counts[record.Unique]++
		spread := time.Duration(n*7919%1000) * time.Microsecond
		w.Record(record.Publish, int64(time.Millisecond+spread+late))
		w.Record(record.EndToEnd, int64(2*(time.Millisecond+spread+late)))
		sent.Add(n)
		confirmed.Add(n)
		received.Add(n)
	}
	r.Flush()
	s := record.Snapshot{Task: task.ID, Agent: "agent-" + hostile[1], Seq: 1, At: int64(11 * time.Second),
		Clock: "clock-1", Epoch: begun,
		LastSend: int64(9990 * time.Millisecond), LastConfirm: int64(9995 * time.Millisecond),
		LastDelivery: int64(9999 * time.Millisecond), Final: true,
		Events: []record.Event{
			{At: int64(3 * time.Second), Kind: record.EventFault, Detail: "cut publishers at 3s for 1s: " + hostile[0],
				Nanos: int64(time.Second)},
			{At: int64(3 * time.Second), Kind: record.EventGap, Detail: "publisher 0",
				Nanos: int64(1200 * time.Millisecond)}},
		Probes: []record.ProbeSample{{At: 1e9, Name: "queue_depth", Value: 4},
			{At: 2e9, Name: "queue_depth", Value: 9}}}
	s.Windows, s.Sets = c.Take()
	f := judge.Facts{Started: begun, Ended: begun.Add(15 * time.Second), Cores: map[string]int{s.Agent: 2},
		Subject: plan.Subject{Fingerprint: "f00", Product: "Loop " + hostile[2], Version: "1.2",
			Settings: map[string]string{"durable": hostile[1]}},
		Agents: []plan.AgentPart{{Agent: s.Agent, Host: "host-a", Clock: "clock-1", Phase: plan.PhaseTeardown,
			Version: "v1"},
			{Agent: "agent-b", Index: 1, Host: "host-b", Clock: "clock-1", Phase: plan.PhaseTeardown, Version: "v1"}}}
	return s, f
}

// runsDir is the folder of the runs of all tests. Most tests read the same two runs, which are created once.
var runsDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "lockstep-page-*")
	if err != nil {
		panic(err)
	}
	runsDir = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// world opens a run that is created once and never changed.
func world(t *testing.T, id string) *runs.Run {
	t.Helper()
	if run, err := runs.Open(runsDir, filepath.Join(runsDir, id)); err == nil {
		return run
	}
	return makeWorld(t, id)
}

// makeWorld creates a run with all kinds of outcomes: valid ones, a lost agent, a failure, a backlog, and a search.
func makeWorld(t *testing.T, id string) *runs.Run {
	t.Helper()
	plan8 := matrix(t, id, 8, 2)
	plan8.Cells[6].Workload.Search = &plan.Search{While: "p99 < 50ms", Repeats: 3}
	dir, err := runs.Create(runsDir, plan8)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for _, task := range dir.Plan().Tasks() {
		switch task.Cell.Index {
		case 3:
			keepTask(t, dir, task, func(_ *record.Snapshot, f *judge.Facts) {
				f.Agents[1].Lost, f.Agents[1].Phase = true, plan.PhaseMeasure
			})
		case 4:
			if err := dir.Finish(judge.Judge(task, record.NewMerged(),
				judge.Facts{Failure: "connect to <b>broker</b>: refused", Kind: plan.FailedConnect, Started: begun,
					Ended: begun})); err != nil {
				t.Fatal(err)
			}
		case 5:
			keepTask(t, dir, task, func(s *record.Snapshot, _ *judge.Facts) { // half is undrained
				for i := range s.Windows {
					s.Windows[i].Counts[record.Received] /= 2
					s.Windows[i].Counts[record.Unique] /= 2
				}
			})
		case 6:
			keepSearch(t, dir, task)
		case 7: // one repetition is missing
			if task.Repetition == 1 {
				keepTask(t, dir, task, nil)
			}
		default:
			keepTask(t, dir, task, nil)
		}
	}
	return dir
}

func keepSearch(t *testing.T, dir *runs.Run, task plan.Task) {
	t.Helper()
	s, f := measured(task)
	m := record.NewMerged()
	m.Add(s)
	if err := dir.Append(task.ID, s); err != nil {
		t.Fatal(err)
	}
	values := func(p99 float64) map[string]plan.Value {
		return map[string]plan.Value{"publish.rate": {Number: 100}, "consume.rate": {Number: 100},
			"e2e.p50": {Number: p99 / 2}, "e2e.p99": {Number: p99}, "e2e.max": {Number: 2 * p99}}
	}
	r := plan.SearchResult{Capacity: 2000, Low: 1990, Fails: 2100, Verified: 3, Verifications: 3, Sure: true,
		Steps: []plan.Step{
			{Rate: 1000, Kind: plan.StepBracket, Answer: plan.AnswerHeld, Values: values(0.004),
				Measure: task.Cell.Workload.Measure},
			{Rate: 2100, Kind: plan.StepBracket, Answer: plan.AnswerFailed, Why: "p99 is 80 ms, not < 50ms",
				Values: values(0.08), Measure: task.Cell.Workload.Measure},
			{Rate: 2000, Kind: plan.StepVerify, Answer: plan.AnswerHeld, Values: values(0.02),
				Measure: task.Cell.Workload.Measure}}}
	if err := dir.Finish(judge.Searched(task, judge.Judge(task, m, f), r)); err != nil {
		t.Fatal(err)
	}
}

// r1 is the report of run r1, which most tests use, created once.
var r1 []byte

func r1Page(t *testing.T) []byte {
	t.Helper()
	if r1 == nil {
		r1 = written(t, Options{}, world(t, "r1"))
	}
	return r1
}

// written returns the report of runs.
func written(t *testing.T, o Options, all ...*runs.Run) []byte {
	t.Helper()
	var text bytes.Buffer
	if err := Write(&text, all, o); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// keepFast writes an outcome like Finish, but without syncing it.
func keepFast(t *testing.T, dir *runs.Run, o plan.Outcome) {
	t.Helper()
	task := filepath.Join(dir.Dir(), "tasks", o.Task)
	if err := os.MkdirAll(task, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(task, "outcome.json"), raw(t, o), 0o644); err != nil {
		t.Fatal(err)
	}
}
