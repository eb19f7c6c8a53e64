package runs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Incomplete files of a killed process are removed when the run is continued. Complete files stay.
func TestIncompleteFilesAreRemoved(t *testing.T) {
	root := t.TempDir()
	r := create(t, root, "run-1")
	task := r.Plan().Tasks()[0].ID
	if err := r.BeginAttempt(task, "first"); err != nil {
		t.Fatal(err)
	}
	r.Close()
	whole := everyFile(t, root)
	for _, dir := range []string{r.Dir(), filepath.Join(r.Dir(), tasksDir, task)} {
		temp, err := os.CreateTemp(dir, ".publish.hlog.*.tmp")
		if err != nil {
			t.Fatal(err)
		}
		temp.Close()
	}
	again := create(t, root, "run-1")
	if err := again.BeginAttempt(task, "first"); err != nil {
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
