package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
)

// expand loads a matrix file and expands it.
func expand(ctx context.Context, file string, n matrix.Narrow) (plan.Run, error) {
	m, err := load(file, n)
	if err != nil {
		return plan.Run{}, err
	}
	return m.Run(ctx)
}

// executable returns an error if the run of a matrix file has no cells, or if controllers would reject it, because it
// exceeds a limit.
func executable(file string, run plan.Run) error {
	switch err := run.Bounded(); {
	case errors.Is(err, plan.ErrTooLarge):
		return usageErrorf("%s: %w; narrow it with --filter, or split it", file, err)
	case err != nil:
		return usageErrorf("%s: %w", file, err)
	case len(run.Cells) == 0:
		return nothingLeft(run)
	}
	return nil
}

func planCommand() *cobra.Command {
	var n matrix.Narrow
	var format string
	var all bool
	c := &cobra.Command{
		Use:   "plan FILE",
		Short: "Dry run: show the cells, exclusions, agents and estimated duration",
		Long: `plan shows the cells of a run without running them. If there are more than 20 cells, it lists the first 20,
and the number of excluded combinations per reason. --all lists everything.`,
		Example: `  ctl plan matrices/async-vs-sync.cue
  ctl plan --filter mode=confirm-each -o json matrices/async-vs-sync.cue`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			run, err := expand(c.Context(), args[0], n)
			if err != nil {
				return err
			}
			if format == "json" {
				return printJSON(c.OutOrStdout(), run.Redacted())
			}
			return writePlan(c.OutOrStdout(), run, all)
		},
	}
	narrowing(c, &n)
	c.Flags().BoolVar(&all, "all", false, "list all cells, notes and excluded combinations")
	formatFlag(c, &format, "text", "json")
	return c
}

// maxListed limits the listed cells, notes and excluded combinations without --all. More combinations are summed up by
// reason.
const maxListed = 20

// writePlan prints a plan as text. all lists everything.
func writePlan(out io.Writer, run plan.Run, all bool) error {
	columns := width(out)
	order := "interleaved"
	if run.Order.Random {
		order = fmt.Sprintf("in random order (seed %d)", run.Order.Seed)
	}
	fmt.Fprintf(out, "%s: %s × %s, %s, %s, about %v\n", run.Name, display.Count(len(run.Cells), "cell"),
		repetitions(run), order, display.Count(run.Agents, "agent"), about(run))
	for _, axis := range run.Axes {
		if n, text := axisValues(run, axis); n > 1 || text != "" {
			fmt.Fprintf(out, "  %s\n", display.Hang(fmt.Sprintf("%s (%d): %s", axis, n, text), columns, 4))
		}
	}
	fmt.Fprintln(out)
	if err := writeCells(out, run, all); err != nil {
		return err
	}
	writeNotes(out, append(run.Notes(), repetitionNotes(run)...), all)
	if !all && len(run.Excluded) > maxListed {
		sumExcluded(out, run.Excluded, columns)
		return nil
	}
	if len(run.Excluded) == 0 {
		return nil
	}
	rows := make([][]string, len(run.Excluded))
	for i, x := range run.Excluded {
		rows[i] = slices.Concat([]string{x.Kind}, values(x.Coordinates), []string{display.Clean(x.Reason)})
	}
	fmt.Fprintln(out)
	return tabulateText(out, columns, slices.Concat([]string{"EXCLUDED"}, upper(run.Axes), []string{"REASON"}), rows)
}

// repetitions returns the number of repetitions of each cell, as text.
func repetitions(run plan.Run) string {
	low, high := matrix.Rounds(run)
	if run.Until == nil {
		return display.Count(high, "repetition")
	}
	return fmt.Sprintf("%d to %d repetitions (until %s)", low, high, display.Clean(run.Until.Rule))
}

// about returns the estimated duration of a run, as text.
func about(run plan.Run) string {
	low, high := matrix.Estimate(run)
	if run.Until == nil {
		return high.Round(time.Second).String()
	}
	return fmt.Sprintf("%v to %v", low.Round(time.Second), high.Round(time.Second))
}

