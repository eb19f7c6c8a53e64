package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
)

// regressed judges a rule about a baseline for all cells that have it, as one family of tests (compare.NoWorse). It
// returns the rulings by cell id.
func regressed(run plan.Run, text string, rule plan.Regression, all []*cell) map[string]Ruling {
	rulings := map[string]Ruling{}
	base := run.BaseOf(run.BaselineOf(rule))
	then := map[string]plan.BaseCell{}
	for _, c := range base.Cells {
		then[c.ID] = c
	}
	now := compare.Recorded{Mark: "this run", Run: plan.Run{ID: run.ID, Name: run.Name, Repeat: run.Repeat,
		Until: run.Until}}
	before := compare.Recorded{Mark: "run " + base.Run, Run: plan.Run{ID: base.Run}}
	for _, c := range all {
		if !slices.ContainsFunc(c.cell.Require, func(r plan.Rule) bool { return r.Text == text }) {
			continue
		}
		old, has := then[c.cell.ID]
		why := cmp.Or(base.Why, c.noDataReason())
		switch {
		case why != "":
		case !has:
			why = fmt.Sprintf("the baseline %q (run %s) has no valid repetition of this cell, whose id depends on its workload and broker name; set a newer baseline with ctl history baseline set RUN", base.Name, base.Run)
		default:
			why = "none of its values is a number" // replaced as soon as a value has a number
			now.Run.Cells, before.Run.Cells = append(now.Run.Cells, c.cell), append(before.Run.Cells, c.cell)
			now.Outcomes, before.Outcomes = append(now.Outcomes, c.outcomes...),
				append(before.Outcomes, restored(old)...)
		}
		rulings[c.cell.ID] = Ruling{Result: Inconclusive, Why: "no data: " + why}
	}
	if len(now.Run.Cells) == 0 {
		return rulings
	}
	found, err := compare.Compare([]compare.Recorded{before, now},
		compare.Options{Values: rule.Values, Effect: rule.Effect, Alpha: 1 - rule.Confidence,
			Spread: func(cell, value string) plan.RunSpread { return then[cell].Spreads[value] }})
	if err != nil {
		for _, c := range now.Run.Cells {
			rulings[c.ID] = Ruling{Result: Inconclusive, Why: "no data: " + err.Error()}
		}
		return rulings
	}
	failures, remarks, compared := map[string][]rules.Failure{}, map[string][]string{}, map[string][]string{}
	// by cell: a value needs more earlier runs; a value is a lower bound
	tooFew, bounded := map[string]bool{}, map[string]bool{}
	// by cell and reason: the values with this reason, which share one failure, and its index
	names, first := map[[2]string][]string{}, map[[2]string]int{}
	for _, d := range found.NoWorse() {
		id, x := d.Row.Cell, d.Row.Changes[0]
		compared[id] = append(compared[id], d.Value.Name)
		lower := d.Row.Sides[0].OnlyLowerBound || d.Row.Sides[1].OnlyLowerBound
		bounded[id] = bounded[id] || lower
		tooFew[id] = tooFew[id] || !lower && x.Earlier < x.Needed
		switch same := [2]string{id, x.Why}; {
		case d.Met:
			remarks[id] = append(remarks[id], d.Value.Name+" "+detectable(d))
		case x.Why != "":
			if names[same] == nil {
				first[same] = len(failures[id])
				failures[id] = append(failures[id], rules.Failure{Unknown: !d.Violated})
			}
			names[same] = append(names[same], d.Value.Name)
			failures[id][first[same]].Why = strings.Join(names[same], ", ") + ": " + x.Why
		default:
			failures[id] = append(failures[id], rules.Failure{Why: noMet(d, rule, base), Unknown: !d.Violated})
		}
	}
	for _, c := range now.Run.Cells {
		for _, name := range rule.Values {
			if !slices.Contains(compared[c.ID], name) {
				failures[c.ID] = append(failures[c.ID],
					rules.Failure{Why: fmt.Sprintf("no data: %s has no number in this run and in run %s", name, base.Run),
						Unknown: true})
			}
		}
		if compared[c.ID] == nil && failures[c.ID] == nil {
			continue
		}
		if rulings[c.ID] = ruling(failures[c.ID]); failures[c.ID] == nil {
			rulings[c.ID] = Ruling{Result: Met, Why: "smallest detectable effect: " + strings.Join(remarks[c.ID], ", ")}
		}
		r := rulings[c.ID]
		r.Why += earlierRuns(base, tooFew[c.ID])
		if bounded[c.ID] {
			r.Why += "; more runs cannot decide this, because only a lower bound of the value is known"
		}
		rulings[c.ID] = r
	}
	return rulings
}

