package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/sampling"
)

// Baselines is the name of the file of baselines in the folder of runs. Each line is a baseline. The last line of a
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
