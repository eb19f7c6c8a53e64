// Package history stores the values of the outcomes of many runs in one file, to show cells over time. It is filled
// from the records of runs, and can be rebuilt from them at any time. The names of baselines have their own file
// (Baselines).
//
// The file is beside the directories of the runs (File). Each call opens and closes it, so that several programs can
// use it. A writer locks it exclusively, and other programs wait.
package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/files"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/sampling"
	"example.org/lockstep/lockstep/internal/stats"
)

// File is the name of the store in the folder of runs.
const File = "history.db"

// form is the version of the file format. Another version is an error, whose remedy is to rebuild the history.
const form = "4"

// patience is the maximum wait for other programs that use the file.
const patience = 30 * time.Second

// pages is the page size of the file in bytes. Points have about 4 kB and would only half fill small pages.
const pages = 16 << 10

// The buckets.
var (
	bucketMeta         = []byte("meta")
	bucketCells        = []byte("cells") // by cell and matrix
	bucketRuns         = []byte("runs")
	bucketSubjects     = []byte("subjects")     // by fingerprint
	bucketEnvironments = []byte("environments") // by fingerprint
	bucketNames        = []byte("names")        // of values, by fingerprint
	bucketMetrics      = []byte("metrics")      // of drivers, by name
	bucketPoints       = []byte("points")

	buckets = [][]byte{bucketMeta, bucketCells, bucketRuns, bucketSubjects, bucketEnvironments, bucketNames,
		bucketMetrics, bucketPoints}
	keyForm = []byte("form")
)

// ErrDamaged is wrapped by the error of a store that cannot be read. It can be rebuilt from the records.
var ErrDamaged = errors.New("the history is damaged; rebuild it with ctl history reindex --rebuild, and set the baselines again with ctl history baseline set")

// Store is the history of the runs in one folder. It is safe for concurrent use. It has more than 20 methods: one per
// question to one file, whose transactions they share.
type Store struct {
	root string // the folder of runs
	path string
}

// Indexed is the result of filling a history.
type Indexed struct {
	Runs     int      // read
	Outcomes int      // in these runs
	Gone     int      // runs in the history without a record
	Warnings []string // runs that could not be read, with the reasons
}

// IndexedRun is the state of a run in the history.
type IndexedRun struct {
	Matrix  string    `json:"matrix"`
	Started time.Time `json:"started"`
	Done    int       `json:"done"`
	Tasks   int       `json:"tasks"`
	Stamp   string    `json:"stamp"` // of its record, when it was read
}

// Of returns the history of the runs in a folder. It does not access the file.
func Of(root string) *Store { return &Store{root: root, path: filepath.Join(root, File)} }

// view calls read in a read-only transaction. It does not call it if the file does not exist or was never written to.
func (s *Store) view(read func(*bbolt.Tx) error) error {
	info, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	return s.open(true, func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error {
			if written, err := s.check(tx); err != nil || !written {
				return err
			}
			return read(tx)
		})
	})
}

// update calls write in a transaction, which is committed completely or not at all. It creates the file if needed.
func (s *Store) update(write func(*bbolt.Tx) error) error {
	return s.open(false, func(db *bbolt.DB) error {
		return db.Update(func(tx *bbolt.Tx) error {
			written, err := s.check(tx)
			if err == nil && !written {
				for _, b := range buckets {
					if _, err := tx.CreateBucket(b); err != nil {
						return fmt.Errorf("make the history: %w", err)
					}
				}
				err = tx.Bucket(bucketMeta).Put(keyForm, []byte(form))
			}
			if err != nil {
				return err
			}
			return write(tx)
		})
	})
}

// open opens the file for one call. In a damaged file the library panics, or accesses unmapped memory. Both become
// errors, and the lock is released.
func (s *Store) open(readOnly bool, use func(*bbolt.DB) error) (err error) {
	var file *os.File
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			// The library's Close could block now. The file stays open because of its mapping, so it must be unlocked.
			_ = errors.Join(files.Unlock(file), file.Close())
			err = fmt.Errorf("read %s: %w (%v)", s.path, ErrDamaged, r)
		}
	}()
	db, err := bbolt.Open(s.path, 0o644, &bbolt.Options{ReadOnly: readOnly, Timeout: patience, PageSize: pages,
		OpenFile: func(name string, flag int, mode fs.FileMode) (f *os.File, err error) {
			f, err = os.OpenFile(name, flag, mode)
			file = f
			return f, err
		}})
	if err != nil {
		return s.failed(err)
	}
	return errors.Join(use(db), db.Close())
}

