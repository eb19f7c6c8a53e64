package results

import (
	"fmt"
	"os"
	"path/filepath"
)

// tryFile names the try that a task's directory is of, as the control plane does.
const tryFile = "try"

// BeginTry is Begin for a try that has a name: what there is of the same try, from a copy that was broken off, is not taken for
// another one and is copied again.
func (r *Run) BeginTry(task, try string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.clearCopy(task, try); err != nil {
		return fmt.Errorf("record task %s: remove a copy that was broken off: %w", task, err)
	}
	if _, err := r.begin(task); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.taskDir(task), tryFile), []byte(try+"\n"), fileMode); err != nil {
		return fmt.Errorf("record task %s: %w", task, err)
	}
	return nil
}

// clearCopy removes what there is of a try that has no outcome. The caller holds mu.
func (r *Run) clearCopy(task, try string) error {
	if task != filepath.Base(task) || try == "" {
		return nil // refused, or of a controller that does not name tries
	}
	text, err := os.ReadFile(filepath.Join(r.taskDir(task), tryFile))
	if err != nil || string(text) != try+"\n" {
		return nil
	}
	if _, err := r.outcome(task); err == nil {
		return nil
	}
	if w := r.writing[task]; w != nil {
		delete(r.writing, task)
		w.file.Close()
	}
	return os.RemoveAll(r.taskDir(task))
}

// Try numbers the try of a task that is recorded now, or has the outcome, from 1.
func (r *Run) Try(task string) int { return r.tries(task) + 1 }
