package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/report"
)

// cellView is the details of one cell, over all runs that have it.
type cellView struct {
	ID, Name      string
	Runs          []string // marks of the runs that have it; none: there is only one run
	Verdict       plan.Verdict
	Label         string // the meaning of a confirm; empty: the cell has none
	Workload      string // JSON
	Tasks         []taskView
	Distributions []figure
}

// taskView is the details of one repetition.
type taskView struct {
	Title      string
	Outcome    plan.Outcome
	Took       string
	Figures    []figure
	Accounting []accountingRow
	Values     []valueTable
	Events     []plan.Event
	MoreEvent  int
}

// accountingRow is one line of a task's delivery accounting.
type accountingRow struct {
	Name string
	N    uint64
}

func accounting(l plan.Ledger) []accountingRow {
	return []accountingRow{{"sent", l.Sent}, {"uncertain whether sent", l.Uncertain}, {"confirmed", l.Confirmed},
		{"rejected", l.Rejected}, {"never confirmed", l.Unconfirmed},
		{"unroutable", l.Unroutable}, {"received", l.Received}, {"dropped", l.Dropped}, {"lost", l.Lost},
		{"confirmed but lost", l.LostConfirmed}, {"undrained", l.Undrained},
		{"unknown", l.Unknown}, {"duplicated", l.Duplicated}, {"reordered", l.Reordered}, {"corrupt", l.Corrupt},
		{"of another task", l.Foreign}}
}

// valueTable is the values of a task or of one of its groups.
type valueTable struct {
	Group   string
	Verdict plan.Verdict
	Reasons []string
	Rows    []valueRow
	Absent  []absence
}

type valueRow struct {
	Name, Text string
	Value      plan.Value
}

// absence is a list of values that have no number for the same reason.
type absence struct{ Why, Names string }

// maxEvents limits the listed events of a task.
const maxEvents = 100

// detail is a task that is shown in detail.
type detail struct {
	of      recorded
	task    plan.Task
	outcome plan.Outcome
	title   string // distinguishes the tasks of the cell; empty: its only one
}

// cellViews returns the details of the chosen cells. left states which cells are left out.
func cellViews(all []recorded, o Options) (views []cellView, left string, err error) {
	chosen, left := choose(details(all), o)
	for _, cell := range chosen {
		v, err := cellOf(cell)
		if err != nil {
			return nil, "", err
		}
		views = append(views, v)
	}
	return views, left, nil
}

// details lists the tasks with an outcome by cell, in the order of the matrix. Several runs with the same cell share
// it.
func details(all []recorded) (cells [][]detail) {
	at := map[string]int{}
	for _, r := range all {
		byTask := map[string]plan.Outcome{}
		for _, o := range r.outcomes {
			byTask[o.Task] = o
		}
		tasks := r.plan.Tasks()
		slices.SortStableFunc(tasks, func(a, b plan.Task) int {
			return cmp.Or(cmp.Compare(a.Cell.Index, b.Cell.Index), cmp.Compare(a.Repetition, b.Repetition))
		})
		for _, t := range tasks {
			o, done := byTask[t.ID]
			if !done {
				continue
			}
			i, known := at[t.Cell.ID]
			if !known {
				i = len(cells)
				at[t.Cell.ID] = i
				cells = append(cells, nil)
			}
			cells[i] = append(cells[i], detail{of: r, task: t, outcome: o, title: titleOf(r, t)})
		}
	}
	return cells
}

func titleOf(r recorded, t plan.Task) string {
	var parts []string
	if r.mark != "" {
		parts = append(parts, "run "+r.mark)
	}
	if r.plan.Repeat > 1 {
		parts = append(parts, fmt.Sprintf("repetition %d", t.Repetition))
	}
	return strings.Join(parts, ", ")
}