// check reports whether a store was ever written to. It returns an error if a bucket is missing or the version is not
// form.
func (s *Store) check(tx *bbolt.Tx) (written bool, err error) {
	if first, _ := tx.Cursor().First(); first == nil {
		return false, nil
	}
	for _, b := range buckets {
		if tx.Bucket(b) == nil {
			return false, fmt.Errorf("read %s: %w", s.path, ErrDamaged)
		}
	}
	if is := string(tx.Bucket(bucketMeta).Get(keyForm)); is != form {
		return false, fmt.Errorf("read %s: it has format %q, this program reads %q; rebuild it with ctl history reindex --rebuild", s.path, is, form)
	}
	return true, nil
}

// failed adds the remedy to an error of opening the file.
func (s *Store) failed(err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("open %s: locked by another program for %v; retry", s.path, patience)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
		errors.Is(err, bolterrors.ErrVersionMismatch),
		strings.HasPrefix(err.Error(), "file size too small"): // the library has no error value for it
		return fmt.Errorf("open %s: %w (%w)", s.path, ErrDamaged, err)
	}
	return fmt.Errorf("open the history: %w", err)
}

func put(b *bbolt.Bucket, key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("store %s: %w", key, err)
	}
	return b.Put([]byte(key), text)
}

// get reads a value that put has written, and reports whether there is one.
func get(b *bbolt.Bucket, key string, v any) (bool, error) {
	text := b.Get([]byte(key))
	if text == nil {
		return false, nil
	}
	if err := json.Unmarshal(text, v); err != nil {
		return false, fmt.Errorf("read %s: %w (%w)", key, ErrDamaged, err)
	}
	return true, nil
}

// SetBaseline stores a baseline, and replaces the one with the same name.
func (s *Store) SetBaseline(b plan.Baseline) error {
	file, err := os.OpenFile(filepath.Join(s.root, baselines), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		err = errors.Join(json.NewEncoder(file).Encode(b), file.Sync(), file.Close()) // Encode makes one write
	}
	if err != nil {
		return fmt.Errorf("set baseline %s: %w", b.Name, err)
	}
	return nil
}

// Baselines returns the baselines, sorted by name.
func (s *Store) Baselines() (all []plan.Baseline, err error) {
	file, err := os.Open(filepath.Join(s.root, baselines))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the baselines: %w", err)
	}
	defer file.Close()
	by := map[string]plan.Baseline{}
	for lines := json.NewDecoder(file); err == nil; {
		var b plan.Baseline
		if err = lines.Decode(&b); err == nil {
			by[b.Name] = b
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the baselines: %s is damaged: %w; remove the damaged line", file.Name(), err)
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if by[name].Run != "" {
			all = append(all, by[name])
		}
	}
	return all, nil
}

// RemoveBaseline removes a baseline, but not its run.
func (s *Store) RemoveBaseline(name string) error {
	all, err := s.Baselines()
	if err != nil {
		return err
	}
	var names []string
	for _, b := range all {
		if b.Name == name {
			return s.SetBaseline(plan.Baseline{Name: name})
		}
		names = append(names, b.Name)
	}
	if len(names) == 0 {
		names = []string{"none"}
	}
	return fmt.Errorf("no baseline %q %s; available: %s", name, s.place(), strings.Join(names, ", "))
}

// place names this folder, and the command for the baselines of a fleet, for errors.
func (s *Store) place() string {
	return fmt.Sprintf("in the folder %s (list those of a fleet with ctl history baseline list --server URL)", s.root)
}

