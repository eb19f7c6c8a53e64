package export

import (
	"encoding/json"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/runs"
)

// recordedRun is a run of two repetitions: of a cell with confirms, and of one in fire-and-forget whose second
// repetition failed.
func recordedRun(t *testing.T) *runs.Run {
	t.Helper()
	confirmed, blind := plan.Default(), plan.Default()
	confirmed.Measure, blind.Measure = plan.Duration(2*time.Second), plan.Duration(2*time.Second)
	blind.Publishers.Mode = "fire-and-forget"
	at := func(mode string) []plan.Coordinate {
		return []plan.Coordinate{{Axis: "mode", Value: json.RawMessage(`"` + mode + `"`)},
			{Axis: "size", Value: json.RawMessage("-100")}}
	}
	broker := plan.Broker{Name: "rabbit", Driver: "rabbitmq", Options: json.RawMessage(`{}`)}
	p := plan.Run{Version: plan.RecordFormat, ID: "20260102-030405-small-0001", Name: "small one", Repeat: 2,
		Axes:    []string{"mode", "size"},
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Tables:  []plan.Table{{Rows: []string{"mode"}, Values: []string{"publish.rate", "publish.p99"}}},
		Cells: []plan.Cell{{ID: "c0ffee", Workload: confirmed, Coordinates: at("confirm-window"), Broker: broker},
			{ID: "decaf0", Index: 1, Workload: blind, Coordinates: at("fire-and-forget"), Broker: broker}}}
	run, err := runs.Create(t.TempDir(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Close() })
	for i, task := range run.Plan().Tasks() {
		s := snapshot(task)
		if err := run.Append(task.ID, s); err != nil {
			t.Fatal(err)
		}
		m := record.NewMerged()
		m.Add(s)
		f := judge.Facts{Agents: []plan.AgentPart{{Agent: "a", Host: "h", Clock: "1", Phase: plan.PhaseTeardown}},
			Subject: plan.Subject{Fingerprint: "f", Product: "RabbitMQ", Version: "4.1"}, Started: p.Started,
			Ended: p.Started.Add(time.Second)}
		if i == 3 {
			f.Failure = "it broke"
		}
		if err := run.Finish(judge.Judge(task, m, f)); err != nil {
			t.Fatal(err)
		}
	}
	return run
}

// snapshot is that of an agent that sent and received 2,000 messages in two seconds, confirmed after 1 to 2,000 µs.
func snapshot(task plan.Task) record.Snapshot {
	log := record.NewCollector(2 * time.Second)
	rec := log.Recorder()
	sent, received := rec.Set(record.SetKey{Kind: record.SetSent}), rec.Set(record.SetKey{Kind: record.SetReceived})
	confirmed := rec.Set(record.SetKey{Kind: record.SetConfirmed})
	for i := range 2000 {
		w := rec.Window(int64(i)*int64(time.Millisecond), true)
		for _, c := range []record.Counter{record.Sent, record.Received, record.Unique} {
			w.Counts[c]++
		}
		w.Record(record.EndToEnd, int64(i+1)*2000)
		sent.Add(uint64(i))
		received.Add(uint64(i))
		if task.Cell.Workload.Publishers.Confirmed() {
			w.Counts[record.Confirmed]++
			w.Record(record.Publish, int64(i+1)*1000)
			confirmed.Add(uint64(i))
		}
	}
	rec.Flush()
	last := int64(2 * time.Second)
	s := record.Snapshot{Task: task.ID, Agent: "a", Seq: 1, At: last, Clock: "1", LastSend: last, LastConfirm: last,
		LastDelivery: last, Final: true}
	s.Windows, s.Sets = log.Take()
	return s
}
