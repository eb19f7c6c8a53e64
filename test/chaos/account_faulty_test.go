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

// listener records the errors of an account.
type listener struct {
	testing.TB
	errors []string
}

func (l *listener) Helper()             {}
func (l *listener) Logf(string, ...any) {}
func (l *listener) Errorf(format string, v ...any) {
	l.errors = append(l.errors, fmt.Sprintf(format, v...))
}

// said returns a record with the given epochs and messages, in order.
func said(t *testing.T, all ...any) (record []stored) {
	t.Helper()
	epoch := ""
	for _, what := range all {
		s := stored{seq: uint64(len(record) + 1), kind: "event", epoch: epoch}
		switch what := what.(type) {
		case string:
			epoch = what
			continue
		case wire.RunEvent:
			s.task, s.attempt = what.Task, what.Attempt
		case plan.Outcome:
			s.kind, s.task = "outcome", what.Task
		}
		var err error
		if s.data, err = json.Marshal(what); err != nil {
			t.Fatal(err)
		}
		record = append(record, s)
	}
	return record
}

// An account detects takeovers that are not recorded, and takeovers whose event is wrong.
func TestAccountOfTakeovers(t *testing.T) {
	accepted, begun := wire.RunEvent{Kind: wire.RunAccepted},
		wire.RunEvent{Kind: wire.TaskStarted, Task: "x", Attempt: "1"}
	again, outcome := wire.RunEvent{Kind: wire.TaskStarted, Task: "x", Attempt: "2"}, plan.Outcome{Task: "x"}
	cut := wire.RunEvent{Kind: wire.TaskInterrupted, Task: "x", Attempt: "1"}
	taken := func(task, attempt, what string) wire.RunEvent {
		return wire.RunEvent{Kind: wire.TakenOver, Task: task, Attempt: attempt,
			Detail: "controller c has taken over: " + what}
	}
	repeated := taken("x", "1", "the task in flight is repeated")
	for name, c := range map[string]struct {
		said []any
		want string // of the error; empty: no error
	}{
		"repeated": {[]any{"1", accepted, begun, "2", repeated, cut, again, outcome}, ""},
		"nothing in flight": {[]any{"1", accepted, begun, outcome, "2", taken("", "", "no task was in flight"), again},
			""},
		"silent": {[]any{"1", accepted, begun, "2", outcome}, "does not say that it took the run over"},
		"silent, then again": {[]any{"1", accepted, begun, "2", again, outcome},
			"does not say that it took the run over"},
		"says neither": {[]any{"1", accepted, begun, "2", taken("x", "1", "hm"), outcome}, "in flight was task"},
		"of another": {[]any{"1", accepted, begun, "2", taken("", "", "no task was in flight"), outcome},
			"in flight was task"},
		"repeated, and not": {[]any{"1", accepted, begun, "2", repeated, outcome}, "was to be repeated"},
	} {
		l := &listener{TB: t}
		a := &account{t: l, record: said(t, c.said...), outcomes: map[string]plan.Outcome{}, ended: map[string]uint64{}}
		a.read()
		a.handedOn()
		if got := strings.Join(l.errors, "; "); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Snapshots that are missing or too late count as lost.
func TestAccountOfSnapshots(t *testing.T) {
	l := &listener{TB: t}
	a := &account{t: l, outcomes: map[string]plan.Outcome{"x": {Agents: []plan.AgentPart{{Agent: "a"},
		{Agent: "b", Lost: true}}}}}
	a.unbroken("x", map[string]record.Snapshot{"1": {Agent: "a", Seq: 1}, "2": {Agent: "a", Seq: 2},
		"3": {Agent: "a", Seq: 1<<32 + 2}})
	a.late("x", stored{}, record.Snapshot{Agent: "b", Seq: 9})
	if len(l.errors) > 0 {
		t.Errorf("nothing is lost: %q", l.errors)
	}
	a.unbroken("x", map[string]record.Snapshot{"1": {Agent: "a", Seq: 1}, "2": {Agent: "a", Seq: 3}})
	a.unbroken("x", map[string]record.Snapshot{"2": {Agent: "a", Seq: 2}})
	a.late("x", stored{}, record.Snapshot{Agent: "a", Seq: 9})
	if a.lost != 3 {
		t.Errorf("%d lost, want 3: %q", a.lost, l.errors)
	}
}

// A fault explains at most its number of tasks, and only in its period.
func TestAccountOfHarms(t *testing.T) {
	now := time.Now()
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	unknown := func(from, to int) plan.Outcome {
		return plan.Outcome{Verdict: plan.Unknown, Started: at(from), Ended: at(to)}
	}
	l := &listener{TB: t}
	a := &account{t: l, outcomes: map[string]plan.Outcome{"1": unknown(0, 10), "2": unknown(12, 20),
		"3": {Verdict: plan.Valid, Started: at(20)}}}
	if a.explained([]harm{{at(5), at(11), 1}, {at(15), at(16), 1}}); len(l.errors) > 0 {
		t.Errorf("each is explained: %q", l.errors)
	}
	a.explained([]harm{{at(5), at(15), 1}})
	a.explained([]harm{{at(5), at(11), 2}})
	if len(l.errors) != 2 || !strings.Contains(l.errors[0], "task 2") || !strings.Contains(l.errors[1], "task 2") {
		t.Errorf("%q: want task 2 not explained, twice", l.errors)
	}
}
