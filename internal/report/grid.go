package report

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/sampling"
)

const kindNA = "n/a" // the kind of excluded combinations that the broker does not support

// point is a value on an axis.
type point struct{ axis, text string }

// place is a combination in the matrix: one point per axis, in the order of the axes.
type place []point

func placeOf(coordinates []plan.Coordinate) place {
	p := make(place, len(coordinates))
	for i, c := range coordinates {
		p[i] = point{c.Axis, compact(c)}
	}
	return p
}

// compact returns the text of a coordinate, on one line.
func compact(c plan.Coordinate) string {
	var one bytes.Buffer
	if json.Compact(&one, c.Value) == nil {
		c.Value = one.Bytes()
	}
	return c.Text()
}

// on returns the points on axes, in their order. An axis that the place does not have is left out.
func (p place) on(axes []string) place {
	var some place
	for _, axis := range axes {
		if i := slices.IndexFunc(p, func(x point) bool { return x.axis == axis }); i >= 0 {
			some = append(some, p[i])
		}
	}
	return some
}

// fields returns one field per axis. The text is a dash for an axis without a point, which a foreign record may have.
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

// String formats points: "mode=confirm-each threads=5".
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

// builder builds tables from the cells of a run and their outcomes, in the order of the matrix.
type builder struct {
	run      plan.Run
	cells    []*cell
	excluded []*exclusion
	order    map[point]int // position of each point, in the order in which the matrix has them
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

// learn records the order of values on the axes.
func (b *builder) learn(p place) {
	for _, x := range p {
		if _, known := b.order[x]; !known {
			b.order[x] = len(b.order)
		}
	}
}

// grid finds the cells and exclusions of one requested table by their points on its axes.
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

// tuples lists the distinct points on axes of one part of the matrix, in the order of the matrix. It includes
// combinations that brokers do not support, but not those that skip patterns excluded.
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

// missingAxes lists the axes that must be added to axes to give each cell a distinct place, in the order of the matrix.
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

// collision returns an axis that distinguishes two cells with the same points on axes; empty: there are none.
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
