package results

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
}

// Mark keeps a moment.
func (r *Run) Mark(m Mark) error {
	m.Text = plan.Redact(m.Text)
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("mark %s of run %s: %w", m.Kind, r.plan.ID, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	file, err := os.OpenFile(filepath.Join(r.dir, marksFile), os.O_CREATE|os.O_APPEND|os.O_RDWR, fileMode)
	if err != nil {
		return fmt.Errorf("mark %s of run %s: %w", m.Kind, r.plan.ID, err)
	}
	if cutOff(file) {
		text = append([]byte{'\n'}, text...)
	}
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("mark %s of run %s: %w", m.Kind, r.plan.ID, err)
	}
	return nil
}

// cutOff tells whether the last line of a file was not written to its end.
func cutOff(file *os.File) bool {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return false
	}
	last := make([]byte, 1)
	_, err = file.ReadAt(last, size-1)
	return err == nil && last[0] != '\n'
}

// Marks reads the moments of a run in their order, each once: a copy that is made again tells them again. A record of an earlier release has none.
func (r *Run) Marks() ([]Mark, error) {
	file, err := os.Open(filepath.Join(r.dir, marksFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the marks of run %s: %w", r.plan.ID, err)
	}
	defer file.Close()
	type moment struct {
		kind             MarkKind
		task, name, when string
	}
	var all []Mark
	seen := map[moment]bool{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m Mark
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			continue // cut off when its writer was killed
		}
		at := moment{m.Kind, m.Task, m.Name, m.At.String()}
		if !seen[at] {
			seen[at] = true
			all = append(all, m)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the marks of run %s: %w", r.plan.ID, err)
	}
	return all, nil
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
	lines := bufio.NewReaderSize(file, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		var s record.Snapshot
		if len(line) > 0 && json.Unmarshal(line, &s) == nil {
			if err := each(s); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read record of task %s: %w", task, err)
		}
	}
}
