package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/sampling"
	"example.org/lockstep/lockstep/internal/stats"
)

const kindNA = "n/a" // the kind of excluded combinations that the broker does not support

// place is a combination in the matrix: one coordinate per axis, in the order of the axes.
type place []Coordinate

func placeOf(coordinates []plan.Coordinate) place {
	p := make(place, len(coordinates))
	for i, c := range coordinates {
		p[i] = Coordinate{c.Axis, c.Text()}
	}
	return p
}

// on returns the coordinates on axes, in their order. An axis that the place does not have is left out.
func (p place) on(axes []string) place {
	var some place
	for _, axis := range axes {
		if i := slices.IndexFunc(p, func(x Coordinate) bool { return x.Axis == axis }); i >= 0 {
			some = append(some, p[i])
		}
	}
	return some
}

// fields returns one field per axis. The text is a dash for an axis without a coordinate, which a foreign record may
// have.
func (p place) fields(axes []string) []Field {
	fields := make([]Field, len(axes))
	for i, axis := range axes {
		fields[i].Text = "–"
		if at := p.on([]string{axis}); len(at) > 0 {
			fields[i].Text = at[0].Text
		}
	}
	return fields
}

// String formats coordinates: "mode=confirm-each threads=5".
func (p place) String() string {
	parts := make([]string, len(p))
	for i, x := range p {
		parts[i] = x.Axis + "=" + x.Text
	}
	return strings.Join(parts, " ")
}

// exclusion is a combination that was not run.
type exclusion struct {
	excluded plan.Excluded
	place    place
}

// maxFields is the maximum number of fields of the tables of a study: a report uses about 2 KiB of memory for each. A
// field of a combination with long texts, which files repeat, counts several times.
const maxFields = 200_000

// tableFields is how many fields a table counts for its texts.
const tableFields = 200

// builder builds tables from the cells of a run and their outcomes, in the order of the matrix.
type builder struct {
	run      plan.Run
	cells    []*cell
	excluded []*exclusion
	order    map[Coordinate]int // position of each coordinate, in the order in which the matrix has them
	longest  int                // bytes of the longest combination
	fields   int                // of the tables so far
}

// fits counts the fields of a table with its rows, of this width. It reports whether the table may be built. If not, it
// gets a remark instead of rows.
func (b *builder) fits(t *Table, rows, width int) bool {
	if b.fields <= maxFields {
		b.fields += tableFields + rows*width*(1+b.longest/256)
	}
	if b.fields <= maxFields {
		return true
	}
	t.Rows, t.Remarks = [][]Field{}, []string{fmt.Sprintf("not shown: the tables of the run have more than %d fields; define smaller tables, or export the values with ctl show -o parquet",
		maxFields)}
	return false
}

func newBuilder(run plan.Run, outcomes []plan.Outcome) *builder {
	b := &builder{run: run, order: map[Coordinate]int{}}
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
		b.cells = append(b.cells, &cell{cell: c, place: b.placeOf(c.Coordinates), often: oftenOf(rounds, c.ID),
			outcomes: got, metrics: run.Metrics})
	}
	for _, e := range run.Excluded {
		b.excluded = append(b.excluded, &exclusion{e, b.placeOf(e.Coordinates)})
	}
	return b
}

// placeOf returns a place, and records the order of values on the axes.
func (b *builder) placeOf(coordinates []plan.Coordinate) place {
	p := placeOf(coordinates)
	b.longest = max(b.longest, len(p.String()))
	for _, x := range p {
		if _, known := b.order[x]; !known {
			b.order[x] = len(b.order)
		}
	}
	return p
}

// grid finds the cells and exclusions of one requested table by their coordinates on its axes.
type grid struct {
	b         *builder
	axes      []string
	cells     map[string]*cell
	excluded  map[string]*exclusion
	latencies map[Coordinate]string
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

// tuples lists the distinct coordinates on axes of one part of the matrix, in the order of the matrix. It includes
// combinations that brokers do not support, but not those that skip patterns excluded.
func (b *builder) tuples(axes []string, part place) []place {
	var partAxes []string
	for _, p := range part {
		partAxes = append(partAxes, p.Axis)
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
		if e.excluded.Kind == kindNA {
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
				return slices.Index(b.run.Axes, x) - slices.Index(b.run.Axes, y)
			})
			return added
		}
		axes, added = append(axes, axis), append(added, axis)
	}
}

