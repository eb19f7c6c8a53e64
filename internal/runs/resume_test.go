package runs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/record"
)

// TestResume proves that the record of an interrupted attempt is stored separately, and that the outcome reports it.
func TestResume(t *testing.T) {
	root := t.TempDir()
	first := create(t, root, "run-1")
	tasks := first.Plan().Tasks()
	finish(t, first, tasks[0])
	if err := first.Append(tasks[1].ID, record.Snapshot{Agent: "a", Seq: 1, At: 7}); err != nil {
		t.Fatal(err)
	}
	first.Close() // as if killed

	second := create(t, root, "run-1") // the same plan: resumed
	if err := second.BeginAttempt(tasks[0].ID, ""); !errors.Is(err, ErrDone) {
		t.Errorf("a task that is done can be begun again: %v", err)
	}
	finish(t, second, tasks[1])
	kept, err := os.ReadFile(filepath.Join(second.Dir(), "tasks", tasks[1].ID+".attempt1", "snapshots.jsonl"))
	if err != nil || !bytes.Contains(kept, []byte(`"at":7`)) {
		t.Errorf("what the first attempt recorded is gone: %v", err)
	}
	outcomes, err := second.Outcomes()
	if err != nil || len(outcomes) != 2 {
		t.Fatalf("%d outcomes, %v", len(outcomes), err)
	}
	if w := strings.Join(outcomes[1].Warnings, "\n"); !strings.Contains(w, "attempt 1 of this task was interrupted") {
		t.Errorf("the outcome does not report its first attempt: %q", w)
	}
	m, err := second.Record(tasks[1].ID)
	if err != nil || m.Accounting(1).Sent != 2000 {
		t.Errorf("the record of the second attempt has %d messages, want its own 2000 (%v)", m.Accounting(1).Sent, err)
	}
}
