package files_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"example.org/lockstep/lockstep/internal/files"
)

func TestTryLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	first, second := open(), open()
	if err := files.TryLock(first); err != nil {
		t.Fatal(err)
	}
	if err := files.TryLock(second); !errors.Is(err, files.ErrLocked) {
		t.Errorf("second lock: %v, want ErrLocked", err)
	}
	if err := files.Unlock(first); err != nil {
		t.Fatal(err)
	}
	if err := files.TryLock(second); err != nil {
		t.Errorf("after Unlock: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if err := files.TryLock(first); err != nil {
		t.Errorf("after Close: %v", err)
	}
}
