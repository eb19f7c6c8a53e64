package page

import (
	"fmt"
	"html/template"
	"strings"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/chart"
	"example.org/lockstep/lockstep/internal/runs"
)

// runView is the data of a run as a whole.
type runView struct {
	Mark      string // A, B, …; empty: there is only one run
	Plan      plan.Run
	Took      string
	Counts    []report.Count
	Problems  []string
	Limits    []string // of the load generator and its hosts
	Rules     []report.Ruling
	Facts     []report.Fact
	Warnings  []string
	Damage    []string
	Delivered string
	Excluded  []plan.Excluded
	Skipped   int // combinations that skip patterns excluded
}

// recorded is a run with its outcomes.
type recorded struct {
	mark     string
	run      *runs.Run
	plan     plan.Run
	outcomes []plan.Outcome
}

// gather reads all data of the page.
func gather(list []*runs.Run, o Options) (sheet, error) {
	var all []recorded
	var studies []report.Study
	marks := compare.Marks(len(list))
	for i, r := range list {
		outcomes, err := r.Outcomes()
		if err != nil {
			return sheet{}, err
		}
		one := recorded{run: r, plan: r.Plan(), outcomes: outcomes}
		if len(list) > 1 {
			one.mark = marks[i]
		}
		all = append(all, one)
		studies = append(studies, report.StudyOf(one.plan, outcomes))
	}
	if len(all) == 0 {
		return sheet{}, fmt.Errorf("no run given")
	}
	study := studies[0]
	if len(all) > 1 {
		study = report.Combine(studies, marks)
	}
	tables := study.Build()
	// nolint:gosec // our own
	p := sheet{CSS: template.CSS(chart.CSS + css), Script: template.JS(report.Script),
		Tables: TableViews(tables, len(all) > 1), Axes: axisViews(study), Environment: environmentOf(all)}
	var err error
	if p.Cells, p.Left, err = cellViews(all, o); err != nil {
		return sheet{}, err
	}
	p.Few = len(p.Cells) <= maxPrinted
	names := make([]string, len(all))
	for i, r := range all {
		p.Runs = append(p.Runs, viewOf(r)) // the records must have been read: that finds damage
		names[i] = r.plan.ID
	}
	p.Title = strings.Join(names, ", ")
	p.Data = data{Runs: names, Tables: tables}
	return p, nil
}

func viewOf(r recorded) runView {
	v := runView{Mark: r.mark, Plan: r.plan, Facts: report.Facts(r.plan, r.outcomes),
		Problems: report.Problems(r.plan, r.outcomes), Limits: report.Limitations(r.plan, r.outcomes),
		Rules: report.Rulings(r.plan, r.outcomes), Warnings: report.Warnings(r.plan, r.outcomes),
		Damage: r.run.Warnings(), Counts: report.Counts(r.plan, r.outcomes), Delivered: report.Delivered(r.plan.ID, r.run.Deliveries())}
	if took := report.Took(r.plan, r.outcomes); took > 0 {
		v.Took = display.Elapsed(took)
	}
	for _, e := range r.plan.Excluded {
		if e.Kind == "n/a" {
			v.Excluded = append(v.Excluded, e)
		} else {
			v.Skipped++
		}
	}
	return v
}

// Where returns the place of the load generators.
func (v runView) Where() string {
	if v.Plan.Source.Server == "" {
		return "local"
	}
	return "on the fleet at " + v.Plan.Source.Server
}

// Order returns the order of the tasks.
func (v runView) Order() string {
	if v.Plan.Order.Random {
		return fmt.Sprintf("shuffled, seed %d", v.Plan.Order.Seed)
	}
	return "as in the matrix"
}
