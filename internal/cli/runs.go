package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/page"
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

// findRun finds a run of the control plane by its id, a prefix that only one id has, or "latest".
func findRun(ctx context.Context, conn *wire.Client, name string) (wire.RunState, error) {
	runs, err := conn.Runs(ctx)
	if err != nil {
		return wire.RunState{}, err
	}
	if name == "latest" && len(runs) > 0 {
		return runs[len(runs)-1], nil
	}
	var found []wire.RunState
	for _, r := range runs {
		if r.Run == name {
			return r, nil
		}
		if strings.HasPrefix(r.Run, name) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return wire.RunState{}, fmt.Errorf("no run %q on the control plane; %s", name, knownRuns(runs))
	}
	return wire.RunState{}, fmt.Errorf("ambiguous run id: %d runs begin with %q; %s", len(found), name, knownRuns(found))
}

// knownRuns lists runs, newest first, for error messages.
func knownRuns(runs []wire.RunState) string {
	const max = 10
	if len(runs) == 0 {
		return "it has no runs"
	}
	var lines []string
	for _, r := range slices.Backward(runs) {
		if len(lines) == max {
			lines = append(lines, fmt.Sprintf("and %d more (see ctl runs list)", len(runs)-max))
			break
		}
		lines = append(lines, fmt.Sprintf("%s (%s, %s)", r.Run, r.Name, r.State))
	}
	return "available: " + strings.Join(lines, ", ")
}

// submitter returns user@host, the name under which this ctl submits runs and changes schedules.
func submitter() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname() // empty: not known
	return name + "@" + host
}

func runsAttach() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "attach RUN",
		Short: "Follow a run of a fleet and print its tables when it ends",
		Long: `attach prints the progress of a run and copies its record to --runs, as ctl run does, with the same exit
codes. It also works for a run that has ended. Ctrl-C ends attach; the run continues.

RUN is an id, a unique prefix of one, or latest.`,
		Example: `  ctl runs attach latest --server nats://bench-1:4222
  ctl runs attach 20260102-150405-quick-3f9c`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeFleetRuns(&o.server),
		RunE:              o.server.onFleet(o.attach),
	}
	o.server.addChoice(c, "")
	runsFlag(c, &o.runs)
	formatFlag(c, &o.format, "text", "json")
	quietFlag(c, &o.quiet)
	return c
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// queuedFor is the maximum wait of ctl runs cancel for a queued run: it has no task to close.
const queuedFor = 3 * time.Second

func runsCancel() *cobra.Command {
	var s serverFlags
	var limit time.Duration
	c := &cobra.Command{
		Use:   "cancel RUN",
		Short: "Cancel an active or queued run of a fleet",
		Long: `cancel stops the task in flight, removes its topology from the broker, and waits until the run has ended.
Finished tasks keep their outcomes; ctl run --resume runs the others. RUN is an id, a unique prefix of one, or latest.`,
		Example:           "  ctl runs cancel latest --server nats://bench-1:4222",
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeFleetRuns(&s),
		RunE: s.onFleet(func(c *cobra.Command, conn *wire.Client, args []string) error {
			text, err := cancelRun(c.Context(), conn, args[0], limit, s.hint())
			if text != "" {
				fmt.Fprintln(c.OutOrStdout(), text)
			}
			return err
		}),
	}
	s.addChoice(c, "")
	c.Flags().DurationVar(&limit, "wait", 2*time.Minute, "wait at most `duration` for the end of the run")
	return c
}

// cancelRun cancels a run, waits up to limit for its end, and returns the result as text.
func cancelRun(ctx context.Context, conn *wire.Client, name string, limit time.Duration, hint string) (string, error) {
	state, err := findRun(ctx, conn, name)
	if err != nil {
		return "", err
	}
	if state.Over() {
		return fmt.Sprintf("run %s has already ended: %s, %s", state.Run, state.State, tasksOf(state)), nil
	}
	if err := conn.Cancel(ctx, state.Run, submitter()); err != nil {
		return "", err
	}
	waited := state.State == wire.StateQueued
	if waited {
		limit = min(limit, queuedFor)
	}
	cancelled := state.Seq
	state, err = awaitEnd(ctx, conn, state, limit)
	switch {
	case err != nil:
		return "", fmt.Errorf("run %s is cancelled, but its end is not known: %w; see ctl runs list%s", name, err, hint)
	case state.Seq != cancelled:
		return fmt.Sprintf("run %s was cancelled and has been submitted again; the new submission is %s: ctl runs attach %s%s",
			state.Run, state.State, state.Run, hint), nil
	case state.Over():
		return fmt.Sprintf("run %s has ended: %s, %s; its record: ctl runs pull %s%s", state.Run, state.State,
			tasksOf(state), state.Run, hint), nil
	case waited && state.State == wire.StateQueued:
		return fmt.Sprintf("run %s was queued and will not start", state.Run), nil
	}
	return "", fmt.Errorf("cancel run %s: it has not stopped within %v; follow it: ctl runs attach %s%s", state.Run,
		limit, state.Run, hint)
}

