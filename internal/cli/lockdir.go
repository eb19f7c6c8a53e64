package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"lockstep/internal/files"
)

// lockDir makes dir this process's alone until release is called or the process is gone, however it ends: two daemons
// on the same files spoil them. An empty dir is not locked. flag is what the user gave it with. release removes a
// folder that it made and nothing was written to.
func lockDir(flag, dir string) (release func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	fail := func(err error) (func(), error) {
		return nil, exit{ExitBadMatrix, fmt.Errorf("take %s %s: %w", flag, dir, err)}
	}
	_, missing := os.Stat(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fail(err)
	}
	lock := filepath.Join(dir, "lock")
	file, err := files.OpenLocked(lock, os.O_RDWR|os.O_CREATE, 0o644)
	if errors.Is(err, files.ErrLocked) {
		return nil, exit{ExitBadMatrix, fmt.Errorf("%s %s is in use by %s on this host; give another %s", flag, dir,
			holder(lock), flag)}
	}
	if err != nil {
		return fail(err)
	}
	if opened, err := file.Stat(); err != nil {
		return fail(errors.Join(err, file.Close()))
	} else if now, err := os.Stat(lock); err != nil || !os.SameFile(opened, now) { // another released it
		return fail(errors.Join(errors.New("it was removed at this moment: start again"), file.Close()))
	}
	release = func() {
		if left, err := os.ReadDir(dir); missing != nil && err == nil && len(left) == 1 {
			_ = os.Remove(lock) // while it is locked: who has opened it sees that it is gone
			_ = os.Remove(dir)  // unless something was added
		}
		_ = file.Close() // the lock goes with it
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

// holder names the process that wrote its number into a lock file.
func holder(lock string) string {
	text, err := os.ReadFile(lock)
	pid, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || bad != nil {
		return "another process"
	}
	return fmt.Sprintf("process %d", pid)
}
