package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/sink"
)

func runsReplay() *cobra.Command {
	var (
		folder  string
		to      = influxFlags{needed: true}
		verbose bool
	)
	c := &cobra.Command{
		Use:   "replay RUN",
		Short: "Write the points of a recorded run to InfluxDB again",
		Long: `replay makes all points of a run from its record and writes them to the InfluxDB of --influx or of the
environment. The InfluxDB of the record is not used, because the author of the record chose it. The points have the
same tags, times and fields as during the run, so that InfluxDB stores each point once.
replay waits until InfluxDB has all points. It fails if InfluxDB accepts none for 30 s.`,
		Example: `  ctl runs replay latest
  ctl runs replay --influx influx.json 20260102-150405-quick-3f9c`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeRuns(&folder),
		RunE: func(c *cobra.Command, args []string) error {
			record, err := runs.Open(folder, args[0])
			if err != nil {
				return err
			}
			points, err := to.open(nil, c.ErrOrStderr(), logger(c.ErrOrStderr(), verbose))
			if err != nil {
				return err
			}
			if points == nil {
				return exit{ExitBadMatrix,
					errors.New("no InfluxDB given: pass --influx FILE, or set INFLUX_URL, INFLUX_ORG, INFLUX_BUCKET and INFLUX_TOKEN")}
			}
			return replayTo(c, record, points)
		},
	}
	runsFlag(c, &folder)
	c.Flags().StringVar(&to.file, "influx", "",
		"write to the InfluxDB of this JSON `file` (default: that of the environment)")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "log debug messages")
	return c
}

// replayPatience is the time without progress after which ctl runs replay gives up.
const replayPatience = 30 * time.Second

// replayTo writes the points of a run again, and prints the result.
func replayTo(c *cobra.Command, record *runs.Run, points *sink.Sink) error {
	run := record.Plan().ID
	d, err := controller.Replay(c.Context(), record, points, replayPatience)
	if d.Left > 0 || d.Incomplete {
		return errors.Join(err, errors.New(report.NotWritten(run, d)))
	}
	fmt.Fprintln(c.OutOrStdout(), report.Delivered(run, []plan.Delivery{d}))
	return err
}
