// Package runs keeps the record of a run in a directory. An outcome is there whole or not at all, a task without one is not done, and no secret of a URL
// is written.
//
// The directory of a run:
//
//	run.json                        the plan, without secrets
//	matrix.cue                      the matrix as it was, without secrets
//	tasks/<task>/snapshots.jsonl    what the agents reported, one snapshot a line, as it came
//	tasks/<task>/*.hlog             histograms in HdrHistogram's log format; *.<group>.hlog those of one group of the cell
//	tasks/<task>/try                the name of the try that it is of
//	tasks/<task>/outcome.json       last, at once
//	tasks/<task>.try1               what an earlier try of the task had recorded; outcome.json only if it was not interrupted
//	tables.{txt,md,csv,json}        the summary tables
//	report.html                     tables, drawings and details as one page
//	marks.jsonl                     when tries began and were given up, and how the run ended
//	sink.jsonl                      how many points InfluxDB was given, if there is one
//
// Its parent holds one directory a run and the symbolic link "latest".
package runs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

const (
	dirMode  = 0o755
	fileMode = 0o644

	runFile      = "run.json"
	matrixFile   = "matrix.cue"
	tasksDir     = "tasks"
	snapshotFile = "snapshots.jsonl"
	outcomeFile  = "outcome.json"
	latestLink   = "latest"
)

// Run is the directory of one run. Safe for concurrent use within one process; only one process may write.
type Run struct {
	dir  string
	plan plan.Run

	mu       sync.Mutex
	writing  map[string]*writer // tasks that are being recorded
	warnings []string
	marked   map[markKey]bool // that the marks' file has; nil: not looked yet
	held     *os.File         // see Hold
}

// writer is a task that is being recorded.
type writer struct {
	file  *os.File
	merge *record.Merged
}

func newRun(dir string, p plan.Run) *Run {
	return &Run{dir: dir, plan: p, writing: map[string]*writer{}}
}

// Create makes the directory of a run below root, writes its plan without secrets, and points "latest" to it. The directory of the
// same run is opened if it is there already, so that a copy can be made again and a run be resumed; that of another run is an error.
func Create(root string, p plan.Run) (*Run, error) {
	if p.ID == "" || p.ID == latestLink || p.ID != filepath.Base(p.ID) || strings.HasPrefix(p.ID, ".") {
		return nil, fmt.Errorf("create run: %q cannot be a run's id: it names a directory", p.ID)
	}
	p = p.Redacted()
	p.Version = plan.RecordFormat
	text, err := encode(p, "  ")
	if err != nil {
		return nil, fmt.Errorf("create run %s: %w", p.ID, err)
	}
	dir := filepath.Join(root, p.ID)
	if err := sweep(dir); err != nil {
		return nil, fmt.Errorf("create run %s: remove what was left half written: %w", p.ID, err)
	}
	if isRun(dir) {
		return reopen(root, dir, p)
	}
	if err := os.MkdirAll(filepath.Join(dir, tasksDir), dirMode); err != nil {
		return nil, fmt.Errorf("create run %s: %w", p.ID, err)
	}
	if err := writeAtomic(filepath.Join(dir, matrixFile), []byte(plan.Redact(p.Source.Text))); err != nil {
		return nil, fmt.Errorf("create run %s: %w", p.ID, err)
	}
	if err := writeAtomic(filepath.Join(dir, runFile), text); err != nil {
		return nil, fmt.Errorf("create run %s: %w", p.ID, err)
	}
	if err := pointLatest(root, p.ID); err != nil {
		return nil, fmt.Errorf("create run %s: %w", p.ID, err)
	}
	return newRun(dir, p), nil
}

// reopen opens the directory of a run that is copied again or resumed. Its plan stays as it was written first.
func reopen(root, dir string, p plan.Run) (*Run, error) {
	r, err := openDir(dir)
	if err != nil {
		return nil, err
	}
	sameTask := func(a, b plan.Task) bool { return a.ID == b.ID }
	if !r.plan.Started.Equal(p.Started) || r.plan.Source.SHA256 != p.Source.SHA256 || !slices.EqualFunc(r.plan.Tasks(), p.Tasks(), sameTask) {
		return nil, fmt.Errorf("create run %s: %s holds another run of that id: give another directory for results", p.ID, dir)
	}
	if err := pointLatest(root, p.ID); err != nil {
		return nil, fmt.Errorf("open run %s: %w", p.ID, err)
	}
	return r, nil
}

// pointLatest makes "latest" a link to a run, in one step.
func pointLatest(root, id string) error {
	temp := filepath.Join(root, "."+latestLink+"-"+id)
	if err := os.Remove(temp); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.Symlink(id, temp); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(root, latestLink))
}

// Plan is what was decided before the run began, without secrets.
func (r *Run) Plan() plan.Run { return r.plan }

// Dir is the run's directory.
func (r *Run) Dir() string { return r.dir }

// Warnings lists, in the order found, what was damaged or cut off in the record and was left out.
func (r *Run) Warnings() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.warnings...)
}

// warn keeps a warning once. The caller holds mu.
func (r *Run) warn(text string) {
	for _, w := range r.warnings {
		if w == text {
			return
		}
	}
	r.warnings = append(r.warnings, text)
}

// WriteFile puts a file beside the plan, at once, without secrets of URLs. The name has no directory.
func (r *Run) WriteFile(name string, data []byte) error {
	if name != filepath.Base(name) {
		return fmt.Errorf("write %q into run %s: the name has a directory", name, r.plan.ID)
	}
	if err := writeAtomic(filepath.Join(r.dir, name), []byte(plan.Redact(string(data)))); err != nil {
		return fmt.Errorf("write %s of run %s: %w", name, r.plan.ID, err)
	}
	return nil
}

// Close closes the files of tasks that are still being recorded; they stay without an outcome.
func (r *Run) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var first error
	for task, w := range r.writing {
		if err := w.file.Close(); err != nil && first == nil {
			first = fmt.Errorf("close record of task %s: %w", task, err)
		}
		delete(r.writing, task)
	}
	r.letGo()
	return first
}

func (r *Run) taskDir(task string) string { return filepath.Join(r.dir, tasksDir, task) }

// encode writes JSON, with a line's end, without the secrets of texts. HTML escapes would hide URLs from redaction.
func encode(v any, indent string) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return []byte(plan.Redact(b.String())), nil
}
