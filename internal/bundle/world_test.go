package bundle

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/runs"
)

// recordedRun returns a run of two tasks, one with an outcome, with a secret in the options and a payload file.
func recordedRun(t testing.TB) *runs.Run {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bodies.bin")
	if err := os.WriteFile(file, []byte("body body body"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := plan.Default()
	w.Measure = plan.Duration(2 * time.Second)
	w.Message.Payload = plan.Payload{Kind: plan.PayloadFile, File: file}
	p := plan.Run{Version: plan.RecordFormat, ID: "20260102-030405-small-0001", Name: "small", Repeat: 2,
		Axes:    []string{"mode"},
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Tables:  []plan.Table{{Rows: []string{"mode"}, Values: []string{"publish.rate", "publish.p99"}}},
		Cells: []plan.Cell{{ID: "c0ffee", Workload: w,
			Coordinates: []plan.Coordinate{{Axis: "mode", Value: json.RawMessage(`"confirm-window"`)}},
			Broker: plan.Broker{Name: "rabbit", Driver: "rabbitmq",
				Options: json.RawMessage(`{"url":"amqp://guest:hunter2@h/","password":"swordfish"}`),
				Secret:  []string{"password"}}}},
		Source: plan.Source{File: "m.cue",
			Text: `brokers: rabbit: options: {url: "amqp://guest:hunter2@h/", password: "swordfish"}`}}
	p.Source.SHA256 = digest(p.Source.Text)
	run, err := runs.Create(t.TempDir(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Close() })
	measured(t, run, run.Plan().Tasks()[0])
	return run
}

// manyRun returns a run of one cell without outcomes.
func manyRun(t testing.TB, repeat int, until *plan.StopRule) *runs.Run {
	t.Helper()
	w := plan.Default()
	w.Measure = plan.Duration(2 * time.Second)
	p := plan.Run{Version: plan.RecordFormat, ID: "20260102-030405-many-0001", Name: "many", Repeat: repeat,
		Until: until, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Cells: []plan.Cell{{ID: "c0ffee", Workload: w,
			Broker: plan.Broker{Name: "rabbit", Driver: "rabbitmq", Options: json.RawMessage("{}")}}},
		Source: plan.Source{SHA256: digest("")}}
	run, err := runs.Create(t.TempDir(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Close() })
	return run
}

// measured writes the outcome of a task.
func measured(t testing.TB, run *runs.Run, task plan.Task) {
	s := snapshot(task.ID)
	if err := run.Append(task.ID, s); err != nil {
		t.Error(err)
	}
	m := record.NewMerged()
	m.Add(s)
	at := run.Plan().Started
	o := judge.Judge(task, m, judge.Facts{Agents: []plan.AgentPart{{Agent: "a", Host: "h", Clock: "1",
		Phase: plan.PhaseTeardown, Version: "v1"}},
		Cores: map[string]int{"a": 4}, Subject: plan.Subject{Fingerprint: "f", Product: "RabbitMQ", Version: "4.1",
			Settings: map[string]string{"heartbeat": "60"}},
		Started: at, Ended: at.Add(4 * time.Second)})
	if err := run.Finish(o); err != nil {
		t.Error(err)
	}
}

// snapshot returns the snapshot of an agent that sent and received 2,000 messages in two seconds.
func snapshot(task string) record.Snapshot {
	log := record.NewCollector(2 * time.Second)
	rec := log.Recorder()
	sets := map[record.SetKind]*record.Set{}
	for _, kind := range []record.SetKind{record.SetSent, record.SetConfirmed, record.SetReceived} {
		sets[kind] = rec.Set(record.SetKey{Kind: kind})
	}
	for i := range 2000 {
		w := rec.Window(int64(i)*int64(time.Millisecond), true)
		for _, c := range []record.Counter{record.Sent, record.Confirmed, record.Received, record.Unique} {
			w.Counts[c]++
		}
		w.Record(record.Publish, int64(i)*1000+1)
		w.Record(record.EndToEnd, int64(i)*2000+1)
		for _, s := range sets {
			s.Add(uint64(i))
		}
	}
	rec.Flush()
	last := int64(2 * time.Second)
	s := record.Snapshot{Task: task, Agent: "a", Seq: 1, At: last, Clock: "1", LastSend: last, LastConfirm: last,
		LastDelivery: last, Final: true}
	s.Windows, s.Sets = log.Take()
	return s
}

// made returns the bundle of a run.
func made(t *testing.T, run *runs.Run) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := Write(&b, run, "v1", true); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// verified opens and verifies a bundle.
func verified(t *testing.T, data []byte, limits Limits) (Verification, error) {
	t.Helper()
	b, err := Open(bytes.NewReader(data), int64(len(data)), limits)
	if err != nil {
		return Verification{}, err
	}
	return Verify(t.Context(), b, t.TempDir(), "v1")
}
