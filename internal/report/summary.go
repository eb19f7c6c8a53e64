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

// Limitations lists the limits of the load generator and its hosts, one line per process and cause.
func Limitations(run plan.Run, outcomes []plan.Outcome) []string {
	return limitations(newBuilder(run, outcomes).cells)
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
				if !slices.Contains(all, reason{text: w}) {
					all = append(all, reason{text: w})
				}
			}
		}
		return all
	})...)
}

// reason is a text about a cell. which names the repetitions that it is about; empty: all.
type reason struct{ text, which string }

// reasons returns one line per text, with the cells that have it, in the order of first use.
func (b *builder) reasons(of func(*cell) []reason) (lines []string) {
	var texts []string
	cells, which := map[string][]*cell{}, map[string]string{}
	for _, c := range b.cells {
		for _, r := range of(c) {
			if cells[r.text] == nil {
				texts = append(texts, r.text)
			}
			cells[r.text] = append(cells[r.text], c)
			which[r.text] = r.which
		}
	}
	for _, text := range texts {
		where := b.where(cells[text])
		if len(cells[text]) == 1 {
			where += which[text]
		}
		lines = append(lines, where+": "+text)
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

// limitations returns one line per flag and process over all cells, with the ranges of the measured values.
func limitations(cells []*cell) (lines []string) {
	type span struct {
		plan.Limitation
		least, most float64
	}
	type group struct {
		causes []*span
		cells  map[string]bool
		first  string
	}
	var groups []*group
	by, measured := map[string]*group{}, 0
	for _, c := range cells {
		if len(c.outcomes) > 0 {
			measured++
		}
		for _, o := range c.outcomes {
			for _, l := range o.Limitations {
				key := fmt.Sprint(l.Flag, l.Process(), l.Host, l.Cause == plan.CausePorts) // its remedy differs
				g := by[key]
				if g == nil {
					g = &group{cells: map[string]bool{}, first: c.name()}
					by[key], groups = g, append(groups, g)
				}
				i := slices.IndexFunc(g.causes, func(s *span) bool { return s.Cause == l.Cause })
				if i < 0 {
					i, g.causes = len(g.causes), append(g.causes, &span{l, l.Value, l.Value})
				}
				g.causes[i].least, g.causes[i].most = min(g.causes[i].least, l.Value), max(g.causes[i].most, l.Value)
				g.cells[c.cell.ID] = true
			}
		}
	}
	for _, g := range groups {
		var whats []string
		for _, s := range g.causes {
			whats = append(whats, s.What(s.least, s.most))
		}
		where := ""
		switch n := len(g.cells); {
		case n == 1 && measured > 1:
			where = " (" + g.first + ")"
		case n < measured:
			where = fmt.Sprintf(" (%d of %d cells)", n, measured)
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
		which := ""
		switch {
		case len(in[text]) > 1:
			which = fmt.Sprintf(" (repetitions %s)", strings.Join(in[text], ", "))
		case c.repeat > 1:
			which = fmt.Sprintf(" (repetition %s)", in[text][0])
		}
		all = append(all, reason{text, which})
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
