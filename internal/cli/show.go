package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"lockstep/internal/display"
	"lockstep/internal/report"
	"lockstep/internal/runs"
	"lockstep/internal/wire"
)

func showCommand() *cobra.Command {
	var folder, format string
	var all bool
	c := &cobra.Command{
		Use:   "show RUN",
		Short: "Print the tables of a recorded run",
		Example: `  ctl show latest
  ctl show -o md 20260102-150405-quick-3f9c`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeRuns(&folder),
		RunE: func(c *cobra.Command, args []string) error {
			record, err := runs.Open(folder, args[0])
			if err != nil {
				return err
			}
			if format == "text" {
				if _, err = printResults(c.OutOrStdout(), record, all); err != nil {
					return err
				}
				marks, err := record.Marks()
				if end, ended := runs.EndOf(marks); ended && end.Text != string(wire.EndDone) {
					fmt.Fprintln(c.OutOrStdout(), display.Clean("the run has ended: "+end.Text+because(end.Detail)))
				}
				return err
			}
			return printTables(c.OutOrStdout(), record, format)
		},
	}
	runsFlag(c, &folder)
	c.Flags().BoolVar(&all, "all", false, "print all tables on a terminal, not only the first of many rows")
	formatFlag(c, &format, "text", "md", "csv", "json")
	return c
}

// printTables prints the tables of a run as md, csv or json.
func printTables(out io.Writer, record *runs.Run, format string) error {
	outcomes, err := record.Outcomes()
	if err != nil {
		return err
	}
	files, err := report.Files(record.Plan(), outcomes)
	if err != nil {
		return err
	}
	_, err = out.Write(files["tables."+format])
	return err
}