// Bases returns the numbers that the rules of a run compare it with, from the baselines of this folder. A Base without
// numbers has the reason in Why.
func (s *Store) Bases(run plan.Run) (all []plan.Base) {
	known, damaged := s.Baselines()
	for _, name := range slices.Sorted(maps.Keys(rules.Regressions(run))) {
		base := plan.Base{Name: name}
		i := slices.IndexFunc(known, func(b plan.Baseline) bool { return b.Name == name })
		switch {
		case damaged != nil:
			base.Why = fmt.Sprintf("cannot read the baseline %q: %v", name, damaged)
		case i < 0:
			base.Why = plan.NoBaseline(name, s.place())
		default:
			record, outcomes, err := s.Record(known[i].Run)
			if err != nil {
				base.Why = fmt.Sprintf(
					"cannot read the record of the baseline %q: %v; set another run as baseline with ctl history baseline set RUN",
					name, err)
				break
			}
			base = s.Base(run, plan.BaselineRecord{Baseline: known[i], Plan: record.Plan(), Outcomes: outcomes})
		}
		all = append(all, base)
	}
	return all
}

// Base returns the numbers of a baseline that the rules of a run compare it with. The run-to-run spread comes from the
// history, which must contain the run of the baseline.
func (s *Store) Base(run plan.Run, of plan.BaselineRecord) plan.Base {
	name := of.Baseline.Name
	wanted := map[string]bool{}
	for _, rule := range rules.Regressions(run)[name] {
		values := rule.Values
		if len(values) == 0 {
			values = compare.Usual()
		}
		for _, v := range values {
			wanted[v] = true
		}
	}
	values := slices.Sorted(maps.Keys(wanted))
	b := plan.Base{Name: name, Run: of.Plan.ID, Started: of.Plan.Started}
	rounds := sampling.Of(of.Plan, of.Outcomes)
	for _, c := range run.Cells {
		cell := baseCell(c.ID, of.Outcomes, values, rounds.Cell(c.ID).Repeat)
		if len(cell.Repetitions) == 0 {
			continue
		}
		var err error
		if cell.Spreads, err = s.spreads(c.ID, values, b.Run, []string{b.Run}, run.Started, run.ID); err != nil {
			return plan.Base{Name: name, Why: fmt.Sprintf("cannot read the earlier runs: %v", err)}
		}
		b.Cells = append(b.Cells, cell)
	}
	return b
}

// baseCell returns a cell with the values of all its repetitions. It has none if no repetition is valid.
func baseCell(id string, outcomes []plan.Outcome, values []string, repeat int) plan.BaseCell {
	cell := plan.BaseCell{ID: id}
	repetitions := slices.DeleteFunc(slices.Clone(outcomes), func(o plan.Outcome) bool { return o.Cell != id })
	if !slices.ContainsFunc(repetitions, func(o plan.Outcome) bool { return o.Verdict == plan.Valid }) {
		return cell
	}
	for len(repetitions) < repeat {
		repetitions = append(repetitions, plan.Outcome{Verdict: "not run"})
	}
	for _, o := range repetitions {
		some := map[string]plan.Value{}
		for _, name := range values {
			if o.Verdict != plan.Valid {
				some[name] = plan.Value{NA: o.Verdict.Word()}
			} else if v, has := o.Value(name); has {
				some[name] = v
			}
		}
		cell.Hosts = append(cell.Hosts, o.Hosts()...)
		cell.Repetitions = append(cell.Repetitions, some)
	}
	slices.Sort(cell.Hosts)
	cell.Hosts = slices.Compact(cell.Hosts)
	return cell
}

// resumable is the age up to which an incomplete run is read again even if its stamp has not changed.
const resumable = 7 * 24 * time.Hour

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
		return putRun(tx, run, "", outcomes)
	})
}

