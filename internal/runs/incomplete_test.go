package runs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// What a process that was killed left half written is gone when the run is gone on with; what is whole stays.
func TestHalfWrittenFilesAreSweptAway(t *testing.T) {
	root := t.TempDir()
	r := create(t, root, "run-1")
	task := r.Plan().Tasks()[0].ID
	if err := r.BeginTry(task, "first"); err != nil {
		t.Fatal(err)
	}
	r.Close()
	whole := everyFile(t, root)
	for _, dir := range []string{r.Dir(), filepath.Join(r.Dir(), tasksDir, task)} {
		temp, err := os.CreateTemp(dir, ".send.hlog.*"+tempEnd)
		if err != nil {
			t.Fatal(err)
		}
		temp.Close()
	}
	again := create(t, root, "run-1")
	if err := again.BeginTry(task, "first"); err != nil {
		t.Fatal(err)
	}
	again.Close()
	if got := everyFile(t, root); !slices.Equal(got, whole) {
		t.Errorf("the files are %q, want %q", got, whole)
	}
}

func everyFile(t *testing.T, root string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
