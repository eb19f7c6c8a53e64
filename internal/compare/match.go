package compare

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/sampling"
)

// side is one of what is compared, as it is read.
type side struct {
	mark  string
	run   plan.Run
	cells []*cell // in the order of the matrix
}

// cell is a cell of a side with its outcomes, in the order of repetitions.
type cell struct {
	cell     plan.Cell
	outcomes []plan.Outcome
	repeat   int
}

func (s *side) describe() Side {
	d := Side{Mark: s.mark, Run: s.run.ID, Name: s.run.Name, Started: s.run.Started, Cells: len(s.cells)}
	for _, c := range s.cells {
		d.Repetitions = max(d.Repetitions, c.repeat)
	}
	return d
}

func joined(what string, faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	return errors.New(what + ": " + strings.Join(faults, "\n"+what+": "))
}

// text is a coordinate's value on one line.
func text(c plan.Coordinate) string {
	var one bytes.Buffer
	if json.Compact(&one, c.Value) == nil {
		c.Value = one.Bytes()
	}
	return c.Text()
}

// Marks name runs that are side by side: A, B, … Z, AA, …
func Marks(n int) []string {
	all := make([]string, n)
	for i := range all {
		for k := i; k >= 0; k = k/26 - 1 {
			all[i] = string(rune('A'+k%26)) + all[i]
		}
	}
	return all
}

func sidesOf(runs []Recorded, o Options) ([]*side, error) {
	switch {
	case o.By != "" && len(runs) != 1:
		return nil, fmt.Errorf("compare by %s: that is inside of one run, and %d are given", o.By, len(runs))
	case o.By == "" && o.Base != "":
		return nil, fmt.Errorf("compare with base %q: a base is a value of the axis that --by names; of runs the first is the base", o.Base)
	case o.By == "" && len(runs) < 2:
		return nil, errors.New("compare: give two runs, or one and the axis to compare by (--by)")
	}
	if o.By != "" {
		return along(newSide("", runs[0]), o)
	}
	var sides []*side
	for i, mark := range Marks(len(runs)) {
		sides = append(sides, newSide(cmp.Or(runs[i].Mark, mark), runs[i]))
	}
	return sides, nil
}

func newSide(mark string, r Recorded) *side {
	s := &side{mark: mark, run: r.Run}
	rounds := sampling.Of(r.Run, r.Outcomes)
	byID := map[string][]plan.Outcome{}
	for _, o := range r.Outcomes {
		byID[o.Cell] = append(byID[o.Cell], o)
	}
	for _, c := range r.Run.Cells {
		got := byID[c.ID]
		slices.SortStableFunc(got, func(a, b plan.Outcome) int { return a.Repetition - b.Repetition })
		s.cells = append(s.cells, &cell{cell: c, outcomes: got, repeat: rounds.Cell(c.ID).Repeat})
	}
	slices.SortStableFunc(s.cells, func(a, b *cell) int { return a.cell.Index - b.cell.Index })
	return s
}

// along parts a run by the values of an axis.
func along(whole *side, o Options) ([]*side, error) {
	var sides []*side
	for _, c := range whole.cells {
		i := slices.IndexFunc(c.cell.Coordinates, func(x plan.Coordinate) bool { return x.Axis == o.By })
		if i < 0 {
			return nil, fmt.Errorf("compare by %q: run %s has no such axis (there are: %s)", o.By, whole.run.ID, strings.Join(whole.run.Axes, ", "))
		}
		mark := text(c.cell.Coordinates[i])
		at := slices.IndexFunc(sides, func(s *side) bool { return s.mark == mark })
		if at < 0 {
			at = len(sides)
			sides = append(sides, &side{mark: mark, run: whole.run})
		}
		sides[at].cells = append(sides[at].cells, c)
	}
	var marks []string
	for _, s := range sides {
		marks = append(marks, s.mark)
	}
	if len(sides) < 2 {
		return nil, fmt.Errorf("compare by %s: run %s has no two values of it: %s", o.By, whole.run.ID, strings.Join(marks, ", "))
	}
	if o.Base != "" {
		at := slices.Index(marks, o.Base)
		if at < 0 {
			return nil, fmt.Errorf("compare with base %q: the axis %s has no such value (there are: %s)", o.Base, o.By, strings.Join(marks, ", "))
		}
		base := sides[at]
		sides = slices.Insert(slices.Delete(sides, at, at+1), 0, base)
	}
	return sides, nil
}

// matched is the cells that belong together.
type matched struct {
	axes  []string
	rows  []group
	left  []Left
	notes []string
}

// group is one cell on all sides; nil where a side does not have it.
type group struct {
	key   string
	at    []plan.Coordinate
	cells []*cell
}

func (g group) name() string {
	switch {
	case len(g.at) > 0:
		return place(g.at)
	case g.key == "": // where the axis that is compared by is the only one
		return "the only cell"
	}
	return "cell " + g.key
}