// Reindex reads all records again and replaces their stored points. Runs without a record stay in the history. With
// rebuild it makes a new store, which contains only runs with records and replaces the old one when it is complete.
// Fresh continues an interrupted call.
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
	var times []string
	for _, name := range []string{"", "timeline.jsonl"} {
		if info, err := os.Stat(filepath.Join(s.root, run, name)); err == nil {
			times = append(times, info.ModTime().UTC().Format(time.RFC3339Nano))
		}
	}
	return strings.Join(times, " ")
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
			return putRun(tx, run.Plan(), stamp, outcomes)
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
func putRun(tx *bbolt.Tx, p plan.Run, stamp string, outcomes []plan.Outcome) error {
	run := IndexedRun{Matrix: p.Name, Started: p.Started, Done: len(outcomes),
		Tasks: sampling.Of(p, outcomes).Tasks(), Stamp: stamp}
	if err := put(tx.Bucket(bucketRuns), p.ID, run); err != nil {
		return err
	}
	for _, f := range p.Metrics {
		if err := put(tx.Bucket(bucketMetrics), f.Name, f); err != nil {
			return err
		}
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

// Answer answers a query. Names that do not exist are an error, which lists all of them and the existing ones.
func (s *Store) Answer(q plan.HistoryQuery) (plan.HistoryAnswer, error) {
	if err := Known(q.Value); err != nil {
		return plan.HistoryAnswer{}, err
	}
	a := newAnswer(q.Value)
	err := s.view(func(tx *bbolt.Tx) error {
		a.History.Runs = tx.Bucket(bucketRuns).Stats().KeyN
		cells, err := cellsOf(tx, q.Matrix)
		if err == nil {
			cells, err = choose(cells, q.Cells)
		}
		if err != nil {
			return err
		}
		if a.History.MoreCells = max(0, len(cells)-maxCells); a.History.MoreCells > 0 {
			cells = cells[:maxCells]
		}
		if q.Value == "" {
			a.History.Cells = append(a.History.Cells, cells...)
			return nil
		}
		limit := maxPoints
		if q.Max > 0 {
			limit = min(limit, q.Max)
		}
		r := reader{tx: tx, answers: []Answer{a}, places: map[string][]int{}}
		for _, c := range cells { // each cell has the same share
			r.answers[0].History.Cells = append(r.answers[0].History.Cells, c)
			left, err := r.read(c.ID, span{since: q.Since, runs: q.Runs, points: max(1, limit/len(cells))})
			if err != nil {
				return err
			}
			r.answers[0].History.MorePoints += left
		}
		a = r.answers[0]
		return a.describe(tx)
	})
	return a.History, err
}

// Answer is the answer of a history for one value.
type Answer struct {
	Value   string
	History plan.HistoryAnswer
}

func newAnswer(value string) Answer {
	return Answer{value, plan.HistoryAnswer{Cells: []plan.HistoryCell{}, Subjects: map[string]plan.Subject{},
		Environments: map[string]plan.Environment{}}}
}

// describe adds the metric of the value, if its driver declared it.
func (a *Answer) describe(tx *bbolt.Tx) error {
	_, name := plan.SplitGroup(a.Value)
	metric, is := plan.MetricOf(name)
	if !is {
		return nil
	}
	found := make(plan.Metrics, 1)
	has, err := get(tx.Bucket(bucketMetrics), metric, &found[0])
	if has && err == nil {
		a.History.Metrics = found
	}
	return err
}

// Look returns an answer per value, with the points of one cell. It reads only the newest runs that began at or before
// until, and runs limits their number.
func (s *Store) Look(cell plan.HistoryCell, values []string, until time.Time, runs int) (answers []Answer, err error) {
	for _, value := range values {
		a := newAnswer(value)
		a.History.Cells = append(a.History.Cells, cell)
		answers = append(answers, a)
	}
	err = s.view(func(tx *bbolt.Tx) error {
		r := reader{tx: tx, answers: answers, places: map[string][]int{}}
		if _, err := r.read(cell.ID, span{until: until, runs: runs}); err != nil {
			return err
		}
		for i := range answers {
			if err := answers[i].describe(tx); err != nil {
				return err
			}
		}
		return nil
	})
	return answers, err
}

// cellsOf returns the cells of a matrix, the most recently run first. An empty matrix selects each cell once, with the
// matrix that last had it.
func cellsOf(tx *bbolt.Tx, matrix string) (all []plan.HistoryCell, err error) {
	matrices, last := map[string]bool{}, map[string]int{}
	err = tx.Bucket(bucketCells).ForEach(func(key, text []byte) error {
		var c plan.HistoryCell
		if err := json.Unmarshal(text, &c); err != nil {
			return fmt.Errorf("read cell %s: %w", key, ErrDamaged)
		}
		matrices[c.Matrix] = true
		switch i, has := last[c.ID]; {
		case matrix != "" && c.Matrix != matrix:
		case !has:
			last[c.ID] = len(all)
			all = append(all, c)
		case c.Last.After(all[i].Last):
			all[i] = c
		}
		return nil
	})
	if err == nil && matrix != "" && !matrices[matrix] && len(matrices) > 0 {
		err = fmt.Errorf("no matrix %q in the history; use one of %s", matrix,
			strings.Join(slices.Sorted(maps.Keys(matrices)), ", "))
	}
	slices.SortFunc(all, func(a, b plan.HistoryCell) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Matrix, b.Matrix), cmp.Compare(a.Name(), b.Name()),
			cmp.Compare(a.ID, b.ID))
	})
	return all, err
}

