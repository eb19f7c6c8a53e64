package report

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/internal/plan"
)

// Summary is the last line of a run's report: "24 tasks: 23 valid, 1 invalid, 0 unknown".
func Summary(run plan.Run, outcomes []plan.Outcome) string {
	n := map[plan.Verdict]int{}
	for _, o := range outcomes {
		n[o.Verdict]++
	}
	tasks := "tasks"
	if total(run) == 1 {
		tasks = "task"
	}
	text := fmt.Sprintf("%d %s: %d valid, %d invalid, %d unknown", total(run), tasks, n[plan.Valid], n[plan.Invalid], n[plan.Unknown])
	if missing := total(run) - len(outcomes); missing > 0 {
		text += fmt.Sprintf(", %d not run", missing)
	}
	return text
}

func total(run plan.Run) int { return len(run.Cells) * run.Repeat }

// Failures lists what was run and keeps a run from being a success, one line a cell and reason, in the order of the matrix: verdicts that are
// not valid, and flags if the run is strict.
func Failures(run plan.Run, outcomes []plan.Outcome) []string {
	var lines []string
	for _, c := range newBuilder(run, outcomes).cells {
		lines = append(lines, c.problems(run.Strict)...)
	}
	return lines
}

// Problems lists what keeps a run from being a success: its failures, and at last how many tasks were not run. There are none if it is a success.
func Problems(run plan.Run, outcomes []plan.Outcome) []string {
	lines := Failures(run, outcomes)
	if missing := total(run) - len(outcomes); missing > 0 {
		lines = append(lines, fmt.Sprintf("%d of %d tasks were not run", missing, total(run)))
	}
	return lines
}

// Warnings lists what a reader of the numbers ought to know besides: what drivers remark, then one line a cell and warning, in the order
// of the matrix.
func Warnings(run plan.Run, outcomes []plan.Outcome) []string {
	lines := run.Notes()
	for _, c := range newBuilder(run, outcomes).cells {
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

// problems are those of one cell; repetitions with the same problem share a line.
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
