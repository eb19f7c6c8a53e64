package hostile

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/wire"
)

// TestServicesForAgents sends requests that no agent sends to each service of the controller, with the key of an idle
// agent, during a run. All are rejected or not answered, and the run has one valid outcome.
func TestServicesForAgents(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	nc := f.dial("agents/a3.nk")
	r := newRun("victim")
	r.Cells[0].Workload.Publishers.Rate = 50
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
	started := false
	end := f.readRun("victim", func(e wire.Entry) {
		if e.Outcome != nil && (e.Outcome.Verdict != "valid" || len(e.Outcome.FailedAttempts) > 0) {
			t.Errorf("outcome: got verdict %s %v, failed attempts %+v, want valid and no failed attempts",
				e.Outcome.Verdict, e.Outcome.Reasons, e.Outcome.FailedAttempts)
		}
		if e.Event == nil || e.Event.Kind != wire.TaskStarted {
			return
		}
		started = true
		activeRef := wire.Ref{Run: "victim", Task: e.Event.Task, Attempt: e.Event.Attempt}
		endedRef := wire.Ref{Run: "victim", Task: e.Event.Task, Attempt: "over"}
		arrival := func(ref wire.Ref, agent string) string {
			return jsonText(t, wire.Arrival{Ref: ref, Agent: agent, Step: wire.StepFinish, Error: "x"})
		}
		snapshot := func(ref wire.Ref, agent string) string {
			return jsonText(t, map[string]any{"ref": ref,
				"snapshot": map[string]any{"task": ref.Task, "agent": agent, "seq": 1}})
		}
		for _, service := range []string{"heartbeat", "clock", "arrive", "snapshot"} {
			for name, body := range map[string]string{
				"no body":                        "",
				"incomplete JSON":                "{",
				"another type":                   `[1, "x"]`,
				"deeply nested":                  strings.Repeat("[", 100_000),
				"one MiB":                        `{"agent":"` + strings.Repeat("x", 1<<20) + `"}`,
				"an arrival of another agent":    arrival(activeRef, "a1"),
				"a snapshot of another agent":    snapshot(activeRef, "a1"),
				"an arrival of an idle agent":    arrival(activeRef, "a3"),
				"a snapshot of an idle agent":    snapshot(activeRef, "a3"),
				"an arrival of an ended attempt": arrival(endedRef, "a3"),
				"a snapshot of an ended attempt": snapshot(endedRef, "a3"),
				"a snapshot of another run": snapshot(wire.Ref{Run: "other", Task: activeRef.Task,
					Attempt: activeRef.Attempt}, "a3"),
				"a snapshot of a long run name": snapshot(wire.Ref{Run: longName, Task: activeRef.Task,
					Attempt: activeRef.Attempt}, "a3"),
			} {
				answer, err := nc.RequestMsg(message("lockstep.agent."+service+".a3", body), timeLimit)
				must(t, err)
				// An invalid heartbeat may still name an agent, or none. The request for the clock needs no body.
				if rejected := answer.Header.Get("Lockstep-Error") != ""; !rejected &&
					(service == "arrive" || service == "snapshot") {
					t.Errorf("service %s accepted %s: %s", service, name, answer.Data)
				}
			}
			for _, agent := range []string{"a1", "a2", "x", "*", ">"} {
				if answer, err := nc.RequestMsg(message("lockstep.agent."+service+"."+agent, "{}"),
					100*time.Millisecond); err == nil {
					t.Errorf("service %s of agent %s answered agent a3: %v %s", service, agent, answer.Header,
						answer.Data)
				} else if !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, nats.ErrNoResponders) {
					t.Errorf("service %s of agent %s: got error %v, want a timeout or no responders", service, agent,
						err)
				}
			}
		}
		for _, subject := range []string{"lockstep.command.a1", "lockstep.command.a3", "lockstep.events.victim.event",
			"$JS.API.INFO", "$JS.API.STREAM.DELETE.LOCKSTEP_QUEUE"} {
			if answer, err := nc.RequestMsg(message(subject, "{}"), 100*time.Millisecond); err == nil {
				t.Errorf("%s answered agent a3: %v %s", subject, answer.Header, answer.Data)
			}
		}
	})
	if !started || end.Reason != wire.EndDone || end.Ran != 1 || end.Failed != 0 {
		t.Errorf("end of the run: got %+v (started: %v), want reason %s, 1 task, 0 failed", end, started, wire.EndDone)
	}
	f.checkController("hostile requests")
}

// TestHeartbeatsOfPreviousProcesses proves that a late heartbeat of an agent's previous process has no effect.
func TestHeartbeatsOfPreviousProcesses(t *testing.T) {
	f := startFleet(t)
	nc := f.dial("agents/a3.nk")
	beat := func(instance string, leaving bool) (rejection string) {
		h := wire.Heartbeat{Agent: "a3", Process: "a3", Instance: instance, Host: "h", Leaving: leaving}
		return requestError(t, nc, message("lockstep.agent.heartbeat.a3", jsonText(t, h)))
	}
	for _, instance := range []string{"previous", "current"} {
		if rejection := beat(instance, false); rejection != "" {
			t.Fatalf("heartbeat of instance %s was rejected: %s", instance, rejection)
		}
	}
	if rejection := beat("previous", false); !strings.Contains(rejection, "duplicate agent name") {
		t.Errorf("heartbeat of the previous instance: got error %q, want \"duplicate agent name\"", rejection)
	}
	beat("previous", true)
	if rejection := beat("current", false); rejection != "" {
		t.Errorf("heartbeat of the current instance after one of the previous instance: got error %q, want none",
			rejection)
	}
	f.checkController("late heartbeats")
}

// TestLateMessagesAboutBaselines sends them for an ended run, for an unknown run, and for a removed baseline.
func TestLateMessagesAboutBaselines(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	f.executeRun("before")
	for run, want := range map[string]string{"before": "", "unknown": "no such run"} { // before has ended
		_, err := f.client.SetBaseline(t.Context(), wire.BaselineQuery{Run: run, Name: "late", By: "x"})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("set a baseline of run %s: got error %v, want %q", run, err, want)
		}
	}
	must(t, f.client.RemoveBaseline(t.Context(), "late"))
	if err := f.client.RemoveBaseline(t.Context(), "late"); !errors.Is(err, wire.ErrNoBaseline) {
		t.Errorf("remove a baseline a second time: got error %v, want wire.ErrNoBaseline", err)
	}
	f.checkController("late messages about baselines")
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	body, err := json.Marshal(v)
	must(t, err)
	return string(body)
}
