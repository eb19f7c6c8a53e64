package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/matrix"
	"lockstep/internal/plan"
)

// expand loads a matrix and collects its cells.
func expand(ctx context.Context, file string, n matrix.Narrow) (plan.Run, error) {
	m, err := load(file, n)
	if err != nil {
		return plan.Run{}, err
	}
	return m.Run(ctx)
}

func planCommand() *cobra.Command {
	var (
		n      matrix.Narrow
		asJSON bool
	)
	c := &cobra.Command{
		Use:   "plan FILE",
		Short: "Show what a run would do: cells, what is left out and why, agents, duration",
		Example: `  ctl plan matrices/async-vs-sync.cue
  ctl plan --only mode=confirm-each --json matrices/async-vs-sync.cue`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			run, err := expand(c.Context(), args[0], n)
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(run.Redacted())
			}
			return writePlan(c.OutOrStdout(), run)
		},
	}
	narrowing(c, &n)
	c.Flags().BoolVar(&asJSON, "json", false, "print the whole plan as JSON")
	return c
}

// writePlan prints a plan for people.
func writePlan(out io.Writer, run plan.Run) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s: %d cells × %d repetitions, %s, %d agents, about %v\n\n", run.Name, len(run.Cells), run.Repeat, order(run.Order), run.Agents,
		matrix.Estimate(run).Round(time.Second))
	fmt.Fprintf(w, "CELL\t%s\tAGENTS\tABOUT\n", strings.ToUpper(strings.Join(run.Axes, "\t")))
	for _, cell := range run.Cells {
		fmt.Fprintf(w, "%s\t%s\t%d\t%v\n", cell.ID, strings.Join(values(cell.Coordinates), "\t"), cell.Agents(),
			plan.Estimate(cell.Workload).Round(100*time.Millisecond))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, note := range run.Notes() {
		fmt.Fprintf(out, "\nnote: %s\n", note)
	}
	if len(run.Excluded) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\nLEFT OUT\t%s\tWHY\n", strings.ToUpper(strings.Join(run.Axes, "\t")))
	for _, x := range run.Excluded {
		fmt.Fprintf(w, "%s\t%s\t%s\n", x.Kind, strings.Join(values(x.Coordinates), "\t"), x.Reason)
	}
	return w.Flush()
}

func values(coordinates []plan.Coordinate) []string {
	texts := make([]string, len(coordinates))
	for i, x := range coordinates {
		texts[i] = x.Text()
	}
	return texts
}

func order(o plan.Order) string {
	if o.Random {
		return fmt.Sprintf("in random order (seed %d)", o.Seed)
	}
	return "interleaved"
}
