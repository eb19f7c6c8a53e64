package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"lockstep/internal/controller"
	"lockstep/internal/plan"
	"lockstep/internal/report"
	"lockstep/internal/results"
	"lockstep/internal/sink"
)

func sinkCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "sink",
		Short: "Write recorded runs to InfluxDB",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(replayCommand())
	return c
}

func replayCommand() *cobra.Command {
	var (
		runs    string
		to      = influxFlags{needed: true}
		verbose bool
	)
	c := &cobra.Command{
		Use:   "replay RUN",
		Short: "Write a recorded run's points to InfluxDB again",
		Long: `replay makes the points of a run of its record alone and writes them to the InfluxDB that --influx, the
matrix or the environment names. They are the same points as while the run went on: those that are there already stay as
they are, and those that are missing are added.`,
		Example: `  ctl sink replay latest
  ctl sink replay --influx influx.json 20260102-150405-quick-3f9c`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeRuns(&runs),
		RunE: func(c *cobra.Command, args []string) error {
			record, err := results.Open(runs, args[0])
			if err != nil {
				return err
			}
			run := record.Plan()
			if run.Influx.Starred() { // a token that stood in the matrix is not kept
				run.Influx = nil
			}
			points, err := to.open(run, c.ErrOrStderr(), logger(c.ErrOrStderr(), verbose))
			if err != nil {
				return err
			}
			if points == nil {
				return exit{ExitBadMatrix, errors.New("no InfluxDB is named: give --influx FILE, or set INFLUX_URL, INFLUX_ORG, INFLUX_BUCKET and INFLUX_TOKEN")}
			}
			return replayTo(c, record, points)
		},
	}
	runsFlag(c, &runs)
	c.Flags().StringVar(&to.file, "influx", "", "write to the InfluxDB that this JSON `file` names, instead of the matrix's or the environment's")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "log more")
	return c
}

// replayTo writes a run's points again, and keeps and tells what came of it. Points that waited on disk for the same InfluxDB are among them, so that
// they can go then.
func replayTo(c *cobra.Command, record *results.Run, points *sink.Sink) error {
	waiting, err := points.Left(record.SpoolDir())
	if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "what waits on disk stays there: %v\n", err)
	}
	failed := controller.Replay(c.Context(), record, points)
	d := points.Close(c.Context())
	d.Replayed, d.Left, d.Dropped = true, d.Dropped, 0
	if failed == nil && d.Left == 0 {
		failed = waiting.Remove()
	} else {
		if errors.Is(failed, sink.ErrAway) { // what is left says so
			failed = nil
		}
		failed = errors.Join(failed, waiting.Close())
	}
	err = errors.Join(failed, record.AddDelivery(d))
	if d.Left > 0 {
		return errors.Join(err, errors.New(report.NotTaken(d)+" "+record.Plan().ID))
	}
	fmt.Fprintln(c.OutOrStdout(), report.Delivered([]plan.Delivery{d}))
	return err
}