// choose selects cells with at most Detailed tasks in total, and at least one cell. The first ones are failed cells,
// then flagged ones, then the others.
func choose(cells [][]detail, o Options) (chosen [][]detail, left string) {
	order := make([]int, len(cells))
	tasks := 0
	for i, c := range cells {
		order[i] = i
		tasks += len(c)
	}
	if o.Full || tasks <= Detailed {
		return cells, ""
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(urgency(cells[a]), urgency(cells[b])) })
	n, shown := 0, 0
	for n < len(order) && (n == 0 || shown+len(cells[order[n]]) <= Detailed) {
		shown += len(cells[order[n]])
		n++
	}
	chosen = permuted(cells, slices.Sorted(slices.Values(order[:n])))
	return chosen,
		fmt.Sprintf("Details of %d of %d cells: those that are not valid, then those with flags, then the first of the matrix. The tables contain all cells; ctl show -o html --all shows the details of all.",
			len(chosen), len(cells))
}

// urgency is the rank of a cell in choose: 0 failed, 1 flagged, 2 otherwise.
func urgency(cell []detail) int {
	flagged := 2
	for _, d := range cell {
		if d.outcome.Failed() {
			return 0
		}
		for _, v := range d.outcome.Values {
			if len(v.Flags) > 0 {
				flagged = 1
			}
		}
	}
	return flagged
}

// cellOf reads the records of a cell's tasks.
func cellOf(cell []detail) (cellView, error) {
	first := cell[0].task.Cell
	v := cellView{ID: first.ID, Name: cmp.Or(first.Name(), "the only cell"), Label: report.ConfirmMeaning(first),
		Workload: workload(first.Workload)}
	var verdicts []plan.Verdict
	curves := &curves{}
	for _, d := range cell {
		m, err := d.of.run.Record(d.task.ID)
		if err != nil {
			return cellView{}, err
		}
		verdicts = append(verdicts, d.outcome.Verdict)
		curves.add(d, m)
		v.Tasks = append(v.Tasks, taskOf(d, m))
		if mark := d.of.mark; mark != "" && !slices.Contains(v.Runs, mark) {
			v.Runs = append(v.Runs, mark)
		}
	}
	v.Verdict, v.Distributions = plan.Worst(verdicts...), curves.figures()
	return v, nil
}

func workload(w plan.Workload) string {
	text, err := json.MarshalIndent(w, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func taskOf(d detail, m *record.Merged) taskView {
	o := d.outcome
	v := taskView{Title: d.title, Outcome: o, Took: o.Ended.Sub(o.Started).Round(100 * time.Millisecond).String(),
		Accounting: accounting(o.Ledger)}
	v.Values = []valueTable{valuesOf("", o.Verdict, nil, o.Values, d.task.Metrics)}
	for _, g := range o.Groups {
		v.Values = append(v.Values, valuesOf(g.Name, g.Verdict, g.Reasons, g.Values, d.task.Metrics))
	}
	for _, e := range o.Events {
		if e.Kind != plan.EventCores {
			v.Events = append(v.Events, e)
		}
	}
	slices.SortStableFunc(v.Events, func(a, b plan.Event) int { return cmp.Compare(a.At, b.At) })
	v.Figures = timeFigures(d, m, v.Events)
	if more := len(v.Events) - maxEvents; more > 0 {
		v.Events, v.MoreEvent = v.Events[:maxEvents], more
	}
	return v
}

func valuesOf(group string, verdict plan.Verdict, reasons []string, values map[string]plan.Value,
	metrics plan.Metrics) valueTable {
	t := valueTable{Group: group, Verdict: verdict, Reasons: reasons}
	for _, info := range metrics.Values() {
		v, has := values[info.Name]
		switch {
		case !has:
		case v.NA == "":
			t.Rows = append(t.Rows, valueRow{info.Name, report.Show(info, v), v})
		default:
			i := slices.IndexFunc(t.Absent, func(a absence) bool { return a.Why == v.NA })
			if i < 0 {
				t.Absent = append(t.Absent, absence{Why: v.NA, Names: info.Name})
			} else {
				t.Absent[i].Names += ", " + info.Name
			}
		}
	}
	return t
}
