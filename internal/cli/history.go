package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

type historyOptions struct {
	server serverFlags
	runs   string
	query  plan.HistoryQuery
	format string
	days   int
}

func historyCommand() *cobra.Command {
	var o historyOptions
	c := &cobra.Command{
		Use:   "history [CELL...]",
		Short: "Show a metric across runs and its change points",
		Long: `history shows a metric of a cell in every recorded run, and its change points. For each change point it
prints the run, the change, the p value, and other changes in that run: the version and settings of the broker, and the
version of Lockstep. A change point in the last three runs is an alarm. Runs on different hosts are separate series.
One cell is printed as a table, several cells as one line each. Without --metric, the cells are listed.

CELL is an id, a unique prefix of one (see ctl plan), or axis=value[,value]. Several conditions must all match.

The history is stored in ` + history.File + `, in the folder of the records. Each run adds itself when it ends; history also reads
records that were copied into the folder. On a fleet (--server), the controller uses its own history.
docs/concepts/statistics.md describes which changes are found.`,
		Example: `  ctl history --metric publish.rate mode=confirm-each
  ctl history --metric e2e.p99 3f9c2d81
  ctl history --metric publish.rate --matrix nightly
  ctl history --server nats://bench-1:4222 --metric publish.rate -o csv 3f9c2d81
  ctl history digest latest
  ctl history baseline set latest`,
		Args: arguments(cobra.ArbitraryArgs),
		RunE: func(c *cobra.Command, args []string) error {
			o.query.Cells = args
			return o.run(c)
		},
	}
	o.server.addChoice(c, " (default: use the records of this host)")
	c.PersistentFlags().StringVar(&o.runs, "runs", "runs", "use run records in `folder`")
	f := c.Flags()
	f.StringVar(&o.query.Value, "metric", "",
		"show metric `name`: publish.rate, e2e.p99, bulk/publish.p99 of a group (default: list cells)")
	f.StringVar(&o.query.Matrix, "matrix", "", "show only cells of the matrix `name`")
	f.IntVar(&o.days, "days", 0, "leave out runs that are older than `number` days (default: show all)")
	completeFlag(c, "metric", completeMetrics)
	formatFlag(c, &o.format, "text", "csv", "json")
	c.AddCommand(historyDigest(&o.runs), historyBaseline(&o.runs), historyReindex(&o.runs))
	return c
}

func (o *historyOptions) run(c *cobra.Command) error {
	write := map[string]func(*historyPage) error{"text": (*historyPage).text, "csv": (*historyPage).csv,
		"json": (*historyPage).json}[o.format]
	if o.days < 0 {
		return usageErrorf("--days %d: negative number; pass a number of days, or 0 for all", o.days)
	}
	if err := history.Known(o.query.Value); err != nil {
		return usageErrorf("--metric: %w", err)
	}
	if o.days > 0 {
		o.query.Since = time.Now().AddDate(0, 0, -o.days)
	}
	answer, err := either(c.Context(), &o.server, func(conn *wire.Client) (plan.HistoryAnswer, error) {
		return conn.History(c.Context(), o.query)
	}, func() (plan.HistoryAnswer, error) {
		store := history.Of(o.runs)
		if err := freshen(c, store); err != nil {
			return plan.HistoryAnswer{}, err
		}
		answer, err := store.Answer(o.query)
		if err == nil && answer.Runs == 0 {
			err = fmt.Errorf("no run record in %s; pass another folder with --runs, or a fleet with --server", o.runs)
		}
		return answer, err
	})
	if err != nil {
		return err
	}
	return write(newHistoryPage(c.OutOrStdout(), width(c.OutOrStdout()), o.query.Value, answer))
}

// freshen reads records that are not in the history yet. A history without write permission is used as it is.
func freshen(c *cobra.Command, store *history.Store) error {
	in, err := store.Fresh(c.Context())
	warned(c, in)
	if errors.Is(err, os.ErrPermission) {
		fmt.Fprintf(c.ErrOrStderr(), "the history is not up to date: %v\n", err)
		return nil
	}
	return err
}

func warned(c *cobra.Command, in history.Indexed) {
	for _, w := range in.Warnings {
		fmt.Fprintln(c.ErrOrStderr(), w)
	}
}

// remember adds a run to the history of its folder. After an error the record is still complete, and the next ctl
// history adds it.
func remember(ctx context.Context, root, run string) error {
	err := history.Of(root).Add(ctx, run)
	switch {
	case errors.Is(err, history.ErrDamaged):
		return fmt.Errorf("%w; the record is complete, and the new history contains the run", err)
	case err != nil:
		return fmt.Errorf("%w; the record is complete, and the next ctl history adds it", err)
	}
	return nil
}

func historyReindex(runs *string) *cobra.Command {
	var rebuild bool
	c := &cobra.Command{
		Use:   "reindex",
		Short: "Rebuild the history from the records",
		Long: `reindex reads every record in --runs into the history again. It can be interrupted and repeated at any time.
Runs without a record stay in the history. With --rebuild they are removed: a new history is made from the records alone,
and replaces the old one when it is complete.`,
		Example: `  ctl history reindex
  ctl history reindex --rebuild --runs /var/lib/lockstep/runs`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := os.Stat(*runs); err != nil {
				return fmt.Errorf("find the records: %w; pass their folder with --runs", err)
			}
			in, err := history.Of(*runs).Reindex(c.Context(), rebuild)
			warned(c, in)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s, %s\n", display.Count(in.Runs, "run"), display.Count(in.Outcomes, "outcome"))
			if in.Gone > 0 {
				fmt.Fprintf(c.OutOrStdout(), "%s in the history without a record: kept (remove with --rebuild)\n",
					display.Count(in.Gone, "run"))
			}
			return nil
		},
	}
	c.Flags().BoolVar(&rebuild, "rebuild", false, "make a new history from the records alone")
	return c
}
