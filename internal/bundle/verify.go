package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"lockstep/internal/plan"
	"lockstep/internal/report"
	"lockstep/internal/results"
)

// Verdict is what came of verifying a bundle.
type Verdict struct {
	Manifest    Manifest
	Altered     []error  // files, and the archive itself, that are not what was written
	Differences []string // what the record gives, where the bundle says something else
	Follows     []string // differences, and what cannot be recomputed, that come of the altered files
	Unknown     []string // what cannot be recomputed, and why
	Notes       []string
	Files       int // with a digest that was checked
	Outcomes    int // judged again
	Values      int // of them, recomputed
}

// Sound tells whether everything that can be checked is what it says.
func (v Verdict) Sound() bool { return len(v.Altered)+len(v.Differences) == 0 }

// Verify unpacks a bundle below dir, which is empty, checks every digest, and judges the raw record of each task again. harness is the version of
// this program. An error is about this host, or says that nothing of the bundle could be read.
func Verify(ctx context.Context, b *Bundle, dir, harness string) (Verdict, error) {
	v := Verdict{Manifest: b.Manifest, Files: len(b.Manifest.Files)}
	if b.Manifest.Harness != harness {
		v.Notes = append(v.Notes, fmt.Sprintf("made by Lockstep %s, and this is %s: values were recomputed as this version judges, and where they differ, ctl of that version has the last word", clip(b.Manifest.Harness), harness))
	}
	faults, err := b.Unpack(dir)
	if v.Altered = faults; err != nil {
		return v, err
	}
	for _, r := range b.Manifest.Read {
		if r.Missing != "" {
			v.Unknown = append(v.Unknown, fmt.Sprintf("%s, which agents read, is not in the bundle: %s", clip(r.Path), clip(r.Missing)))
		}
	}
	k := &check{Verdict: &v, b: b, dir: filepath.Join(dir, runDir), other: b.Manifest.Harness != harness}
	err = k.run(ctx)
	k.follow(faults)
	return v, err
}

// check is the work of judging a bundle's record again.
type check struct {
	*Verdict
	b     *Bundle
	dir   string
	other bool // the bundle is of another version of Lockstep
	plan  plan.Run
}

func (k *check) differ(format string, args ...any) {
	k.Differences = append(k.Differences, fmt.Sprintf(format, args...))
}

func (k *check) unknown(format string, args ...any) {
	k.Unknown = append(k.Unknown, fmt.Sprintf(format, args...))
}

func (k *check) run(ctx context.Context) error {
	run, err := k.open()
	if err != nil {
		k.Altered = append(k.Altered, err)
		return nil
	}
	rounds := run.Rounds()
	k.described(rounds.Tasks())
	var stored, again []plan.Outcome
	for _, t := range k.plan.Tasks() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("verify bundle: %w", err)
		}
		if !rounds.Needed(t) && !run.Done(t.ID) {
			continue
		}
		was, is, ok := k.task(run, t)
		if ok {
			stored, again = append(stored, was), append(again, is)
		}
	}
	so := ""
	if len(k.Altered) == 0 {
		so = ": it was so when the bundle was made"
	}
	for _, w := range run.Warnings() {
		k.unknown("%s/%s%s", runDir, w, so)
	}
	if len(stored) != k.Manifest.Done && !k.other {
		k.differ("%s: %d tasks with an outcome, the record has %d", manifestName, k.Manifest.Done, len(stored))
	}
	k.environment(stored)
	return k.tables(again)
}

// open reads the plan, which may be anything.
func (k *check) open() (*results.Run, error) {
	name := path.Join(runDir, "run.json")
	text, err := os.ReadFile(filepath.Join(k.dir, "run.json"))
	if err != nil {
		return nil, altered(name, "it is not there")
	}
	if err := json.Unmarshal(text, &k.plan); err != nil {
		return nil, altered(name, "%v", err)
	}
	if err := k.b.bounded(k.plan); err != nil {
		return nil, err
	}
	run, err := results.Open("", k.dir+string(filepath.Separator))
	if err != nil {
		return nil, altered(name, "%v", err)
	}
	return run, nil
}

// bounded refuses a plan that would take memory without limit.
func (b *Bundle) bounded(p plan.Run) error {
	name := path.Join(runDir, "run.json")
	if p.Repeat < 0 || len(p.Cells) > 0 && p.Repeat > b.limits.Tasks/len(p.Cells) {
		return altered(name, "%d cells × %d repetitions, more than %d tasks", len(p.Cells), p.Repeat, b.limits.Tasks)
	}
	for _, c := range p.Cells {
		for _, w := range c.Workload.Parts() {
			if err := w.Bounded(); err != nil {
				return altered(name, "cell %s: %v", clip(c.ID), err)
			}
		}
	}
	return nil
}

// described compares what is said twice of the run.
func (k *check) described(tasks int) {
	m, p := k.Manifest, k.plan
	if m.Run != p.ID || m.Name != p.Name || !m.Started.Equal(p.Started) || m.Tasks != tasks {
		k.differ("%s is of run %s (%s, %d tasks), run/run.json of %s (%s, %d tasks)", manifestName, clip(m.Run), clip(m.Name), m.Tasks, clip(p.ID), clip(p.Name), tasks)
	}
	matrix, err := os.ReadFile(filepath.Join(k.dir, "matrix.cue"))
	if err != nil || string(matrix) != p.Source.Text {
		k.differ("run/matrix.cue is not the matrix of run/run.json")
	}
	if digest(p.Source.Text) != p.Source.SHA256 {
		k.unknown("the digest of the matrix as it was: secrets were taken out of its text")
	}
}