// choose returns the cells that match filters: ids and axis=value[,value]. A cell must match one of the ids and
// one value of each axis. A value may contain commas.
func choose(all []plan.HistoryCell, filters []string) ([]plan.HistoryCell, error) {
	exists := func(x choice) bool { return slices.ContainsFunc(all, x.is) }
	alternatives := map[string][]choice{}
	var faults []string
	for _, text := range filters {
		axis, list, isAxis := strings.Cut(text, "=")
		if !isAxis {
			axis, list = "", text
		}
		axis = strings.TrimSpace(axis)
		texts := []string{list}
		if !exists(choice{axis, list}) {
			texts = strings.Split(list, ",")
		}
		for _, text := range texts {
			x := choice{axis, strings.TrimSpace(text)}
			if alternatives[axis] = append(alternatives[axis], x); !exists(x) {
				faults = append(faults, x.missing(all))
			}
		}
	}
	if len(faults) > 0 && len(all) > 0 {
		return nil, fmt.Errorf("query the history: %s", strings.Join(faults, "; "))
	}
	return slices.DeleteFunc(all, func(c plan.HistoryCell) bool {
		for _, some := range alternatives {
			if !slices.ContainsFunc(some, func(x choice) bool { return x.is(c) }) {
				return true
			}
		}
		return false
	}), nil
}

// maxRuns limits the runs of a spread to the newest.
const maxRuns = 1000

// spreads returns the run-to-run spreads of a cell by value name, over the runs with the broker version and hosts of
// the run like. The first run is like if it is a baseline, else the last baseline before it: a new baseline starts a
// new level. The last run began at until or before. Runs in except, and runs with a repetition that is not valid or not
// comparable, are left out. A repetition with a backlog counts as the worst value.
func (s *Store) spreads(cell string, values []string, like string, baselines []string, until time.Time,
	except ...string) (map[string]plan.RunSpread, error) {
	answers, err := s.Look(plan.HistoryCell{ID: cell}, values, until, maxRuns)
	if err != nil {
		return nil, err
	}
	all := map[string]plan.RunSpread{}
	for _, a := range answers {
		points := newPoints(a.History.Cells[0].Points)
		at := slices.IndexFunc(points, func(p Point) bool { return p.Run == like })
		if at < 0 {
			continue
		}
		begin := at
		for begin > 0 && !slices.Contains(baselines, points[begin].Run) {
			begin--
		}
		first := points[at].Repetitions[0]
		version, environment := brokerVersion(a.History.Subjects[first.Subject]), first.Environment
		info, _ := a.History.Metrics.ValueNamed(a.Value)
		var medians []float64
		repetitions, backlogs := 0, 0
		for _, p := range points[begin:] {
			var numbers []float64
			for _, r := range p.Repetitions {
				switch {
				case r.Verdict != plan.Valid || r.Environment != environment ||
					brokerVersion(a.History.Subjects[r.Subject]) != version:
				case r.Value.NA == string(plan.Backlog):
					numbers = append(numbers, info.Better.Worst())
				case r.Value.Incomparable() == "":
					numbers = append(numbers, r.Value.Number)
				}
			}
			if len(numbers) < len(p.Repetitions) || slices.Contains(except, p.Run) {
				continue
			}
			if median := stats.Median(numbers); math.IsInf(median, 0) || math.IsNaN(median) {
				backlogs++
			} else {
				medians, repetitions = append(medians, median), repetitions+len(numbers)
			}
		}
		spread := spreadOf(medians, repetitions)
		spread.Backlogs = backlogs
		all[a.Value] = spread
	}
	return all, nil
}

// spreadOf returns the spread of the medians of runs. repetitions is their total number of repetitions.
func spreadOf(medians []float64, repetitions int) plan.RunSpread {
	s := plan.RunSpread{Runs: len(medians)}
	if s.Runs < 2 {
		return s
	}
	s.Repetitions, s.Deviation = float64(repetitions)/float64(s.Runs), stats.Deviation(medians)
	logs := make([]float64, len(medians))
	for i, m := range medians {
		if logs[i] = math.Log(m); !(m > 0) {
			return s
		}
	}
	relative := stats.Deviation(logs)
	s.Relative = &relative
	return s
}

