package report

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/sampling"
)

const kindNA = "n/a" // of an excluded combination that the broker cannot do

// point is a value on an axis.
type point struct{ axis, text string }

// place is where a combination is in the matrix: a point on each of its axes, in their order.
type place []point

func placeOf(coordinates []plan.Coordinate) place {
	p := make(place, len(coordinates))
	for i, c := range coordinates {
		p[i] = point{c.Axis, compact(c)}
	}
	return p
}

// compact is a coordinate's text on one line.
func compact(c plan.Coordinate) string {
	var one bytes.Buffer
	if json.Compact(&one, c.Value) == nil {
		c.Value = one.Bytes()
	}
	return c.Text()
}

// on returns the points on some axes, in the order of these; an axis that the place does not have is left out.
func (p place) on(axes []string) place {
	var some place
	for _, axis := range axes {
		if i := slices.IndexFunc(p, func(x point) bool { return x.axis == axis }); i >= 0 {
			some = append(some, p[i])
		}
	}
	return some
}

// fields are the place's points on axes, one each; a record of another hand may have cells that are on no point of an
// axis.
func (p place) fields(axes []string) []Field {
	fields := make([]Field, len(axes))
	for i, axis := range axes {
		fields[i].Text = "–"
		if at := p.on([]string{axis}); len(at) > 0 {
			fields[i].Text = at[0].text
		}
	}
	return fields
}

// String writes points for people: "mode=confirm-each threads=5".
func (p place) String() string {
	parts := make([]string, len(p))
	for i, x := range p {
		parts[i] = x.axis + "=" + x.text
	}
	return strings.Join(parts, " ")
}

func (p place) coordinates() []Coordinate {
	var all []Coordinate
	for _, x := range p {
		all = append(all, Coordinate{x.axis, x.text})
	}
	return all
}

// exclusion is a combination that was not run.
type exclusion struct {
	plan.Excluded
	place place
}

// builder has the cells of a run with their outcomes, in the order of the matrix.
type builder struct {
	run      plan.Run
	cells    []*cell
	excluded []*exclusion
	order    map[point]int // of the values of each axis
}

func newBuilder(run plan.Run, outcomes []plan.Outcome) *builder {
	b := &builder{run: run, order: map[point]int{}}
	rounds := sampling.Of(run, outcomes)
	byID := map[string][]plan.Outcome{}
	for _, o := range outcomes {
		byID[o.Cell] = append(byID[o.Cell], o)
	}
	sorted := slices.Clone(run.Cells)
	slices.SortStableFunc(sorted, func(a, b plan.Cell) int { return a.Index - b.Index })
	for _, c := range sorted {
		got := byID[c.ID]
		slices.SortStableFunc(got, func(a, b plan.Outcome) int { return a.Repetition - b.Repetition })
		b.cells = append(b.cells, &cell{cell: c, place: placeOf(c.Coordinates), often: oftenOf(rounds, c.ID),
			outcomes: got})
		b.learn(b.cells[len(b.cells)-1].place)
	}
	for _, e := range run.Excluded {
		b.excluded = append(b.excluded, &exclusion{e, placeOf(e.Coordinates)})
		b.learn(b.excluded[len(b.excluded)-1].place)
	}
	return b
}

// learn takes values in the order in which they come.
func (b *builder) learn(p place) {
	for _, x := range p {
		if _, known := b.order[x]; !known {
			b.order[x] = len(b.order)
		}
	}
}

// grid is the cells and exclusions of one asked table, by their points on its axes.
type grid struct {
	b         *builder
	axes      []string
	cells     map[string]*cell
	excluded  map[string]*exclusion
	latencies map[point]string
}

func (b *builder) grid(axes []string) *grid {
	g := &grid{b: b, axes: axes, cells: map[string]*cell{}, excluded: map[string]*exclusion{}, latencies: b.achieved()}
	for _, c := range b.cells {
		g.cells[c.place.on(axes).String()] = c
	}
	for _, e := range b.excluded {
		if key := e.place.on(axes).String(); g.excluded[key] == nil {
			g.excluded[key] = e
		}
	}
	return g
}

// tuples lists, in the order of the matrix, the points on some axes of what is in one part of the matrix: cells, and
// combinations that brokers cannot do. What only patterns skipped is left out.
func (b *builder) tuples(axes []string, part place) []place {
	var partAxes []string
	for _, p := range part {
		partAxes = append(partAxes, p.axis)
	}
	var found []place
	seen := map[string]bool{}
	add := func(p place) {
		if p.on(partAxes).String() != part.String() {
			return
		}
		if t := p.on(axes); !seen[t.String()] {
			seen[t.String()] = true
			found = append(found, t)
		}
	}
	for _, c := range b.cells {
		add(c.place)
	}
	for _, e := range b.excluded {
		if e.Kind == kindNA {
			add(e.place)
		}
	}
	slices.SortStableFunc(found, b.compare)
	return found
}

func (b *builder) compare(x, y place) int {
	for i := range min(len(x), len(y)) {
		if d := b.order[x[i]] - b.order[y[i]]; d != 0 {
			return d
		}
	}
	return len(x) - len(y)
}

// missingAxes lists axes, in the matrix's order, that must be added to axes so that no two cells are in the same place.
func (b *builder) missingAxes(axes []string) []string {
	axes = slices.Clone(axes)
	var added []string
	for {
		axis := b.collision(axes)
		if axis == "" {
			slices.SortFunc(added, func(x, y string) int {
				return slices.Index(b.run.Axes, x) - slices.Index(b.run.Axes,
					y)
			})
			return added
		}
		axes, added = append(axes, axis), append(added, axis)
	}
}

// collision finds an axis that tells two cells apart which axes do not.
func (b *builder) collision(axes []string) string {
	first := map[string]place{}
	for _, c := range b.cells {
		key := c.place.on(axes).String()
		other, taken := first[key]
		if !taken {
			first[key] = c.place
			continue
		}
		for _, x := range c.place {
			if !slices.Contains(other, x) && !slices.Contains(axes, x.axis) {
				return x.axis
			}
		}
	}
	return ""
}
