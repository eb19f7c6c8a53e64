package cli

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"lockstep/internal/files"
)

const (
	scratchNames = "lockstep-local-*"
	scratchYoung = time.Minute // its maker may not have taken it yet
)

// scratch makes a folder for what a run in this process keeps on disk while it lasts. Those of processes that were
// killed are removed.
func scratch(log *slog.Logger) (dir string, remove func(), err error) {
	abandoned(log)
	if dir, err = os.MkdirTemp("", scratchNames); err != nil {
		return "", nil, fmt.Errorf("make a folder for the run: %w; give another temporary folder with TMPDIR", err)
	}
	release, err := lockDir("TMPDIR", dir)
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, func() {
		if err := os.RemoveAll(dir); err != nil {
			log.Warn("remove the run's folder", "error", err)
		}
		release()
	}, nil
}

// abandoned removes folders whose process is gone: nobody has their lock. What cannot be looked at or removed is
// another user's.
func abandoned(log *slog.Logger) {
	there, _ := filepath.Glob(filepath.Join(os.TempDir(), scratchNames)) // the pattern is a good one
	for _, dir := range there {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < scratchYoung {
			continue
		}
		name := filepath.Join(dir, "lock")
		// another user's pipe would block, and a link lead elsewhere
		if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() {
			continue
		}
		lock, err := os.OpenInRoot(dir, "lock")
		if err != nil {
			continue
		}
		if files.TryLock(lock) == nil {
			log.Info("remove what a run that was killed left", "folder", dir)
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}
