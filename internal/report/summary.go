package report

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/sampling"
)

// Summary returns the last line of a run's report: "24 tasks: 23 valid, 1 invalid, 0 unknown".
func Summary(run plan.Run, outcomes []plan.Outcome) string {
	n := map[plan.Verdict]int{}
	for _, o := range outcomes {
		n[o.Verdict]++
	}
	tasks := "tasks"
	total, most := total(run, outcomes)
	if total == 1 {
		tasks = "task"
	}
	text := fmt.Sprintf("%s%d %s: %d valid, %d invalid, %d unknown", most, total, tasks, n[plan.Valid], n[plan.Invalid],
		n[plan.Unknown])
	if missing := total - len(outcomes); missing > 0 {
		text += fmt.Sprintf(", %d not run", missing)
	}
	return text
}

// total returns the number of tasks of a run. most is "at most " if that is an upper bound, else empty.
func total(run plan.Run, outcomes []plan.Outcome) (n int, most string) {
	rounds := sampling.Of(run, outcomes)
	if rounds.Open() {
		most = "at most "
	}
	return rounds.Tasks(), most
}

// NotRun returns the number of tasks without an outcome, as text; empty: none.
func NotRun(run plan.Run, outcomes []plan.Outcome) string {
	if n, most := total(run, outcomes); n > len(outcomes) {
		return fmt.Sprintf("%d of %s%d tasks were not run", n-len(outcomes), most, n)
	}
	return ""
}

// Failures lists the results that make a run fail, one line per reason with its cells, in the order of the matrix.
// These are verdicts other than valid. If the run is strict, they include flags and cells that missed their requested
// precision.
func Failures(run plan.Run, outcomes []plan.Outcome) []string {
	return newBuilder(run, outcomes).reasons(func(c *cell) []reason { return c.problems(run.Strict) })
}

// Problems lists the failures of a run, then the number of tasks that were not run. It is empty if the run is a
// success.
func Problems(run plan.Run, outcomes []plan.Outcome) []string {
	lines := Failures(run, outcomes)
	if text := NotRun(run, outcomes); text != "" {
		lines = append(lines, text)
	}
	return lines
}

// Limitations lists the limits of the load generator and its hosts, one line per flag and process, with its cells.
func Limitations(run plan.Run, outcomes []plan.Outcome) []string {
	return newBuilder(run, outcomes).limitations()
}

// Warnings lists further information about the numbers: the notes of drivers, then one line per warning with its cells,
// in the order of the matrix.
func Warnings(run plan.Run, outcomes []plan.Outcome) []string {
	return append(run.Notes(), newBuilder(run, outcomes).reasons(func(c *cell) (all []reason) {
		if c.missed != "" && !run.Strict { // else it is a problem
			all = append(all, reason{text: c.missed})
		}
		for _, o := range c.outcomes {
			for _, w := range o.Warnings {
				if !slices.ContainsFunc(all, func(r reason) bool { return r.text == w }) {
					all = append(all, reason{text: w})
				}
			}
		}
		return all
	})...)
}

// reason is a text about a cell, or about some of its repetitions.
type reason struct {
	text  string
	which []string // repetitions; empty: it is about the cell
}

// repetitions names the repetitions of a reason in a cell with several.
func (c *cell) repetitions(r reason) string {
	switch {
	case len(r.which) > 1:
		return fmt.Sprintf(" (repetitions %s)", strings.Join(r.which, ", "))
	case len(r.which) == 1 && c.repeat > 1:
		return fmt.Sprintf(" (repetition %s)", r.which[0])
	}
	return ""
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
			l.n, l.of = l.n+len(r.which), l.of+c.repeat
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
	shared := slices.Clone(cells[0].place)
	for _, c := range cells {
		shared = slices.DeleteFunc(shared, func(p point) bool { return !slices.Contains(c.place, p) })
	}
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

// limitations returns one line per flag and process, with the ranges of the measured values and the cells.
func (b *builder) limitations() (lines []string) {
	type span struct {
		plan.Limitation
		least, most float64
	}
	type group struct {
		causes []*span
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
				i := slices.IndexFunc(g.causes, func(s *span) bool { return s.Cause == l.Cause })
				if i < 0 {
					i, g.causes = len(g.causes), append(g.causes, &span{l, l.Value, l.Value})
				}
				g.causes[i].least, g.causes[i].most = min(g.causes[i].least, l.Value), max(g.causes[i].most, l.Value)
				if !slices.Contains(g.cells, c) {
					g.cells = append(g.cells, c)
				}
			}
		}
	}
	for _, g := range groups {
		var whats []string
		for _, s := range g.causes {
			whats = append(whats, s.What(s.least, s.most))
		}
		where := ""
		if len(b.cells) > 1 {
			where = " (" + b.where(g.cells) + ")"
		}
		l := g.causes[0]
		lines = append(lines, string(l.Flag)+": "+l.Text(strings.Join(whats, ", "))+where)
	}
	return lines
}

// problems returns the problems of one cell. Repetitions with the same problem are one reason.
func (c *cell) problems(strict bool) (all []reason) {
	if strict && c.missed != "" {
		all = append(all, reason{text: c.missed + ", and the matrix is strict"})
	}
	var texts []string
	in := map[string][]string{}
	for _, o := range c.outcomes {
		text := ""
		if o.Failed() {
			text = fmt.Sprintf("%s: %s", o.Verdict, reasons([]plan.Outcome{o}))
		} else if flags := allFlags(o); strict && len(flags) > 0 {
			text = "flagged, and the matrix is strict: " + words(flags)
		}
		if text == "" {
			continue
		}
		if in[text] == nil {
			texts = append(texts, text)
		}
		in[text] = append(in[text], fmt.Sprint(o.Repetition))
	}
	for _, text := range texts {
		all = append(all, reason{text, in[text]})
	}
	return all
}

func allFlags(o plan.Outcome) []plan.Flag {
	var flags []plan.Flag
	for _, v := range o.Values {
		flags = append(flags, v.Flags...)
	}
	slices.SortFunc(flags, func(a, b plan.Flag) int { return flagOrder(a) - flagOrder(b) })
	return slices.Compact(flags)
}
