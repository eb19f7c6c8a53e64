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
	"lockstep/internal/sampling"
)

// Indexed is the result of filling a history.
type Indexed struct {
	Runs     int      // read
	Outcomes int      // in these runs
	Gone     int      // runs in the history without a record
	Warnings []string // runs that could not be read, with the reasons
}

// resumable is the age up to which an incomplete run is read again even if its stamp has not changed.
const resumable = 7 * 24 * time.Hour

// IndexedRun is the state of a run in the history.
type IndexedRun struct {
	Matrix  string    `json:"matrix"`
	Started time.Time `json:"started"`
	Done    int       `json:"done"`
	Tasks   int       `json:"tasks"`
	Stamp   string    `json:"stamp"` // of its record, when it was read
}

// Fresh reads the records that are new, or that were incomplete when they were last read.
func (s *Store) Fresh(ctx context.Context) (Indexed, error) {
	there, err := s.Runs()
	if err != nil {
		return Indexed{}, err
	}
	return s.index(ctx, func(id string) bool {
		k, has := there[id]
		return !has || k.Done < k.Tasks && (time.Since(k.Started) < resumable || k.Stamp != s.stamp(id))
	})
}

// Add reads the record of one run. It is an error if there is none.
func (s *Store) Add(ctx context.Context, run string) error {
	in, err := s.index(ctx, func(id string) bool { return id == run })
	if err == nil && in.Runs == 0 {
		err = fmt.Errorf("add run %s to the history: %s", run,
			cmp.Or(strings.Join(in.Warnings, "; "), "no record in "+s.root))
	}
	return err
}

// Put adds a run without a directory in the folder, or replaces its stored points.
func (s *Store) Put(run plan.Run, outcomes []plan.Outcome) error {
	return s.update(func(tx *bbolt.Tx) error {
		return putRun(tx, run, sampling.Of(run, outcomes).Tasks(), "",
			outcomes)
	})
}

// Reindex reads all records again and replaces their stored points. Runs without a record stay in the history. With
// rebuild it makes a new store, which contains only runs with records and replaces the old one when it is complete. Fresh
// continues an interrupted call.
func (s *Store) Reindex(ctx context.Context, rebuild bool) (Indexed, error) {
	if rebuild {
		return s.rebuild(ctx)
	}
	in, err := s.index(ctx, func(string) bool { return true })
	if err != nil {
		return in, err
	}
	there, err := s.Runs()
	for id := range there {
		if _, gone := os.Stat(filepath.Join(s.root, id)); errors.Is(gone, fs.ErrNotExist) {
			in.Gone++
		}
	}
	return in, err
}

// rebuild fills a temporary store and renames it.
func (s *Store) rebuild(ctx context.Context) (in Indexed, err error) {
	temp, err := os.CreateTemp(s.root, "."+File+".*.part")
	if err == nil {
		defer os.Remove(temp.Name()) // it does not exist after the rename
		err = errors.Join(temp.Chmod(0o644), temp.Close())
	}
	if err == nil {
		in, err = (&Store{root: s.root, path: temp.Name()}).index(ctx, func(string) bool { return true })
	}
	if err == nil {
		err = os.Rename(temp.Name(), s.path)
	}
	if err != nil {
		return in, fmt.Errorf("rebuild the history: %w", err)
	}
	return in, nil
}

