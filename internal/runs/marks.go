package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// marksFile has what the controller said of a run while it went on, one mark a line: with it, and snapshots and outcomes, all that was seen of the run
// live can be told again.
const marksFile = "marks.jsonl"

// MarkKind classes a Mark.
type MarkKind string

// The kinds of marks.
const (
	MarkStart  MarkKind = "start"    // a try of a task began
	MarkGiveUp MarkKind = "given-up" // a try will have no outcome
	MarkEnd    MarkKind = "end"      // the run ended
)

// Mark is a moment of a run.
type Mark struct {
	At      time.Time     `json:"at"`
	Kind    MarkKind      `json:"kind"`
	Task    string        `json:"task,omitempty"`
	Name    string        `json:"name,omitempty"`    // of the try, as the control plane has it
	Try     int           `json:"try,omitempty"`     // from 1
	Agents  []string      `json:"agents,omitempty"`  // by index
	Rate    float64       `json:"rate,omitempty"`    // of a step of a search
	Measure plan.Duration `json:"measure,omitempty"` // of a step of a search
	Text    string        `json:"text,omitempty"`    // given-up: why; end: how, in a word
	Detail  string        `json:"detail,omitempty"`  // end: why
}

// Mark stores a moment once, although the controller reports the moments of a run again to each copy of it.
func (r *Run) Mark(m Mark) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.marked == nil {
		known, err := linesOf[Mark](r, marksFile)
		if err != nil {
			return fmt.Errorf("mark %s of run %s: %w", m.Kind, r.plan.ID, err)
		}
		r.marked = map[markKey]bool{}
		for _, k := range known {
			r.marked[k.key()] = true
		}
	}
	if r.marked[m.key()] {
		return nil
	}
	if err := r.appendLine(marksFile, m); err != nil {
		return fmt.Errorf("mark %s of run %s: %w", m.Kind, r.plan.ID, err)
	}
	r.marked[m.key()] = true
	return nil
}

// markKey tells a mark from others.
type markKey struct {
	kind             MarkKind
	task, name, when string
}

func (m Mark) key() markKey { return markKey{m.Kind, m.Task, m.Name, m.At.UTC().String()} }

// Marks reads the moments of a run in their order. A run that has not begun has none.
func (r *Run) Marks() ([]Mark, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, err := linesOf[Mark](r, marksFile)
	if err != nil {
		return nil, fmt.Errorf("read the marks of run %s: %w", r.plan.ID, err)
	}
	return all, nil
}

// Ended returns the mark of the run's end. It is false while the run goes on, as it does after it was resumed.
func (r *Run) Ended() (Mark, bool, error) {
	all, err := r.Marks()
	if len(all) == 0 || err != nil {
		return Mark{}, false, err
	}
	last := all[len(all)-1]
	return last, last.Kind == MarkEnd, nil
}

// Outcome reads what came of a task, as it is kept.
func (r *Run) Outcome(task string) (plan.Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcome(task)
}

// Snapshots hands on what was recorded of a try of a task, in order; without a name, of the one that is in the task's own directory. What is damaged
// is left out. each may stop it with an error.
func (r *Run) Snapshots(task, try string, each func(record.Snapshot) error) error {
	dir := task
	if try != "" && r.tryOf(task) != try {
		n := r.kept(task, try)
		if n == 0 {
			return nil // nothing was recorded of it
		}
		dir = tryName(task, n)
	}
	file, err := os.Open(filepath.Join(r.taskDir(dir), snapshotFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read record of task %s: %w", task, err)
	}
	defer file.Close()
	if _, _, err = readLines(file, each); err != nil {
		return fmt.Errorf("read record of task %s: %w", task, err)
	}
	return nil
}
