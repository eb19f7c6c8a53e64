package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestWriteIsAtomic(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "outcome.json")
	holds := func(want string, mode fs.FileMode) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil || string(text) != want {
			t.Errorf("%q, %v; want %q", text, err, want)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("mode %v, %v; want %v", info.Mode(), err, mode)
		}
		if all, _ := os.ReadDir(dir); len(all) != 1 {
			t.Errorf("files in the folder: %v", all)
		}
	}
	if err := WriteRecord(path, []byte("first"), 0o644); err != nil {
		t.Fatal(err)
	}
	holds("first", 0o644)
	failed := errors.New("disk full")
	err := WriteOutput(path, 0o600, func(w io.Writer) error { _, _ = io.WriteString(w, "half"); return failed })
	if !errors.Is(err, failed) {
		t.Errorf("error %v, want %v", err, failed)
	}
	holds("first", 0o644)
	if err := WriteOutput(path, 0o600, func(w io.Writer) error {
		_,
			err := io.WriteString(w, "second")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	holds("second", 0o600)
	if err := WriteRecord(filepath.Join(dir, "missing", "file"), nil, 0o644); !errors.Is(err, fs.ErrNotExist) ||
		!errors.Is(err, ErrFolder) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// Errors of syncing a directory count for records. For output, they are ignored on file systems that do not support it.
func TestDirectorySyncErrors(t *testing.T) {
	if err := SyncDir(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("sync of a missing directory: %v", err)
	}
	for _, ignored := range []error{syscall.EINVAL, syscall.ENOTSUP, syscall.EACCES} {
		if err := unlessUnsupported(&fs.PathError{Op: "sync", Err: ignored}); err != nil {
			t.Errorf("output fails with %v", err)
		}
	}
	if err := unlessUnsupported(fmt.Errorf("sync: %w", syscall.EIO)); !errors.Is(err, syscall.EIO) {
		t.Errorf("an input/output error is %v", err)
	}
	path := filepath.Join(t.TempDir(), "f")
	err := replace(path, 0o644, recordSuffix, func(io.Writer) error { return nil },
		func(error) error { return syscall.EINVAL })
	if !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a record whose directory cannot be synced: %v", err)
	}
}

func TestRemoveIncomplete(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".a.1.tmp", "tasks/t1/.b.2.tmp", "tasks/t1/keep.tmp", ".other"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(RemoveIncomplete(dir, "."), RemoveIncomplete(dir, "tasks/*")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{".a.1.tmp": false, "tasks/t1/.b.2.tmp": false, "tasks/t1/keep.tmp": true,
		".other": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", name, err == nil, want)
		}
	}
}

func TestAppendLineAfterAnIncompleteOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "timeline.jsonl")
	if err := os.WriteFile(path, []byte("{\"a\""), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := AppendLine(path, []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "{\"a\"\n{}\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestOpenLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := OpenLocked(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLocked(path, os.O_RDWR, 0o600); !errors.Is(err, ErrLocked) {
		t.Errorf("second: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := OpenLocked(path, os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}

// Devices and pipes are written to, not replaced.
func TestOutputToADevice(t *testing.T) {
	err := WriteOutput(os.DevNull, 0o644, func(w io.Writer) error { _, err := io.WriteString(w, "x"); return err })
	if info, bad := os.Stat(os.DevNull); err != nil || bad != nil || info.Mode().IsRegular() {
		t.Errorf("%v; %s is %v, %v", err, os.DevNull, info.Mode(), bad)
	}
}

// Output to a symbolic link changes its target, and the link stays. Secrets can be written where directories cannot be
// synced.
func TestOutputKeepsLinks(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(target, []byte("before"), 0o600), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	if err := WriteOutput(link, 0o600, writes([]byte("now"))); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info, err)
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "now" {
		t.Errorf("its target has %q, %v", text, err)
	}
	if err := RemoveIncomplete(dir, "."); err != nil {
		t.Fatal(err)
	}
}
