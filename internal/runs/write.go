package runs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// ErrDone is returned, wrapped, for writing to the record of a task that has an outcome.
var ErrDone = errors.New("the task has an outcome already")

// hlogs are the histograms of a task that are written for other tools, by file name without its end.
var hlogs = []struct {
	name   string
	series record.Series
}{
	{"send", record.Send},
	{"send-due", record.SendDue},
	{"processing", record.Processing},
	{"unsent", record.UnsentAge},
	{"unanswered", record.Unanswered},
}

// begin starts the record of a task afresh: what an interrupted try left behind is kept as tasks/<id>.try<n>. The
// caller holds mu.
func (r *Run) begin(task string) (*writer, error) {
	if task == "" || strings.HasPrefix(task, ".") || task != filepath.Base(task) {
		return nil, fmt.Errorf("record task %q: not a task's id", task)
	}
	if w := r.writing[task]; w != nil {
		delete(r.writing, task)
		if err := w.file.Close(); err != nil {
			return nil, fmt.Errorf("record task %s: %w", task, err)
		}
	}
	if _, err := r.outcome(task); err == nil {
		return nil, fmt.Errorf("record task %s: %w", task, ErrDone)
	}
	if err := r.moveAside(task); err != nil {
		return nil, fmt.Errorf("record task %s: move aside what its earlier try left: %w", task, err)
	}
	dir := r.taskDir(task)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("record task %s: %w", task, err)
	}
	file, err := os.OpenFile(filepath.Join(dir, snapshotFile), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, fileMode)
	if err != nil {
		return nil, fmt.Errorf("record task %s: %w", task, err)
	}
	w := &writer{file: file, merge: record.NewMerged()}
	r.writing[task] = w
	return w, nil
}

// moveAside renames the directory of a task's earlier try, if it holds anything.
func (r *Run) moveAside(task string) error {
	dir := r.taskDir(task)
	old, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(old) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Rename(dir, r.taskDir(tryName(task, r.tries(task)+1)))
}

func tryName(task string, n int) string { return fmt.Sprintf("%s.try%d", task, n) }

// tries counts the earlier tries of a task that were kept.
func (r *Run) tries(task string) int {
	n := 0
	for {
		if _, err := os.Stat(r.taskDir(tryName(task, n+1))); err != nil {
			return n
		}
		n++
	}
}

// Append adds a snapshot to the record of a task, in one write. One that is there already (same agent and number) is left out.
func (r *Run) Append(task string, s record.Snapshot) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.writing[task]
	if w == nil {
		var err error
		if w, err = r.begin(task); err != nil {
			return err
		}
	}
	kept := s
	kept.Events = slices.Clone(s.Events)
	for i := range kept.Events {
		kept.Events[i].Detail = plan.Redact(kept.Events[i].Detail)
	}
	line, err := json.Marshal(kept)
	if err != nil {
		return fmt.Errorf("append snapshot %d of %s to task %s: %w", s.Seq, s.Agent, task, err)
	}
	if !w.merge.Add(s) {
		return nil
	}
	if _, err := w.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("append snapshot %d of %s to task %s: %w", s.Seq, s.Agent, task, err)
	}
	return nil
}

// Finish writes the histograms of a task and then, last and at once, its outcome. From then on the task is done.
func (r *Run) Finish(o plan.Outcome) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.writing[o.Task]
	if w == nil { // it failed before it measured anything
		var err error
		if w, err = r.begin(o.Task); err != nil {
			return err
		}
	}
	delete(r.writing, o.Task)
	if err := w.finish(r.taskDir(o.Task)); err != nil {
		return fmt.Errorf("finish task %s: %w", o.Task, err)
	}
	o.Warnings = r.withTries(o)
	text, err := encode(o, "  ")
	if err != nil {
		return fmt.Errorf("finish task %s: %w", o.Task, err)
	}
	if err := writeAtomic(filepath.Join(r.taskDir(o.Task), outcomeFile), text); err != nil {
		return fmt.Errorf("finish task %s: %w", o.Task, err)
	}
	if err := syncDir(filepath.Join(r.dir, tasksDir)); err != nil {
		return fmt.Errorf("finish task %s: %w", o.Task, err)
	}
	return nil
}

// finish brings the snapshots to disk and writes the histograms.
func (w *writer) finish(dir string) error {
	err := w.file.Sync()
	if closed := w.file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	files, err := histograms(w.merge)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := writeAtomic(filepath.Join(dir, name), files[name]); err != nil {
			return err
		}
	}
	return nil
}

// histograms are the files of a task's histograms, by name, of the whole and of its groups.
func histograms(m *record.Merged) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := addHlogs(files, "", m)
	for _, group := range m.Groups() {
		err = errors.Join(err, addHlogs(files, "."+group, m.Group(group)))
	}
	return files, err
}

// addHlogs adds the histograms of a task, or of one of its groups, whose files are told apart by what follows their name.
func addHlogs(files map[string][]byte, of string, m *record.Merged) error {
	for _, h := range hlogs {
		if m.Hist(h.series).Count() == 0 {
			continue
		}
		var text bytes.Buffer
		if err := m.WriteHlog(&text, h.series); err != nil {
			return fmt.Errorf("write %s%s.hlog: %w", h.name, of, err)
		}
		files[h.name+of+".hlog"] = text.Bytes()
	}
	return nil
}

// Histograms makes the files of a task's histograms again from its snapshots, by name; nothing is written.
func (r *Run) Histograms(task string) (map[string][]byte, error) {
	m, err := r.read(task)
	if err != nil {
		return nil, err
	}
	return histograms(m)
}
