package results

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAtomicWritesLeaveNothingBehind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"one", "two"} {
		if err := writeAtomic(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%d files, want one: %v", len(entries), err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v; others could not read it", info.Mode(), err)
	}
	if err := writeAtomic(filepath.Join(dir, "missing", "f"), nil); err == nil {
		t.Error("writing into a directory that is not there succeeded")
	}
}