// place is coordinates in words: "broker=rabbit mode=fast".
func place(at []plan.Coordinate) string {
	parts := make([]string, len(at))
	for i, c := range at {
		parts[i] = c.Axis + "=" + text(c)
	}
	return strings.Join(parts, " ")
}

// match finds the cells that belong together: by id, by the axes asked for, along an axis by all others or, where runs have no id in common, by the
// axes that they have in common. Cells that a side lacks are left out of it, and said.
func match(sides []*side, o Options) (matched, error) {
	var m matched
	switch {
	case len(o.Match) > 0:
		m.axes = o.Match
	case o.By != "":
		for _, axis := range axesOf(sides[0]) {
			if axis != o.By {
				m.axes = append(m.axes, axis)
			}
		}
	case !anyCommon(sides):
		m.axes = commonAxes(sides)
		m.notes = append(m.notes, "no cell id is on all sides, as workloads or brokers' names differ: cells are matched by the axes in common: "+strings.Join(m.axes, ", "))
	}
	byID := len(m.axes) == 0 && o.By == ""
	if byID && !anyCommon(sides) {
		return m, errors.New("match cells: the runs have neither a cell nor an axis in common; name axes with --match, or compare other runs")
	}
	var faults []string
	for i, s := range sides {
		faults = append(faults, m.take(i, s, len(sides), byID)...)
	}
	if err := joined("match cells", faults); err != nil {
		return m, err
	}
	m.lacking(sides)
	if len(m.rows) == 0 {
		return m, fmt.Errorf("match cells: no cell of %s has one at the same place of the other sides; name the axes that have to agree with --match", sides[0].mark)
	}
	return m, nil
}

// take puts the cells of a side into their rows.
func (m *matched) take(i int, s *side, sides int, byID bool) (faults []string) {
	for _, c := range s.cells {
		key, at := c.cell.ID, c.cell.Coordinates
		if !byID {
			var lacks string
			if at, lacks = on(c.cell.Coordinates, m.axes); lacks != "" {
				return append(faults, fmt.Sprintf("run %s has no axis %q (there are: %s)", s.run.ID, lacks, strings.Join(axesOf(s), ", ")))
			}
			key = place(at)
		}
		row := slices.IndexFunc(m.rows, func(g group) bool { return g.key == key })
		if row < 0 {
			row = len(m.rows)
			m.rows = append(m.rows, group{key: key, at: at, cells: make([]*cell, sides)})
		}
		if other := m.rows[row].cells[i]; other != nil {
			return append(faults, fmt.Sprintf("%s has several cells at %q, which differ in %s: match by it too (--match), or keep one of them (--only)",
				s.mark, key, strings.Join(differing(other.cell, c.cell), ", ")))
		}
		m.rows[row].cells[i] = c
	}
	return faults
}

// on are the coordinates on some axes; lacks is one that is not there.
func on(at []plan.Coordinate, axes []string) (some []plan.Coordinate, lacks string) {
	for _, axis := range axes {
		i := slices.IndexFunc(at, func(c plan.Coordinate) bool { return c.Axis == axis })
		if i < 0 {
			return nil, axis
		}
		some = append(some, at[i])
	}
	return some, ""
}

// differing are the axes on which two cells are apart.
func differing(a, b plan.Cell) (axes []string) {
	for _, c := range a.Coordinates {
		if other, has := b.Coordinate(c.Axis); has && other != c.Text() {
			axes = append(axes, c.Axis)
		}
	}
	return axes
}

func axesOf(s *side) (axes []string) {
	for _, c := range s.cells {
		for _, x := range c.cell.Coordinates {
			if !slices.Contains(axes, x.Axis) {
				axes = append(axes, x.Axis)
			}
		}
	}
	return axes
}

func commonAxes(sides []*side) []string {
	axes := axesOf(sides[0])
	for _, s := range sides[1:] {
		has := axesOf(s)
		axes = slices.DeleteFunc(axes, func(a string) bool { return !slices.Contains(has, a) })
	}
	return axes
}

// anyCommon tells whether the base shares a cell with each other side.
func anyCommon(sides []*side) bool {
	base := map[string]bool{}
	for _, c := range sides[0].cells {
		base[c.cell.ID] = true
	}
	for _, s := range sides[1:] {
		if !slices.ContainsFunc(s.cells, func(c *cell) bool { return base[c.cell.ID] }) {
			return false
		}
	}
	return true
}

// lacking leaves out rows that the base lacks, or that it alone has, and says so of every side that lacks one.
func (m *matched) lacking(sides []*side) {
	kept := m.rows[:0]
	for _, g := range m.rows {
		var without, with []string
		for i, c := range g.cells {
			if c == nil {
				without = append(without, sides[i].mark)
			} else {
				with = append(with, sides[i].mark)
			}
		}
		if len(without) > 0 {
			m.left = append(m.left, Left{Cell: g.name(), Sides: without, Reason: "only in " + strings.Join(with, " and ")})
		}
		if g.cells[0] != nil && len(with) > 1 {
			kept = append(kept, g)
		}
	}
	m.rows = kept
}
