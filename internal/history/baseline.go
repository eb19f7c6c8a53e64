package history

import (
	"cmp"
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
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/sampling"
)

// Baselines is the name of the file of baselines in the folder of runs. Each line is a baseline. The last line of a
// name counts, and a line without a run removes the name.
const Baselines = "baselines.jsonl"

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
		events := slices.DeleteFunc(slices.Clone(o.Events),
			func(e plan.Event) bool { return e.Kind != plan.EventCores })
		kept := plan.Outcome{Version: o.Version, Run: o.Run, Task: o.Task, Cell: o.Cell, Index: o.Index,
			Repetition: o.Repetition,
			Verdict:    o.Verdict, Values: o.Values, Agents: o.Agents, Subject: o.Subject, Events: events}
		for _, g := range o.Groups {
			kept.Groups = append(kept.Groups, plan.GroupOutcome{Name: g.Name, Subject: g.Subject, Verdict: g.Verdict,
				Values: g.Values})
		}
		b.Outcomes = append(b.Outcomes, kept)
	}
	if len(cells) == 0 {
		return b, "",
			fmt.Errorf("run %s has no valid repetition; use another run (details: ctl show %s)",
				run.ID, run.ID)
	}
	if tasks, of := sampling.Of(run, outcomes).Tasks(), len(run.Cells); len(outcomes) < tasks || len(cells) < of {
		note = fmt.Sprintf("incomplete: %d of %d tasks have an outcome, and %d of %d cells have a valid repetition; "+
			"the other cells are not compared", len(outcomes), tasks, len(cells), of)
	}
	b.Plan = run
	b.Baseline = plan.Baseline{Name: cmp.Or(name, run.Name), Run: run.ID, Matrix: run.Name, Set: time.Now().UTC(),
		By: by}
	return b, note, nil
}

// SetBaseline stores a baseline, and replaces the one with the same name.
func (s *Store) SetBaseline(b plan.Baseline) error {
	file, err := os.OpenFile(filepath.Join(s.root, Baselines), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
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
