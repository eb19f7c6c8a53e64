package history

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"lockstep/internal/plan"
	"lockstep/internal/runs"
)

// Indexed is what came of filling a history.
type Indexed struct {
	Runs     int      // that were read
	Outcomes int      // of them
	Gone     int      // runs that the history has and of which there is no record any more
	Warnings []string // runs that could not be read, and why
}

// resumable is how long after its begin an incomplete run is looked at again although nothing of it seems to have changed.
const resumable = 7 * 24 * time.Hour

// batch is how many outcomes are written at once: some 25 kB each are held until then.
const batch = 1000

// kept is what the history knows of a run.
type kept struct {
	Matrix  string    `json:"matrix"`
	Started time.Time `json:"started"`
	Done    int       `json:"done"`
	Tasks   int       `json:"tasks"`
	Stamp   string    `json:"stamp"` // of its record, as it was read
}

// cellEntry is what the history knows of a cell.
type cellEntry struct {
	Matrices map[string]cellIn `json:"matrices"`
}

// cellIn is a cell in one matrix: two may call one cell by different axes.
type cellIn struct {
	Coordinates []plan.Coordinate `json:"coordinates"`
	First       time.Time         `json:"first"`
	Last        time.Time         `json:"last"`
}

// Fresh reads the records that are new, or were incomplete when they were read last.
func (s *Store) Fresh(ctx context.Context) (Indexed, error) {
	known, err := s.runs()
	if err != nil {
		return Indexed{}, err
	}
	return s.index(ctx, s.path, func(id string) bool {
		k, has := known[id]
		return !has || k.Done < k.Tasks && (time.Since(k.Started) < resumable || k.Stamp != s.stamp(id))
	})
}

// Add reads the record of one run.
func (s *Store) Add(ctx context.Context, run string) error {
	in, err := s.index(ctx, s.path, func(id string) bool { return id == run })
	if err == nil && in.Runs == 0 {
		err = fmt.Errorf("add run %s to the history: %s", run, cmp.Or(strings.Join(in.Warnings, "; "), "there is no record of it in "+s.root))
	}
	return err
}

// Reindex reads every record again. What is in the history already is replaced; runs whose records are gone stay in it. anew makes a new store
// of nothing but the records, and puts it in the place of the old one when it is whole; baselines are taken over, if they can be read.
func (s *Store) Reindex(ctx context.Context, anew bool) (Indexed, error) {
	all := func(string) bool { return true }
	if !anew {
		in, err := s.index(ctx, s.path, all)
		if err != nil {
			return in, err
		}
		known, err := s.runs()
		for id := range known {
			if _, gone := os.Stat(filepath.Join(s.root, id)); errors.Is(gone, fs.ErrNotExist) {
				in.Gone++
			}
		}
		return in, err
	}
	beside := s.path + ".new"
	if gone := os.Remove(beside); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		return Indexed{}, fmt.Errorf("make the history anew: %w", gone)
	}
	in, err := s.index(ctx, beside, all)
	baselines, lost := s.Baselines() // at the end, with those that were set meanwhile
	if lost != nil {
		in.Warnings = append(in.Warnings, "the baselines are lost: "+lost.Error())
	}
	if err == nil {
		err = s.update(beside, func(tx *bbolt.Tx) error {
			for _, b := range baselines {
				if err := put(tx.Bucket(bucketBaselines), b.Name, b); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err == nil {
		err = os.Rename(beside, s.path)
	}
	if err != nil {
		return in, fmt.Errorf("make the history anew: %w", err)
	}
	return in, nil
}

// runs is what the history knows of its runs.
func (s *Store) runs() (map[string]kept, error) {
	all := map[string]kept{}
	err := s.view(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(bucketRuns)
		return bucket.ForEach(func(id, _ []byte) error {
			var k kept
			_, err := get(bucket, string(id), &k)
			all[string(id)] = k
			return err
		})
	})
	return all, err
}

// stamp changes whenever a run is resumed or its tables are written.
func (s *Store) stamp(run string) string {
	var words []string
	for _, name := range []string{"", "marks.jsonl"} {
		if info, err := os.Stat(filepath.Join(s.root, run, name)); err == nil {
			words = append(words, info.ModTime().UTC().Format(time.RFC3339Nano))
		}
	}
	return strings.Join(words, " ")
}

// index reads the records of the runs that are wanted into the store at path, a batch at a time: an index that is broken off has done whole runs.
func (s *Store) index(ctx context.Context, path string, wanted func(id string) bool) (in Indexed, err error) {
	entries, err := os.ReadDir(s.root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return in, fmt.Errorf("fill the history: %w", err)
	}
	var some []taken
	outcomes := 0
	write := func() error {
		if len(some) == 0 {
			return nil
		}
		err := s.update(path, func(tx *bbolt.Tx) error { return keep(tx, some) })
		some, outcomes = nil, 0
		return err
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return in, errors.Join(ctx.Err(), write())
		}
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || !wanted(e.Name()) {
			continue
		}
		t, err := s.read(e.Name())
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) { // no run
				in.Warnings = append(in.Warnings, err.Error())
			}
			continue
		}
		some, outcomes = append(some, t), outcomes+len(t.outcomes)
		in.Runs, in.Outcomes = in.Runs+1, in.Outcomes+len(t.outcomes)
		if outcomes >= batch {
			if err := write(); err != nil {
				return in, err
			}
		}
	}
	return in, write()
}

