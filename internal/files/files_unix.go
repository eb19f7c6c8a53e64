//go:build unix

package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// CheckTrusted returns an error if users other than its owner can write an open file, or every user can replace it in
// its folder.
func CheckTrusted(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("other users of this host can write to %s; run chmod go-w on it", f.Name())
	}
	dir := filepath.Dir(f.Name())
	folder, err := os.Stat(dir)
	if err != nil {
		return err
	}
	// A folder that every user can write may be in a file system that is read-only, as those of Kubernetes' ConfigMaps.
	const write = 2 // W_OK
	if folder.Mode().Perm()&0o002 != 0 && folder.Mode()&os.ModeSticky == 0 && syscall.Access(dir, write) == nil {
		return fmt.Errorf("every user of this host can replace %s; run chmod o-w on its folder", f.Name())
	}
	return nil
}

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
