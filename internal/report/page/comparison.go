package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/chart"
)

//go:embed comparison.html
var comparisonSource string

var comparisonTemplate = template.Must(TableTemplate().Parse(comparisonSource))

// comparisonCSS is the style of a comparison in addition to that of a report.
const comparisonCSS = "\ntd.worse { color: var(--bad); font-weight: 600; } td.better { color: var(--good); font-weight: 600; }\n"

// comparisonSheet is the data of the page's template.
type comparisonSheet struct {
	CSS        template.CSS
	Title      string
	Comparison report.Comparison
	Besides    []TableView
	Tables     []TableView
	Data       compare.Comparison
}

// WriteComparison writes a comparison as one HTML file without external resources and scripts. All text of users is
// escaped.
func WriteComparison(w io.Writer, c compare.Comparison) error {
	x := report.NewComparison(c)
	// nolint:gosec // our own
	p := comparisonSheet{CSS: template.CSS(chart.CSS + css + comparisonCSS), Comparison: x,
		Besides: TableViews(x.Besides, false), Tables: TableViews(x.Tables, false), Data: c}
	var names []string
	for _, s := range c.Sides {
		names = append(names, s.Mark)
	}
	p.Title = strings.Join(names, " and ")
	if c.By != "" {
		p.Title = c.By + ": " + p.Title
	}
	for i := range p.Besides { // the ids of footnotes contain the numbers of tables
		p.Besides[i].N = len(p.Tables) + i + 1
	}
	if err := comparisonTemplate.Execute(w, p); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return nil
}
