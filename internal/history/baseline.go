package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/internal/plan"
)

// Baselines is the name of the file of baselines in the folder of runs. Each line is a baseline, the last of a name counts, and one without a run
// removes the name.
const Baselines = "baselines.jsonl"

// SetBaseline keeps a run as what others are compared with, under a name: that of its matrix, if it has none. It replaces the one of that name.
func (s *Store) SetBaseline(b plan.Baseline) error {
	file, err := os.OpenFile(filepath.Join(s.root, Baselines), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		err = errors.Join(json.NewEncoder(file).Encode(b), file.Sync(), file.Close()) // in one write
	}
	if err != nil {
		return fmt.Errorf("set baseline %s: %w", b.Name, err)
	}
	return nil
}

// Baselines lists the baselines, by name.
func (s *Store) Baselines() (all []plan.Baseline, err error) {
	file, err := os.Open(filepath.Join(s.root, Baselines))
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

// RemoveBaseline forgets a baseline; its run stays.
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
		return fmt.Errorf("there is no baseline %q, nor any other: ctl baseline set RUN makes one", name)
	}
	return fmt.Errorf("there is no baseline %q (there are: %s)", name, strings.Join(names, ", "))
}
