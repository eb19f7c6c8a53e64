package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
)

// TestARunThatTheControllerStoppedIsAnError proves that the exit code and the message state this, with and without a
// record.
func TestARunThatTheControllerStoppedIsAnError(t *testing.T) {
	root := t.TempDir()
	record, err := runs.Create(root, plan.Run{Version: plan.RecordFormat, ID: "recorded", Name: "n", Repeat: 1,
		Started: time.Now().UTC(),
		Cells: []plan.Cell{{ID: "c0ffee", Workload: plan.Default(),
			Broker: plan.Broker{Name: "b", Driver: "loopback", Options: []byte("{}")}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	c := &cobra.Command{}
	c.SetOut(io.Discard)
	for _, reason := range []wire.EndReason{wire.EndFailed, wire.EndQuarantined} {
		for _, id := range []string{"recorded", "not-recorded"} {
			err := (&runOptions{runs: root}).conclude(t.Context(), c, id,
				wire.End{Reason: reason, Detail: "the control plane is full"})
			var code exit
			if err == nil || errors.As(err, &code) || !strings.Contains(err.Error(), "the control plane is full") {
				t.Errorf("%s, %s: %v, want the reason", reason, id, err)
			}
		}
	}
}

// A run that the control plane no longer has cannot be continued there. It is resumed from its copy, with the same
// flags.
func TestDeletedRunsAreResumed(t *testing.T) {
	o := runOptions{runs: "my", server: serverFlags{url: "nats://bench-1:4222"}}
	const want = "run r is no longer on the control plane, which may have been restarted without its data; " +
		"resume from the copy: ctl run --resume r --runs my --server nats://bench-1:4222"
	if err := o.left(t.Context(), "r", fmt.Errorf("follow run r: %w", wire.ErrNoRun)); err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Printed commands contain the flags that the user gave to reach the fleet, without those from the environment.
func TestHintsHaveTheFlagsThatReachTheFleet(t *testing.T) {
	o := runOptions{runs: "my runs", server: serverFlags{url: "tls://u:p@bench-1:4222", creds: "my creds/client.nk",
		ca: "/etc/ca.crt", cert: "c", key: "k",
		preset: map[string]string{"ca": "/etc/ca.crt"}}}
	flags := " --server 'tls://u:***@bench-1:4222' --creds 'my creds/client.nk' --cert c --key k"
	for got, want := range map[string]string{
		o.again("r"):       "ctl run --resume r --runs 'my runs'" + flags,
		o.attachAgain("r"): "ctl runs attach r --runs 'my runs'" + flags,
	} {
		if got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	o.server.preset["server"] = o.server.url
	if hint := o.server.hint(); strings.Contains(hint, "--server") {
		t.Errorf("the environment has the server: %s", hint)
	}
}

// A run of a fleet without a record on this host must be pulled before it is resumed.
func TestResumeWithoutARecordSuggestsPull(t *testing.T) {
	runs := t.TempDir()
	var out strings.Builder
	code := Ctl(t.Context(), []string{"run", "--resume", "r-1", "--runs", runs, "--server", "nats://127.0.0.1:1"}, nil,
		&out, &out)
	if want := "first: ctl runs pull r-1 --runs " + runs + " --server nats://127.0.0.1:1\n"; code != ExitError ||
		!strings.HasSuffix(out.String(), want) {
		t.Errorf("code %d: %swant %s", code, out.String(), want)
	}
}

// A run whose snapshots would exceed the limit of its stream is announced with the limit that it needs.
func TestRunsThatMayFillTheirStreamAreAnnounced(t *testing.T) {
	w := plan.Default()
	w.Measure = plan.Duration(time.Hour)
	run := plan.Run{ID: "r", Repeat: 10, Cells: []plan.Cell{{ID: "c", Workload: w}}}
	need := 10 * float64(run.Cells[0].Agents()) * plan.Estimate(w).Seconds() * snapshotRate
	if text := snapshotWarning(run, uint64(need)+1); text != "" {
		t.Errorf("there is room: %s", text)
	}
	if text := snapshotWarning(run, 512<<20); !strings.Contains(text,
		"need about 704 MiB, and the control plane stores at most 512 MiB per run") ||
		!strings.Contains(text, "--record-limit 2GiB") {
		t.Error(text)
	}
}
