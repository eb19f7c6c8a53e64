package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"lockstep/internal/report/page"
	"lockstep/internal/runs"
)

func reportCommand() *cobra.Command {
	var folder, out string
	var o page.Options
	c := &cobra.Command{
		Use:   "report RUN...",
		Short: "Write the report of a run again as one HTML file, or of several runs side by side",
		Long: `report makes the page that every run leaves in its directory (report.html) again, from the record
alone: tables, charts, distributions, time series with events, the environment and the matrix in one
file that needs nothing else and no network. Of several runs the tables have a column for each, and the
charts show them in one drawing.

Exit codes: 0 it is written; 1 it is not.`,
		Example: `  ctl report latest
  ctl report --full --out all-cells.html latest
  ctl report 20260102-150405-quick-3f9c 20260103-150405-quick-81d0`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeRuns(&folder),
		RunE: func(c *cobra.Command, args []string) error {
			var all []*runs.Run
			for _, id := range args {
				run, err := runs.Open(folder, id)
				if err != nil {
					return err
				}
				if slices.ContainsFunc(all, func(r *runs.Run) bool { return r.Plan().ID == run.Plan().ID }) {
					return exit{ExitBadMatrix,
						fmt.Errorf("run %s is given twice: a report sets several runs side by side, each once; ctl runs lists them", run.Plan().ID)}
				}
				all = append(all, run)
			}
			path := out
			switch {
			case path != "":
			case len(all) == 1:
				path = filepath.Join(all[0].Dir(), page.Name)
			default:
				path = page.Name
			}
			if err := writeReport(path, all, o); err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), path)
			return nil
		},
	}
	runsFlag(c, &folder)
	c.Flags().StringVar(&out, "out", "",
		"`file` to write; none: report.html in the run's directory or, of several runs, here")
	c.Flags().BoolVar(&o.Full, "full", false,
		fmt.Sprintf("show every cell in detail, however large the file becomes, not %d tasks", page.Detailed))
	return c
}

// writeReport writes the HTML page of one or more runs.
func writeReport(path string, folder []*runs.Run, o page.Options) error {
	return writeOutput("report", path, "--out", func(w io.Writer) error { return page.Write(w, folder, o) })
}
