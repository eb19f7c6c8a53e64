package report

import (
	"fmt"
	"maps"
	"slices"

	"lockstep/internal/compare"
	"lockstep/internal/plan"
)

// regressed judges a rule about a baseline for all cells that have it: their tests are one family, as those of ctl compare. It says by the ids of
// cells what came of it.
func regressed(run plan.Run, text string, rule plan.Regression, all []*cell) map[string]Ruling {
	whys := map[string]Ruling{}
	base := run.BaseOf(run.BaselineOf(rule))
	then := map[string]plan.BaseCell{}
	for _, c := range base.Cells {
		then[c.ID] = c
	}
	now, before := compare.Recorded{Run: plan.Run{ID: run.ID, Name: run.Name, Repeat: run.Repeat}}, compare.Recorded{Run: plan.Run{ID: base.Run, Repeat: 1}}
	for _, c := range all {
		if !slices.ContainsFunc(c.cell.Require, func(r plan.Rule) bool { return r.Text == text }) {
			continue
		}
		old, has := then[c.cell.ID]
		switch {
		case base.Why != "":
			whys[c.cell.ID] = Ruling{Result: Inconclusive, Why: "no data: " + base.Why}
		case c.lacks() != "":
			whys[c.cell.ID] = Ruling{Result: Inconclusive, Why: c.lacks()}
		case !has:
			whys[c.cell.ID] = Ruling{Result: Inconclusive, Why: fmt.Sprintf("no data: %s has no valid repetition of this cell; a cell whose workload or broker's name changed is another one: ctl baseline set RUN", the(base))}
		default:
			whys[c.cell.ID] = Ruling{Result: Inconclusive, Why: "no data: none of its values has a number"} // until one has
			now.Run.Cells, before.Run.Cells = append(now.Run.Cells, c.cell), append(before.Run.Cells, c.cell)
			now.Outcomes, before.Outcomes = append(now.Outcomes, c.outcomes...), append(before.Outcomes, restored(old)...)
		}
	}
	if len(now.Run.Cells) == 0 {
		return whys
	}
	found, err := compare.Compare([]compare.Recorded{before, now}, compare.Options{Values: rule.Values, Effect: rule.Effect, Alpha: 1 - rule.Confidence})
	for _, c := range now.Run.Cells {
		if err != nil {
			whys[c.ID] = Ruling{Result: Inconclusive, Why: "no data: " + err.Error()}
			continue
		}
		if all, some := judgeRows(found, c.ID, base, len(rule.Values) > 0); some || all != nil {
			whys[c.ID] = ruling(all)
		}
	}
	return whys
}

func the(b plan.Base) string { return fmt.Sprintf("the baseline %q, run %s,", b.Name, b.Run) }

// judgeRows says what a comparison found against a cell; some tells whether any of its values could be compared.
func judgeRows(found compare.Comparison, id string, base plan.Base, named bool) (whys []plan.Failure, some bool) {
	for _, v := range found.Values {
		i := slices.IndexFunc(v.Rows, func(r compare.Row) bool { return r.Cell == id })
		if i < 0 {
			if named {
				whys = append(whys, plan.Failure{Why: fmt.Sprintf("no data: %s has no number now, or none in run %s", v.Name, base.Run), Unknown: true})
			}
			continue
		}
		some = true
		if text := worse(v, v.Rows[i], base); text != "" {
			whys = append(whys, plan.Failure{Why: text, Unknown: v.Rows[i].Changes[0].Finding != compare.Worse})
		}
	}
	for _, l := range found.Left { // of values that are always looked at: there was a number, and there is none now
		if !named && l.Value != "" && slices.Contains(l.Sides, "B") && l.Cell == nameIn(found, id) {
			whys = append(whys, plan.Failure{Why: fmt.Sprintf("no data: %s has %s", l.Value, l.Reason), Unknown: true})
		}
	}
	return whys, some
}

// nameIn is what a comparison calls a cell.
func nameIn(found compare.Comparison, id string) string {
	for _, v := range found.Values {
		for _, r := range v.Rows {
			if r.Cell == id {
				return r.Name
			}
		}
	}
	return ""
}

// worse says that a value got worse, or why that cannot be told; empty: it did not.
func worse(v compare.Value, r compare.Row, base plan.Base) string {
	a, b, x := r.Sides[0], r.Sides[1], r.Changes[0]
	up := x.Shift.Estimate > 0
	switch {
	case x.Finding == compare.TooFew:
		return fmt.Sprintf("%s cannot be told: %d repetitions now and %d in run %s are too few; with %d on either side it can: raise repeat, and make such a run the baseline",
			v.Name, b.N, a.N, base.Run, x.Least)
	case x.Finding == compare.Clocks && up == (v.Better == plan.LowerIsBetter):
		return fmt.Sprintf("%s cannot be told: it changed from %s to %s, and the clocks of the hosts were not known well enough", v.Name, format(v.Unit, a.Median), format(v.Unit, b.Median))
	case x.Finding != compare.Worse:
		return ""
	}
	return fmt.Sprintf("%s is worse than in run %s: %s over all pairs of repetitions, medians %s → %s (p = %.2g)",
		v.Name, base.Run, typically(x, v.Unit), format(v.Unit, a.Median), format(v.Unit, b.Median), x.Adjusted)
}

// restored makes outcomes of what a plan keeps of a baseline's cell.
func restored(c plan.BaseCell) (all []plan.Outcome) {
	for i, values := range c.Repetitions {
		o := plan.Outcome{Cell: c.ID, Repetition: i + 1, Verdict: plan.Valid, Values: map[string]plan.Value{}}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			group, plain := plan.InGroup(name)
			if group == "" {
				o.Values[plain] = values[name]
				continue
			}
			at := slices.IndexFunc(o.Groups, func(g plan.GroupOutcome) bool { return g.Name == group })
			if at < 0 {
				at = len(o.Groups)
				o.Groups = append(o.Groups, plan.GroupOutcome{Name: group, Verdict: plan.Valid, Values: map[string]plan.Value{}})
			}
			o.Groups[at].Values[plain] = values[name]
		}
		all = append(all, o)
	}
	return all
}
