package runs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"lockstep/internal/files"
)

// ErrHeld is returned, wrapped, by Hold where another process has the run.
var ErrHeld = errors.New("another process is running it at the moment")

// Hold keeps others from running the run into this directory until Close, or until this process is gone, however it ends: snapshots of one
// and outcomes of the other would be mixed. It does not keep them from reading, nor from copying what a fleet runs.
func (r *Run) Hold() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil {
		return nil
	}
	file, err := os.OpenFile(filepath.Join(r.dir, runFile), os.O_RDWR, 0) // written once, and never renamed over
	if err != nil {
		return fmt.Errorf("hold run %s: %w", r.plan.ID, err)
	}
	if err := files.TryLock(file); err != nil {
		if errors.Is(err, files.ErrLocked) {
			err = ErrHeld
		}
		return errors.Join(fmt.Errorf("hold run %s: %w", r.plan.ID, err), file.Close())
	}
	r.held = file
	return nil
}

// letGo ends Hold. The caller holds mu.
func (r *Run) letGo() {
	if r.held != nil {
		_ = r.held.Close() // nothing was written to it
		r.held = nil
	}
}
