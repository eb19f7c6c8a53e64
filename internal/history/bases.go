package history

import (
	"fmt"
	"maps"
	"slices"

	"lockstep/internal/compare"
	"lockstep/internal/plan"
	"lockstep/internal/runs"
)

// Bases reads the numbers that the rules of a run compare it with, of the baselines of this folder. Where there are none they say why.
func (s *Store) Bases(run plan.Run) (all []plan.Base) {
	wanted := run.Regressions()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		values := map[string]bool{}
		for _, rule := range wanted[name] {
			for _, v := range rule.Values {
				values[v] = true
			}
			if len(rule.Values) == 0 {
				for _, v := range compare.Usual() {
					values[v] = true
				}
			}
		}
		all = append(all, s.base(name, run, slices.Sorted(maps.Keys(values))))
	}
	return all
}

func (s *Store) base(name string, run plan.Run, values []string) plan.Base {
	known, err := s.Baselines()
	if err != nil {
		return plan.Base{Name: name, Why: fmt.Sprintf("the baseline %q cannot be read: %v", name, err)}
	}
	i := slices.IndexFunc(known, func(b plan.Baseline) bool { return b.Name == name })
	if i < 0 {
		return plan.Base{Name: name, Why: plan.NoBaseline(name)}
	}
	record, err := runs.Open(s.root, known[i].Run)
	var outcomes []plan.Outcome
	if err == nil {
		outcomes, err = record.Outcomes()
	}
	if err != nil {
		return plan.Base{Name: name, Why: fmt.Sprintf("the record of the baseline %q cannot be read: %v; make another run the baseline: ctl baseline set RUN", name, err)}
	}
	b := plan.Base{Name: name, Run: known[i].Run, Started: record.Plan().Started}
	rounds := record.Rounds()
	for _, c := range run.Cells {
		cell := baseCell(c.ID, outcomes, values, rounds.Cell(c.ID).Repeat)
		if len(cell.Repetitions) == 0 {
			continue
		}
		if cell.Spreads, err = s.Spreads(c.ID, values, b.Run, run.Started, run.ID); err != nil {
			return plan.Base{Name: name, Why: fmt.Sprintf("the earlier runs cannot be read: %v", err)}
		}
		b.Cells = append(b.Cells, cell)
	}
	return b
}

// baseCell is a cell with the values of all its repetitions; with none if no repetition is valid.
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