// taken is what is kept of a run's record.
type taken struct {
	id       string
	entry    kept
	cells    []plan.Cell
	outcomes []outcome
}

// outcome is what is kept of one.
type outcome struct {
	task, cell  string
	repetition  int
	verdict     plan.Verdict
	version     string // of Lockstep
	environment plan.Environment
	subject     plan.Subject
	values      map[string]plan.Value
}

func (s *Store) read(id string) (taken, error) {
	t := taken{entry: kept{Stamp: s.stamp(id)}}
	run, err := runs.Open(s.root, filepath.Join(s.root, id))
	if err != nil {
		return t, err
	}
	outcomes, err := run.Outcomes()
	if err != nil {
		return t, err
	}
	for _, o := range outcomes {
		t.outcomes = append(t.outcomes, outcomeOf(o))
	}
	p := run.Plan()
	if t.id = p.ID; t.id != id {
		return t, fmt.Errorf("%s holds the run %s: leave records in directories of their names", filepath.Join(s.root, id), p.ID)
	}
	t.entry.Matrix, t.entry.Started, t.entry.Done, t.entry.Tasks = p.Name, p.Started, len(t.outcomes), run.Rounds().Tasks()
	for _, c := range p.Cells {
		t.cells = append(t.cells, plan.Cell{ID: c.ID, Coordinates: c.Coordinates})
	}
	return t, nil
}

// keep writes runs. What there is of them is replaced.
func keep(tx *bbolt.Tx, all []taken) error {
	d := dictionaryOf(tx)
	for _, t := range all {
		if err := put(tx.Bucket(bucketRuns), t.id, t.entry); err != nil {
			return err
		}
		ran := map[string]bool{}
		for _, o := range t.outcomes {
			ran[o.cell] = true
			if err := keepOutcome(tx, d, t, o); err != nil {
				return fmt.Errorf("keep task %s of run %s in the history: %w", o.task, t.id, err)
			}
		}
		for _, c := range t.cells {
			if !ran[c.ID] {
				continue
			}
			if err := keepCell(tx.Bucket(bucketCells), t.entry, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func keepCell(b *bbolt.Bucket, run kept, c plan.Cell) error {
	var e cellEntry
	if _, err := get(b, c.ID, &e); err != nil {
		return err
	}
	if e.Matrices == nil {
		e.Matrices = map[string]cellIn{}
	}
	in, has := e.Matrices[run.Matrix]
	if !has || run.Started.Before(in.First) {
		in.First = run.Started
	}
	if !has || !run.Started.Before(in.Last) {
		in.Last, in.Coordinates = run.Started, c.Coordinates
	}
	e.Matrices[run.Matrix] = in
	return put(b, c.ID, e)
}

func keepOutcome(tx *bbolt.Tx, d *dictionary, t taken, o outcome) error {
	h := head{environment: fingerprint(o.environment.Hosts), subject: o.subject.Fingerprint, version: o.version, verdict: string(o.verdict)}
	for _, x := range []struct {
		bucket []byte
		key    string
		value  any
	}{{bucketEnvironments, h.environment, o.environment}, {bucketSubjects, h.subject, o.subject}} {
		if b := tx.Bucket(x.bucket); b.Get([]byte(x.key)) == nil {
			if err := put(b, x.key, x.value); err != nil {
				return err
			}
		}
	}
	point, err := d.encode(h, o.values)
	if err != nil {
		return err
	}
	b := tx.Bucket(bucketPoints)
	b.FillPercent = 0.95 // a cell's points come in order: what is full stays so
	return b.Put(pointKey(o.cell, t.entry.Started, t.id, o.repetition), point)
}

// outcomeOf takes what is kept of an outcome. Values of its groups have the group's name before theirs.
func outcomeOf(o plan.Outcome) outcome {
	out := outcome{task: o.Task, cell: o.Cell, repetition: o.Repetition, verdict: o.Verdict, subject: subjectOf(o), values: maps.Clone(o.Values)}
	out.environment, out.version = environmentOf(o)
	if out.values == nil {
		out.values = map[string]plan.Value{}
	}
	for _, g := range o.Groups {
		for name, v := range g.Values {
			out.values[g.Name+"/"+name] = v
		}
	}
	if out.subject.Fingerprint == "" {
		out.subject.Fingerprint = plan.Fingerprint(out.subject)
	}
	return out
}

// environmentOf is where an outcome was measured from, and by which version of Lockstep.
func environmentOf(o plan.Outcome) (e plan.Environment, version string) {
	e.Hosts = o.Hosts()
	var versions []string
	for _, a := range o.Agents {
		versions = append(versions, a.Version)
	}
	slices.Sort(versions)
	return e, strings.Join(slices.Compact(versions), ", ")
}

// subjectOf is what an outcome tested; of contenders, the brokers of all groups, each setting with its group's name before it.
func subjectOf(o plan.Outcome) plan.Subject {
	subject := o.Subject
	for _, g := range o.Groups {
		if g.Subject == nil {
			continue
		}
		if subject.Settings == nil || g.Name == o.Groups[0].Name {
			subject = plan.Subject{Settings: map[string]string{}}
		}
		for name, value := range flat(*g.Subject) {
			subject.Settings[g.Name+"/"+name] = value
		}
	}
	return subject
}

func fingerprint(words []string) string {
	sum := sha256.Sum256([]byte("environment-1\x00" + strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:6])
}
