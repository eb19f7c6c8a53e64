package runs

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

// Mark keeps a moment, once: a copy that is gone on with is told again of what its former writer had kept.
func (r *Run) Mark(m Mark) error {
	m.Text = plan.Redact(m.Text)
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("mark %s of run %s: %w", m.Kind, r.plan.ID, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.mark(m, append(text, '\n')); err != nil {
		return fmt.Errorf("mark %s of run %s: %w", m.Kind, r.plan.ID, err)
	}
	return nil
}

// mark appends a line after the last whole one, unless the file has the moment. The caller holds mu.
func (r *Run) mark(m Mark, line []byte) error {
	file, err := os.OpenFile(filepath.Join(r.dir, marksFile), os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // what was written is checked
	if r.marked == nil || r.cut {
		known, whole, err := marksIn(file)
		if err != nil {
			return err
		}
		if err := file.Truncate(whole); err != nil { // its writer was killed
			return err
		}
		r.marked, r.cut = map[markKey]bool{}, false
		for _, k := range known {
			r.marked[k.key()] = true
		}
	}
	if r.marked[m.key()] {
		return nil
	}
	if _, err = file.Seek(0, io.SeekEnd); err == nil {
		_, err = file.Write(line)
	}
	if err != nil {
		r.cut = true // perhaps in the middle of the line
		return err
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

// marksIn reads marks, each once, and tells where the last whole line ends.
func marksIn(file io.Reader) (all []Mark, whole int64, err error) {
	seen := map[markKey]bool{}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, whole, nil
		}
		if err != nil {
			return nil, 0, err
		}
		whole += int64(len(line))
		var m Mark
		if json.Unmarshal(line, &m) == nil && !seen[m.key()] {
			seen[m.key()] = true
			all = append(all, m)
		}
	}
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
	all, _, err := marksIn(file)
	if err != nil {
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
