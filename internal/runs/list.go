package runs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// Summary describes a run in one line.
type Summary struct {
	ID      string
	Name    string // of the matrix
	Started time.Time
	Tasks   int
	AtMost  bool // Tasks is a maximum: cells are repeated until they are known well enough
	Done    int  // tasks with an outcome
	Dir     string
}

// List returns the runs below root, newest first. A missing root has none. A directory without a plan is not a run.
func List(root string) ([]Summary, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	var all []Summary
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		r, err := openDir(filepath.Join(root, e.Name()))
		if err != nil {
			continue
		}
		rounds := r.Rounds()
		s := Summary{ID: r.plan.ID, Name: r.plan.Name, Started: r.plan.Started, Tasks: rounds.Tasks(),
			AtMost: rounds.Open(), Dir: r.dir}
		for _, t := range r.plan.Tasks() { // outcomes are written atomically
			if _, err := os.Stat(r.tasks(t.ID).file(outcomeFile)); err == nil {
				s.Done++
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Summary) int {
		return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(b.ID, a.ID))
	})
	return all, nil
}

// openDir reads the plan in a run's directory.
func openDir(dir string) (*Run, error) {
	file, err := os.Open(filepath.Join(dir, runFile))
	if err != nil {
		return nil, fmt.Errorf("open run in %s: %w", dir, err)
	}
	defer file.Close()
	p, err := plan.ReadRun(file, plan.MaxFile)
	if err != nil {
		return nil, fmt.Errorf("open run in %s: read %s: %w", dir, runFile, err)
	}
	return newRun(dir, p), nil
}

// Open opens a run below root by its id, a unique prefix of its id, "latest", or the path of its directory.
func Open(root, id string) (*Run, error) {
	if id == "" {
		return nil, fmt.Errorf("open run: no id given; %s", listing(root, ""))
	}
	if strings.ContainsRune(id, filepath.Separator) {
		return openDir(id)
	}
	if id == latestLink {
		if dir, err := filepath.EvalSymlinks(filepath.Join(root, latestLink)); err == nil && isRun(dir) {
			return openDir(filepath.Join(root, filepath.Base(dir)))
		}
		all, err := List(root) // some copies have no link: open the run that started last
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			return nil, noRuns(id, root)
		}
		return openDir(all[0].Dir)
	}
	found := idsWith(root, id)
	switch {
	case isRun(filepath.Join(root, id)):
		return openDir(filepath.Join(root, id))
	case len(found) == 1:
		return openDir(filepath.Join(root, found[0]))
	case len(found) > 1:
		return nil, fmt.Errorf("open run %q: ambiguous id, %d runs begin with it; %s", id, len(found), listing(root, id))
	case isRun(id):
		return openDir(id)
	case len(idsWith(root, "")) == 0:
		return nil, noRuns(id, root)
	}
	return nil, fmt.Errorf("open run %q: no such run in %s; %s", id, root, listing(root, ""))
}

func noRuns(id, root string) error {
	return fmt.Errorf("open run %q: the folder %s contains no runs; run a matrix, or pass another folder with --runs", id,
		root)
}

func isRun(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, runFile))
	return err == nil
}

// idsWith returns the names of runs below root that begin with prefix, sorted.
func idsWith(root, prefix string) (ids []string) {
	entries, _ := os.ReadDir(root)
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), prefix) && isRun(filepath.Join(root, e.Name())) {
			ids = append(ids, e.Name())
		}
	}
	return ids
}

// listing lists the runs whose ids begin with prefix, newest first, for error messages.
func listing(root, prefix string) string {
	const maxListed = 10
	all, err := List(root)
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, s := range all {
		if strings.HasPrefix(s.ID, prefix) {
			bound := ""
			if s.AtMost {
				bound = "at most "
			}
			lines = append(lines, fmt.Sprintf("%s (%s, %d of %s%d tasks done)", s.ID, s.Name, s.Done, bound, s.Tasks))
		}
	}
	if more := len(lines) - maxListed; more > 0 {
		lines = append(lines[:maxListed], fmt.Sprintf("and %d more", more))
	}
	return "use one of " + strings.Join(lines, ", ")
}