// brokerVersion returns the product and version of a subject, including those of side-by-side brokers.
func brokerVersion(s plan.Subject) string {
	parts := []string{s.Product, s.Version, s.Label}
	for name, value := range s.Settings {
		if _, what := plan.SplitGroup(name); what != name &&
			slices.Contains([]string{"product", "version", "label"}, what) {
			parts = append(parts, name+"="+value)
		}
	}
	slices.Sort(parts[3:])
	return strings.Join(parts, "\x00")
}

// SpreadsOf returns the run-to-run spreads for a comparison, whose first run is the base. They cover the runs of the
// folder that began no later than the last compared run, without the compared runs except the base. An empty list of
// values stands for compare.Usual.
func (s *Store) SpreadsOf(compared []compare.Recorded, values []string) (func(cell, value string) plan.RunSpread,
	error) {
	if len(values) == 0 {
		values = compare.Usual()
	}
	var until time.Time
	var except []string
	for i, r := range compared {
		if r.Run.Started.After(until) {
			until = r.Run.Started
		}
		if i > 0 {
			except = append(except, r.Run.ID)
		}
	}
	known, err := s.Baselines()
	if err != nil {
		return nil, err
	}
	var baselines []string
	for _, b := range known {
		baselines = append(baselines, b.Run)
	}
	base, all := compared[0].Run, map[string]map[string]plan.RunSpread{}
	for _, c := range base.Cells {
		if all[c.ID], err = s.spreads(c.ID, values, base.ID, baselines, until, except...); err != nil {
			return nil, fmt.Errorf("read the earlier runs of cell %s: %w", c.ID, err)
		}
	}
	return func(cell, value string) plan.RunSpread { return all[cell][value] }, nil
}

// baselines is the name of the file of baselines in the folder of runs. Each line is a baseline. The last line of a
// name counts, and a line without a run removes the name.
const baselines = "baselines.jsonl"

// NewBaseline returns the baseline of a run. An empty name stands for the name of the run's matrix. A run without a
// valid repetition is an error. note is not empty if tasks have no outcome or cells no valid repetition: they cannot be
// compared. The outcomes contain only what rules and the history use.
func NewBaseline(name, by string, run plan.Run, outcomes []plan.Outcome) (b plan.BaselineRecord, note string,
	err error) {
	if name != "" && name != run.Name {
		if err := plan.CheckBaselineName(name); err != nil {
			return b, "", err
		}
	}
	cells := map[string]bool{}
	for _, o := range outcomes {
		if o.Verdict == plan.Valid {
			cells[o.Cell] = true
		}
		events := slices.DeleteFunc(slices.Clone(o.Events), func(e plan.Event) bool { return e.Kind != plan.EventCores })
		kept := plan.Outcome{Version: o.Version, Run: o.Run, Task: o.Task, Cell: o.Cell, Index: o.Index,
			Repetition: o.Repetition, Verdict: o.Verdict, Values: o.Values, Agents: o.Agents, Subject: o.Subject, Events: events}
		for _, g := range o.Groups {
			kept.Groups = append(kept.Groups, plan.GroupOutcome{Name: g.Name, Subject: g.Subject, Verdict: g.Verdict,
				Values: g.Values})
		}
		b.Outcomes = append(b.Outcomes, kept)
	}
	if len(cells) == 0 {
		return b, "", fmt.Errorf("run %s has no valid repetition; use another run (details: ctl show %[1]s)", run.ID)
	}
	if tasks, of := sampling.Of(run, outcomes).Tasks(), len(run.Cells); len(outcomes) < tasks || len(cells) < of {
		note = fmt.Sprintf("incomplete: %d of %d tasks have an outcome, and %d of %d cells have a valid repetition; "+
			"the other cells are not compared", len(outcomes), tasks, len(cells), of)
	}
	b.Plan = run
	b.Baseline = plan.Baseline{Name: cmp.Or(name, run.Name), Run: run.ID, Matrix: run.Name, Set: time.Now().UTC(), By: by}
	return b, note, nil
}
