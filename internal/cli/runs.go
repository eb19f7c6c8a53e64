package cli

import (
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
)

func runsCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "runs",
		Short: "List, follow, cancel and copy runs, and clean up after them",
		Example: `  ctl runs list
  ctl runs attach latest --server nats://bench-1:4222
  ctl runs cleanup latest`,
	}, runsList(), runsAttach(), runsCancel(), runsPull(), runsCleanup(), runsReplay())
}

func runsList() *cobra.Command {
	var s serverFlags
	var folder, format string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the runs of a fleet, or the local run records",
		Long: `list lists the queued, active and ended runs of the fleet of --server. Without a fleet (--context local), it
lists the records below --runs. The newest run is first. With -o wide, DETAIL is not shortened.`,
		Example: `  ctl runs list
  ctl runs list --server nats://bench-1:4222 -o json`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if s.url == "" {
				return localRuns(c.OutOrStdout(), folder, format == "json")
			}
			conn, err := s.dial(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			all, err := conn.Runs(c.Context())
			if err != nil {
				return err
			}
			slices.Reverse(all)
			if format == "json" {
				return printJSON(c.OutOrStdout(), append([]wire.RunState{}, all...))
			}
			return fleetRuns(c.OutOrStdout(), all, time.Now(), format == "wide")
		},
	}
	s.addChoice(c, " (default: use the records of this host)")
	runsFlag(c, &folder)
	formatFlag(c, &format, "text", "wide", "json")
	return c
}

// fleetRuns prints a table of runs. wide does not shorten details.
func fleetRuns(out io.Writer, all []wire.RunState, now time.Time, wide bool) error {
	var rows [][]string
	for _, r := range all {
		by := r.By
		if r.Schedule != "" {
			by = "schedule " + r.Schedule
		}
		detail := r.Detail
		if r.Waiting != "" {
			detail = "queued: " + r.Waiting
		}
		if !wide {
			detail = display.Cut(detail, maxDetail)
		}
		rows = append(rows, []string{r.Run, r.Name, r.State, display.Dash(by), stamp(r.Submitted), display.Took(r.Started, r.Ended, now),
			strconv.Itoa(r.Done), bound(r.AtMost) + strconv.Itoa(r.Tasks), strconv.Itoa(r.Failed),
			display.Dash(detail)})
	}
	columns := width(out)
	if wide {
		columns = 0
	}
	head := []string{"RUN", "MATRIX", "STATE", "BY", "SUBMITTED", "TOOK", "DONE", "OF", "FAILED", "DETAIL"}
	return display.NewTable(head, rows).Write(out, columns)
}

// maxDetail limits the column DETAIL without -o wide.
const maxDetail = 60

func localRuns(out io.Writer, root string, asJSON bool) error {
	all, err := runs.List(root)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(out, append([]runs.Summary{}, all...))
	}
	var rows [][]string
	for _, s := range all {
		rows = append(rows, []string{s.ID, s.Name, s.Started.Format(time.DateTime), strconv.Itoa(s.Done),
			bound(s.AtMost) + strconv.Itoa(s.Tasks)})
	}
	return tabulate(out, []string{"RUN", "MATRIX", "STARTED", "DONE", "OF"}, rows)
}
