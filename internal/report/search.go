package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"lockstep/internal/display"
	"lockstep/internal/plan"
)

// searches returns a table with a chart for each capacity search, in the order of the matrix.
func (b *builder) searches() []Table {
	var tables []Table
	for _, c := range b.cells {
		for _, o := range c.outcomes {
			if o.Search != nil {
				tables = append(tables, c.search(o))
			}
		}
	}
	return tables
}

// search returns the table of one search: one row per step, by rate and then by time.
func (c *cell) search(o plan.Outcome) Table {
	latency := "e2e"
	if c.cell.Workload.Consumers.Nodes == 0 {
		latency = "publish.intended"
	}
	values := []string{"publish.rate", "consume.rate", latency + ".p50", latency + ".p99", latency + ".max"}
	if latency != "e2e" {
		values = slices.Delete(values, 1, 2)
	}
	t := Table{Title: c.searchTitle(o), Split: c.place.coordinates(), Axes: []string{"search.rate"},
		Head: []string{"Target msg/s", "Step", "Answer"}}
	for _, name := range values {
		t.Head = append(t.Head, valueInfo(name).Title)
	}
	chart := &Chart{Latency: valueInfo(latency + ".p50").Title}
	chart.Latency = strings.TrimSuffix(chart.Latency, " p50")
	n := &notes{}
	for _, i := range byRate(o.Search.Steps) {
		s := o.Search.Steps[i]
		row := []Field{
			{Text: display.Number(s.Rate)},
			{Text: fmt.Sprintf("%d %s", i+1, s.Kind), Value: "search.step"},
			{Text: string(s.Answer), Value: "search.answer"},
		}
		if s.Why != "" {
			row[2].Notes = n.add(s.Why)
		}
		for _, name := range values {
			row = append(row, stepField(s, name))
		}
		t.Rows = append(t.Rows, row)
		chart.Points = append(chart.Points, pointOf(s, latency, o.Search.Sure && s.Rate == o.Search.Capacity))
	}
	t.Notes, t.Chart, t.Remarks = n.texts, chart, t.legend()
	if s := c.cell.Workload.Search; s != nil {
		t.Remarks = append(t.Remarks, "holds: while "+s.While)
	}
	if o.Search.Why != "" {
		t.Remarks = append(t.Remarks, o.Search.Why)
	}
	return t
}

// byRate returns the indices of steps, by rate and then by time.
func byRate(steps []plan.Step) []int {
	order := make([]int, len(steps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(steps[a].Rate, steps[b].Rate) })
	return order
}

// stepField returns the field of a step's value. Of its flags it has only a backlog that leaves no number: the note of
// the answer has the others that matter.
func stepField(s plan.Step, name string) Field {
	info := valueInfo(name)
	f := Field{Text: "–", Value: name, Unit: info.Unit}
	switch v, has := s.Values[name]; {
	case has && v.NA == "":
		f.Number, f.Text = &v.Number, format(info.Unit, v.Number)
	case v.NA == string(plan.Backlog):
		f.Flags = []plan.Flag{plan.Backlog}
	}
	return f
}

// searchTitle returns the title with the result: "Capacity, broker=nats: 20,050 msg/s (19,990–20,200), held 3 of 4".
func (c *cell) searchTitle(o plan.Outcome) string {
	title := "Capacity"
	if len(c.place) > 0 {
		title += ", " + c.place.String()
	}
	if c.repeat > 1 {
		title += fmt.Sprintf(", repetition %d", o.Repetition)
	}
	switch r := o.Search; {
	case !r.Sure:
		return title + ": not found"
	case r.Capacity == 0:
		return title + ": none, no rate is sustained"
	default:
		return fmt.Sprintf("%s: %s msg/s %s", title, display.Number(r.Capacity), interval(r))
	}
}

// interval formats the interval of a capacity and its verification: "(19,990–20,200), held 3 of 4".
func interval(r *plan.SearchResult) string {
	if r.Fails == 0 {
		return fmt.Sprintf("or more, held %d of %d", r.Verified, r.Verifications)
	}
	return fmt.Sprintf("(%s–%s), held %d of %d", display.Number(r.Low), display.Number(r.Fails), r.Verified,
		r.Verifications)
}

// capacity adds the interval of the repetition whose number is shown.
func capacity(c *cell, f *Field, n *notes) {
	for _, o := range c.usable() {
		if r := o.Search; r != nil && r.Sure && r.Capacity == *f.Number {
			if r.Capacity == 0 {
				f.Notes = append(f.Notes, n.add(r.Why)...)
				return
			}
			f.Mark = interval(r)
			if r.Fails == 0 {
				f.Notes = append(f.Notes, n.add(r.Why)...)
			}
			return
		}
	}
}
