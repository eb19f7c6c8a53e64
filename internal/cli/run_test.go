package cli

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/runs"
	"lockstep/internal/wire"
)

// TestARunThatTheControllerStoppedIsAnError: with the reason, whether or not something was recorded.
func TestARunThatTheControllerStoppedIsAnError(t *testing.T) {
	root := t.TempDir()
	record, err := runs.Create(root, plan.Run{Version: plan.RecordFormat, ID: "recorded", Name: "n", Repeat: 1, Started: time.Now().UTC(),
		Cells: []plan.Cell{{ID: "c0ffee", Workload: plan.Default(), Broker: plan.Broker{Name: "b", Driver: "loopback", Options: []byte("{}")}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	for _, reason := range []wire.EndReason{wire.EndFailed, wire.EndQuarantined} {
		for _, id := range []string{"recorded", "not-recorded"} {
			err := (&runOptions{runs: root}).conclude(t.Context(), io.Discard, id, wire.End{Reason: reason, Detail: "the stream is full"})
			var code exit
			if err == nil || errors.As(err, &code) || !strings.Contains(err.Error(), "the stream is full") {
				t.Errorf("%s, %s: %v, want the reason", reason, id, err)
			}
		}
	}
}
