package runs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// attemptFile has the control plane's name of the attempt in a task's directory.
const attemptFile = "attempt"

// taskDir is the directory of a task: of its last attempt or, if earlier is not 0, of the earlier attempt with that
// number. It has no state besides the files.
type taskDir struct {
	tasks   string // directory of all tasks
	task    string
	earlier int
}

func (d taskDir) name() string {
	if d.earlier > 0 {
		return fmt.Sprintf("%s.attempt%d", d.task, d.earlier)
	}
	return d.task
}

func (d taskDir) file(name string) string { return filepath.Join(d.tasks, d.name(), name) }

// attempt returns the name of the attempt; "" if it has none.
func (d taskDir) attempt() string {
	text, _ := os.ReadFile(d.file(attemptFile))
	return strings.TrimSpace(string(text))
}

// attempts returns the number of earlier attempts.
func (d taskDir) attempts() int {
	for n := 0; ; n++ {
		if _, err := os.Stat((taskDir{d.tasks, d.task, n + 1}).file("")); err != nil {
			return n
		}
	}
}

// stored returns the directory of the earlier attempt with a name; false: there is none.
func (d taskDir) stored(attempt string) (taskDir, bool) {
	if attempt == "" || d.task != filepath.Base(d.task) {
		return taskDir{}, false // no named attempt, or not a task's id
	}
	for n := range d.attempts() {
		if earlier := (taskDir{d.tasks, d.task, n + 1}); earlier.attempt() == attempt {
			return earlier, true
		}
	}
	return taskDir{}, false
}

// archiveAttempt makes the last attempt an earlier one, if its directory is not empty.
func (d taskDir) archiveAttempt() error {
	old, err := os.ReadDir(d.file(""))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(old) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Rename(d.file(""), (taskDir{d.tasks, d.task, d.attempts() + 1}).file(""))
}

// outcome returns the outcome of the task. An error is of type *fs.PathError unless the contents are damaged. run is
// the expected run.
func (d taskDir) outcome(run string) (plan.Outcome, error) {
	path := filepath.Join(tasksDir, d.task, outcomeFile)
	text, err := os.ReadFile(d.file(outcomeFile))
	if err != nil {
		return plan.Outcome{}, err
	}
	var o plan.Outcome
	if err := plan.Decode(bytes.NewReader(text), plan.MaxFile, &o); err != nil {
		return plan.Outcome{}, fmt.Errorf("%s skipped: incomplete outcome (%w); the task counts as not done", path, err)
	}
	if err := plan.CheckFormat(o.Version); err != nil {
		return plan.Outcome{}, fmt.Errorf("%s skipped: %w", path, err)
	}
	if o.Task != d.task || o.Run != run {
		return plan.Outcome{}, fmt.Errorf("%s skipped: it belongs to task %s of run %s", path, o.Task, o.Run)
	}
	return o, nil
}

// snapshots calls each with the snapshots of the attempt in order. A missing record has none.
func (d taskDir) snapshots(each func(record.Snapshot) error) (damage []string, err error) {
	file, err := os.Open(d.file(snapshotFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		defer file.Close()
		_, damage, err = readLines(file, each)
	}
	if err != nil {
		return nil, fmt.Errorf("read record of task %s: %w", d.task, err)
	}
	return damage, nil
}

// Limits of the memory of a record, relative to the size of its file. They protect readers from foreign records.
// Agents need at most 30 bytes of memory per byte of text: when almost every page lacks a few messages, and histograms
// are small because latencies are almost equal. So no record of agents is rejected, whatever its duration. Copies are
// not limited while they are written: the controller has limited their attempts.
const (
	freeMemory = 64 << 20
	memoryEach = 64
)

// merge merges the snapshots of the attempt into m, until they need too much memory.
func (d taskDir) merge(m *record.Merged) (damage []string, err error) {
	size := int64(0)
	if info, err := os.Stat(d.file(snapshotFile)); err == nil {
		size = info.Size()
	}
	limit := freeMemory + memoryEach*size
	var skipped []string
	damage, err = d.snapshots(func(s record.Snapshot) error {
		if err := s.CheckTimes(record.MaxTime); err != nil {
			if len(skipped) < maxDamage {
				skipped = append(skipped, fmt.Sprintf("skipped: %v", err))
			}
			return nil
		}
		if m.Add(s); int64(m.Memory()) > limit {
			return fmt.Errorf("its snapshots need more than %d MiB of memory, the maximum for a file of %d bytes: %w",
				limit>>20, size, plan.ErrTooLarge)
		}
		return nil
	})
	return append(damage, skipped...), err
}

// warnings returns the warnings of an outcome, and one for each earlier attempt of its task. Trials of a search are
// attempts, too; those that count have no warning.
func (d taskDir) warnings(o plan.Outcome) []string {
	counted := map[string]bool{}
	if o.Search != nil {
		for _, s := range o.Search.Steps {
			counted[s.Attempt] = true
		}
	}
	failed := map[string]plan.FailedAttempt{}
	for _, t := range o.FailedAttempts {
		failed[t.Name] = t
	}
	warnings := o.Warnings
	for n := range d.attempts() {
		earlier := taskDir{d.tasks, d.task, n + 1}
		name := earlier.attempt()
		if counted[name] {
			continue
		}
		text := fmt.Sprintf("attempt %d of this task was interrupted and is not counted", n+1)
		if t, ok := failed[name]; ok && t.Kind != plan.FailedInterrupted {
			text = fmt.Sprintf("attempt %d of this task is not counted: %s", n+1, t)
		}
		warnings = append(warnings, fmt.Sprintf("%s; its record is in %s/%s", text, tasksDir,
			earlier.name()))
	}
	return warnings
}
