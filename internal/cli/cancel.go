package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/report/page"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
)

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
			text, err := pullRun(c.Context(), conn, args[0], folder, s.hint())
			if text != "" {
				fmt.Fprintln(c.OutOrStdout(), text)
			}
			return err
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
	return errors.Join(err, fmt.Errorf("the controller has a copy of the record%s, below its --dir: runs/%s", onHost(ctx, conn), run))
}

// pullRun copies the record of a run and returns as text how many tasks it has.
func pullRun(ctx context.Context, conn *wire.Client, name, root, hint string) (string, error) {
	p, err := pull(ctx, conn, name, root, hint)
	if err != nil {
		return "", err
	}
	if err := keep(p.Dir); err != nil {
		return "", err
	}
	if p.Complete() {
		return fmt.Sprintf("complete: all %d tasks have an outcome\nrecord: %s", p.Of, p.Dir), nil
	}
	why := "the run is still active; pull again later"
	if p.End != nil {
		why = "the run has ended: " + string(p.End.Reason) + because(p.End.Detail)
	}
	return fmt.Sprintf("incomplete: %d of %s%d tasks have an outcome; %s\nrecord: %s", p.Done, display.AtMost(p.AtMost), p.Of,
		why, p.Dir), nil
}

// keep writes the tables and the report into a copied record.
func keep(dir string) error {
	run, err := runs.Open("", dir)
	if err != nil {
		return err
	}
	return page.Keep(run)
}

// onHost returns " on host NAME" of the leading controller, or "" if it is unknown.
func onHost(ctx context.Context, conn *wire.Client) string {
	l, err := conn.Leader(ctx)
	if err != nil || l.Host == "" {
		return ""
	}
	return " on host " + l.Host
}
