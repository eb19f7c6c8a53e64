package web

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/report"
	"lockstep/internal/report/chart"
)

// mostNights bounds how many runs of a matrix are looked back at.
const mostNights = 60

// mostCourses bounds how many places of a table are drawn on one page.
const mostCourses = 60

// course is one place of a matrix's tables, over the runs.
type course struct {
	Name   string // of the place: "mode=confirm-each threads=4"
	Value  string
	Title  string
	Unit   plan.Unit
	nights []night // oldest first
	Nights []night // newest first
	Link   string
	Chart  template.HTML
	Key    template.HTML // of runs with several flags
}

// night is the value in one run.
type night struct {
	Run   string
	At    time.Time
	Field report.Field
	Notes []string
	Flags string // with which the matrix was run
}

// Text is the value as tables show it.
func (n night) Text() string { return n.Field.Text }

// historyView is the page of values over nights.
type historyView struct {
	Matrices []matrixLine
	Name     string
	Runs     int
	Left     int // runs of it that are older
	Values   []choice
	Value    string
	Courses  []course
	One      bool // a single place, with all its numbers
	More     int  // places that are not drawn
	Broken   []string
	Flagged  bool // some were run with other flags than others
}

type matrixLine struct {
	Name string
	Runs int
	Last time.Time
	Link string
}

type choice struct {
	Name, Title, Link string
	Is                bool
}

// history shows a value of a matrix's tables over the runs that there are copies of.
func (s *site) history(r *http.Request) (view, error) {
	books, err := s.shelf.list()
	if err != nil {
		return view{}, err
	}
	ask := r.URL.Query()
	v := historyView{Name: ask.Get("matrix"), Value: ask.Get("value")}
	var of []book
	for _, b := range books {
		if b.Name == v.Name {
			of = append(of, b)
		}
		i := slices.IndexFunc(v.Matrices, func(m matrixLine) bool { return m.Name == b.Name })
		if i < 0 {
			v.Matrices = append(v.Matrices, matrixLine{Name: b.Name, Last: b.Started, Link: "/history?" + url.Values{"matrix": {b.Name}}.Encode()})
			i = len(v.Matrices) - 1
		}
		v.Matrices[i].Runs++
	}
	v.Runs, v.Left = min(len(of), mostNights), max(0, len(of)-mostNights)
	if ask.Has("matrix") {
		if err := s.fill(r.Context(), &v, of[:v.Runs], ask.Get("place")); err != nil {
			return view{}, err
		}
	}
	title := "Values over nights"
	if v.Name != "" {
		title = v.Name + " over nights"
	}
	return view{Page: "history", Title: title, Body: v}, nil
}

// fill reads the tables of runs, and draws the value that is asked for.
func (s *site) fill(ctx context.Context, v *historyView, of []book, place string) error {
	all := courses{at: map[[2]string]*course{}}
	for _, b := range slices.Backward(of) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		tables, err := s.shelf.tablesOf(b.ID)
		if err != nil {
			v.Broken = append(v.Broken, err.Error())
			continue
		}
		v.Flagged = v.Flagged || b.flags() != of[0].flags()
		all.collect(b, tables)
	}
	for _, c := range all.list {
		if !slices.ContainsFunc(v.Values, func(o choice) bool { return o.Name == c.Value }) {
			v.Values = append(v.Values, choice{Name: c.Value, Title: c.Title})
		}
	}
	if !slices.ContainsFunc(v.Values, func(o choice) bool { return o.Name == v.Value }) && len(v.Values) > 0 {
		v.Value = v.Values[0].Name
	}
	for i := range v.Values {
		v.Values[i].Is = v.Values[i].Name == v.Value
		v.Values[i].Link = "/history?" + url.Values{"matrix": {v.Name}, "value": {v.Values[i].Name}}.Encode()
	}
	for _, c := range all.list {
		if c.Value != v.Value || place != "" && c.Name != place {
			continue
		}
		if len(v.Courses) == mostCourses {
			v.More++
			continue
		}
		c.Link = "/history?" + url.Values{"matrix": {v.Name}, "value": {v.Value}, "place": {c.Name}}.Encode()
		v.Courses = append(v.Courses, *c)
	}
	v.One = len(v.Courses) == 1
	draw(v.Courses)
	return nil
}

