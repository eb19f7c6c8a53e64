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
	r := aRun("victim")
	r.Cells[0].Workload.Publishers.Rate = 50
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
	attempted := false
	end := f.follow("victim", func(e wire.Entry) {
		if e.Outcome != nil && (e.Outcome.Verdict != "valid" || len(e.Outcome.FailedAttempts) > 0) {
			t.Errorf("the run's outcome is %s %v after %+v", e.Outcome.Verdict, e.Outcome.Reasons,
				e.Outcome.FailedAttempts)
		}
		if e.Event == nil || e.Event.Kind != wire.TaskStarted {
			return
		}
		attempted = true
		led := wire.Ref{Run: "victim", Task: e.Event.Task, Attempt: e.Event.Attempt}
		late := wire.Ref{Run: "victim", Task: e.Event.Task, Attempt: "over"}
		arrival := func(ref wire.Ref, agent string) string {
			return text(t, wire.Arrival{Ref: ref, Agent: agent, Step: wire.StepFinish, Error: "it was me"})
		}
		snapshot := func(ref wire.Ref, agent string) string {
			return text(t, map[string]any{"ref": ref,
				"snapshot": map[string]any{"task": ref.Task, "agent": agent, "seq": 1}})
		}
		for _, service := range []string{"heartbeat", "clock", "arrive", "snapshot"} {
			for what, body := range map[string]string{
				"nothing":                     "",
				"no JSON":                     "{",
				"another type":                `[1, "x"]`,
				"deeply nested":               strings.Repeat("[", 100_000),
				"one MiB":                     `{"agent":"` + strings.Repeat("x", 1<<20) + `"}`,
				"an arrival of another agent": arrival(led, "a1"),
				"a snapshot of another agent": snapshot(led, "a1"),
				"an arrival without a part":   arrival(led, "a3"),
				"a snapshot without a part":   snapshot(led, "a3"),
				"an arrival that is too late": arrival(late, "a3"),
				"a snapshot that is too late": snapshot(late, "a3"),
				"a snapshot of another run": snapshot(wire.Ref{Run: "other", Task: led.Task, Attempt: led.Attempt},
					"a3"),
				"a snapshot of a long run name": snapshot(wire.Ref{Run: tooLong, Task: led.Task, Attempt: led.Attempt},
					"a3"),
			} {
				answer, err := nc.RequestMsg(message("lockstep.agent."+service+".a3", body), within)
				must(t, err)
				// An invalid heartbeat may still name an agent, or none. The request for the clock needs no body.
				if refused := answer.Header.Get("Lockstep-Error") != ""; !refused &&
					(service == "arrive" || service == "snapshot") {
					t.Errorf("%s took %s: %s", service, what, answer.Data)
				}
			}
			for _, agent := range []string{"a1", "a2", "x", "*", ">"} {
				if answer, err := nc.RequestMsg(message("lockstep.agent."+service+"."+agent, "{}"),
					100*time.Millisecond); err == nil {
					t.Errorf("%s answered a3 as %s: %v %s", service, agent, answer.Header, answer.Data)
				} else if !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, nats.ErrNoResponders) {
					t.Errorf("%s as %s: %v", service, agent, err)
				}
			}
		}
		for _, subject := range []string{"lockstep.command.a1", "lockstep.command.a3", "lockstep.events.victim.event",
			"$JS.API.INFO", "$JS.API.STREAM.DELETE.LOCKSTEP_QUEUE"} {
			if answer, err := nc.RequestMsg(message(subject, "{}"), 100*time.Millisecond); err == nil {
				t.Errorf("%s answered an agent: %v %s", subject, answer.Header, answer.Data)
			}
		}
	})
	if !attempted || end.Reason != wire.EndDone || end.Ran != 1 || end.Failed != 0 {
		t.Errorf("the run ended with %+v", end)
	}
	f.alive("hostile requests")
}

// TestHeartbeatsOfFormerProcesses proves that a late heartbeat of an agent's former process has no effect.
func TestHeartbeatsOfFormerProcesses(t *testing.T) {
	f := startFleet(t)
	nc := f.dial("agents/a3.nk")
	beat := func(instance string, leaving bool) (refusal string) {
		h := wire.Heartbeat{Agent: "a3", Process: "a3", Instance: instance, Host: "h", Leaving: leaving}
		return refusalOf(t, nc, message("lockstep.agent.heartbeat.a3", text(t, h)))
	}
	for _, instance := range []string{"former", "present"} {
		if refusal := beat(instance, false); refusal != "" {
			t.Fatalf("the process %s was refused: %s", instance, refusal)
		}
	}
	if refusal := beat("former", false); !strings.Contains(refusal, "duplicate agent name") {
		t.Errorf("a late heartbeat was refused with %q", refusal)
	}
	beat("former", true)
	if refusal := beat("present", false); refusal != "" {
		t.Errorf("after a late heartbeat, the present process was refused with %q", refusal)
	}
	f.alive("late heartbeats")
}

// TestLateMessagesAboutBaselines sends them for a run that has ended, for one that is gone, and for a removed baseline.
func TestLateMessagesAboutBaselines(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	f.works("before")
	for run, want := range map[string]string{"before": "", "gone": "no such run"} { // an ended run, and none
		_, err := f.client.SetBaseline(t.Context(), wire.BaselineQuery{Run: run, Name: "late", By: "somebody"})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("a late baseline of the run %s: %v, want %q", run, err, want)
		}
	}
	must(t, f.client.RemoveBaseline(t.Context(), "late"))
	if err := f.client.RemoveBaseline(t.Context(), "late"); !errors.Is(err, wire.ErrNoBaseline) {
		t.Errorf("a baseline was removed twice: %v, want wire.ErrNoBaseline", err)
	}
	f.alive("late messages about baselines")
}

func text(t *testing.T, v any) string {
	t.Helper()
	body, err := json.Marshal(v)
	must(t, err)
	return string(body)
}