// task judges one task again.
func (k *check) task(run *results.Run, t plan.Task) (was, is plan.Outcome, ok bool) {
	where := fmt.Sprintf("%s/tasks/%s", runDir, clip(t.ID))
	if filepath.Base(t.ID) != t.ID || !valid(path.Join(where, "outcome.json")) {
		k.Altered = append(k.Altered, altered("run/run.json", "%q is no task", clip(t.ID)))
		return was, is, false
	}
	was, err := run.Outcome(t.ID)
	if errors.Is(err, os.ErrNotExist) {
		k.unknown("%s: it has no outcome, so that there is nothing to compare", where)
		return was, is, false
	}
	if err != nil {
		k.unknown("%s: %v", where, err)
		return was, is, false
	}
	is, err = rejudge(run, t.ID)
	if err != nil {
		k.Altered = append(k.Altered, altered(where+"/snapshots.jsonl", "%v", err))
		return was, is, false
	}
	k.Outcomes++
	k.compare(where, was, is)
	k.histograms(run, t.ID, where)
	return was, is, true
}

// rejudge is results' judge, of which a record that nothing of Lockstep wrote must not make an end.
func rejudge(run *results.Run, task string) (o plan.Outcome, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it cannot be judged: %v", r)
		}
	}()
	return run.Rejudge(task)
}

// compare says what of an outcome the record does not give.
func (k *check) compare(where string, was, is plan.Outcome) {
	k.values(where, was.Values, is.Values)
	for i := range min(len(was.Groups), len(is.Groups)) {
		k.values(where+" "+was.Groups[i].Name, was.Groups[i].Values, is.Groups[i].Values)
		was.Groups, is.Groups = slices.Clone(was.Groups), slices.Clone(is.Groups)
		was.Groups[i].Values, is.Groups[i].Values = nil, nil
	}
	was.Values, is.Values = nil, nil
	for _, d := range differences("", generic(was), generic(is)) {
		k.differ("%s: %s", where, d)
	}
}

// values compares figures one by one.
func (k *check) values(where string, was, is map[string]plan.Value) {
	names := map[string]bool{}
	for name := range was {
		names[name] = true
	}
	for name := range is {
		names[name] = true
	}
	for _, name := range sorted(names) {
		a, stored := was[name]
		b, computed := is[name]
		switch {
		case !computed:
			if k.other {
				k.unknown("%s: %s: this version of Lockstep has no such value", where, clip(name))
				continue
			}
			k.differ("%s: %s: stored %s, and there is no such value", where, clip(name), figure(a))
		case !stored:
			if k.other {
				k.unknown("%s: %s: the version of Lockstep that judged it had no such value", where, name)
				continue
			}
			k.differ("%s: %s: not stored, recomputed %s", where, name, figure(b))
		case string(text(a)) != string(text(b)):
			k.differ("%s: %s: stored %s, recomputed %s", where, name, figure(a), figure(b))
		default:
			k.Values++
		}
	}
}

// histograms compares the histograms that are kept for other tools with those of the record.
func (k *check) histograms(run *results.Run, task, where string) {
	fresh, err := run.Histograms(task)
	if err != nil {
		k.unknown("%s: histograms: %v", where, err)
		return
	}
	kept, _ := filepath.Glob(filepath.Join(k.dir, "tasks", task, "*.hlog")) // fails for bad patterns only
	for _, file := range kept {
		name := filepath.Base(file)
		data, err := os.ReadFile(file)
		if err != nil || string(data) != string(fresh[name]) {
			k.differ("%s/%s: not the histograms of its snapshots", where, name)
		}
		delete(fresh, name)
	}
	for name := range fresh {
		k.differ("%s/%s: its snapshots have these histograms, and the file is not there", where, name)
	}
}

// environment compares what environment.json says with the outcomes.
func (k *check) environment(outcomes []plan.Outcome) {
	var said any
	if err := k.b.document(environmentName, &said); err != nil {
		return // said already
	}
	for _, d := range differences("", said, generic(EnvironmentOf(k.plan, outcomes))) {
		k.differ("%s: %s", environmentName, d)
	}
}

// tables compares every table with the one that the recomputed outcomes make.
func (k *check) tables(outcomes []plan.Outcome) error {
	fresh, err := report.Files(k.plan, outcomes)
	if err != nil {
		return fmt.Errorf("make tables of the bundle's record: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(fresh)) {
		data, err := os.ReadFile(filepath.Join(k.dir, name))
		if err != nil && k.other {
			k.unknown("%s/%s: the version of Lockstep that made the bundle wrote no such file", runDir, name)
			continue
		}
		if err != nil {
			k.differ("%s/%s: it is not there", runDir, name)
			continue
		}
		if at, was, is, same := firstLine(string(data), string(fresh[name])); !same {
			k.differ("%s/%s line %d: it says %q, recomputed %q", runDir, name, at, clip(was), clip(is))
		}
	}
	return nil
}
