package report

import (
	"slices"
	"strings"

	"lockstep/internal/judge"
	"lockstep/internal/plan"
)

// labelled collects what a confirm means in the cells of a table.
type labelled struct {
	labels []string
	cells  []*cell
}

func (l *labelled) add(c *cell) {
	confirmed := func(w plan.Workload) bool { return judge.Confirmed(w.Publishers.Mode) }
	if c.cell.Label == "" || !slices.ContainsFunc(c.cell.Workload.Parts(), confirmed) {
		return
	}
	l.cells = append(l.cells, c)
	if label := c.label(); !slices.Contains(l.labels, label) {
		l.labels = append(l.labels, label)
	}
}

// notHonoured is how drivers begin what they say of a setting that the server takes and does not keep.
const notHonoured = "not honoured by this server"

// label is what a confirm was to mean in the cell, and what of that the server did not honour.
func (c *cell) label() string {
	label := c.cell.Label
	var broken []string
	for _, o := range c.outcomes {
		for name, value := range o.Subject.Settings {
			if text := name + " " + value; strings.Contains(value, notHonoured) && !slices.Contains(broken, text) {
				broken = append(broken, text)
			}
		}
	}
	slices.Sort(broken)
	if len(broken) > 0 {
		label += " (" + strings.Join(broken, "; ") + ")"
	}
	return label
}

// remarks says what a confirm means, and where it means which if it differs: by one axis that tells them apart, or cell
// by cell.
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
		where[c.label()] = append(where[c.label()], c.name())
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