// earlierRuns returns a text if earlier runs were not available, and the remedy if a rule has too few.
func earlierRuns(base plan.Base, tooFew bool) (text string) {
	missing := base.Available < base.Earlier
	if missing {
		text = fmt.Sprintf("; %d of %d earlier runs available", base.Available, base.Earlier)
	}
	if tooFew {
		text += "; run the matrix until there are enough, with this broker version and on these hosts"
		if missing {
			text += ", or copy the missing runs into the folder runs below the controller's --dir"
		}
	}
	return text
}

// noMet returns why a value with a conclusive change does not meet a rule about a baseline.
func noMet(d compare.Decision, rule plan.Regression, base plan.Base) string {
	x, name, unit := d.Row.Changes[0], d.Value.Name, d.Value.Unit
	then, now := d.Row.Sides[0], d.Row.Sides[1]
	if then.Backlog+now.Backlog > 0 {
		text := fmt.Sprintf("%s: backlog in %d of %d repetitions, and in %d of %d of run %s",
			name, now.Backlog, now.Backlog+now.N, then.Backlog, then.Backlog+then.N, base.Run)
		if x.Backlogs > 0 {
			text += fmt.Sprintf("; backlog in %d of %d earlier runs", x.Backlogs, x.Earlier)
		}
		return text
	}
	text := fmt.Sprintf("%s %s against run %s (medians %s → %s", name, changeText(x, unit), base.Run,
		Format(unit, then.Median), Format(unit, now.Median))
	if d.Violated {
		return fmt.Sprintf("%s, p = %.2g, smallest detectable effect %s)", text, d.P, detectable(d))
	}
	if !math.IsNaN(d.Worst) && !math.IsInf(d.Worst, 0) {
		text += fmt.Sprintf("), at worst %s at %.4g %% (", display.Change(d.Worst), 100*rule.Confidence)
	} else {
		text += ", "
	}
	return text + "smallest detectable effect " + detectable(d) + ")"
}

// detectable formats the smallest detectable effect of a value.
func detectable(d compare.Decision) string {
	if math.IsNaN(d.Detectable) || math.IsInf(d.Detectable, 0) {
		return "unknown"
	}
	return display.Percent(d.Detectable)
}

// restored returns outcomes with the values that a plan contains of a baseline's cell.
func restored(c plan.BaseCell) (all []plan.Outcome) {
	for i, values := range c.Repetitions {
		o := plan.Outcome{Cell: c.ID, Repetition: i + 1, Verdict: plan.Valid, Values: map[string]plan.Value{}}
		for _, host := range c.Hosts {
			o.Agents = append(o.Agents, plan.AgentPart{Host: host})
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			group, plain := plan.SplitGroup(name)
			if group == "" {
				o.Values[plain] = values[name]
				continue
			}
			at := slices.IndexFunc(o.Groups, func(g plan.GroupOutcome) bool { return g.Name == group })
			if at < 0 {
				at = len(o.Groups)
				o.Groups = append(o.Groups, plan.GroupOutcome{Name: group, Verdict: plan.Valid,
					Values: map[string]plan.Value{}})
			}
			o.Groups[at].Values[plain] = values[name]
		}
		all = append(all, o)
	}
	return all
}
