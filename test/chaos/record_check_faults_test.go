package chaos

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
)

// errorRecorder stores the errors that a recordCheck reports.
type errorRecorder struct {
	testing.TB
	errors []string
}

func (l *errorRecorder) Helper()             {}
func (l *errorRecorder) Logf(string, ...any) {}
func (l *errorRecorder) Errorf(format string, v ...any) {
	l.errors = append(l.errors, fmt.Sprintf(format, v...))
}

// recordOf returns a record with the given epochs and messages, in order.
func recordOf(t *testing.T, all ...any) (record []message) {
	t.Helper()
	epoch := ""
	for _, item := range all {
		m := message{seq: uint64(len(record) + 1), kind: "event", epoch: epoch}
		switch item := item.(type) {
		case string:
			epoch = item
			continue
		case wire.RunEvent:
			m.task, m.attempt = item.Task, item.Attempt
		case plan.Outcome:
			m.kind, m.task = "outcome", item.Task
		}
		var err error
		if m.data, err = json.Marshal(item); err != nil {
			t.Fatal(err)
		}
		record = append(record, m)
	}
	return record
}

// A record check detects takeovers without an event, and takeovers whose event is wrong.
func TestRecordCheckOfTakeovers(t *testing.T) {
	accepted, started := wire.RunEvent{Kind: wire.RunAccepted},
		wire.RunEvent{Kind: wire.TaskStarted, Task: "x", Attempt: "1"}
	restarted, outcome := wire.RunEvent{Kind: wire.TaskStarted, Task: "x", Attempt: "2"}, plan.Outcome{Task: "x"}
	interrupted := wire.RunEvent{Kind: wire.TaskInterrupted, Task: "x", Attempt: "1"}
	takenOver := func(task, attempt, result string) wire.RunEvent {
		return wire.RunEvent{Kind: wire.TakenOver, Task: task, Attempt: attempt,
			Detail: "controller c has taken over: " + result}
	}
	repeated := takenOver("x", "1", "the task in flight is repeated")
	for name, c := range map[string]struct {
		record []any
		want   string // of the error; empty: no error
	}{
		"repeated": {[]any{"1", accepted, started, "2", repeated, interrupted, restarted, outcome}, ""},
		"no task in flight": {[]any{"1", accepted, started, outcome, "2", takenOver("", "", "no task was in flight"),
			restarted},
			""},
		"no takeover event": {[]any{"1", accepted, started, "2", outcome}, "want an event of kind"},
		"no takeover event, task repeated": {[]any{"1", accepted, started, "2", restarted, outcome},
			"want an event of kind"},
		"unknown detail": {[]any{"1", accepted, started, "2", takenOver("x", "1", "hm"), outcome},
			"want the task in flight"},
		"wrong task": {[]any{"1", accepted, started, "2", takenOver("", "", "no task was in flight"), outcome},
			"want the task in flight"},
		"reported as repeated, not repeated": {[]any{"1", accepted, started, "2", repeated, outcome},
			"want a later attempt"},
	} {
		errs := &errorRecorder{TB: t}
		check := &recordCheck{t: errs, messages: recordOf(t, c.record...), outcomes: map[string]plan.Outcome{},
			outcomeSeq: map[string]uint64{}}
		check.parse()
		check.checkTakeovers()
		if got := strings.Join(errs.errors, "; "); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got errors %q, want %q", name, got, c.want)
		}
	}
}

// Snapshots that are missing or too late count as lost.
func TestRecordCheckOfSnapshots(t *testing.T) {
	errs := &errorRecorder{TB: t}
	check := &recordCheck{t: errs, outcomes: map[string]plan.Outcome{"x": {Agents: []plan.AgentPart{{Agent: "a"},
		{Agent: "b", Lost: true}}}}}
	check.checkSnapshotNumbers("x", map[string]record.Snapshot{"1": {Agent: "a", Seq: 1}, "2": {Agent: "a", Seq: 2},
		"3": {Agent: "a", Seq: 1<<32 + 2}})
	check.checkLateSnapshot("x", message{}, record.Snapshot{Agent: "b", Seq: 9})
	if len(errs.errors) > 0 {
		t.Errorf("complete snapshots: got errors %q, want none", errs.errors)
	}
	check.checkSnapshotNumbers("x", map[string]record.Snapshot{"1": {Agent: "a", Seq: 1}, "2": {Agent: "a", Seq: 3}})
	check.checkSnapshotNumbers("x", map[string]record.Snapshot{"2": {Agent: "a", Seq: 2}})
	check.checkLateSnapshot("x", message{}, record.Snapshot{Agent: "a", Seq: 9})
	if check.lost != 3 {
		t.Errorf("got %d losses, want 3: %q", check.lost, errs.errors)
	}
}

// A fault excuses at most its number of tasks, and only tasks that overlap with its period.
func TestRecordCheckOfUnknownTasks(t *testing.T) {
	now := time.Now()
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	unknown := func(from, to int) plan.Outcome {
		return plan.Outcome{Verdict: plan.Unknown, Started: at(from), Ended: at(to)}
	}
	errs := &errorRecorder{TB: t}
	check := &recordCheck{t: errs, outcomes: map[string]plan.Outcome{"1": unknown(0, 10), "2": unknown(12, 20),
		"3": {Verdict: plan.Valid, Started: at(20)}}}
	if check.checkInvalidTasks([]faultPeriod{{at(5), at(11), 1}, {at(15), at(16), 1}}); len(errs.errors) > 0 {
		t.Errorf("one fault for each task without a verdict: got errors %q, want none", errs.errors)
	}
	check.checkInvalidTasks([]faultPeriod{{at(5), at(15), 1}})
	check.checkInvalidTasks([]faultPeriod{{at(5), at(11), 2}})
	if len(errs.errors) != 2 || !strings.Contains(errs.errors[0], "task 2") || !strings.Contains(errs.errors[1],
		"task 2") {
		t.Errorf("got errors %q, want two about task 2", errs.errors)
	}
}
