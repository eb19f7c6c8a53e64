package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
)

// baselineOptions select the baselines of a fleet or those of a folder.
type baselineOptions struct {
	server serverFlags
	runs   *string // the folder
}

func historyBaseline(runs *string) *cobra.Command {
	o := baselineOptions{runs: runs}
	return parent(&cobra.Command{
		Use:   "baseline",
		Short: "Manage baselines: runs that other runs are compared with",
		Long: `baseline manages the runs that later runs are compared with. Each matrix has one baseline; further
baselines have names that you choose. Rules such as "no worse than baseline by 5%" use them. A run without a valid
repetition cannot be a baseline.

On a fleet (--server), the control plane stores the baselines with the values of their runs. Schedules use them, and
runs of clients without baselines. Without a fleet (--context local), the baselines are stored in the folder of --runs,
for local runs and ctl compare.`,
	}, o.set(), o.list(), o.remove())
}

func (o *baselineOptions) set() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "set RUN",
		Short: "Make a run the baseline of its matrix, or a baseline with another name",
		Example: `  ctl history baseline set latest
  ctl history baseline set --name release-4.0 20260102-150405-nightly-3f9c
  ctl history baseline set --server nats://bench-1:4222 latest`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeRuns(o.runs),
		RunE: func(c *cobra.Command, args []string) error {
			if name != "" {
				if err := plan.CheckBaselineName(name); err != nil {
					return usageErrorf("--name: %w", err)
				}
			}
			set, err := either(c.Context(), &o.server, func(conn *wire.Client) (a wire.BaselineAnswer, err error) {
				state, err := findRun(c.Context(), conn, args[0])
				if err != nil {
					return a, err
				}
				return conn.SetBaseline(c.Context(), wire.BaselineQuery{Name: name, Run: state.Run, By: submitter()})
			}, func() (wire.BaselineAnswer, error) { return o.setHere(args[0], name) })
			if err != nil {
				return err
			}
			if set.Note != "" {
				fmt.Fprintln(c.ErrOrStderr(), display.Clean(set.Note))
			}
			fmt.Fprintf(c.OutOrStdout(), "baseline %s set to run %s\n", display.Clean(set.Baseline.Name),
				display.Clean(set.Baseline.Run))
			return nil
		},
	}
	c.Flags().StringVar(&name, "name", "", "set the `name` of the baseline (default: the name of the matrix of the run)")
	o.server.addChoice(c, " (default: use the folder of --runs)")
	return c
}

// setHere stores a baseline in the folder. The note, if any, counts the tasks without an outcome and the cells without
// a valid repetition.
func (o *baselineOptions) setHere(run, name string) (a wire.BaselineAnswer, err error) {
	record, err := runs.Open(*o.runs, run)
	if err != nil {
		return a, err
	}
	outcomes, err := record.Outcomes()
	if err != nil {
		return a, err
	}
	made, note, err := history.NewBaseline(name, submitter(), record.Plan(), outcomes)
	if err != nil {
		return a, err
	}
	return wire.BaselineAnswer{Baseline: made.Baseline, Note: note}, history.Of(*o.runs).SetBaseline(made.Baseline)
}

func (o *baselineOptions) list() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the baselines",
		Example: "  ctl history baseline list",
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := either(c.Context(), &o.server, func(conn *wire.Client) ([]plan.Baseline, error) {
				return conn.Baselines(c.Context())
			}, history.Of(*o.runs).Baselines)
			if err != nil {
				return err
			}
			if format == "json" {
				return printJSON(c.OutOrStdout(), append([]plan.Baseline{}, all...))
			}
			var rows [][]string
			for _, b := range all {
				rows = append(rows, []string{b.Name, b.Run, b.Matrix, stamp(b.Set), display.Dash(b.By)})
			}
			return tabulate(c.OutOrStdout(), []string{"BASELINE", "RUN", "MATRIX", "SET", "BY"}, rows)
		},
	}
	formatFlag(c, &format, "text", "json")
	o.server.addChoice(c, " (default: use the folder of --runs)")
	return c
}

func (o *baselineOptions) remove() *cobra.Command {
	c := &cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a baseline but keep its run",
		Example: "  ctl history baseline remove release-4.0",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			remove := func(_ context.Context, name string) error { return history.Of(*o.runs).RemoveBaseline(name) }
			if o.server.url != "" {
				conn, err := o.server.dial(c.Context())
				if err != nil {
					return err
				}
				defer conn.Close()
				remove = conn.RemoveBaseline
			}
			err := remove(c.Context(), args[0])
			if err == nil {
				fmt.Fprintf(c.OutOrStdout(), "baseline %s removed\n", display.Clean(args[0]))
			}
			return err
		},
	}
	o.server.addChoice(c, " (default: use the folder of --runs)")
	return c
}
