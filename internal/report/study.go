package report

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/sampling"
)

// RunAxis is the axis on which several runs are told apart; it is in none of their matrices.
const RunAxis = "run"

// Study is what tables are made of: a run, or several side by side, with what came of them.
type Study struct {
	Run      plan.Run
	Outcomes []plan.Outcome
	repeats  map[string]often // of cells, where they differ in it
	asked    []plan.Table
}

// StudyOf is the study of one run.
func StudyOf(run plan.Run, outcomes []plan.Outcome) Study {
	s := Study{Run: run, Outcomes: outcomes, asked: asked(run), repeats: map[string]often{}}
	if run.Until != nil {
		s.repeat("", run, outcomes)
	}
	return s
}

// repeat notes how often each cell of a run is measured; mark is what its ids begin with here.
func (s *Study) repeat(mark string, run plan.Run, outcomes []plan.Outcome) {
	rounds := sampling.Of(run, outcomes)
	for _, c := range run.Cells {
		s.repeats[mark+c.ID] = oftenOf(rounds, c.ID)
	}
}

// Together has several runs side by side: their cells on an axis of its own, named by marks, which are as many as there
// are studies. Each table that any of them asks for has a column for each run, or a row where it shows best cells.
// Nothing is mixed: a field is of one run.
func Together(studies []Study, marks []string) Study {
	all := Study{repeats: map[string]often{}}
	for i, s := range studies {
		on := plan.Coordinate{Axis: RunAxis, Value: text(marks[i])}
		all.Run.Repeat, all.Run.Strict = max(all.Run.Repeat, s.Run.Repeat), all.Run.Strict || s.Run.Strict
		all.Run.Name = cmp.Or(all.Run.Name, s.Run.Name)
		for _, axis := range s.Run.Axes {
			if !slices.Contains(all.Run.Axes, axis) {
				all.Run.Axes = append(all.Run.Axes, axis)
			}
		}
		all.repeat(marks[i]+":", s.Run, s.Outcomes)
		for _, c := range s.Run.Cells {
			c.ID = marks[i] + ":" + c.ID
			c.Coordinates = append([]plan.Coordinate{on}, c.Coordinates...)
			all.Run.Cells = append(all.Run.Cells, c)
		}
		for _, e := range s.Run.Excluded {
			e.Coordinates = append([]plan.Coordinate{on}, e.Coordinates...)
			all.Run.Excluded = append(all.Run.Excluded, e)
		}
		for _, o := range s.Outcomes {
			o.Cell = marks[i] + ":" + o.Cell
			all.Outcomes = append(all.Outcomes, o)
		}
		all.ask(s.asked)
	}
	all.Run.Axes = append([]string{RunAxis}, all.Run.Axes...)
	all.square()
	return all
}

// ask adds tables that are not asked for yet, with the run on them.
func (s *Study) ask(tables []plan.Table) {
	for _, t := range tables {
		if t.Highest != "" || t.Lowest != "" {
			t.Rows = append(slices.Clone(t.Rows), RunAxis)
		} else {
			t.Columns = append(slices.Clone(t.Columns), RunAxis)
		}
		same := func(o plan.Table) bool { return string(encoded(o)) == string(encoded(t)) }
		if !slices.ContainsFunc(s.asked, same) {
			s.asked = append(s.asked, t)
		}
	}
}

// square gives every cell a point on every axis: matrices may differ in those that they have.
func (s *Study) square() {
	whole := func(at []plan.Coordinate) []plan.Coordinate {
		for _, axis := range s.Run.Axes {
			if !slices.ContainsFunc(at, func(c plan.Coordinate) bool { return c.Axis == axis }) {
				at = append(slices.Clip(at), plan.Coordinate{Axis: axis, Value: text("–")})
			}
		}
		return at
	}
	for i := range s.Run.Cells {
		s.Run.Cells[i].Coordinates = whole(s.Run.Cells[i].Coordinates)
	}
	for i := range s.Run.Excluded {
		s.Run.Excluded[i].Coordinates = whole(s.Run.Excluded[i].Coordinates)
	}
}

// text is a coordinate's value. Text cannot fail to be written.
func text(s string) json.RawMessage { return encoded(s) }

func encoded(v any) []byte {
	out, _ := json.Marshal(v) // of plain data
	return out
}

// Build makes the tables that are asked for, and those of searches.
func (s Study) Build() []Table {
	return append(s.Tables(s.asked), s.builder(false).searches()...)
}

// Tables makes tables of the study's cells, besides those of searches.
func (s Study) Tables(asked []plan.Table) (tables []Table) {
	var builders [2]*builder
	for _, t := range asked {
		i, parted := 0, byGroup(s.Run, t)
		if parted {
			i = 1
		}
		if builders[i] == nil {
			builders[i] = s.builder(parted)
		}
		tables = append(tables, builders[i].tables(t)...)
	}
	return tables
}

// builder has the study's cells, or the groups of them each as a cell.
func (s Study) builder(parted bool) *builder {
	run, outcomes := s.Run, s.Outcomes
	if parted {
		run, outcomes = perGroup(run, outcomes)
	}
	b := newBuilder(run, outcomes)
	for _, c := range b.cells {
		id, _, _ := strings.Cut(c.cell.ID, "/") // of a group
		if n, known := s.repeats[id]; known {
			c.often = n
		}
	}
	return b
}

// Grouped reports whether any cell has groups; a table that names GroupAxis has each by itself.
func (s Study) Grouped() bool { return grouped(s.Run) }

// GroupAxis is the axis by which tables tell the groups of cells apart.
const GroupAxis = groupAxis
