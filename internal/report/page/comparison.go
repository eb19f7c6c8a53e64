package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"lockstep/internal/compare"
	"lockstep/internal/report"
	"lockstep/internal/report/chart"
)

//go:embed comparison.html
var comparisonSource string

var comparisonTemplate = template.Must(template.New("comparison").Funcs(template.FuncMap{
	"add": func(a, b int) int { return a + b },
	"finding": func(text string) string { // a class: how a field is coloured
		switch compare.Finding(text) {
		case compare.Worse:
			return "worse"
		case compare.Better:
			return "better"
		case compare.Inconclusive:
			return "unknown"
		}
		return ""
	},
}).Parse(comparisonSource))

// comparisonCSS is what a comparison has besides a report.
const comparisonCSS = "\ntd.worse { color: var(--bad); font-weight: 600; } td.better { color: var(--good); font-weight: 600; }\n"

// comparisonSheet is all that the page shows.
type comparisonSheet struct {
	CSS         template.CSS
	Title       string
	Sides       []string
	Besides     []tableView
	Tables      []tableView
	Found, Left []string
	Method      []string
	Summary     string
	Data        compare.Comparison
}

// WriteComparison writes a comparison as one HTML file that needs nothing from outside and no script. All text of users
// is escaped.
func WriteComparison(w io.Writer, c compare.Comparison) error {
	x := report.NewCompared(c)
	// nolint:gosec // our own
	p := comparisonSheet{CSS: template.CSS(chart.CSS + css + comparisonCSS), Sides: x.Sides,
		Besides: tableViews(x.Besides, false),
		Tables:  tableViews(x.Tables, false), Found: x.Found, Left: x.Left, Method: x.Method(c), Summary: x.Summary,
		Data: c}
	var names []string
	for _, s := range c.Sides {
		names = append(names, s.Mark)
	}
	p.Title = strings.Join(names, " and ")
	if c.By != "" {
		p.Title = c.By + ": " + p.Title
	}
	for i := range p.Besides { // footnotes of tables are told apart by the tables' numbers
		p.Besides[i].N = len(p.Tables) + i + 1
	}
	if err := comparisonTemplate.Execute(w, p); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return nil
}