// courses are those of all places and values, in the order in which tables have them.
type courses struct {
	list []*course
	at   map[[2]string]*course // by place and value
}

// collect adds the fields of one run's tables. A place that two tables show with one value is one; a run that lacks a place has a night without a value.
func (all *courses) collect(b book, tables []report.Table) {
	seen := map[*course]bool{}
	for _, t := range tables {
		for _, row := range t.Rows {
			for i, f := range row {
				if i < len(t.Axes) || f.Value == "" {
					continue
				}
				c := all.of(placeOf(t, row, f), f)
				if !seen[c] {
					seen[c] = true
					c.nights = append(c.nights, night{Run: b.ID, At: b.Started, Field: f, Notes: notesOf(t, f), Flags: b.flags()})
				}
			}
		}
	}
	for _, c := range all.list {
		if !seen[c] {
			c.nights = append(c.nights, night{Run: b.ID, At: b.Started, Field: report.Field{Value: c.Value, Text: "not in this run"}, Flags: b.flags()})
		}
	}
}

func (all *courses) of(place string, f report.Field) *course {
	k := [2]string{place, f.Value}
	c := all.at[k]
	if c == nil {
		c = &course{Name: place, Value: f.Value, Title: titleOf(f.Value), Unit: f.Unit}
		all.at[k] = c
		all.list = append(all.list, c)
	}
	return c
}

func notesOf(t report.Table, f report.Field) (notes []string) {
	for _, n := range f.Notes {
		if n >= 1 && n <= len(t.Notes) {
			notes = append(notes, t.Notes[n-1])
		}
	}
	return notes
}

// placeOf names a field's place by its coordinates, in the order of their axes' names: tables of one matrix place them differently.
func placeOf(t report.Table, row []report.Field, f report.Field) string {
	var words []string
	for i, axis := range t.Axes {
		words = append(words, axis+"="+row[i].Text)
	}
	for _, c := range slices.Concat(t.Split, f.Column) {
		words = append(words, c.Axis+"="+c.Text)
	}
	slices.Sort(words)
	if len(words) == 0 {
		return "the only cell"
	}
	return strings.Join(words, " ")
}

func titleOf(value string) string {
	group, plainName := plan.InGroup(value)
	for _, v := range plan.Values() {
		if v.Name != plainName {
			continue
		}
		if group != "" {
			return group + ": " + v.Title
		}
		return v.Title
	}
	return value
}

// draw makes the charts, all with one scale from zero, so that they can be compared by eye.
func draw(all []course) {
	most, first, last := 0.0, time.Time{}, time.Time{}
	for _, c := range all {
		for _, n := range c.nights {
			if n.Field.Number != nil && !math.IsInf(*n.Field.Number, 0) && !math.IsNaN(*n.Field.Number) {
				most = max(most, *n.Field.Number+n.Field.Bound)
			}
			if first.IsZero() || n.At.Before(first) {
				first = n.At
			}
			if n.At.After(last) {
				last = n.At
			}
		}
	}
	if !last.After(first) { // an axis needs a length
		first, last = first.Add(-12*time.Hour), last.Add(12*time.Hour)
	}
	for i := range all {
		c := &all[i]
		plot := c.plot(most, first, last)
		c.Chart = template.HTML(plot.SVG()) //nolint:gosec // chart escapes every text
		if len(plot.Series) > 1 {
			c.Key = template.HTML(chart.Key(plot.Series)) //nolint:gosec // as above
		}
		c.Nights = slices.Clone(c.nights)
		slices.Reverse(c.Nights)
	}
}

