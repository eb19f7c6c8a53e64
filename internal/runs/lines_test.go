package runs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// TestLinesOfARecordAreBounded reads files with lines of three bytes, each of which would be an entry of two hundred.
func TestLinesOfARecordAreBounded(t *testing.T) {
	r, err := Create(t.TempDir(), plan.Run{ID: "run-1", Repeat: 1, Started: time.Now().UTC()})
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]error{"{}\n": plan.ErrTooLarge, "?\n": nil} {
		if err := os.WriteFile(filepath.Join(r.Dir(), marksFile), []byte(strings.Repeat(line, maxLines+1)),
			0o600); err != nil {
			t.Fatal(err)
		}
		marks, err := r.Marks()
		if !errors.Is(err, want) || len(marks) > 0 {
			t.Errorf("%q: %d marks, %v: want %v", line, len(marks), err, want)
		}
	}
	if n := len(r.Warnings()); n != maxDamage+1 {
		t.Errorf("%d warnings, want %d", n, maxDamage+1)
	}
}
