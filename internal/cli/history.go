package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/display"
	"lockstep/internal/history"
	"lockstep/internal/plan"
)

// historyOptions are the flags of ctl history.
type historyOptions struct {
	server serverFlags
	runs   string
	query  plan.HistoryQuery
	format string
	days   int
	local  bool
}

func historyCommand() *cobra.Command {
	var o historyOptions
	c := &cobra.Command{
		Use:   "history [CELL...]",
		Short: "Show a value of cells over all runs, and since when it has been another",
		Long: `history shows what a value of a cell was in every run that there is a record of, and its change points:
since which run, by how much, how sure, and what else changed then (the broker's version and settings, Lockstep's
version). A change point in the last three runs is an alarm. Runs from other hosts are apart. One cell is a table; of several there is a line
for each; without --value the cells are listed.

CELL is an id, the beginning of one (ctl plan shows them), or axis=value[,value]; several have to hold together.

The history is kept in ` + history.File + ` beside the records, and filled from them: runs end in it, and those that were
copied into the folder are read when history is asked. On a fleet (--server) the controller answers from its own.
docs/history.md describes how changes are found, and which are not.`,
		Example: `  ctl history --value publish.rate mode=confirm-each
  ctl history --value e2e.p99 3f9c2d81
  ctl history --value publish.rate --matrix nightly
  ctl history --server nats://bench-1:4222 --value publish.rate --format csv 3f9c2d81
  ctl history reindex`,
		Args: arguments(cobra.ArbitraryArgs),
		RunE: func(c *cobra.Command, args []string) error {
			o.query.Cells = args
			return o.run(c)
		},
	}
	o.server.add(c, "; none: records of this host")
	c.PersistentFlags().StringVar(&o.runs, "runs", "runs", "`folder` of run records")
	f := c.Flags()
	f.StringVar(&o.query.Value, "value", "",
		"`name` of the value, as in tables: publish.rate, e2e.p99, bulk/publish.p99 of a group; none: list the cells")
	f.StringVar(&o.query.Matrix, "matrix", "", "only cells of the matrix of this `name`")
	f.IntVar(&o.days, "days", 0, "only runs of so many `days`; 0: all")
	f.StringVar(&o.format, "format", "text", "`text`, csv or json")
	f.BoolVar(&o.local, "local", false, "ask the records of this host, whatever LOCKSTEP_SERVER says")
	c.AddCommand(reindexCommand(&o.runs))
	return c
}

func (o *historyOptions) run(c *cobra.Command) error {
	write, known := map[string]func(*historyPage) error{"text": (*historyPage).text, "csv": (*historyPage).csv,
		"json": (*historyPage).json}[o.format]
	if !known {
		return exit{ExitBadMatrix, fmt.Errorf("no format %q (there are: text, csv, json)", o.format)}
	}
	if o.days < 0 {
		return exit{ExitBadMatrix, fmt.Errorf("--days %d: want a number of days, or 0 for all", o.days)}
	}
	if err := history.Known(o.query.Value); err != nil {
		return exit{ExitBadMatrix, fmt.Errorf("--value: %w", err)}
	}
	if o.days > 0 {
		o.query.Since = time.Now().AddDate(0, 0, -o.days)
	}
	answer, err := o.ask(c)
	if err != nil {
		return err
	}
	return write(&historyPage{out: c.OutOrStdout(), width: width(c.OutOrStdout()), value: o.query.Value,
		answer: answer})
}

func (o *historyOptions) ask(c *cobra.Command) (plan.HistoryAnswer, error) {
	if o.server.url != "" && !o.local {
		conn, err := o.server.dial(c.Context())
		if err != nil {
			return plan.HistoryAnswer{}, err
		}
		defer conn.Close()
		return conn.History(c.Context(), o.query)
	}
	store := history.Of(o.runs)
	if err := freshen(c, store); err != nil {
		return plan.HistoryAnswer{}, err
	}
	answer, err := store.Answer(o.query)
	if err == nil && answer.Runs == 0 {
		err = fmt.Errorf("there is no record of a run in %s; give another folder with --runs, or a fleet with --server",
			o.runs)
	}
	return answer, err
}

// freshen reads records that are not in the history yet. A history without write permission is used as it is.
func freshen(c *cobra.Command, store *history.Store) error {
	in, err := store.Fresh(c.Context())
	warned(c, in)
	if errors.Is(err, os.ErrPermission) {
		fmt.Fprintf(c.ErrOrStderr(), "newer records are not in the history: %v\n", err)
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
		return fmt.Errorf("%w; the record is kept, and the new history has it", err)
	case err != nil:
		return fmt.Errorf("%w; the record is kept: ctl history reads it later", err)
	}
	return nil
}

func reindexCommand(runs *string) *cobra.Command {
	var rebuild bool
	c := &cobra.Command{
		Use:   "reindex",
		Short: "Fill the history from all records again",
		Long: `reindex reads the record of every run in --runs into the history, also of those that it has already. It may be
broken off and begun again at any time. Runs whose records are gone stay in the history; with --rebuild they do not:
a new history is made of nothing but the records, and takes the place of the old one when it is whole.`,
		Example: `  ctl history reindex
  ctl history reindex --rebuild --runs /var/lib/lockstep/runs`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := os.Stat(*runs); err != nil {
				return fmt.Errorf("find the records: %w; give their folder with --runs", err)
			}
			in, err := history.Of(*runs).Reindex(c.Context(), rebuild)
			warned(c, in)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s, %s\n", display.Count(in.Runs, "run"),
				display.Count(in.Outcomes, "outcome"))
			if in.Gone > 0 {
				fmt.Fprintf(c.OutOrStdout(),
					"of %s in the history there is no record any more: they stay (--rebuild leaves them out)\n",
					display.Count(in.Gone, "run"))
			}
			return nil
		},
	}
	c.Flags().BoolVar(&rebuild, "rebuild", false, "make a new history of the records alone")
	return c
}
