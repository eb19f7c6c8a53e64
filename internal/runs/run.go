// Package runs stores the record of a run in a directory. An outcome is written completely or not at all. A task
// without an outcome is not done. No secret of a URL is written.
//
// The directory of a run:
//
//	run.json                        the plan, without secrets
//	matrix.cue                      the matrix as it was, without secrets
//	tasks/<task>/snapshots.jsonl    snapshots of the agents in order of arrival, one per line
//	tasks/<task>/*.hlog             histograms in HdrHistogram's log format; *.<group>.hlog are those of a group
//	tasks/<task>/attempt            the name of the recorded attempt
//	tasks/<task>/outcome.json       the outcome, written last
//	tasks/<task>.attempt1           the record of an earlier attempt; without outcome.json if it was interrupted
//	tables.{txt,md,csv,json}        the summary tables
//	report.html                     tables, charts and details on one page
//	timeline.jsonl                  starts and give-ups of attempts, and the end of the run
//	sink.jsonl                      numbers of points written to InfluxDB, if there is one
//
// The parent directory has one directory per run and the symbolic link "latest".
package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/files"
	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/sampling"
)

const (
	dirMode  = 0o700
	fileMode = 0o600

	runFile      = "run.json"
	matrixFile   = "matrix.cue"
	tasksDir     = "tasks"
	snapshotFile = "snapshots.jsonl"
	outcomeFile  = "outcome.json"
	latestLink   = "latest"
)

// ErrLocked is wrapped by the error of Lock if another process has locked the run.
var ErrLocked = errors.New("another process is running it")

// ErrDone is wrapped by the error of writing to the record of a task or an attempt that has an outcome.
var ErrDone = errors.New("the task already has an outcome")

// deliveryFile has the results of writing the run's points to InfluxDB: one line for the run, and one for each later
// resume, copy or replay.
const deliveryFile = "sink.jsonl"

// Run is the directory of one run. It is safe for concurrent use within one process. Only one process may write, except
// for AddDelivery.
//
// Its more than 25 methods work on the files of one directory under one lock. There is one method per step of recording
// a task, per view of its record, and per file beside the tasks.
type Run struct {
	dir  string
	plan plan.Run

	mu       sync.Mutex
	writing  map[string]*recorder // by task
	warnings []string
	stored   map[[4]string]bool // keys of the events in the timeline; nil: not read yet
	lock     *os.File           // see Lock
}

func newRun(dir string, p plan.Run) *Run {
	return &Run{dir: dir, plan: p, writing: map[string]*recorder{}}
}

// Create creates the directory of a run below root, writes its plan without secrets, and points "latest" to it. If the
// directory of the same run exists, Create opens it, so that a run can be resumed and a copy repeated. A directory of
// another run is an error.
func Create(root string, p plan.Run) (*Run, error) {
	if err := plan.CheckRunID(p.ID); err != nil {
		return nil, fmt.Errorf("create run: %w", err)
	}
	p = p.Redacted()
	p.Version = plan.RecordFormat
	dir := filepath.Join(root, p.ID)
	if err := errors.Join(files.RemoveIncomplete(dir, "."), files.RemoveIncomplete(dir, tasksDir+"/*")); err != nil {
		return nil, fmt.Errorf("create run %s: remove incomplete files: %w", p.ID, err)
	}
	r := newRun(dir, p)
	var err error
	if isRun(dir) {
		if r, err = openDir(dir); err != nil {
			return nil, err
		}
		if !r.plan.Same(p) {
			return nil, fmt.Errorf("create run %s: %s contains another run with this id; use another directory", p.ID, dir)
		}
	} else {
		err = writePlan(dir, p)
	}
	if err == nil {
		err = pointLatest(root, p.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("create run %s: %w", p.ID, err)
	}
	return r, nil
}

// writePlan writes the plan last, because a directory with a plan is a run.
func writePlan(dir string, p plan.Run) error {
	text, err := encode(p, "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, tasksDir), dirMode)
	}
	if err == nil {
		err = files.WriteRecord(filepath.Join(dir, matrixFile), []byte(plan.Redact(p.Source.Text)), fileMode)
	}
	if err == nil {
		err = files.WriteRecord(filepath.Join(dir, runFile), text, fileMode)
	}
	return err
}

// pointLatest links "latest" to a run atomically.
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

// Plan returns the plan of the run, without secrets.
func (r *Run) Plan() plan.Run { return r.plan }

// Dir returns the run's directory.
func (r *Run) Dir() string { return r.dir }

func (r *Run) tasks(id string) taskDir {
	return taskDir{tasks: filepath.Join(r.dir, tasksDir), task: id}
}

// Warnings returns descriptions of damaged or incomplete parts of the record, which were skipped, in the order found.
func (r *Run) Warnings() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.warnings)
}

