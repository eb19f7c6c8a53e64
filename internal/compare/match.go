package compare

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/sampling"
)

// side is a run, or a part of a run, with its cells.
type side struct {
	mark  string
	run   plan.Run
	cells []*cell // in the order of the matrix
}

// cell is a cell of a side with its outcomes, in order of repetition.
type cell struct {
	cell     plan.Cell
	outcomes []plan.Outcome
	repeat   int
}

// Marks returns n names of runs: A, B, … Z, AA, …
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
		return nil,
			fmt.Errorf("compare with base %q: a base is a value of the axis that --by names; of runs the first is the base", o.Base)
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

// along divides a run by the values of an axis.
func along(whole *side, o Options) ([]*side, error) {
	var sides []*side
	for _, c := range whole.cells {
		mark, has := c.cell.Coordinate(o.By)
		if !has {
			return nil, fmt.Errorf("compare by %q: run %s has no such axis (available: %s)", o.By, whole.run.ID,
				strings.Join(whole.run.Axes, ", "))
		}
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
		return nil, fmt.Errorf("compare by %s: run %s has no two values of it: %s", o.By, whole.run.ID,
			strings.Join(marks, ", "))
	}
	if o.Base != "" {
		at := slices.Index(marks, o.Base)
		if at < 0 {
			return nil, fmt.Errorf("compare with base %q: the axis %s has no such value (available: %s)", o.Base, o.By,
				strings.Join(marks, ", "))
		}
		base := sides[at]
		sides = slices.Insert(slices.Delete(sides, at, at+1), 0, base)
	}
	return sides, nil
}

// group holds the matched cells of all sides; nil for a side without the cell.
type group struct {
	key   string
	at    []plan.Coordinate
	cells []*cell
}

func (g group) name() string {
	switch {
	case len(g.at) > 0:
		return plan.Cell{Coordinates: g.at}.Name()
	case g.key == "": // the compared axis is the only one
		return "the only cell"
	}
	return "cell " + g.key
}

// match groups the cells of all sides. Cells that the base does not have, or that only one side has, are left out. left
// lists cells that a side does not have.
func match(sides []*side, o Options) (rows []group, left []Left, err error) {
	var problems []error
	for i, s := range sides {
		for _, c := range s.cells {
			key, at, missingAxis := o.key(c.cell)
			if missingAxis != "" {
				problems = append(problems, fmt.Errorf("match cells: run %s has no axis %q (available: %s)", s.run.ID, missingAxis,
					strings.Join(s.run.Axes, ", ")))
				break
			}
			row := slices.IndexFunc(rows, func(g group) bool { return g.key == key })
			if row < 0 {
				row = len(rows)
				rows = append(rows, group{key: key, at: at, cells: make([]*cell, len(sides))})
			}
			if other := rows[row].cells[i]; other != nil {
				problems = append(problems, fmt.Errorf("match cells: %s has several cells at %q, which differ in %s: "+
					"match by it too (--match), or keep one of them (--filter)", s.mark, key,
					strings.Join(differing(other.cell, c.cell), ", ")))
				break
			}
			rows[row].cells[i] = c
		}
	}
	if problems != nil {
		return nil, nil, errors.Join(problems...)
	}
	rows = slices.DeleteFunc(rows, func(g group) bool {
		var without, with []string
		for i, c := range g.cells {
			if c == nil {
				without = append(without, sides[i].mark)
			} else {
				with = append(with, sides[i].mark)
			}
		}
		if len(without) > 0 {
			left = append(left, Left{Cell: g.name(), Sides: without, Reason: "only in " + strings.Join(with, " and ")})
		}
		return g.cells[0] == nil || len(with) == 1
	})
	if len(rows) == 0 {
		return nil, nil,
			fmt.Errorf("match cells: no cell of %s is on another side, as ids change with the workload and the broker's name; "+
				"name the axes that have to agree with --match (available: %s)", sides[0].mark,
				strings.Join(sides[0].run.Axes, ", "))
	}
	return rows, left, nil
}

// differing returns the axes on which two cells differ.
func differing(a, b plan.Cell) (axes []string) {
	for _, c := range a.Coordinates {
		if other, has := b.Coordinate(c.Axis); has && other != c.Text() {
			axes = append(axes, c.Axis)
		}
	}
	return axes
}

// facts returns the properties of a side's matrix, agents, clocks and brokers. Along the axis of brokers all brokers
// are named "broker", so that their properties are compared.
func (s *side) facts(by string) facts {
	f, bound := facts{}, time.Duration(-1)
	broker := func(name string) string {
		if by == "broker" {
			return "broker"
		}
		return "broker " + name
	}
	for _, c := range s.cells {
		for _, b := range c.cell.Brokers() {
			of := broker(b.Name)
			b.Name, b.Version = "", "" // the version label is in the subject
			f.add(of, "", b)
		}
		f.add(broker(c.cell.Broker.Name), "meaning of a confirm", c.cell.Label)
		for _, o := range c.outcomes {
			f.add("agents", "how many", len(o.Agents))
			f.add("agents", "hosts", strings.Join(o.Hosts(), ", "))
			for _, a := range o.Agents {
				f.add("harness", "version", a.Version)
			}
			for _, p := range o.Clocks {
				bound = max(bound, p.Bound.D())
			}
			o.Subject.Fingerprint = ""
			f.add(broker(c.cell.Broker.Name), "", o.Subject)
			for _, g := range o.Groups {
				if g.Subject != nil {
					subject := *g.Subject
					subject.Fingerprint = ""
					f.add("broker of group "+g.Name, "", subject)
				}
			}
		}
	}
	known := "one clock"
	if bound >= 0 {
		coarse := time.Microsecond // powers of two, so that small changes of the bound are not reported
		for coarse < bound {
			coarse *= 2
		}
		known = "± " + coarse.String()
	}
	f.add("clocks", "known to within", known)
	source := s.run.Source
	source.Path, source.Text, source.SHA256 = "", "", source.SHA256[:min(12, len(source.SHA256))]
	f.add("matrix", "", source)
	f.add("matrix", "random order", s.run.Order.Random)
	f.add("matrix", "settle", s.run.Settle.String())
	return f
}

// hosts returns the hosts of a cell's agents, each once, with their cores.
func (c *cell) hosts() (all []string) {
	for _, o := range c.outcomes {
		all = append(all, o.Hosts()...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
