package runs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// tryFile names the try that a task's directory is of, as the control plane does.
const tryFile = "try"

// BeginTry starts the record of a try of a task. A record of the same try, from a copy that was interrupted, is
// continued, so that copying again never leaves less than there was. It fails with ErrDone, wrapped, for a try that
// was kept aside already (see Kept).
func (r *Run) BeginTry(task, try string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept(task, try) > 0 {
		return fmt.Errorf("record task %s: its try %s is kept already: %w", task, try, ErrDone)
	}
	if r.tryOf(task) == try && try != "" && r.writing[task] == nil {
		if _, err := r.outcome(task); err != nil {
			return r.goOn(task)
		}
	}
	if _, err := r.begin(task); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.taskDir(task), tryFile), []byte(try+"\n"), fileMode); err != nil {
		return fmt.Errorf("record task %s: %w", task, err)
	}
	return nil
}

// EndTry keeps a try that does not count, with what came of it, beside the task's directory: tasks/<task>.try<n>. The task is not done by it.
func (r *Run) EndTry(try string, o plan.Outcome) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.kept(o.Task, try)
	if n == 0 {
		if r.tryOf(o.Task) != try || try == "" {
			return fmt.Errorf("keep try %s of task %s: it was not recorded", try, o.Task)
		}
		if err := r.close(o.Task); err != nil {
			return fmt.Errorf("keep try %s of task %s: %w", try, o.Task, err)
		}
		if err := r.moveAside(o.Task); err != nil {
			return fmt.Errorf("keep try %s of task %s: %w", try, o.Task, err)
		}
		n = r.tries(o.Task)
	}
	path := filepath.Join(r.taskDir(tryName(o.Task, n)), outcomeFile)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	text, err := encode(o, "  ")
	if err == nil {
		err = writeAtomic(path, text)
	}
	if err != nil {
		return fmt.Errorf("keep try %s of task %s: %w", try, o.Task, err)
	}
	return nil
}

// close ends the record of a task without an outcome. The caller holds mu.
func (r *Run) close(task string) error {
	w := r.writing[task]
	if w == nil {
		return nil
	}
	delete(r.writing, task)
	return w.finish(r.taskDir(task))
}

// goOn opens the record of a try that was broken off, less a line that was cut off. The caller holds mu.
func (r *Run) goOn(task string) error {
	file, err := os.OpenFile(filepath.Join(r.taskDir(task), snapshotFile), os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return fmt.Errorf("record task %s: go on with a copy that was broken off: %w", task, err)
	}
	w := &writer{file: file, merge: record.NewMerged()}
	whole, _, err := readLines(file, addTo(w.merge))
	if err == nil {
		err = file.Truncate(whole)
	}
	if err == nil {
		_, err = file.Seek(whole, io.SeekStart)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("record task %s: go on with a copy that was broken off: %w", task, err), file.Close())
	}
	r.writing[task] = w
	return nil
}

// Kept tells whether a try that does not count is there already, whole.
func (r *Run) Kept(task, try string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept(task, try) > 0
}

// kept is the number of a try that was moved aside, or 0. The caller holds mu.
func (r *Run) kept(task, try string) int {
	if try == "" || task != filepath.Base(task) {
		return 0 // of a controller that does not name tries, or refused
	}
	for n := range r.tries(task) {
		if r.tryOf(tryName(task, n+1)) == try {
			return n + 1
		}
	}
	return 0
}

// tryOf is the name of the try that a directory is of; empty: it has none.
func (r *Run) tryOf(dir string) string {
	text, err := os.ReadFile(filepath.Join(r.taskDir(dir), tryFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Try numbers the try of a task that is recorded now, or has the outcome, from 1.
func (r *Run) Try(task string) int { return r.tries(task) + 1 }

// withTries are an outcome's warnings and what earlier tries of its task were kept. The steps of a search are tries, too, and those that
// count are not left out.
func (r *Run) withTries(o plan.Outcome) []string {
	counted := map[string]bool{}
	if o.Search != nil {
		for _, s := range o.Search.Steps {
			counted[s.Try] = true
		}
	}
	failed := map[string]plan.Tried{}
	for _, t := range o.Tries {
		failed[t.Name] = t
	}
	warnings := o.Warnings
	for n := range r.tries(o.Task) {
		dir := tryName(o.Task, n+1)
		name := r.tryOf(dir)
		if counted[name] {
			continue
		}
		text := fmt.Sprintf("try %d of this task was interrupted and is not counted", n+1)
		if t, ok := failed[name]; ok && t.Kind != plan.FailedInterrupted {
			text = fmt.Sprintf("try %d of this task is not counted: %s", n+1, t)
		}
		warnings = append(warnings, fmt.Sprintf("%s; what it recorded is kept in %s/%s", text, tasksDir, dir))
	}
	return warnings
}