// Runs returns the runs in the history by id.
func (s *Store) Runs() (map[string]IndexedRun, error) {
	all := map[string]IndexedRun{}
	err := s.view(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(bucketRuns)
		return bucket.ForEach(func(id, _ []byte) error {
			var k IndexedRun
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
	for _, name := range []string{"", "timeline.jsonl"} {
		if info, err := os.Stat(filepath.Join(s.root, run, name)); err == nil {
			words = append(words, info.ModTime().UTC().Format(time.RFC3339Nano))
		}
	}
	return strings.Join(words, " ")
}

// index reads the records of the wanted runs, each in one transaction. An interrupted call leaves only complete runs.
func (s *Store) index(ctx context.Context, wanted func(id string) bool) (in Indexed, err error) {
	entries, err := os.ReadDir(s.root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return in, fmt.Errorf("update the history: %w", err)
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return in, ctx.Err()
		}
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || !wanted(e.Name()) {
			continue
		}
		stamp := s.stamp(e.Name())
		run, outcomes, err := s.Record(e.Name())
		if errors.Is(err, fs.ErrNotExist) { // not a run
			continue
		}
		if err != nil {
			in.Warnings = append(in.Warnings, err.Error())
			continue
		}
		if err := s.update(func(tx *bbolt.Tx) error {
			return putRun(tx, run.Plan(), run.Rounds().Tasks(), stamp,
				outcomes)
		}); err != nil {
			return in, err
		}
		in.Runs, in.Outcomes = in.Runs+1, in.Outcomes+len(outcomes)
	}
	return in, nil
}

// Record opens the record of a run and reads its outcomes. Its directory must have the name of the run.
func (s *Store) Record(id string) (*runs.Run, []plan.Outcome, error) {
	run, err := runs.Open(s.root, filepath.Join(s.root, id))
	if err != nil {
		return nil, nil, err
	}
	if is := run.Plan().ID; is != id {
		return nil, nil, fmt.Errorf("%s contains the run %s; rename the directory to the run id",
			filepath.Join(s.root, id), is)
	}
	outcomes, err := run.Outcomes()
	return run, outcomes, err
}

// putRun stores a run with its number of tasks and its points.
func putRun(tx *bbolt.Tx, p plan.Run, tasks int, stamp string, outcomes []plan.Outcome) error {
	run := IndexedRun{Matrix: p.Name, Started: p.Started, Done: len(outcomes), Tasks: tasks, Stamp: stamp}
	if err := put(tx.Bucket(bucketRuns), p.ID, run); err != nil {
		return err
	}
	ran := map[string]bool{}
	for _, o := range outcomes {
		ran[o.Cell] = true
		if err := putPoint(tx, run, o); err != nil {
			return fmt.Errorf("store task %s of run %s in the history: %w", o.Task, p.ID, err)
		}
	}
	for _, c := range p.Cells {
		if !ran[c.ID] {
			continue
		}
		b, key := tx.Bucket(bucketCells), c.ID+"\x00"+p.Name
		cell := plan.HistoryCell{ID: c.ID, Matrix: p.Name, Coordinates: c.Coordinates, First: p.Started,
			Last: p.Started}
		var before plan.HistoryCell
		switch has, err := get(b, key, &before); {
		case err != nil:
			return err
		case has && before.Last.After(cell.Last):
			cell.Last, cell.Coordinates = before.Last, before.Coordinates
		}
		if !before.First.IsZero() && before.First.Before(cell.First) {
			cell.First = before.First
		}
		if err := put(b, key, cell); err != nil {
			return err
		}
	}
	return nil
}

// valuesOf returns the values of an outcome. Values of groups have the group's name as a prefix.
func valuesOf(o plan.Outcome) map[string]plan.Value {
	all := map[string]plan.Value{}
	maps.Copy(all, o.Values)
	for _, g := range o.Groups {
		for name, v := range g.Values {
			all[g.Name+"/"+name] = v
		}
	}
	return all
}

// environmentOf returns the hosts that an outcome was measured from, and the versions of Lockstep.
func environmentOf(o plan.Outcome) (e plan.Environment, version string) {
	e.Hosts = o.Hosts()
	var versions []string
	for _, a := range o.Agents {
		versions = append(versions, a.Version)
	}
	slices.Sort(versions)
	return e, strings.Join(slices.Compact(versions), ", ")
}

// subjectOf returns the broker of an outcome. With side-by-side brokers it has the settings of all of them, with the
// group's name as a prefix.
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
	if subject.Fingerprint == "" {
		subject.Fingerprint = plan.Fingerprint(subject)
	}
	return subject
}

func fingerprint(words []string) string {
	sum := sha256.Sum256([]byte("environment-1\x00" + strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:6])
}
