package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/runs"
)

// Verification is the result of checking a bundle.
type Verification struct {
	Manifest    Manifest
	Altered     []error  // one per file that differs from the manifest, or that no run has
	Differences []string // values or files that differ from those of the record
	Unknown     []string // what cannot be checked, with the reason
	Notes       []string
	Outcomes    int // number of tasks that were judged again
}

// OK reports whether no file was altered and the record gives the stored values and files.
func (v Verification) OK() bool { return len(v.Altered)+len(v.Differences) == 0 }

// Verify unpacks a bundle below dir, which must be empty, and checks every digest. If no file was altered, it judges
// the record of each task again. It compares the results with the stored outcomes and the files made of them. harness
// is the version of this program. An error means that this host could not check the bundle.
func Verify(ctx context.Context, b *Bundle, dir, harness string) (Verification, error) {
	v := Verification{Manifest: b.Manifest}
	var err error
	if v.Altered, err = b.Unpack(dir); err != nil {
		return v, err
	}
	if len(v.Altered) > 0 {
		v.Notes = append(v.Notes, "no task was recomputed: the record is altered")
		return v, nil
	}
	c := &check{v: &v, dir: dir, other: b.Manifest.Harness != harness}
	if c.other {
		v.Notes = append(v.Notes,
			fmt.Sprintf("made by Lockstep %s, recomputed by %s; if values differ, verify with the version that made it", clip(b.Manifest.Harness), harness))
	}
	for _, r := range b.Manifest.Read {
		if r.Missing != "" {
			c.unknown("%s, a file that agents read, is not in the bundle: %s", clip(r.Path), clip(r.Missing))
		}
	}
	err = c.run(ctx, b)
	if errors.Is(err, ErrAltered) {
		v.Altered, err = append(v.Altered, err), nil
	}
	return v, err
}

// check judges the record of an unpacked bundle again.
type check struct {
	v     *Verification
	dir   string
	other bool // another version of Lockstep made the bundle
}

func (c *check) differ(format string, args ...any) {
	c.v.Differences = append(c.v.Differences, fmt.Sprintf(format, args...))
}

func (c *check) unknown(format string, args ...any) {
	c.v.Unknown = append(c.v.Unknown, fmt.Sprintf(format, args...))
}

func (c *check) run(ctx context.Context, b *Bundle) error {
	run, err := b.record(c.dir)
	if err != nil {
		return err
	}
	p, rounds := run.Plan(), run.Rounds()
	var outcomes []plan.Outcome
	for _, t := range p.Tasks() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("verify bundle: %w", err)
		}
		if !rounds.Needed(t) && !run.Done(t.ID) {
			continue
		}
		o, judged, err := c.task(run, t)
		if err != nil {
			return err
		}
		if judged {
			outcomes = append(outcomes, o)
		}
	}
	c.v.Outcomes = len(outcomes)
	for _, w := range run.Warnings() {
		c.unknown("%s/%s", runDir, w)
	}
	if m, n := c.v.Manifest, rounds.Tasks(); m.Run != p.ID || m.Name != p.Name || !m.Started.Equal(p.Started) ||
		m.Tasks != n {
		c.differ("%s: run %s (%s, %d tasks), the record is of run %s (%s, %d tasks)", manifestName, clip(m.Run),
			clip(m.Name), m.Tasks, clip(p.ID), clip(p.Name), n)
	}
	if c.v.Manifest.Done != c.v.Outcomes && !c.other {
		c.differ("%s: %d tasks with an outcome, the record has %d", manifestName, c.v.Manifest.Done, c.v.Outcomes)
	}
	if digest(p.Source.Text) != p.Source.SHA256 {
		c.unknown("the digest of the original matrix: its text was redacted")
	}
	return c.derived(p, outcomes)
}

// task judges one task again and compares its outcome and histograms.
func (c *check) task(run *runs.Run, t plan.Task) (again plan.Outcome, judged bool, err error) {
	where := path.Join(runDir, tasksDir, t.ID)
	stored, err := run.Outcome(t.ID)
	if errors.Is(err, os.ErrNotExist) {
		c.unknown("%s: no outcome", where)
		return again, false, nil
	}
	if err != nil {
		c.unknown("%s: %v", where, err)
		return again, false, nil
	}
	again, histograms, err := rejudge(run, t.ID)
	if err != nil {
		return again, false, altered(where+"/snapshots.jsonl", "%v", err)
	}
	for _, d := range differences("", generic(stored), generic(again)) {
		if c.other && (d.was == nothing || d.is == nothing) {
			c.unknown("%s: %s: only one of the two versions of Lockstep has this value", where, d.at)
			continue
		}
		c.differ("%s: %s: stored %s, recomputed %s", where, d.at, d.was, d.is)
	}
	if stored.Search != nil {
		c.unknown("%s: the capacity, and all steps of the search but the last one", where)
	}
	kept, _ := filepath.Glob(filepath.Join(c.dir, runDir, tasksDir, t.ID, "*.hlog")) // fails for bad patterns only
	for _, file := range kept {
		if name := filepath.Base(file); histograms[name] == nil {
			c.differ("%s/%s: the record has no such histograms", where, name)
		}
	}
	for _, name := range keys(histograms) {
		c.same(where+"/"+name, histograms[name])
	}
	return again, true, nil
}

// rejudge judges a task again. It returns a panic as an error, because the record is from an untrusted source.
func rejudge(run *runs.Run, task string) (o plan.Outcome, histograms map[string][]byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot recompute: %v", r)
		}
	}()
	if o, err = run.Rejudge(task); err != nil {
		return o, nil, err
	}
	histograms, err = run.Histograms(task)
	return o, histograms, err
}

// derived compares the files that are made of the plan and the outcomes.
func (c *check) derived(p plan.Run, outcomes []plan.Outcome) error {
	tables, err := report.Files(p, outcomes)
	if err != nil {
		return fmt.Errorf("recompute the tables: %w", err)
	}
	environment, err := encode(EnvironmentOf(p, outcomes))
	if err != nil {
		return fmt.Errorf("recompute the environment: %w", err)
	}
	c.same(environmentName, environment)
	c.same(path.Join(runDir, "matrix.cue"), []byte(p.Source.Text))
	for _, name := range keys(tables) {
		c.same(path.Join(runDir, name), tables[name])
	}
	return nil
}

// same compares a file with its recomputed contents.
func (c *check) same(name string, recomputed []byte) {
	data, err := os.ReadFile(filepath.Join(c.dir, filepath.FromSlash(name)))
	switch {
	case err != nil && c.other:
		c.unknown("%s: not written by the version of Lockstep that made the bundle", name)
	case err != nil:
		c.differ("%s: missing", name)
	case !bytes.Equal(data, recomputed):
		c.differ("%s: differs from the recomputed file", name)
	}
}
