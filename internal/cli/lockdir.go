package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/files"
)

// lockDir creates dir and locks it for this process until release is called or the process ends. Two daemons with the
// same files would corrupt them. An empty path is not locked. flag names the flag of dir in errors. release removes a
// folder that lockDir has created and that contains only the lock.
func lockDir(flag, dir string) (release func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	fail := func(err error) (func(), error) {
		return nil, usageErrorf("lock %s %s: %w", flag, dir, err)
	}
	_, missing := os.Stat(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fail(err)
	}
	lock := filepath.Join(dir, "lock")
	file, err := files.OpenLocked(lock, os.O_RDWR|os.O_CREATE, 0o644)
	if errors.Is(err, files.ErrLocked) {
		return nil, usageErrorf("%s %s is in use by %s on this host; pass another %s", flag, dir, holder(lock), flag)
	}
	if err != nil {
		return fail(err)
	}
	if opened, err := file.Stat(); err != nil {
		return fail(errors.Join(err, file.Close()))
	} else if now, err := os.Stat(lock); err != nil || !os.SameFile(opened, now) { // another process has removed it
		return fail(errors.Join(errors.New("another process has just removed it; start again"), file.Close()))
	}
	release = func() {
		if left, err := os.ReadDir(dir); missing != nil && err == nil && len(left) == 1 {
			_ = os.Remove(lock) // while it is locked, so that a process that has just opened it notices
			_ = os.Remove(dir)  // fails if a file was added
		}
		_ = file.Close() // releases the lock
	}
	err = file.Truncate(0)
	if err == nil {
		_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		release()
		return fail(err)
	}
	return release, nil
}

// holder names the process whose id is in a lock file.
func holder(lock string) string {
	text, err := os.ReadFile(lock)
	pid, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || bad != nil {
		return "another process"
	}
	return fmt.Sprintf("process %d", pid)
}

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
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), scratchNames)) // the error is for invalid patterns only
	for _, dir := range found {
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