// warn stores warnings, each once. The caller holds mu.
func (r *Run) warn(texts ...string) {
	for _, text := range texts {
		if !slices.Contains(r.warnings, text) {
			r.warnings = append(r.warnings, text)
		}
	}
}

// Lock prevents other processes from executing the run into this directory, until Close or the end of this process.
// Otherwise snapshots of one and outcomes of the other would be mixed. Other processes may still read, and copy a
// fleet's run.
func (r *Run) Lock() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock != nil {
		return nil
	}
	file, err := files.OpenLocked(filepath.Join(r.dir, runFile), os.O_RDWR, 0) // written once, and never replaced
	if errors.Is(err, files.ErrLocked) {
		err = ErrLocked
	}
	if err != nil {
		return fmt.Errorf("lock run %s: %w", r.plan.ID, err)
	}
	r.lock = file
	return nil
}

// Close closes the files of tasks that are being recorded, which get no outcome, and releases the lock.
func (r *Run) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for task, w := range r.writing {
		if err := w.file.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close record of task %s: %w", task, err))
		}
	}
	clear(r.writing)
	if r.lock != nil {
		_ = r.lock.Close() // nothing was written to it
		r.lock = nil
	}
	return errors.Join(errs...)
}

// WriteFile writes a file beside the plan atomically, without secrets of URLs. The name must not contain a directory.
func (r *Run) WriteFile(name string, data []byte) error {
	if name != filepath.Base(name) {
		return fmt.Errorf("write %q into run %s: the name contains a path", name, r.plan.ID)
	}
	if err := files.WriteRecord(filepath.Join(r.dir, name), []byte(plan.Redact(string(data))), fileMode); err != nil {
		return fmt.Errorf("write %s of run %s: %w", name, r.plan.ID, err)
	}
	return nil
}

// BeginAttempt starts the record of an attempt of a task. It continues an existing record of the same attempt, so that
// a repeated copy never loses data. The error wraps ErrDone if the task has an outcome, or if the attempt is stored as
// one that does not count.
func (r *Run) BeginAttempt(task, attempt string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	dir := r.tasks(task)
	if _, is := dir.stored(attempt); is {
		return fmt.Errorf("record task %s: attempt %s is already stored: %w", task, attempt, ErrDone)
	}
	if attempt != "" && dir.attempt() == attempt && r.writing[task] == nil {
		if _, err := dir.outcome(r.plan.ID); err != nil {
			w, err := openRecorder(dir, true)
			if err != nil {
				return fmt.Errorf("record task %s: continue an interrupted copy: %w", task, err)
			}
			r.writing[task] = w
			return nil
		}
	}
	if _, err := r.begin(task); err != nil {
		return err
	}
	if err := os.WriteFile(dir.file(attemptFile), []byte(attempt+"\n"), fileMode); err != nil {
		return fmt.Errorf("record task %s: %w", task, err)
	}
	return nil
}

