package history

import (
	"fmt"
	"maps"
	"slices"

	"lockstep/internal/compare"
	"lockstep/internal/plan"
	"lockstep/internal/runs"
	"lockstep/internal/sampling"
)

// Bases returns the numbers that the rules of a run compare it with, from the baselines of this folder. A Base without
// numbers has the reason in Why.
func (s *Store) Bases(run plan.Run) (all []plan.Base) {
	known, damaged := s.Baselines()
	for _, name := range slices.Sorted(maps.Keys(run.Regressions())) {
		i := slices.IndexFunc(known, func(b plan.Baseline) bool { return b.Name == name })
		switch {
		case damaged != nil:
			all = append(all, plan.Base{Name: name,
				Why: fmt.Sprintf("cannot read the baseline %q: %v", name, damaged)})
			continue
		case i < 0:
			all = append(all, plan.Base{Name: name, Why: plan.NoBaseline(name, s.place())})
			continue
		}
		record, err := runs.Open(s.root, known[i].Run)
		var outcomes []plan.Outcome
		if err == nil {
			outcomes, err = record.Outcomes()
		}
		if err != nil {
			all = append(all, plan.Base{Name: name, Why: fmt.Sprintf(
				"cannot read the record of the baseline %q: %v; set another run as baseline with ctl history baseline set RUN",
				name, err)})
			continue
		}
		all = append(all, s.Base(run, plan.BaselineRecord{Baseline: known[i], Plan: record.Plan(), Outcomes: outcomes}))
	}
	return all
}

// Base returns the numbers of a baseline that the rules of a run compare it with. The run-to-run spread comes from the
// history, which must contain the run of the baseline.
func (s *Store) Base(run plan.Run, of plan.BaselineRecord) plan.Base {
	name := of.Baseline.Name
	wanted := map[string]bool{}
	for _, rule := range run.Regressions()[name] {
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
	began := func(string) bool { return true } // the spread begins with the baseline's run
	for _, c := range run.Cells {
		cell := baseCell(c.ID, of.Outcomes, values, rounds.Cell(c.ID).Repeat)
		if len(cell.Repetitions) == 0 {
			continue
		}
		var err error
		if cell.Spreads, err = s.spreads(c.ID, values, b.Run, began, run.Started, run.ID); err != nil {
			return plan.Base{Name: name, Why: fmt.Sprintf("cannot read the earlier runs: %v", err)}
		}
		b.Cells = append(b.Cells, cell)
	}
	return b
}

// baseCell returns a cell with the values of all its repetitions. It has none if no repetition is valid.
func baseCell(id string, outcomes []plan.Outcome, values []string, repeat int) plan.BaseCell {
	cell := plan.BaseCell{ID: id}
	valid := false
	for _, o := range outcomes {
		if o.Cell != id {
			continue
		}
		some := map[string]plan.Value{}
		for _, name := range values {
			v, has := o.Value(name)
			if o.Verdict != plan.Valid {
				v, has = plan.Value{NA: string(o.Verdict)}, true
			}
			if has {
				some[name] = v
			}
		}
		valid = valid || o.Verdict == plan.Valid
		cell.Hosts = append(cell.Hosts, o.Hosts()...)
		cell.Repetitions = append(cell.Repetitions, some)
	}
	if !valid {
		return plan.BaseCell{ID: id}
	}
	for len(cell.Repetitions) < repeat {
		some := map[string]plan.Value{}
		for _, name := range values {
			some[name] = plan.Value{NA: "not run"}
		}
		cell.Repetitions = append(cell.Repetitions, some)
	}
	slices.Sort(cell.Hosts)
	cell.Hosts = slices.Compact(cell.Hosts)
	return cell
}
