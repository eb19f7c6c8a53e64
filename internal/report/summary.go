package report

import (
	"fmt"
	"slices"
	"time"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/sampling"
)

// Summary returns the last line of a run's report: "24 tasks: 23 valid, 1 invalid, 0 failed".
func Summary(run plan.Run, outcomes []plan.Outcome) string {
	n := map[plan.Verdict]int{}
	for _, o := range outcomes {
		n[o.Verdict]++
	}
	total, atMost := total(run, outcomes)
	text := fmt.Sprintf("%s%s: %d valid, %d invalid, %d failed", atMost, display.Count(total, "task"), n[plan.Valid],
		n[plan.Invalid], n[plan.Unknown])
	if missing := total - len(outcomes); missing > 0 {
		text += fmt.Sprintf(", %d not run", missing)
	}
	return text
}

// Flagged returns the number of tasks that have a flag, except shared-host: the limits of the load generator name its
// cells (Limitations).
func Flagged(outcomes []plan.Outcome) (n int) {
	for _, o := range outcomes {
		flags := allFlags(o)
		for _, g := range o.Groups {
			flags = append(flags, allFlags(plan.Outcome{Values: g.Values})...)
		}
		if slices.ContainsFunc(flags, func(f plan.Flag) bool { return f != plan.SharedHost }) {
			n++
		}
	}
	return n
}

// Count is a number of tasks with the same verdict, or that are not run, or that have flags.
type Count struct {
	What string
	N    int
}

// Counts returns the numbers of tasks of a run that are above 0, in the order of Summary.
func Counts(run plan.Run, outcomes []plan.Outcome) (all []Count) {
	n := map[plan.Verdict]int{}
	for _, o := range outcomes {
		n[o.Verdict]++
	}
	tasks, _ := total(run, outcomes)
	for _, c := range []Count{{string(plan.Valid), n[plan.Valid]}, {string(plan.Invalid), n[plan.Invalid]},
		{plan.Unknown.Word(), n[plan.Unknown]}, {"not run", tasks - len(outcomes)},
		{"with flags", Flagged(outcomes)}} {
		if c.N > 0 {
			all = append(all, c)
		}
	}
	return all
}

// Took returns the time from the start of a run to the end of its last outcome; 0: unknown.
func Took(run plan.Run, outcomes []plan.Outcome) (took time.Duration) {
	if run.Started.IsZero() {
		return 0
	}
	for _, o := range outcomes {
		took = max(took, o.Ended.Sub(run.Started))
	}
	return took
}

// total returns the number of tasks of a run. atMost is "at most " if that is an upper bound, else empty.
func total(run plan.Run, outcomes []plan.Outcome) (n int, atMost string) {
	rounds := sampling.Of(run, outcomes)
	return rounds.Tasks(), display.AtMost(rounds.Open())
}

// NotRun returns the number of tasks without an outcome, as text; empty: none.
func NotRun(run plan.Run, outcomes []plan.Outcome) string {
	if n, atMost := total(run, outcomes); n > len(outcomes) {
		return fmt.Sprintf("%d of %s%d tasks were not run", n-len(outcomes), atMost, n)
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
		if c.often.missed != "" && !run.Strict { // else it is a problem
			all = append(all, reason{text: c.often.missed})
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

func allFlags(o plan.Outcome) []plan.Flag {
	var flags []plan.Flag
	for _, v := range o.Values {
		flags = append(flags, v.Flags...)
	}
	return distinctFlags(flags)
}
