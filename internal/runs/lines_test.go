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
		if err := os.WriteFile(filepath.Join(r.Dir(), timelineFile), []byte(strings.Repeat(line, maxLines+1)),
			0o600); err != nil {
			t.Fatal(err)
		}
		timeline, err := r.Timeline()
		if !errors.Is(err, want) || len(timeline) > 0 {
			t.Errorf("%q: %d events, %v: want %v", line, len(timeline), err, want)
		}
	}
	if n := len(r.Warnings()); n != maxDamage+1 {
		t.Errorf("%d warnings, want %d", n, maxDamage+1)
	}
}
