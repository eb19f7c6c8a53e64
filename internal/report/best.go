package report

import (
	"fmt"
	"slices"

	"lockstep/internal/plan"
)

// bestTable fills one part of a split with the best cell per row. Columns for the other axes show where that cell is.
func (b *builder) bestTable(t plan.Table, part place) Table {
	name, better, word := t.Highest, func(x, y float64) bool { return x > y }, "highest"
	if t.Lowest != "" {
		name, better, word = t.Lowest, func(x, y float64) bool { return x < y }, "lowest"
	}
	chosen := b.differing(slices.Concat(t.Split, t.Rows))
	out := Table{Title: b.title(t, part), Axes: slices.Concat(t.Rows, chosen), Split: part.coordinates()}
	out.Head = axisHeadings(t, out.Axes)
	for _, value := range t.Values {
		out.Head = append(out.Head, titleOf(t, value))
	}
	n := &notes{}
	for _, row := range b.tuples(t.Rows, part) {
		cells := b.within(slices.Concat(part, row))
		winner := best(cells, name, better)
		out.Rows = append(out.Rows, b.bestRow(t, name, row, chosen, cells, winner, n))
	}
	out.Notes = n.texts
	remark := fmt.Sprintf("each row is the valid cell with the %s %s; a cell with a flag on it is used only if all have one", word,
		titleOf(t, name))
	if slices.ContainsFunc(b.within(part), func(c *cell) bool { return c.standIn() != "" }) {
		remark += "; stand-ins are not ranked"
	}
	out.Remarks = append([]string{remark}, out.legend()...)
	return out
}

// bestRow is a row of such a table, by the value named by. Without a best cell it shows the reason and no numbers: they
// would be those of an arbitrary cell.
func (b *builder) bestRow(t plan.Table, by string, row place, chosen []string, cells []*cell, winner *cell,
	n *notes) []Field {
	var where place
	if winner != nil {
		where = winner.place
	}
	fields := append(row.fields(t.Rows), where.fields(chosen)...)
	for _, value := range t.Values {
		info := valueInfo(value)
		switch {
		case winner != nil:
			fields = append(fields, winner.field(info, n))
		case len(cells) > 0:
			fields = append(fields, noBest(cells, value, info, valueInfo(by), n))
		default:
			f := Field{Value: value, Unit: info.Unit, Text: "n/a"}
			if e := b.excludedWithin(row); e != nil {
				f.Notes = n.add("n/a: " + e.Reason)
			}
			fields = append(fields, f)
		}
	}
	return fields
}

// noBest returns the field of a row without a best cell. It has no number, but the reason from the first cell.
func noBest(cells []*cell, value string, info, by plan.ValueInfo, n *notes) Field {
	why := cells[0].field(by, n)
	if value == by.Name && why.Number == nil {
		return why
	}
	f := Field{Value: value, Unit: info.Unit, Verdict: why.Verdict, Text: "–", Notes: why.Notes}
	if why.Number != nil { // the cell is not valid, or not ranked
		reason := "no valid cell"
		if !slices.ContainsFunc(cells, func(c *cell) bool { return c.standIn() == "" }) {
			reason = "not ranked: a stand-in for " + cells[0].standIn()
		}
		f.Notes = append(slices.Clone(f.Notes), n.add(reason)...)
	}
	return f
}

// differing lists the axes on which cells differ, in the order of the matrix, without those in besides.
func (b *builder) differing(besides []string) []string {
	var axes []string
	for _, axis := range b.run.Axes {
		seen := map[string]bool{}
		for _, c := range b.cells {
			seen[c.place.on([]string{axis}).String()] = true
		}
		if len(seen) > 1 && !slices.Contains(besides, axis) {
			axes = append(axes, axis)
		}
	}
	return axes
}

// within lists the cells that are at all points of a place.
func (b *builder) within(at place) []*cell {
	var some []*cell
	for _, c := range b.cells {
		if c.place.holds(at) {
			some = append(some, c)
		}
	}
	return some
}

func (b *builder) excludedWithin(at place) *exclusion {
	for _, e := range b.excluded {
		if e.Kind == kindNA && e.place.holds(at) {
			return e
		}
	}
	return nil
}

func (p place) holds(at place) bool {
	for _, x := range at {
		if !slices.Contains(p, x) {
			return false
		}
	}
	return true
}

// best returns the cell with the best median over valid repetitions, the first of equal ones; nil if no cell has a
// number. A cell whose value has a flag, or is a bound, is chosen only if all cells are like that. Stand-ins are never
// chosen.
func best(cells []*cell, value string, better func(x, y float64) bool) *cell {
	var winner *cell
	var most float64
	flagged := false // the winner has a flag or is a bound
	for _, c := range cells {
		numbers, _, flags := collect(c.with(plan.Valid), value)
		if len(numbers) == 0 || c.standIn() != "" {
			continue
		}
		middle := median(numbers, valuesOf(c.with(plan.Valid), value))
		m, doubtful := middle.Number, middle.Over > 0 || len(flags) > 0
		if winner == nil || flagged && !doubtful || flagged == doubtful && better(m, most) {
			winner, most, flagged = c, m, doubtful
		}
	}
	return winner
}
