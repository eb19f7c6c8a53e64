package report

import (
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
)

// ConfirmMeaning returns the meaning of a confirm in a cell; empty: no publisher of the cell waits for confirms.
func ConfirmMeaning(c plan.Cell) string {
	if !slices.ContainsFunc(c.Workload.Parts(), func(w plan.Workload) bool { return w.Publishers.Confirmed() }) {
		return ""
	}
	return c.Label
}

// labelled collects the meanings of a confirm in cells.
type labelled struct {
	labels []string
	cells  []*cell
}

func (l *labelled) add(c *cell) {
	if ConfirmMeaning(c.cell) == "" {
		return
	}
	l.cells = append(l.cells, c)
	if label := c.label(); !slices.Contains(l.labels, label) {
		l.labels = append(l.labels, label)
	}
}

// meanings returns the meanings of a confirm, one line each. If they differ, each line lists its places: by an axis
// that distinguishes them, or cell by cell.
func (l *labelled) meanings() []string {
	if len(l.labels) < 2 {
		return l.labels
	}
	where := l.places()
	var lines []string
	for _, label := range l.labels {
		lines = append(lines, label+" ("+strings.Join(where[label], ", ")+")")
	}
	return lines
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
		where[c.label()] = append(where[c.label()], c.name())
	}
	return where
}

// by groups the labels by the values of an axis. ok is false if a value has several labels.
func (l *labelled) by(axis string) (where map[string][]string, ok bool) {
	where = map[string][]string{}
	of := map[string]string{}
	for _, c := range l.cells {
		on := c.place.on([]string{axis})
		if len(on) == 0 {
			return nil, false
		}
		at, label := on.String(), c.label()
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