// repetitionNotes returns notes about comparisons for which the repetitions of one run are too few, with the time that
// enough repetitions take. A quick run gets none: it is not meant for comparisons.
func repetitionNotes(run plan.Run) (notes []string) {
	if run.Source.Quick {
		return nil
	}
	low, high := matrix.Estimate(run)
	for _, s := range compare.Shortages(run) {
		enough := low / time.Duration(s.Have) * time.Duration(s.Needed)
		notes = append(notes,
			fmt.Sprintf("too few repetitions for ctl compare --by %s: %s require %d, the matrix has %d; repeat: %d takes about %v instead of %v",
				s.By, display.Count(s.Tests, "test"), s.Needed, s.Have, s.Needed, enough.Round(time.Second),
				low.Round(time.Second)))
	}
	if len(rules.Regressions(run)) > 0 {
		const needed = plan.MinEarlierRuns + 1
		notes = append(notes,
			fmt.Sprintf("rules about a baseline are inconclusive before run %d with the same broker version and hosts; %d runs take about %v",
				needed, needed, (needed*high).Round(time.Second)))
	}
	return notes
}

// axisValues returns the number of distinct values that the cells have on an axis, and a list of them.
func axisValues(run plan.Run, axis string) (n int, text string) {
	var texts []string
	seen := map[string]bool{}
	for _, cell := range run.Cells {
		value, has := cell.Coordinate(axis)
		if value = display.Clean(value); has && !seen[value] {
			seen[value] = true
			texts = append(texts, value)
		}
	}
	if n = len(texts); n > maxListed {
		texts = append(texts[:maxListed-1:maxListed-1], "…", texts[n-1])
	}
	return n, strings.Join(texts, ", ")
}

func writeCells(out io.Writer, run plan.Run, all bool) error {
	cells := run.Cells
	if !all {
		cells = cells[:min(len(cells), maxListed)]
	}
	rows := make([][]string, len(cells))
	for i, cell := range cells {
		rows[i] = append(append([]string{cell.ID}, values(cell.Coordinates)...), strconv.Itoa(cell.Agents()),
			plan.Estimate(cell.Workload).Round(100*time.Millisecond).String())
	}
	head := append(append([]string{"CELL"}, upper(run.Axes)...), "AGENTS", "ABOUT")
	if err := tabulate(out, head, rows); err != nil {
		return err
	}
	if more := len(run.Cells) - len(cells); more > 0 {
		fmt.Fprintf(out, "and %s (list them with --all, run fewer with --filter or --quick)\n", display.Count(more, "more cell"))
	}
	return nil
}

func writeNotes(out io.Writer, notes []string, all bool) {
	for i, note := range notes {
		if !all && i == maxListed/2 && len(notes) > maxListed {
			fmt.Fprintf(out, "\nand %s (list them with --all)\n", display.Count(len(notes)-i, "more note"))
			return
		}
		fmt.Fprintf(out, "\n%s\n", display.Hang("note: "+display.Clean(note), width(out), 6))
	}
}

// cause is a reason for excluded combinations, with their number and the coordinates that all of them share.
type cause struct {
	kind, reason string
	n            int
	common       []plan.Coordinate
}

// sumExcluded prints the number of excluded combinations per reason, the largest first.
func sumExcluded(out io.Writer, excluded []plan.Excluded, columns int) {
	var causes []*cause
	byText := map[string]*cause{}
	for _, x := range excluded {
		c := byText[x.Kind+" "+x.Reason]
		if c == nil {
			c = &cause{kind: x.Kind, reason: x.Reason, common: slices.Clone(x.Coordinates)}
			byText[x.Kind+" "+x.Reason] = c
			causes = append(causes, c)
		}
		c.n++
		c.common = slices.DeleteFunc(c.common, func(common plan.Coordinate) bool {
			return !slices.ContainsFunc(x.Coordinates,
				func(o plan.Coordinate) bool { return o.Axis == common.Axis && o.Text() == common.Text() })
		})
	}
	slices.SortStableFunc(causes, func(a, b *cause) int { return b.n - a.n })
	number, kind := 0, 0
	for _, c := range causes {
		number, kind = max(number, len(display.Decimals(float64(c.n), 0))), max(kind, display.Width(c.kind))
	}
	fmt.Fprintf(out, "\nEXCLUDED: %s (list them with --all)\n", display.Count(len(excluded), "combination"))
	for _, c := range causes {
		where := (plan.Cell{Coordinates: c.common}).Name()
		if where != "" {
			where = " (" + where + ")"
		}
		head := display.Pad(display.Decimals(float64(c.n), 0), number, false) + " " + display.Pad(c.kind, kind, true) +
			"  "
		fmt.Fprintf(out, "%s%s\n", head, display.Hang(display.Clean(c.reason+where), columns-1, display.Width(head)))
	}
}

func upper(axes []string) []string {
	heads := make([]string, len(axes))
	for i, axis := range axes {
		heads[i] = strings.ToUpper(axis)
	}
	return heads
}

func values(coordinates []plan.Coordinate) []string {
	texts := make([]string, len(coordinates))
	for i, x := range coordinates {
		texts[i] = display.Clean(x.Text())
	}
	return texts
}
