package files

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

// offset is the position of locks, beyond the contents of files: on Windows other processes cannot read a locked range.
var offset = windows.Overlapped{OffsetHigh: math.MaxInt32}

// CheckTrusted does nothing, as permissions are not bits of the mode on Windows.
func CheckTrusted(*os.File) error { return nil }

// TryLock locks an open file exclusively. The lock ends when f is closed or the process ends.
// It returns ErrLocked without waiting if the lock is taken.
func TryLock(f *os.File) error {
	at := offset
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

// Unlock releases the lock of a file that stays open.
func Unlock(f *os.File) error {
	at := offset
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &at)
}

// SyncDir does nothing, as Windows cannot sync directories.
func SyncDir(string) error { return nil }
