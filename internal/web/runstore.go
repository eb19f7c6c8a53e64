package web

import (
	"cmp"
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

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
)

// runStore is the folder with the copies of runs. It reads a copy again only if its run.json has changed. It is safe
// for concurrent use. Without a folder it is empty.
type runStore struct {
	dir string

	mu     sync.Mutex
	stored map[string]storedRun
}

// storedRun is one run of the store.
type storedRun struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"` // of its matrix
	Started time.Time `json:"started"`
	written time.Time
}

// plain reports whether an id can only name a directory in the store.
func plain(id string) bool {
	return id != "" && id == filepath.Base(id) && !strings.HasPrefix(id, ".") && id != "latest" && filepath.IsLocal(id) &&
		!strings.Contains(id, "\x00")
}

// list returns the runs, newest first.
func (s *runStore) list() ([]storedRun, error) {
	if s.dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list copies of runs: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	there := map[string]storedRun{}
	var all []storedRun
	for _, e := range entries {
		if !e.IsDir() || !plain(e.Name()) {
			continue
		}
		if b, ok := s.look(e.Name()); ok {
			there[e.Name()] = b
			all = append(all, b)
		}
	}
	s.stored = there
	slices.SortFunc(all, func(a, b storedRun) int {
		return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(b.ID, a.ID))
	})
	return all, nil
}

// look returns the description of a run from its run.json. The caller has locked mu.
func (s *runStore) look(id string) (storedRun, bool) {
	path := filepath.Join(s.dir, id, "run.json")
	info, err := os.Stat(path)
	if err != nil {
		return storedRun{}, false
	}
	if b, known := s.stored[id]; known && b.written.Equal(info.ModTime()) {
		return b, true
	}
	text, err := os.ReadFile(path)
	b := storedRun{written: info.ModTime()}
	if err != nil || json.Unmarshal(text, &b) != nil || b.ID != id {
		return b, false
	}
	return b, true
}

// read returns the copy of a run. The error wraps fs.ErrNotExist if there is none.
func (s *runStore) read(id string) (plan.Run, []plan.Outcome, error) {
	if s.dir == "" || !plain(id) {
		return plan.Run{}, nil, fs.ErrNotExist
	}
	dir, err := runs.Open(s.dir, filepath.Join(s.dir, id))
	if err != nil {
		return plan.Run{}, nil, err
	}
	outcomes, err := dir.Outcomes()
	return dir.Plan(), outcomes, err
}

const digestFile = "digest.html"

// files are those of a run's directory that pages link to, with their types.
var files = []struct{ Name, Type, Title string }{
	{"report.html", "text/html; charset=utf-8", "report"},
	{digestFile, "text/html; charset=utf-8", "digest"},
	{"tables.txt", "text/plain; charset=utf-8", "text"},
	{"tables.md", "text/plain; charset=utf-8", "Markdown"},
	{"tables.csv", "text/csv; charset=utf-8", "CSV"},
	{"tables.json", "application/json", "JSON"},
	{"matrix.cue", "text/plain; charset=utf-8", "matrix"},
}

// open opens a file of a run's directory. Links to files outside the store are errors.
func (s *runStore) open(id, name string) (*os.File, error) {
	if s.dir == "" || !plain(id) {
		return nil, fs.ErrNotExist
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Open(filepath.Join(id, name))
}

// has reports whether a run's directory contains a file.
func (s *runStore) has(id, name string) bool {
	if s.dir == "" || !plain(id) {
		return false
	}
	_, err := os.Stat(filepath.Join(s.dir, id, name))
	return err == nil
}
