package report

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/sampling"
)

// RunAxis is the axis that distinguishes several runs. It is not an axis of their matrices.
const RunAxis = "run"

// Study is the data of tables: one run, or several side by side, with their outcomes.
type Study struct {
	Run      plan.Run
	Outcomes []plan.Outcome
	repeats  map[string]often // by cell id; only if the numbers of repetitions may differ between cells
	tables   []plan.Table
}

// StudyOf returns the study of one run.
func StudyOf(run plan.Run, outcomes []plan.Outcome) Study {
	s := Study{Run: run, Outcomes: outcomes, tables: requestedTables(run), repeats: map[string]often{}}
	if run.Until != nil {
		s.repeat("", run, outcomes)
	}
	return s
}

// repeat stores the number of repetitions of each cell of a run. mark is the prefix of the cell ids in this study.
func (s *Study) repeat(mark string, run plan.Run, outcomes []plan.Outcome) {
	rounds := sampling.Of(run, outcomes)
	for _, c := range run.Cells {
		s.repeats[mark+c.ID] = oftenOf(rounds, c.ID)
	}
}

// Combine returns a study of several runs, with an additional axis for the run. marks names the runs and has one
// element per study. Each table of any of them gets a column per run, or a row per run if it shows best cells. Each
// field shows one run only.
func Combine(studies []Study, marks []string) Study {
	all := Study{repeats: map[string]often{}}
	for i, s := range studies {
		on := plan.Coordinate{Axis: RunAxis, Value: encoded(marks[i])}
		all.Run.Repeat, all.Run.Strict = max(all.Run.Repeat, s.Run.Repeat), all.Run.Strict || s.Run.Strict
		all.Run.Name = cmp.Or(all.Run.Name, s.Run.Name)
		all.Run.Metrics = all.Run.Metrics.Join(s.Run.Metrics...)
		all.Run.Axes = addNew(all.Run.Axes, s.Run.Axes...)
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
		all.addTables(s.tables)
	}
	all.Run.Axes = append([]string{RunAxis}, all.Run.Axes...)
	all.square()
	return all
}

// addTables adds the tables that the study does not have yet, with the run as an axis.
func (s *Study) addTables(tables []plan.Table) {
	for _, t := range tables {
		if t.Highest != "" || t.Lowest != "" {
			t.Rows = append(slices.Clone(t.Rows), RunAxis)
		} else {
			t.Columns = append(slices.Clone(t.Columns), RunAxis)
		}
		same := func(o plan.Table) bool { return string(encoded(o)) == string(encoded(t)) }
		if !slices.ContainsFunc(s.tables, same) {
			s.tables = append(s.tables, t)
		}
	}
}

// square gives every cell a point on every axis, because the matrices may have different axes.
func (s *Study) square() {
	whole := func(at []plan.Coordinate) []plan.Coordinate {
		for _, axis := range s.Run.Axes {
			if !slices.ContainsFunc(at, func(c plan.Coordinate) bool { return c.Axis == axis }) {
				at = append(slices.Clip(at), plan.Coordinate{Axis: axis, Value: encoded("–")})
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

func encoded(v any) []byte {
	out, _ := json.Marshal(v) // of plain data
	return out
}

// Build returns the requested tables and those of searches.
func (s Study) Build() []Table {
	return append(s.Tables(s.tables), s.builder(false).searches()...)
}

// Tables returns the given tables over the study's cells, without those of searches.
func (s Study) Tables(requested []plan.Table) (tables []Table) {
	var builders [2]*builder
	for _, t := range requested {
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

// builder returns a builder of the study's cells. If parted, each group of a cell is a cell of its own.
func (s Study) builder(parted bool) *builder {
	run, outcomes := s.Run, s.Outcomes
	if parted {
		run, outcomes = perGroup(run, outcomes)
	}
	b := newBuilder(run, outcomes)
	for _, c := range b.cells {
		id, _, _ := strings.Cut(c.cell.ID, "/") // without the name of a group
		if n, known := s.repeats[id]; known {
			c.often = n
		}
	}
	return b
}
