package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// leading returns a control plane on loopback, the connection of the controller that leads there, and its lease. It executes no runs.
func leading(t *testing.T) (*wire.Server, *wire.Conn, *wire.Lease) {
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
	lease, err := conn.Campaign(t.Context(), wire.LeaderInfo{Name: "c", Instance: "c"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lease.Resign(context.Background()) })
	stop, err := lease.ServeClients(func() []wire.AgentInfo { return nil },
		func(plan.HistoryQuery) (plan.HistoryAnswer, error) { return plan.HistoryAnswer{}, nil }, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return server, conn, lease
}

// A run that is submitted again as soon as it has ended does not hide that it was cancelled.
func TestCancelReportsTheSubmissionThatItCancelled(t *testing.T) {
	server, conn, lease := leading(t)
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
	put(wire.RunState{Run: "r", State: wire.StateRunning, Seq: 1, Tasks: 2})
	go func() {
		_ = conn.Queue(t.Context(), func(q wire.Request) {
			if !q.Submits && q.Run == "r" {
				put(wire.RunState{Run: "r", State: string(wire.EndDone), Seq: 2, Tasks: 2, Done: 2})
			}
		}, func() {})
	}()
	text, err := cancelRun(t.Context(), client, "r", time.Minute, " --server x")
	if err != nil || !strings.Contains(text, "run r was cancelled; it has been submitted again since") || strings.Contains(text, "has ended") {
		t.Errorf("%q, %v", text, err)
	}
}

// A command that is printed for the user to type has what the user gave to reach the fleet, and not what the environment has.
func TestHintsHaveTheFlagsThatReachTheFleet(t *testing.T) {
	t.Setenv("LOCKSTEP_CA", "/etc/ca.crt")
	o := runOptions{runs: "my runs", server: serverFlags{url: "tls://u:p@bench-1:4222", creds: "my creds/client.nk", ca: "/etc/ca.crt", cert: "c", key: "k"}}
	flags := " --server 'tls://u:***@bench-1:4222' --creds 'my creds/client.nk' --cert c --key k"
	for got, want := range map[string]string{
		o.again("r"):       "ctl run --resume r --runs 'my runs'" + flags,
		o.attachAgain("r"): "ctl attach r --runs 'my runs'" + flags,
	} {
		if got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	t.Setenv("LOCKSTEP_SERVER", o.server.url)
	if hint := o.server.hint(); strings.Contains(hint, "--server") {
		t.Errorf("the environment has the server: %s", hint)
	}
}

// A run of a fleet that this host has no record of is copied before it is resumed.
func TestResumeWithoutARecordNamesPull(t *testing.T) {
	runs := t.TempDir()
	var out strings.Builder
	code := Ctl(t.Context(), []string{"run", "--resume", "r-1", "--runs", runs, "--server", "nats://127.0.0.1:1"}, nil, &out, &out)
	if want := "first: ctl pull r-1 --runs " + runs + " --server nats://127.0.0.1:1\n"; code != ExitError || !strings.HasSuffix(out.String(), want) {
		t.Errorf("code %d: %swant %s", code, out.String(), want)
	}
}