// plot draws one course, with a line for the runs of each choice of flags: what was run otherwise is no course. A run without a number is a gap in its
// line with a sign below it; one whose number is not to be trusted has a ring.
func (c course) plot(most float64, first, last time.Time) chart.Plot {
	plot := chart.Plot{Title: fmt.Sprintf("%s of %s in %d runs", c.Title, c.Name, len(c.nights))}
	plot.Series = c.lines()
	gaps := make([]bool, len(plot.Series))
	for _, n := range c.nights {
		at, said := float64(n.At.Unix()), strings.TrimSpace(when(n.At)+": "+strings.TrimSpace(n.Field.Text+" "+n.Field.Mark)+" "+n.Flags)
		i := slices.IndexFunc(plot.Series, func(l chart.Line) bool { return l.Name == flagsOf(n) })
		if i < 0 {
			i = len(plot.Series) - 1 // that of the others
		}
		line := &plot.Series[i]
		if n.Field.Number == nil || math.IsInf(*n.Field.Number, 0) || math.IsNaN(*n.Field.Number) {
			plot.Absent = append(plot.Absent, chart.Point{X: at, Title: said})
			gaps[i] = true
			continue
		}
		y := *n.Field.Number
		line.Points = append(line.Points, chart.Point{X: at, Y: y, Low: y - n.Field.Bound, High: y + n.Field.Bound, Break: gaps[i], Title: said,
			Doubt: len(n.Field.Flags) > 0 || n.Field.Verdict != "" && n.Field.Verdict != plan.Valid})
		gaps[i] = false
	}
	plot.X = chart.Axis{Label: "begin of the run (UTC)", Format: func(x float64) string { return time.Unix(int64(x), 0).UTC().Format("Jan 2") }}
	plot.X.At, plot.X.Names = days(first, last)
	plot.X.Least, plot.X.Most = float64(first.Unix()), float64(last.Unix())
	plot.Y = chart.Axis{Label: labelOf(c.Title, c.Unit), Zero: true, Most: most, Format: formatOf(c.Unit, most)}
	return plot
}

// lines are empty ones for the flags of the runs, the newest run's first. Where there are more than can be told apart, the last is of all others, and joins
// none of them.
func (c course) lines() (all []chart.Line) {
	for _, n := range slices.Backward(c.nights) {
		name := flagsOf(n)
		switch i := len(all); {
		case slices.ContainsFunc(all, func(l chart.Line) bool { return l.Name == name }):
		case i == chart.Series:
			all[i-1].Name, all[i-1].Loose = "other flags", true
			return all
		default:
			all = append(all, chart.Line{Name: name, Look: i, Dash: i % 3})
		}
	}
	return all
}

// flagsOf names the flags of a run.
func flagsOf(n night) string { return cmp.Or(n.Flags, "without flags") }

// days are up to six ticks at midnights, or at the ends where there is none between them.
func days(first, last time.Time) (at []float64, names []string) {
	const form, most = "Jan 2", 6
	day := 24 * time.Hour
	from := first.UTC().Truncate(day)
	step := day * time.Duration(max(1, int(math.Ceil(last.Sub(from).Hours()/24/most))))
	for t := from; !t.After(last); t = t.Add(step) {
		if !t.Before(first) {
			at, names = append(at, float64(t.Unix())), append(names, t.Format(form))
		}
	}
	if len(at) == 0 {
		return []float64{float64(first.Unix())}, []string{first.UTC().Format(form + " 15:04")}
	}
	return at, names
}

// labelOf is what an axis shows: units of rates are in their titles, and those of times beside each tick.
func labelOf(title string, u plan.Unit) string {
	switch u {
	case plan.Bytes, plan.BytesRate, plan.Cores:
		return title + ", " + string(u)
	}
	return title
}

// formatOf writes ticks of an axis in one unit.
func formatOf(u plan.Unit, most float64) func(float64) string {
	scale, suffix := 1.0, ""
	switch {
	case u == plan.Seconds && most < 1e-3:
		scale, suffix = 1e6, " µs"
	case u == plan.Seconds && most < 1:
		scale, suffix = 1e3, " ms"
	case u == plan.Seconds:
		suffix = " s"
	case (u == plan.Bytes || u == plan.BytesRate) && most >= 1e6:
		scale, suffix = 1e-6, " M"
	}
	return func(x float64) string {
		if x *= scale; x == math.Trunc(x) {
			return grouped(x) + suffix
		}
		return strings.TrimRight(fmt.Sprintf("%.3f", x), "0") + suffix
	}
}