// begin starts a new record of a task. The record of an earlier attempt is moved to tasks/<task>.attempt<n>. The caller
// holds mu.
func (r *Run) begin(task string) (*recorder, error) {
	if task == "" || strings.HasPrefix(task, ".") || task != filepath.Base(task) {
		return nil, fmt.Errorf("record task %q: not a task id", task)
	}
	dir := r.tasks(task)
	if _, err := dir.outcome(r.plan.ID); err == nil {
		return nil, fmt.Errorf("record task %s: %w", task, ErrDone)
	}
	var err error
	if w := r.writing[task]; w != nil {
		delete(r.writing, task)
		err = w.file.Close()
	}
	if err == nil {
		err = dir.archiveAttempt()
	}
	if err == nil {
		err = os.MkdirAll(dir.file(""), dirMode)
	}
	var w *recorder
	if err == nil {
		w, err = openRecorder(dir, false)
	}
	if err != nil {
		return nil, fmt.Errorf("record task %s: %w", task, err)
	}
	r.writing[task] = w
	return w, nil
}

// Append adds a snapshot to the record of a task in one write. It skips a snapshot that the record already has (same
// agent and number).
func (r *Run) Append(task string, s record.Snapshot) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.writing[task]
	if w == nil {
		if w, err = r.begin(task); err != nil {
			return err
		}
	}
	if err := w.append(s); err != nil {
		return fmt.Errorf("append snapshot %d of %s to task %s: %w", s.Seq, s.Agent, task, err)
	}
	return nil
}

// Finish writes the histograms of a task, and then its outcome atomically. The task is done afterwards.
func (r *Run) Finish(o plan.Outcome) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.writing[o.Task]
	counts := ""
	if s := o.Search; s != nil && len(s.Steps) > 0 {
		counts = s.Steps[len(s.Steps)-1].Attempt
	}
	earlier, ended := r.tasks(o.Task).stored(counts) // a search may end without an attempt of its next step
	if w == nil || ended {                           // or the task failed before its first snapshot
		if w, err = r.begin(o.Task); err != nil {
			return err
		}
		if ended {
			err = w.copyFrom(earlier)
		}
	}
	delete(r.writing, o.Task)
	err = errors.Join(err, w.close())
	o.Warnings = w.dir.warnings(o)
	if err == nil {
		err = writeOutcome(w.dir, o)
	}
	if err == nil {
		err = files.SyncDir(filepath.Join(r.dir, tasksDir))
	}
	if err != nil {
		return fmt.Errorf("finish task %s: %w", o.Task, err)
	}
	return nil
}

func writeOutcome(dir taskDir, o plan.Outcome) error {
	text, err := encode(o, "  ")
	if err != nil {
		return err
	}
	return files.WriteRecord(dir.file(outcomeFile), text, fileMode)
}

// EndAttempt stores an attempt that does not count, with its outcome, in tasks/<task>.attempt<n>. The task is not done.
func (r *Run) EndAttempt(attempt string, o plan.Outcome) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	fail := func(err error) error { return fmt.Errorf("store attempt %s of task %s: %w", attempt, o.Task, err) }
	dir := r.tasks(o.Task)
	earlier, is := dir.stored(attempt)
	if !is {
		if dir.attempt() != attempt || attempt == "" {
			return fail(errors.New("not recorded"))
		}
		if w := r.writing[o.Task]; w != nil {
			delete(r.writing, o.Task)
			if err := w.close(); err != nil {
				return fail(err)
			}
		}
		if err := dir.archiveAttempt(); err != nil {
			return fail(err)
		}
		earlier = taskDir{dir.tasks, dir.task, dir.attempts()}
	}
	if _, err := os.Stat(earlier.file(outcomeFile)); err == nil {
		return nil
	}
	if err := writeOutcome(earlier, o); err != nil {
		return fail(err)
	}
	return nil
}

// Attempt returns the number, from 1, of the current attempt or of the attempt with the outcome.
func (r *Run) Attempt(task string) int { return r.tasks(task).attempts() + 1 }

// Done reports whether a task has an outcome.
func (r *Run) Done(task string) bool {
	_, err := r.tasks(task).outcome(r.plan.ID)
	return err == nil
}

// DoneTasks returns the ids of tasks that have an outcome, in the order of the run. A resumed run does not repeat them.
func (r *Run) DoneTasks() []string {
	var done []string
	for _, t := range r.plan.Tasks() {
		if r.Done(t.ID) {
			done = append(done, t.ID)
		}
	}
	return done
}

