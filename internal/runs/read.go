package runs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"lockstep/internal/judge"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/sampling"
)

// Done tells whether a task has an outcome.
func (r *Run) Done(task string) bool {
	_, err := r.outcome(task)
	return err == nil
}

// DoneTasks lists the ids of tasks that have an outcome, in the order of the run: those that a resumed run leaves alone.
func (r *Run) DoneTasks() []string {
	var done []string
	for _, t := range r.plan.Tasks() {
		if r.Done(t.ID) {
			done = append(done, t.ID)
		}
	}
	return done
}

// Rounds is how often cells are measured, by the outcomes that there are: tasks that are not needed are no part of the run.
func (r *Run) Rounds() *sampling.Rounds {
	rounds := sampling.New(r.plan)
	if r.plan.Until == nil {
		return rounds
	}
	for _, t := range r.plan.Tasks() {
		if o, err := r.outcome(t.ID); err == nil {
			rounds.Add(o)
		}
	}
	return rounds
}

// Numbers are what the repetitions so far measured of the value that decides how many there are (plan.Run.Until), by task.
func (r *Run) Numbers() (map[string]float64, error) {
	if r.plan.Until == nil {
		return nil, nil
	}
	outcomes, err := r.Outcomes()
	if err != nil {
		return nil, err
	}
	rounds, numbers := sampling.New(r.plan), map[string]float64{}
	for _, o := range outcomes {
		if n, has := rounds.Number(o); has {
			numbers[o.Task] = n
		}
	}
	return numbers, nil
}

// Outcomes reads the outcomes that there are, in the order of the run's tasks. One that is damaged is none, with a warning.
func (r *Run) Outcomes() ([]plan.Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []plan.Outcome
	for _, t := range r.plan.Tasks() {
		o, err := r.outcome(t.ID)
		var damage *damaged
		switch {
		case err == nil:
			all = append(all, o)
		case errors.As(err, &damage):
			r.warn(damage.Error())
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("read outcomes of run %s: %w", r.plan.ID, err)
		}
	}
	return all, nil
}

// damaged is a file whose contents are not what they must be.
type damaged struct {
	path string
	why  string
}

func (d *damaged) Error() string { return fmt.Sprintf("%s left out: %s", d.path, d.why) }

// outcome reads the outcome of a task. It fails with fs.ErrNotExist or *damaged if the task is not done.
func (r *Run) outcome(task string) (plan.Outcome, error) {
	path := filepath.Join(tasksDir, task, outcomeFile)
	text, err := os.ReadFile(filepath.Join(r.dir, path))
	if err != nil {
		return plan.Outcome{}, err
	}
	var o plan.Outcome
	if err := plan.Decode(bytes.NewReader(text), plan.MaxFile, &o); err != nil {
		return plan.Outcome{}, &damaged{path, fmt.Sprintf("not a whole outcome (%v); the task counts as not done", err)}
	}
	if err := plan.CheckFormat(o.Version); err != nil {
		return plan.Outcome{}, &damaged{path, err.Error()}
	}
	if o.Task != task || o.Run != r.plan.ID {
		return plan.Outcome{}, &damaged{path, fmt.Sprintf("it is of task %s of run %s", o.Task, o.Run)}
	}
	return o, nil
}

// Record reads the merged record of a task; its times count from the measurement. What is cut off or damaged is left out, and said in Warnings. A task that has none gives an empty record.
func (r *Run) Record(task string) (*record.Merged, error) {
	m, err := r.read(task)
	if err == nil {
		m.Rebase(judge.Cut(r.task(task).Cell.Workload, m))
	}
	return m, err
}

// read merges the record of a task; its times count from T0.
func (r *Run) read(task string) (*record.Merged, error) {
	m := record.NewMerged()
	path := filepath.Join(tasksDir, task, snapshotFile)
	file, err := os.Open(filepath.Join(r.dir, path))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read record of task %s: %w", task, err)
	}
	defer file.Close()
	_, damage, err := readLines(file, addTo(m))
	if err != nil {
		return nil, fmt.Errorf("read record of task %s: %w", task, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range damage {
		r.warn(path + ": " + d)
	}
	return m, nil
}

func addTo(m *record.Merged) func(record.Snapshot) error {
	return func(s record.Snapshot) error {
		m.Add(s)
		return nil
	}
}

// task is a task of the plan; empty if the plan does not have it.
func (r *Run) task(id string) plan.Task {
	for _, t := range r.plan.Tasks() {
		if t.ID == id {
			return t
		}
	}
	return plan.Task{}
}

// Rejudge judges a task again from its record and the facts in its outcome; nothing is written. For an undamaged record the result is
// the stored outcome.
func (r *Run) Rejudge(task string) (plan.Outcome, error) {
	o, err := r.outcome(task)
	if err != nil {
		return plan.Outcome{}, fmt.Errorf("judge task %s again: read its outcome: %w", task, err)
	}
	t := r.task(task)
	if t.ID == "" {
		return plan.Outcome{}, fmt.Errorf("judge task %s again: run %s has no such task", task, r.plan.ID)
	}
	m, err := r.Record(task)
	if err != nil {
		return plan.Outcome{}, fmt.Errorf("judge task %s again: %w", task, err)
	}
	again := judge.Again(t, m, o)
	again.Warnings = r.withTries(again)
	text, err := encode(again, "")
	if err == nil {
		again = plan.Outcome{}
		err = json.Unmarshal(text, &again) // as it is stored, without secrets
	}
	return again, err
}
