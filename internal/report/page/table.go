package page

import (
	_ "embed"
	"html/template"
	"slices"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
)

//go:embed table.html
var tableSource string

// TableTemplate returns a new template that defines "table", which writes a TableView with its notes and remarks. All
// pages with results use it: reports, comparisons and the web pages.
func TableTemplate() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"add":      func(a, b int) int { return a + b },
		"class":    class,
		"indented": func(text string) bool { return strings.HasPrefix(text, " ") },
		"points":   func(n *float64) string { return strconv.FormatFloat(*n, 'f', -1, 64) },
		"words":    strings.Fields,
	}).Parse(tableSource))
}

// class returns the CSS classes of a field that is not part of the row's name.
func class(f report.Shown) string {
	if f.Of == nil {
		return "left flagged"
	}
	switch compare.Finding(f.Text) {
	case compare.Worse:
		return "worse"
	case compare.Better:
		return "better"
	case compare.Inconclusive:
		return string(plan.Unknown)
	}
	return string(f.Of.Verdict)
}

// TableView is a table, with the drawing of a search. TableTemplate writes it.
type TableView struct {
	N int // from 1
	report.Table
	Layout report.Layout
	Figure *figure
}

// maxUpright is the number of columns that fit on a page in portrait format, and on most screens.
const maxUpright = 9

// Many reports whether the table has more columns than most readers see at once.
func (v TableView) Many() bool { return len(v.Layout.Head) > maxUpright }

// TableViews returns the views of the tables of a page. With the tables of several runs, the columns of a value are
// next to each other.
func TableViews(tables []report.Table, several bool) []TableView {
	var views []TableView
	for i, t := range tables {
		if several {
			t = adjacent(t)
		}
		v := TableView{N: i + 1, Table: t, Layout: t.Layout()}
		if t.Chart != nil {
			f := searchFigure(t)
			v.Figure = &f
		}
		views = append(views, v)
	}
	return views
}

// adjacent moves the columns of the same value next to each other, for the comparison of runs.
func adjacent(t report.Table) report.Table {
	if len(t.Rows) == 0 {
		return t
	}
	place := map[string]int{}
	order := make([]int, len(t.Head))
	for i := range order {
		order[i] = i
		if value := t.Rows[0][i].Value; value != "" {
			if _, known := place[value]; !known {
				place[value] = 1 + len(place)
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return place[t.Rows[0][a].Value] - place[t.Rows[0][b].Value] })
	out := t
	out.Head, out.Rows = permuted(t.Head, order), nil
	for _, row := range t.Rows {
		out.Rows = append(out.Rows, permuted(row, order))
	}
	return out
}

// permuted returns the items of a list in the order of their indices.
func permuted[T any](list []T, order []int) []T {
	out := make([]T, len(order))
	for i, at := range order {
		out[i] = list[at]
	}
	return out
}
