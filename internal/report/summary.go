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

// Failures lists the results that make a run fail, one line per cell and reason, in the order of the matrix. These are
// verdicts other than valid. If the run is strict, they include flags and cells that missed their requested precision.
func Failures(run plan.Run, outcomes []plan.Outcome) []string {
	var lines []string
	for _, c := range newBuilder(run, outcomes).cells {
		lines = append(lines, c.problems(run.Strict)...)
	}
	return lines
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

// Warnings lists further information about the numbers: the notes of drivers, then one line per limited process and
// cause, then one line per cell and warning. Cells are in the order of the matrix.
func Warnings(run plan.Run, outcomes []plan.Outcome) []string {
	cells := newBuilder(run, outcomes).cells
	lines := append(run.Notes(), limitations(cells)...)
	for _, c := range cells {
		if c.missed != "" && !run.Strict { // else it is a problem
			lines = append(lines, c.name()+": "+c.missed)
		}
		for _, o := range c.outcomes {
			for _, w := range o.Warnings {
				if line := c.name() + ": " + w; !slices.Contains(lines, line) {
					lines = append(lines, line)
				}
			}
		}
	}
	return lines
}

// limitations returns one line per flag, process and cause over all cells, with the range of the measured values.
func limitations(cells []*cell) (lines []string) {
	type group struct {
		plan.Limitation
		least, most float64
		cells       map[string]bool
		first       string
	}
	var groups []*group
	by, measured := map[string]*group{}, 0
	for _, c := range cells {
		if len(c.outcomes) > 0 {
			measured++
		}
		for _, o := range c.outcomes {
			for _, l := range o.Limitations {
				key := fmt.Sprint(l.Flag, l.Cause, l.Process(), l.Host)
				g := by[key]
				if g == nil {
					g = &group{Limitation: l, least: l.Value, most: l.Value, cells: map[string]bool{}, first: c.name()}
					by[key], groups = g, append(groups, g)
				}
				g.least, g.most = min(g.least, l.Value), max(g.most, l.Value)
				g.cells[c.cell.ID] = true
			}
		}
	}
	for _, g := range groups {
		where := ""
		switch n := len(g.cells); {
		case n == 1 && measured > 1:
			where = " (" + g.first + ")"
		case n < measured:
			where = fmt.Sprintf(" (%d of %d cells)", n, measured)
		}
		lines = append(lines, string(g.Flag)+": "+g.Text(g.least, g.most)+where)
	}
	return lines
}

// problems returns the problems of one cell. Repetitions with the same problem share a line.
func (c *cell) problems(strict bool) []string {
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
	var lines []string
	if strict && c.missed != "" {
		lines = append(lines, c.name()+": "+c.missed+", and the matrix is strict")
	}
	for _, text := range texts {
		which := ""
		switch {
		case len(in[text]) > 1:
			which = fmt.Sprintf(" (repetitions %s)", strings.Join(in[text], ", "))
		case c.repeat > 1:
			which = fmt.Sprintf(" (repetition %s)", in[text][0])
		}
		lines = append(lines, c.name()+which+": "+text)
	}
	return lines
}

func allFlags(o plan.Outcome) []plan.Flag {
	var flags []plan.Flag
	for _, v := range o.Values {
		flags = append(flags, v.Flags...)
	}
	slices.SortFunc(flags, func(a, b plan.Flag) int { return flagOrder(a) - flagOrder(b) })
	return slices.Compact(flags)
}
