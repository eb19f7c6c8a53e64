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

// confirmMeanings returns the meanings of a confirm in cells, one line each. If they differ, each line lists its
// places: by an axis that distinguishes them, or cell by cell.
func confirmMeanings(all []*cell) (lines []string) {
	var cells []*cell
	for _, c := range all {
		if ConfirmMeaning(c.cell) != "" {
			cells = append(cells, c)
			lines = addNew(lines, c.label())
		}
	}
	if len(lines) < 2 {
		return lines
	}
	where := placesByLabel(cells)
	for i, label := range lines {
		lines[i] = label + " (" + strings.Join(where[label], ", ") + ")"
	}
	return lines
}

// placesByLabel returns the places of each meaning: values of the first axis of which no value has several meanings, or
// else cells.
func placesByLabel(cells []*cell) map[string][]string {
	axes := []string{"broker"}
	for _, c := range cells[0].place {
		axes = append(axes, c.Axis)
	}
	for _, axis := range axes {
		where, of := map[string][]string{}, map[string]string{}
		distinguishes := true
		for _, c := range cells {
			on, label := c.place.on([]string{axis}), c.label()
			known, seen := of[on.String()]
			distinguishes = distinguishes && len(on) > 0 && (!seen || known == label)
			of[on.String()] = label
			where[label] = addNew(where[label], on.String())
		}
		if distinguishes {
			return where
		}
	}
	where := map[string][]string{}
	for _, c := range cells {
		where[c.label()] = append(where[c.label()], c.name())
	}
	return where
}
