package hostile

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
)

const hostileSeq = 1_000_000

// snapshotReport is an agent's message with a snapshot.
type snapshotReport struct {
	Ref      wire.Ref        `json:"ref"`
	Snapshot record.Snapshot `json:"snapshot"`
}

// executeRunWithSnapshot executes a run of some seconds. When the controller has stored a snapshot of the attempt, it
// sends another one with an agent's key. It returns the outcome and the error of that snapshot.
func (f *fleet) executeRunWithSnapshot(run, agent string, s record.Snapshot) (o plan.Outcome, rejection string) {
	f.t.Helper()
	nc := f.dial("agents/" + agent + ".nk")
	r := newRun(run)
	r.Cells[0].Workload.Publishers.Rate = 25
	must(f.t, f.client.Submit(f.t.Context(), wire.Submission{Run: r}))
	end := f.readRun(run, func(e wire.Entry) {
		if e.Outcome != nil {
			o = *e.Outcome
		}
		if e.Snapshot != nil && e.Snapshot.Seq == hostileSeq {
			f.t.Errorf("run %s: the hostile snapshot was stored", run)
		}
		if e.Snapshot == nil || rejection != "" {
			return
		}
		s.Task, s.Agent, s.Seq = e.Ref.Task, agent, hostileSeq
		body, err := json.Marshal(snapshotReport{e.Ref, s})
		must(f.t, err)
		answer, err := nc.RequestMsg(message("lockstep.agent.snapshot."+agent, string(body)), timeLimit)
		must(f.t, err)
		if rejection = answer.Header.Get("Lockstep-Error"); rejection == "" {
			f.t.Errorf("run %s: send a hostile snapshot: got no error", run)
		}
	})
	if end.Reason != wire.EndDone {
		f.t.Errorf("end of run %s: got %+v, want reason %s", run, end, wire.EndDone)
	}
	return o, rejection
}

// TestSnapshotsWithImpossibleTimes proves that a snapshot with a distant second, of an unknown group, or with a long
// text, harms only its own attempt. Judging it would use memory for all seconds before, and for each group.
func TestSnapshotsWithImpossibleTimes(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	for name, s := range map[string]record.Snapshot{
		"lastsend": {LastSend: math.MaxInt64},
		"window":   {Windows: []record.Window{{Index: math.MaxInt, Start: 0, Length: 1e9}}},
		"start":    {Windows: []record.Window{{Index: 0, Start: math.MaxInt64, Length: 1e9}}},
		"at":       {At: math.MinInt64},
		"group":    {Group: "other"},
		"detail":   {Events: []record.Event{{Kind: "error", Detail: strings.Repeat("x", record.MaxText+1)}}},
	} {
		o, _ := f.executeRunWithSnapshot(name, "a1", s)
		reasons := strings.Join(o.Reasons, " ")
		if o.Verdict != plan.Unknown || !strings.Contains(reasons, "since T0") &&
			!strings.Contains(reasons, "which the task does not have") && !strings.Contains(reasons, "has a text of") {
			t.Errorf("invalid field %s: got verdict %s, reasons %v, want unknown because of the field", name, o.Verdict,
				o.Reasons)
		}
		f.checkController(name)
	}
	f.executeRun("after")
}

// TestSnapshotsOfIdleAgents proves that snapshots of an idle agent are not in any copy.
func TestSnapshotsOfIdleAgents(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	w := record.Window{Index: 0, Measured: true, Length: 1e9}
	w.RecordN(record.Publish, int64(time.Second), 1_000_000)
	o, rejection := f.executeRunWithSnapshot("idle", "a3", record.Snapshot{Windows: []record.Window{w}})
	if o.Verdict != plan.Valid || !strings.Contains(rejection, "does not lead this attempt with this agent") {
		t.Errorf("snapshot of an idle agent: got verdict %s, reasons %v, error %q, want valid and an error", o.Verdict,
			o.Reasons, rejection)
	}
	for end := time.Now().Add(timeLimit); ; time.Sleep(20 * time.Millisecond) {
		state, err := f.client.RunState(t.Context(), "idle")
		must(t, err)
		if state.Copied {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the run was not copied within %v", timeLimit)
		}
	}
	files, err := filepath.Glob(filepath.Join(f.copies, "idle", "tasks", "*", "snapshots.jsonl"))
	must(t, err)
	if len(files) != 1 {
		t.Fatalf("files of snapshots in the copy: got %v, want one", files)
	}
	text, err := os.ReadFile(files[0])
	must(t, err)
	if !strings.Contains(string(text), `"agent":"a1"`) || strings.Contains(string(text), `"agent":"a3"`) {
		t.Errorf("snapshots in the copy: want those of a1 and none of a3, got %s", text)
	}
}

// TestSnapshotsOfObservers proves that an agent without a role that claims to observe the broker of a task cannot
// change its results.
func TestSnapshotsOfObservers(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	nc := f.dial("agents/a3.nk")
	heartbeat := message("lockstep.agent.heartbeat.a3", jsonText(t, wire.Heartbeat{Agent: "a3", Instance: "i", Process: "a3",
		Slots: 1, Protocol: plan.Protocol, Observes: []string{"loopback"}, Observer: true}))
	if rejection := requestError(t, nc, heartbeat); rejection != "" {
		t.Fatalf("heartbeat of an observer: got error %q", rejection)
	}
	f.serve(func(ctx context.Context) error {
		for wire.Wait(ctx, wire.HeartbeatEvery) == nil {
			_, _ = nc.RequestMsg(heartbeat, time.Second)
		}
		return ctx.Err()
	})
	w := record.Window{Index: 0, Measured: true, Length: 1e9}
	w.RecordN(record.Publish, int64(time.Second), 1_000_000)
	o, rejection := f.executeRunWithSnapshot("observed", "a3", record.Snapshot{Windows: []record.Window{w}})
	if o.Verdict != plan.Valid || !strings.Contains(rejection, "although it is an observer") {
		t.Errorf("snapshot of an observer: got verdict %s, reasons %v, error %q, want valid and an error", o.Verdict, o.Reasons,
			rejection)
	}
}
