package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/internal/wire/lease"
)

// leading returns a control plane on loopback and the leader of a controller. It executes no runs.
func leading(t *testing.T) (*wire.Server, *wire.Leader) {
	t.Helper()
	server, err := wire.Embedded(t.Context(), wire.ServerConfig{Listen: "127.0.0.1:0", Open: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	conn, err := server.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lease, err := wire.NewStore(conn, wire.StoreConfig{}).Campaign(t.Context(), lease.Holder{Name: "c", Instance: "c"},
		nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lease.Lease.Resign(context.Background()) })
	stop, err := lease.ServeClients(func() []wire.AgentInfo { return nil },
		func(plan.HistoryQuery) (plan.HistoryAnswer, error) { return plan.HistoryAnswer{}, nil }, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return server, lease
}

// A cancelled run that is submitted again at once is still reported as cancelled.
func TestCancelReportsTheSubmissionThatItCancelled(t *testing.T) {
	server, lease := leading(t)
	client, err := server.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put := func(s wire.RunState) {
		t.Helper()
		if err := lease.PutRun(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
	running := make(chan struct{})
	go func() {
		var submitted uint64 // sequence number
		_ = lease.Queue(t.Context(), func(q wire.Request) {
			switch {
			case q.Submits:
				submitted = q.Seq
				put(wire.RunState{Run: "r", State: wire.StateRunning, Seq: submitted, Tasks: 2})
				close(running)
			case q.Run == "r":
				put(wire.RunState{Run: "r", State: string(wire.EndDone), Seq: submitted + 1, Tasks: 2, Done: 2})
			}
		}, func() {})
	}()
	if err := client.Submit(t.Context(), wire.Submission{Run: plan.Run{ID: "r"}}); err != nil {
		t.Fatal(err)
	}
	<-running
	text, err := cancelRun(t.Context(), client, "r", time.Minute, " --server x")
	if err != nil || !strings.Contains(text, "run r was cancelled and has been submitted again") ||
		strings.Contains(text, "has ended") {
		t.Errorf("%q, %v", text, err)
	}
}

// A resumed run may still have the end of its earlier submission. A follower then checks again.
func TestEndOfAnEarlierSubmission(t *testing.T) {
	server, lease := leading(t)
	client, err := server.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		state wire.RunState
		text  string
		begun bool
	}{
		{wire.RunState{Run: "r", State: string(wire.EndInterrupted), Seq: 1}, "", false},
		{wire.RunState{Run: "r", State: wire.StateQueued, Waiting: "its turn", Seq: 2},
			"run r is queued: its turn", false},
		{wire.RunState{Run: "r", State: wire.StateRunning, Seq: 2}, "", true},
	} {
		if err := lease.PutRun(t.Context(), x.state); err != nil {
			t.Fatal(err)
		}
		if text, begun := queue(t.Context(), client, "r"); text != x.text || begun != x.begun {
			t.Errorf("%s: %q, begun: %v", x.state.State, text, begun)
		}
	}
}