// awaitEnd waits until the submission of state has ended, at most limit, and returns the newest state. A state of a
// later submission means that the earlier one has ended.
func awaitEnd(ctx context.Context, conn *wire.Client, state wire.RunState, limit time.Duration) (wire.RunState, error) {
	late := time.NewTimer(limit)
	defer late.Stop()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := conn.RunState(ctx, state.Run)
		if err == nil && now.Run == "" {
			err = fmt.Errorf("run %s is no longer on the control plane: list the others with ctl runs list", state.Run)
		}
		if err != nil || now.Over() || now.Seq != state.Seq {
			return now, err
		}
		select {
		case <-tick.C:
		case <-late.C:
			return now, nil
		case <-ctx.Done():
			return now, ctx.Err()
		}
	}
}

// tasksOf returns the number of tasks with an outcome, as text.
func tasksOf(s wire.RunState) string {
	text := fmt.Sprintf("%d of %s%d tasks have an outcome", s.Done, display.AtMost(s.AtMost), s.Tasks)
	if s.Failed > 0 {
		text += fmt.Sprintf(", %d of them not valid", s.Failed)
	}
	return text
}

func runsPull() *cobra.Command {
	var s serverFlags
	var folder string
	c := &cobra.Command{
		Use:   "pull RUN [DIR]",
		Short: "Copy the record of a run of a fleet",
		Long: `pull copies the record of a run from the control plane into a directory below DIR (--runs), and reports
whether it is complete. The run may be active or ended. An existing directory is completed; nothing in it is lost.
RUN is an id, a unique prefix of one, or latest.`,
		Example:           "  ctl runs pull latest --server nats://bench-1:4222\n  ctl runs pull 20260102-150405-quick-3f9c /srv/records",
		Args:              arguments(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: completeFleetRuns(&s),
		RunE: s.onFleet(func(c *cobra.Command, conn *wire.Client, args []string) error {
			if len(args) == 2 {
				folder = args[1]
			}
			p, err := pull(c.Context(), conn, args[0], folder, s.hint())
			if err != nil {
				return err
			}
			run, err := runs.Open("", p.Dir)
			if err == nil {
				err = page.Keep(run)
			}
			if err != nil {
				return err
			}
			if p.Complete() {
				fmt.Fprintf(c.OutOrStdout(), "complete: all %d tasks have an outcome\nrecord: %s\n", p.Of, p.Dir)
				return nil
			}
			why := "the run is still active; pull again later"
			if p.End != nil {
				why = "the run has ended: " + string(p.End.Reason) + because(p.End.Detail)
			}
			fmt.Fprintf(c.OutOrStdout(), "incomplete: %d of %s%d tasks have an outcome; %s\nrecord: %s\n", p.Done,
				display.AtMost(p.AtMost), p.Of, why, p.Dir)
			return nil
		}),
	}
	s.addChoice(c, "")
	runsFlag(c, &folder)
	return c
}

// pull copies the record of a run into a directory below root.
func pull(ctx context.Context, conn *wire.Client, name, root, hint string) (p controller.Pulled, err error) {
	state, err := findRun(ctx, conn, name)
	if err != nil {
		return p, err
	}
	if err := writable(root); err != nil {
		return p, err
	}
	p, err = controller.Pull(ctx, conn, state.Run, root)
	switch {
	case errors.Is(err, wire.ErrNoRecord) && !state.Over():
		err = fmt.Errorf("run %s is %s and has no record yet; follow it: ctl runs attach %s%s", state.Run, state.State,
			state.Run, hint)
	case err != nil && state.Copied:
		err = withCopy(ctx, conn, state.Run, err)
	}
	return p, err
}

// withCopy adds to an error where the controller's copy of a run is.
func withCopy(ctx context.Context, conn *wire.Client, run string, err error) error {
	host := ""
	if l, err := conn.Leader(ctx); err == nil && l.Host != "" {
		host = " on host " + l.Host
	}
	return errors.Join(err, fmt.Errorf("the controller has a copy of the record%s, below its --dir: runs/%s", host, run))
}

func runsReplay() *cobra.Command {
	var folder string
	var verbose bool
	to := influxFlags{needed: true}
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
			points, err := to.open(nil, c.ErrOrStderr(), logger(c.ErrOrStderr(), slog.LevelWarn, verbose))
			if err != nil {
				return err
			}
			if points == nil {
				return usageErrorf("no InfluxDB given: pass --influx FILE, or set INFLUX_URL, INFLUX_ORG, INFLUX_BUCKET and INFLUX_TOKEN")
			}
			run := record.Plan().ID
			d, err := controller.Replay(c.Context(), record, points, replayPatience)
			if d.Left > 0 || d.Incomplete {
				return errors.Join(err, errors.New(report.NotWritten(run, d)))
			}
			fmt.Fprintln(c.OutOrStdout(), report.Delivered(run, []plan.Delivery{d}))
			return err
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