// Rounds returns the repetitions of cells according to the stored outcomes. Tasks that are not needed are not part of
// the run.
func (r *Run) Rounds() *sampling.Rounds {
	rounds := sampling.New(r.plan)
	if r.plan.Until == nil {
		return rounds
	}
	for _, t := range r.plan.Tasks() {
		if o, err := r.tasks(t.ID).outcome(r.plan.ID); err == nil {
			rounds.Add(o)
		}
	}
	return rounds
}

// Outcome returns the stored outcome of a task. The error wraps fs.ErrNotExist if the task is not done.
func (r *Run) Outcome(task string) (plan.Outcome, error) { return r.tasks(task).outcome(r.plan.ID) }

// Outcomes returns all outcomes in the order of the run's tasks. It skips damaged ones with a warning.
func (r *Run) Outcomes() ([]plan.Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []plan.Outcome
	for _, t := range r.plan.Tasks() {
		o, err := r.tasks(t.ID).outcome(r.plan.ID)
		switch {
		case err == nil:
			all = append(all, o)
		case errors.Is(err, fs.ErrNotExist):
		case errors.As(err, new(*fs.PathError)):
			return nil, fmt.Errorf("read outcomes of run %s: %w", r.plan.ID, err)
		default:
			r.warn(err.Error())
		}
	}
	return all, nil
}

// Record returns the merged record of a task. Times are relative to the start of the measurement. Damaged and
// incomplete parts are skipped and listed in Warnings. A task without a record has an empty one.
func (r *Run) Record(task string) (*record.Merged, error) {
	m, err := r.read(task)
	if err == nil {
		t, _ := taskOf(r.plan, task)
		m.Rebase(judge.Cut(t.Cell.Workload, m))
	}
	return m, err
}

// read merges the record of a task. Times are relative to T0.
func (r *Run) read(task string) (*record.Merged, error) {
	m := record.NewMerged()
	damage, err := r.tasks(task).merge(m)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range damage {
		r.warn(filepath.Join(tasksDir, task, snapshotFile) + ": " + d)
	}
	return m, err
}

// Histograms computes the histogram files of a task from its snapshots, by name. It writes nothing.
func (r *Run) Histograms(task string) (map[string][]byte, error) {
	m, err := r.read(task)
	if err != nil {
		return nil, err
	}
	return histograms(m)
}

// taskOf returns a task of a plan.
func taskOf(p plan.Run, id string) (plan.Task, bool) {
	all := p.Tasks()
	i := slices.IndexFunc(all, func(t plan.Task) bool { return t.ID == id })
	if i < 0 {
		return plan.Task{}, false
	}
	return all[i], true
}

// Snapshots calls each with the recorded snapshots of an attempt in order; attempt "": the last one. Damaged lines are
// skipped. An error of each ends it.
func (r *Run) Snapshots(task, attempt string, each func(record.Snapshot) error) error {
	dir := r.tasks(task)
	if attempt != "" && dir.attempt() != attempt {
		var is bool
		if dir, is = dir.stored(attempt); !is {
			return nil // nothing was recorded
		}
	}
	_, err := dir.snapshots(each)
	return err
}

// Rejudge judges a task again from its record and the facts in its outcome. It writes nothing. For an undamaged record
// the result equals the stored outcome.
func (r *Run) Rejudge(task string) (plan.Outcome, error) {
	o, err := r.Outcome(task)
	t, is := taskOf(r.plan, task)
	if err == nil && !is {
		err = fmt.Errorf("no such task in run %s", r.plan.ID)
	}
	var m *record.Merged
	if err == nil {
		m, err = r.Record(task)
	}
	if err != nil {
		return plan.Outcome{}, fmt.Errorf("judge task %s again: %w", task, err)
	}
	again := judge.Again(t, m, o)
	again.Warnings = r.tasks(task).warnings(again)
	text, err := encode(again, "")
	if err == nil {
		again = plan.Outcome{}
		err = json.Unmarshal(text, &again) // in the stored form, without secrets
	}
	return again, err
}