// collision returns an axis that distinguishes two cells with the same coordinates on axes; empty: there are none.
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
			if !slices.Contains(other, x) && !slices.Contains(axes, x.Axis) {
				return x.Axis
			}
		}
	}
	return ""
}

// bestTable fills one part of a split with the best cell per row. Columns for the other axes show where that cell is.
func (b *builder) bestTable(t plan.Table, part place) Table {
	name, better, word := t.Highest, func(x, y float64) bool { return x > y }, "highest"
	if t.Lowest != "" {
		name, better, word = t.Lowest, func(x, y float64) bool { return x < y }, "lowest"
	}
	chosen := b.differing(slices.Concat(t.Split, t.Rows))
	out := Table{Title: b.title(t, part), Axes: slices.Concat(t.Rows, chosen), Split: part}
	out.Head = axisHeadings(t, out.Axes)
	rows := b.tuples(t.Rows, part)
	if !b.fits(&out, len(rows), len(out.Axes)+len(t.Values)) {
		return out
	}
	for _, value := range t.Values {
		out.Head = append(out.Head, b.titleOf(t, value))
	}
	n := &notes{}
	for _, row := range rows {
		cells := b.within(slices.Concat(part, row))
		winner := best(cells, name, better)
		out.Rows = append(out.Rows, b.bestRow(t, name, row, chosen, cells, winner, n))
	}
	out.Notes = n.texts
	remark := fmt.Sprintf("each row is the valid cell with the %s %s; a cell with a flag on it is used only if all have one", word,
		b.titleOf(t, name))
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
		info := ValueInfo(b.run.Metrics, value)
		switch {
		case winner != nil:
			fields = append(fields, winner.field(info, n))
		case len(cells) > 0:
			fields = append(fields, noBest(cells, value, info, ValueInfo(b.run.Metrics, by), n))
		default:
			f := Field{Value: value, Unit: info.Unit, Text: "n/a"}
			unsupported := func(e *exclusion) bool { return e.excluded.Kind == kindNA && e.place.holds(row) }
			if i := slices.IndexFunc(b.excluded, unsupported); i >= 0 {
				f.Notes = n.add("n/a: " + b.excluded[i].excluded.Reason)
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

// within lists the cells that have all coordinates of a place.
func (b *builder) within(at place) []*cell {
	var some []*cell
	for _, c := range b.cells {
		if c.place.holds(at) {
			some = append(some, c)
		}
	}
	return some
}

// holds reports whether a place has all coordinates of another.
func (p place) holds(at place) bool {
	return !slices.ContainsFunc(at, func(x Coordinate) bool { return !slices.Contains(p, x) })
}

// best returns the cell with the best median over valid repetitions, the first of equal ones; nil if no cell has a
// number. An upper bound ("< 20 ms") counts as its number. A cell whose value has a flag, or is a lower bound, is
// chosen only if all cells are like that. The flag shared-host does not count: it is a property of the run. Stand-ins
// are never chosen.
func best(cells []*cell, value string, better func(x, y float64) bool) *cell {
	var winner *cell
	var number float64
	flagged := false // the winner has a flag or is a bound
	for _, c := range cells {
		values := valuesOf(c.with(plan.Valid), value)
		numbers, _, flags := collect(c.with(plan.Valid), value)
		numbers, less := among(numbers, values)
		if bound, is := (plan.Value{NA: less}).LessThan(); is {
			numbers = []float64{bound}
		}
		if !(stats.Median(numbers) < math.Inf(1)) || c.standIn() != "" { // NaN without numbers
			continue
		}
		middle := median(numbers, values)
		unsure := middle.Over > 0 || slices.ContainsFunc(flags, func(f plan.Flag) bool { return f != plan.SharedHost })
		if winner == nil || flagged && !unsure || flagged == unsure && better(middle.Number, number) {
			winner, number, flagged = c, middle.Number, unsure
		}
	}
	return winner
}

// achieved returns the latencies that the simulated network added, as texts by coordinate. It has only the coordinates
// of axes that set network.latency, with the median over the cells there.
func (b *builder) achieved() map[Coordinate]string {
	latency, numbers := map[string]bool{}, map[Coordinate][]float64{}
	for _, axis := range b.run.Axes {
		latency[axis] = true
	}
	for _, c := range b.cells {
		own, _, _ := collect(c.usable(), "network.latency.p50")
		for _, x := range c.place {
			requested, err := time.ParseDuration(x.Text)
			latency[x.Axis] = latency[x.Axis] && err == nil && requested == c.cell.Workload.Network.Latency.D()
			numbers[x] = append(numbers[x], own...)
		}
	}
	texts := map[Coordinate]string{}
	for x, all := range numbers {
		if latency[x.Axis] && len(all) > 0 {
			texts[x] = "(" + Format(plan.Seconds, stats.Median(all)) + ")"
		}
	}
	return texts
}

// annotated appends the achieved latencies to the coordinates of a place.
func (g *grid) annotated(p place) place {
	p = slices.Clone(p)
	for i, x := range p {
		p[i].Text = strings.TrimSpace(x.Text + " " + g.latencies[x])
	}
	return p
}

// tables builds a requested table, one Table per part of its split.
func (b *builder) tables(t plan.Table) (tables []Table) {
	if t.Highest != "" || t.Lowest != "" {
		for _, part := range b.tuples(t.Split, nil) {
			if tables = append(tables, b.bestTable(t, part)); b.fields > maxFields {
				break
			}
		}
		return tables
	}
	t.Rows = append(slices.Clone(t.Rows), b.missingAxes(slices.Concat(t.Split, t.Rows, t.Columns))...)
	g := b.grid(slices.Concat(t.Split, t.Rows, t.Columns))
	for _, part := range b.tuples(t.Split, nil) {
		if tables = append(tables, g.table(t, part)); b.fields > maxFields {
			break
		}
	}
	return tables
}

// table builds the table of one part of a split.
func (g *grid) table(t plan.Table, part place) Table {
	rows, columns := g.b.tuples(t.Rows, part), g.b.tuples(t.Columns, part)
	out := Table{Title: g.b.title(t, g.annotated(part)), Axes: t.Rows, Split: part,
		Head: axisHeadings(t, t.Rows)}
	if !g.b.fits(&out, len(rows), len(t.Rows)+len(columns)*len(t.Values)) {
		return out
	}
	for _, column := range columns {
		for _, value := range t.Values {
			out.Head = append(out.Head, heading(g.annotated(column), g.b.titleOf(t, value), len(t.Values) == 1))
		}
	}
	n := &notes{}
	for _, row := range rows {
		fields := slices.Grow(row.fields(t.Rows), len(out.Head))
		for i, axis := range t.Rows {
			fields[i].Mark = g.latencies[Coordinate{axis, fields[i].Text}]
		}
		for _, column := range columns {
			at := slices.Concat(part, row, column).on(g.axes).String()
			for _, value := range t.Values {
				f := g.field(at, value, n)
				f.Column = column
				fields = append(fields, f)
			}
		}
		out.Rows = append(out.Rows, fields)
	}
	out.Notes = n.texts
	out.Remarks = out.legend()
	if slices.ContainsFunc(t.Values, func(v string) bool { _, v = plan.SplitGroup(v); return v == "throughput" }) {
		out.Remarks = append(out.Remarks,
			"throughput: one rate if the publish and consume rates agree, else publish / consume")
	}
	return out
}

// repeated describes the number of repetitions behind each median; empty: there is one.
func (b *builder) repeated() string {
	minRepeat, maxRepeat := b.run.Repeat, 0
	minValid, maxValid := math.MaxInt, 0 // over the cells that have valid repetitions
	for _, c := range b.cells {
		minRepeat, maxRepeat = min(minRepeat, c.often.repeat), max(maxRepeat, c.often.repeat)
		if n := len(c.with(plan.Valid)); n > 0 {
			minValid, maxValid = min(minValid, n), max(maxValid, n)
		}
	}
	minValid = min(minValid, maxValid)
	if len(b.cells) == 0 {
		maxRepeat = minRepeat
	}
	switch {
	case maxRepeat <= 1 || len(b.cells) > 0 && maxValid == 0:
		return ""
	case minValid < minRepeat || maxValid < maxRepeat:
		return fmt.Sprintf("medians of the valid repetitions, %s of %s", fromTo(minValid, maxValid),
			fromTo(minRepeat, maxRepeat))
	case minRepeat != maxRepeat && b.run.Until != nil:
		return fmt.Sprintf("medians of the repetitions that the stop rule required (%s), %d to %d", b.run.Until.Rule,
			minRepeat, maxRepeat)
	}
	return fmt.Sprintf("medians of %d repetitions", maxRepeat)
}

// fromTo formats a range of counts: "3", "3 to 9".
func fromTo(low, high int) string {
	if low == high {
		return strconv.Itoa(high)
	}
	return fmt.Sprintf("%d to %d", low, high)
}

// field returns one value at a place of the matrix.
func (g *grid) field(at string, value string, n *notes) Field {
	info := ValueInfo(g.b.run.Metrics, value)
	if c := g.cells[at]; c != nil {
		return c.field(info, n)
	}
	f := Field{Value: value, Unit: info.Unit}
	if e := g.excluded[at]; e != nil {
		f.Text = "·"
		if e.excluded.Kind == kindNA {
			f.Text = "n/a"
			f.Notes = n.add("n/a: " + e.excluded.Reason)
		}
	}
	return f
}

// title returns the title with the part of the split. If columns are axes, it includes the only value.
func (b *builder) title(t plan.Table, part place) string {
	title := t.Title
	if title == "" {
		title = b.run.Name
	}
	if len(part) > 0 {
		title = strings.TrimPrefix(title+", "+part.String(), ", ")
	}
	if len(t.Columns) > 0 && len(t.Values) == 1 {
		title = strings.TrimPrefix(title+": "+b.titleOf(t, t.Values[0]), ": ")
	}
	return title
}

func heading(column place, title string, only bool) string {
	switch {
	case len(column) == 0:
		return title
	case only:
		return column.String()
	}
	return column.String() + " " + title
}

// titleOf returns the heading of a value in a table.
func (b *builder) titleOf(t plan.Table, value string) string {
	if own := t.Headings[value]; own != "" {
		return own
	}
	return ValueInfo(b.run.Metrics, value).Title
}

func axisHeadings(t plan.Table, axes []string) []string {
	head := slices.Clone(axes)
	for i, axis := range head {
		if own := t.Headings[axis]; own != "" {
			head[i] = own
		}
	}
	return head
}

// searches returns a table with a chart for each capacity search, in the order of the matrix.
func (b *builder) searches() []Table {
	var tables []Table
	for _, c := range b.cells {
		for _, o := range c.outcomes {
			if o.Search != nil {
				tables = append(tables, c.search(o))
			}
		}
	}
	return tables
}

// reasons returns one line per text, with the cells that have it, in the order of first use.
func (b *builder) reasons(of func(*cell) []reason) (lines []string) {
	type line struct {
		text  string
		cells []*cell
		first string // repetitions in the first cell
		n, of int    // repetitions with the text, and of the cells
	}
	var all []*line
	by := map[string]*line{}
	for _, c := range b.cells {
		for _, r := range of(c) {
			l := by[r.text]
			if l == nil {
				l = &line{text: r.text, first: c.repetitions(r)}
				by[r.text], all = l, append(all, l)
			}
			l.cells = append(l.cells, c)
			l.n, l.of = l.n+len(r.which), l.of+c.often.repeat
		}
	}
	for _, l := range all {
		where := b.where(l.cells)
		switch {
		case len(l.cells) == 1:
			where += l.first
		case l.n > 0 && l.n < l.of:
			where += fmt.Sprintf(" (%d of %d repetitions)", l.n, l.of)
		}
		lines = append(lines, where+": "+l.text)
	}
	return lines
}

// maxNamed limits the cells that a line names.
const maxNamed = 3

// where names cells: by the coordinates that only they share, or else the first of them.
func (b *builder) where(cells []*cell) string {
	if len(cells) == 1 {
		return cells[0].name()
	}
	if len(cells) == len(b.cells) {
		return fmt.Sprintf("all %d cells", len(cells))
	}
	shared := sharedBy(cells)
	if len(shared) > 0 && len(b.within(shared)) == len(cells) {
		return fmt.Sprintf("%s (%d cells)", shared, len(cells))
	}
	var names []string
	for _, c := range cells[:min(maxNamed, len(cells))] {
		names = append(names, c.name())
	}
	text := strings.Join(names, ", ")
	if more := len(cells) - len(names); more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// sharedBy returns the coordinates that all cells have.
func sharedBy(cells []*cell) place {
	shared := slices.Clone(cells[0].place)
	for _, c := range cells {
		shared = slices.DeleteFunc(shared, func(p Coordinate) bool { return !slices.Contains(c.place, p) })
	}
	return shared
}

// repeatFailed returns the command that runs the failed cells again, of which there is at least one: with the flags of
// the run, and the coordinates that only some cells have and all failed ones share.
func (b *builder) repeatFailed() string {
	var failed []*cell
	for _, c := range b.cells {
		if len(c.problems(b.run.Strict)) > 0 {
			failed = append(failed, c)
		}
	}
	shared := slices.DeleteFunc(sharedBy(failed), func(p Coordinate) bool { return len(b.within(place{p})) == len(b.cells) })
	filters := slices.DeleteFunc(slices.Clone(b.run.Source.Filter), func(only string) bool {
		axis, _, _ := strings.Cut(only, "=")
		return slices.ContainsFunc(shared, func(p Coordinate) bool { return p.Axis == axis })
	})
	for _, p := range shared {
		filters = append(filters, p.Axis+"="+p.Text)
	}
	return runCommand(b.run.Source, filters)
}

// limitations returns one line per flag and process, with the ranges of the measured values and the cells.
func (b *builder) limitations() (lines []string) {
	type cause struct {
		limitation plan.Limitation
		low, high  float64
	}
	type group struct {
		causes []*cause
		cells  []*cell
	}
	var groups []*group
	by := map[string]*group{}
	for _, c := range b.cells {
		for _, o := range c.outcomes {
			for _, l := range o.Limitations {
				key := fmt.Sprint(l.Flag, l.Process(), l.Host, l.Cause == plan.CausePorts) // its remedy differs
				g := by[key]
				if g == nil {
					g = &group{}
					by[key], groups = g, append(groups, g)
				}
				i := slices.IndexFunc(g.causes, func(s *cause) bool { return s.limitation.Cause == l.Cause })
				if i < 0 {
					i, g.causes = len(g.causes), append(g.causes, &cause{l, l.Value, l.Value})
				}
				g.causes[i].low, g.causes[i].high = min(g.causes[i].low, l.Value), max(g.causes[i].high, l.Value)
				g.cells = addNew(g.cells, c)
			}
		}
	}
	for _, g := range groups {
		var whats []string
		for _, s := range g.causes {
			whats = append(whats, s.limitation.What(s.low, s.high))
		}
		where := ""
		if len(b.cells) > 1 {
			where = " (" + b.where(g.cells) + ")"
		}
		l := g.causes[0]
		lines = append(lines, string(l.limitation.Flag)+": "+l.limitation.Text(strings.Join(whats, ", "))+where)
	}
	return lines
}
