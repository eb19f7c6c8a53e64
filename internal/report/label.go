package report

import (
	"slices"
	"strings"

	"lockstep/internal/results"
)

// labelled collects what a confirm means in the cells of a table.
type labelled struct {
	labels []string
	cells  []*cell
}

func (l *labelled) add(c *cell) {
	if c.cell.Label == "" || !results.Confirmed(c.cell.Workload.Publishers.Mode) {
		return
	}
	l.cells = append(l.cells, c)
	if !slices.Contains(l.labels, c.cell.Label) {
		l.labels = append(l.labels, c.cell.Label)
	}
}

// remarks says what a confirm means, and where it means which if it differs: by one axis that tells them apart, or cell by cell.
func (l *labelled) remarks() []string {
	switch len(l.labels) {
	case 0:
		return nil
	case 1:
		return []string{"a confirm means: " + l.labels[0]}
	}
	remarks := []string{"a confirm does not mean the same everywhere in this table:"}
	where := l.places()
	for _, label := range l.labels {
		remarks = append(remarks, "  "+label+": "+strings.Join(where[label], ", "))
	}
	return remarks
}

func (l *labelled) places() map[string][]string {
	axes := []string{"broker"}
	for _, c := range l.cells[0].place {
		axes = append(axes, c.axis)
	}
	for _, axis := range axes {
		if where, ok := l.by(axis); ok {
			return where
		}
	}
	where := map[string][]string{}
	for _, c := range l.cells {
		where[c.cell.Label] = append(where[c.cell.Label], c.name())
	}
	return where
}

// by groups labels by an axis; ok is false where a value of the axis has several labels.
func (l *labelled) by(axis string) (where map[string][]string, ok bool) {
	where = map[string][]string{}
	of := map[string]string{}
	for _, c := range l.cells {
		on := c.place.on([]string{axis})
		if len(on) == 0 {
			return nil, false
		}
		at, label := on.String(), c.cell.Label
		known, seen := of[at]
		if seen && known != label {
			return nil, false
		}
		if !seen {
			of[at] = label
			where[label] = append(where[label], at)
		}
	}
	return where, true
}
