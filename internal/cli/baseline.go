package cli

import (
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/history"
	"lockstep/internal/plan"
	"lockstep/internal/report"
	"lockstep/internal/runs"
	"lockstep/internal/terminal"
)

func baselineCommand() *cobra.Command {
	var folder string
	c := &cobra.Command{
		Use:   "baseline",
		Short: "Name runs that others are to be compared with",
		Long: `baseline keeps names of runs beside the records (--runs): for each matrix one that later
runs are compared with, or several by names of one's own. A run without a valid repetition is refused. Rules ("no worse than baseline by 5%") and ctl compare use them. Those
of a controller are set on its host, with --runs DIR/runs: they serve schedules, and runs of clients that have none.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.PersistentFlags().StringVar(&folder, "runs", "runs", "`folder` of run records")
	c.AddCommand(baselineSet(&folder), baselineList(&folder), baselineRemove(&folder))
	return c
}

// bases are the numbers that a run's rules compare it with, as this folder has them. Before anything is run it is said which are missing.
func (o *runOptions) bases(stderr io.Writer, run plan.Run) []plan.Base {
	all := history.Of(o.runs).Bases(run)
	for _, b := range all {
		switch {
		case b.Why != "" && o.server.url != "":
			fmt.Fprintln(stderr, terminal.Clean(b.Why+"; the rules that need it are judged by the controller's, if it has one"))
		case b.Why != "":
			fmt.Fprintln(stderr, terminal.Clean(b.Why+"; the rules that need it will be inconclusive"))
		}
	}
	return all
}

func baselineSet(folder *string) *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "set RUN",
		Short: "Make a run the baseline of its matrix, or one of a name of its own",
		Example: `  ctl baseline set latest
  ctl baseline set --name release-4.0 20260102-150405-nightly-3f9c`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeRuns(folder),
		RunE: func(c *cobra.Command, args []string) error {
			run, err := runs.Open(*folder, args[0])
			if err != nil {
				return err
			}
			if err := worthy(c.ErrOrStderr(), run); err != nil {
				return err
			}
			b := plan.Baseline{Name: name, Run: run.Plan().ID, Matrix: run.Plan().Name, Set: time.Now().UTC(), By: submitter()}
			if b.Name == "" {
				b.Name = b.Matrix
			}
			if b.Name != b.Matrix && !baselineName.MatchString(b.Name) {
				return exit{ExitBadMatrix, fmt.Errorf("--name %q: no rule could name it; give up to 64 letters, digits, \".\", \"_\" and \"-\", the first a letter or digit", b.Name)}
			}
			if err := history.Of(*folder).SetBaseline(b); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "baseline %s is run %s\n", terminal.Clean(b.Name), b.Run)
			return nil
		},
	}
	c.Flags().StringVar(&name, "name", "", "`name` of the baseline; none: that of the run's matrix")
	return c
}

// baselineName is what a rule can write behind "baseline".
var baselineName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// worthy refuses a run that nothing could be compared with, and tells of one that only a part could be.
func worthy(stderr io.Writer, run *runs.Run) error {
	outcomes, err := run.Outcomes()
	if err != nil {
		return err
	}
	id, cells, valid := run.Plan().ID, map[string]bool{}, 0
	for _, o := range outcomes {
		if o.Verdict == plan.Valid {
			cells[o.Cell] = true
			valid++
		}
	}
	if valid == 0 {
		return fmt.Errorf("run %s has no valid repetition that anything could be compared with (%s): give another run; ctl show %s tells more", id, report.Summary(run.Plan(), outcomes), id)
	}
	if tasks, of := run.Rounds().Tasks(), len(run.Plan().Cells); len(outcomes) < tasks || len(cells) < of {
		fmt.Fprintf(stderr, "incomplete: %d of %s have an outcome, and %d of %s a valid repetition: the other cells are compared with nothing\n",
			len(outcomes), several(tasks, "task"), len(cells), several(of, "cell"))
	}
	return nil
}

func baselineList(folder *string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the baselines",
		Example: "  ctl baseline list",
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := history.Of(*folder).Baselines()
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), append([]plan.Baseline{}, all...))
			}
			var rows [][]string
			for _, b := range all {
				rows = append(rows, []string{terminal.Clean(b.Name), b.Run, terminal.Clean(b.Matrix), stamp(b.Set), dash(b.By)})
			}
			return tabulate(c.OutOrStdout(), []string{"BASELINE", "RUN", "MATRIX", "SET", "BY"}, rows)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

func baselineRemove(folder *string) *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Short:   "Forget a baseline; its run stays",
		Example: "  ctl baseline remove release-4.0",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return history.Of(*folder).RemoveBaseline(args[0])
		},
	}
}
