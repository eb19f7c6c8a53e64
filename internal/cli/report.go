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
		Short: "Write the HTML report of a run, or of several runs side by side",
		Long: `report writes report.html again, which every run writes into its directory. It uses only the record. The
report is one file that needs no network. It contains the tables, charts, distributions, time series with events, the
environment and the matrix. With several runs, the tables have one column per run, and each chart shows all runs.

Exit codes: 0 written; 1 not written.`,
		Example: `  ctl report latest
  ctl report --full -f all-cells.html latest
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
						fmt.Errorf("run %s was given twice; pass each run once (list runs with ctl runs)", run.Plan().ID)}
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
	fileFlag(c, &out,
		"write to `file` (default: report.html in the run directory; with several runs, in this folder)")
	c.Flags().BoolVar(&o.Full, "full", false,
		fmt.Sprintf("show all tasks in detail, not only %d; the file can become large", page.Detailed))
	return c
}

// writeReport writes the HTML page of one or more runs.
func writeReport(path string, folder []*runs.Run, o page.Options) error {
	return writeOutput("report", path, "--file", func(w io.Writer) error { return page.Write(w, folder, o) })
}
