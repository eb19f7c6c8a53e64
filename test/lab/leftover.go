package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// owner is a lock file in a lab's folder. The lab locks it while it runs. A folder that is kept has none.
const owner = ".owner"

// own creates and locks the owner file of a folder.
func own(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, owner), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return file, nil
}

// removeLeftovers removes the folders of killed labs. A folder younger than a minute is skipped, because it may not be
// locked yet.
func removeLeftovers(labs string) error {
	entries, err := os.ReadDir(labs)
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(labs, e.Name())
		mark, err := os.Stat(filepath.Join(dir, owner))
		if err != nil || time.Since(mark.ModTime()) < time.Minute {
			continue
		}
		file, err := own(dir)
		if err != nil {
			continue // its lab is running
		}
		err = os.RemoveAll(dir)
		_ = file.Close()
		if err != nil {
			return fmt.Errorf("remove what a killed lab left: %w", err)
		}
	}
	return nil
}
