//go:build unix

package files

import (
	"errors"
	"os"
	"syscall"
)

// TryLock locks an open file or directory exclusively. The lock ends when f is closed or the process ends.
// It returns ErrLocked without waiting if the lock is taken.
func TryLock(f *os.File) error {
	err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// Unlock releases the lock of a file that stays open.
func Unlock(f *os.File) error { return flock(f, syscall.LOCK_UN) }

// SyncDir makes the entries of a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
