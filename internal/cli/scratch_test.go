package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A local run removes the folders of killed local runs, and no others.
func TestAbandonedFoldersAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	log := slog.New(slog.DiscardHandler)
	made := func(old bool) (string, func()) {
		dir, remove, err := scratch(log)
		if err != nil {
			t.Fatal(err)
		}
		if old {
			before := time.Now().Add(-time.Hour)
			if err := os.Chtimes(dir, before, before); err != nil {
				t.Fatal(err)
			}
		}
		return dir, remove
	}
	alive, end := made(true)
	killed, young := filepath.Join(os.TempDir(), "lockstep-local-1"), filepath.Join(os.TempDir(), "lockstep-local-2")
	for _, dir := range []string{killed, young} {
		if err := os.MkdirAll(filepath.Join(dir, "lockstep-control-1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "lock"), []byte("1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-time.Hour)
	if err := os.Chtimes(killed, before, before); err != nil {
		t.Fatal(err)
	}
	next, last := made(false)
	for dir, want := range map[string]bool{alive: true, killed: false, young: true, next: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", dir, err == nil, want)
		}
	}
	end()
	last()
	for _, dir := range []string{alive, next} {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
}