// AddEvent stores an event once, although the controller sends the events of a run to each copy again.
func (r *Run) AddEvent(e TimelineEvent) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := filepath.Join(r.dir, timelineFile)
	if r.stored == nil {
		known, warnings, err := linesOf[TimelineEvent](path)
		if r.warn(warnings...); err != nil {
			return fmt.Errorf("store event %s of run %s: %w", e.Kind, r.plan.ID, err)
		}
		r.stored = map[[4]string]bool{}
		for _, k := range known {
			r.stored[k.key()] = true
		}
	}
	if r.stored[e.key()] {
		return nil
	}
	if err := appendLine(path, e); err != nil {
		return fmt.Errorf("store event %s of run %s: %w", e.Kind, r.plan.ID, err)
	}
	r.stored[e.key()] = true
	return nil
}

// Timeline returns the events of a run in order. A run that has not begun has none.
func (r *Run) Timeline() ([]TimelineEvent, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, warnings, err := linesOf[TimelineEvent](filepath.Join(r.dir, timelineFile))
	if r.warn(warnings...); err != nil {
		return nil, fmt.Errorf("read the events of run %s: %w", r.plan.ID, err)
	}
	return all, nil
}

// AddDelivery stores the result of writing the run's points to InfluxDB. Unlike other methods, it may be called while
// another process writes: points may be replayed while the run continues.
func (r *Run) AddDelivery(d plan.Delivery) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := appendLine(filepath.Join(r.dir, deliveryFile), d); err != nil {
		return fmt.Errorf("store the InfluxDB summary of run %s: %w", r.plan.ID, err)
	}
	return nil
}

// Deliveries returns the results of writing the run's points to InfluxDB, in order of time. Damaged lines are skipped
// with a warning.
func (r *Run) Deliveries() []plan.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, warnings, err := linesOf[plan.Delivery](filepath.Join(r.dir, deliveryFile))
	r.warn(warnings...)
	if err != nil {
		r.warn(fmt.Sprintf("%s skipped: %v", deliveryFile, err))
	}
	return all
}

// timelineFile has the controller's events of a run, one event per line. With the snapshots and outcomes, it suffices
// to write all points of the run again.
const timelineFile = "timeline.jsonl"

// TimelineKind classes a TimelineEvent.
type TimelineKind string

// The kinds of timeline events.
const (
	TimelineStart  TimelineKind = "start"    // an attempt of a task began
	TimelineGiveUp TimelineKind = "given-up" // an attempt has no outcome
	TimelineEnd    TimelineKind = "end"      // the run ended
)

// TimelineEvent is an event of a run.
type TimelineEvent struct {
	At      time.Time     `json:"at"`
	Kind    TimelineKind  `json:"kind"`
	Task    string        `json:"task,omitempty"`
	Name    string        `json:"name,omitempty"`    // name of the attempt on the control plane
	Attempt int           `json:"attempt,omitempty"` // from 1
	Agents  []string      `json:"agents,omitempty"`  // by index
	Rate    float64       `json:"rate,omitempty"`    // of a step of a search
	Measure plan.Duration `json:"measure,omitempty"` // of a step of a search
	Text    string        `json:"text,omitempty"`    // given-up: the reason; end: the reason as a word
	Detail  string        `json:"detail,omitempty"`  // end: the reason in detail
	// Submission is the number of the submission that ended, as in wire.End; 0: not known
	Submission uint64 `json:"submission,omitempty"`
}

// key identifies an event.
func (e TimelineEvent) key() [4]string {
	return [4]string{string(e.Kind), e.Task, e.Name, fmt.Sprint(e.At.UTC(), e.Submission)}
}

// EndOf returns the event of a run's end; false: the run has not ended, or was resumed.
func EndOf(events []TimelineEvent) (TimelineEvent, bool) {
	if len(events) == 0 {
		return TimelineEvent{}, false
	}
	last := events[len(events)-1]
	return last, last.Kind == TimelineEnd
}
