package cli

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"example.org/lockstep/lockstep/internal/files"
)

const (
	scratchNames = "lockstep-local-*"
	scratchYoung = time.Minute // the process that created it may not have locked it yet
)

// scratch creates a folder for the temporary files of a local run. It first removes the folders of killed processes.
func scratch(log *slog.Logger) (dir string, remove func(), err error) {
	abandoned(log)
	if dir, err = os.MkdirTemp("", scratchNames); err != nil {
		return "", nil, fmt.Errorf("create a folder for the run: %w; set TMPDIR to another folder", err)
	}
	release, err := lockDir("TMPDIR", dir)
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, func() {
		if err := os.RemoveAll(dir); err != nil {
			log.Warn("cannot remove the folder of the run", "error", err)
		}
		release()
	}, nil
}

// abandoned removes the folders of processes that have ended. A folder whose lock file is not locked is abandoned.
// Folders that cannot be read or removed belong to other users and are skipped.
func abandoned(log *slog.Logger) {
	there, _ := filepath.Glob(filepath.Join(os.TempDir(), scratchNames)) // the error is for invalid patterns only
	for _, dir := range there {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < scratchYoung {
			continue
		}
		name := filepath.Join(dir, "lock")
		// a pipe of another user would block, and a link could lead to another folder
		if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() {
			continue
		}
		lock, err := os.OpenInRoot(dir, "lock")
		if err != nil {
			continue
		}
		if files.TryLock(lock) == nil {
			log.Info("removing the folder of a killed run", "folder", dir)
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}
