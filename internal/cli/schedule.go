package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire"
)

func scheduleCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "schedule",
		Short: "Manage scheduled runs on a fleet",
		Long: `schedule manages matrices on the control plane of a fleet that the controller runs at given times.
docs/reference/schedules.md describes clock changes, missed runs, overlapping runs and the input of hooks.`,
		Example: `  ctl schedule add --cron "0 2 * * *" --tz Europe/Berlin matrices/nightly.cue
  ctl schedule list
  ctl schedule run nightly
  ctl schedule history nightly`,
	},
		scheduleAdd(), scheduleList(), scheduleShow(), scheduleHistory(),
		scheduleEdit("pause", "Pause a schedule; an active run continues", pauseSchedule),
		scheduleEdit("resume", "Resume a paused schedule, from the next slot", resumeSchedule),
		scheduleEdit("run", "Start a run now, even if the schedule is paused", askSchedule),
		scheduleEdit("remove", "Remove a schedule with its history; an active run continues", removeSchedule))
}

// addOptions are the flags of ctl schedule add.
type addOptions struct {
	server  serverFlags
	narrow  matrix.Narrow
	define  schedule.Definition
	within  time.Duration
	replace bool
}

func scheduleAdd() *cobra.Command {
	var o addOptions
	c := &cobra.Command{
		Use:   "add FILE",
		Short: "Add a schedule for a matrix",
		Long: `add checks the matrix, stores its text and flags, and prints the first slots. Later changes of the file have
no effect until it is added again with --replace. The matrix must not contain secrets. It can contain references such as
${env:NAME}, which are resolved on the hosts of the agents.`,
		Example: `  ctl schedule add --cron "0 2 * * *" --tz Europe/Berlin matrices/nightly.cue
  ctl schedule add --name weekly --cron @weekly --overlap queue-one --hook compare matrices/full.cue`,
		Args: arguments(cobra.ExactArgs(1)),
	}
	c.RunE = o.server.onFleet(o.add)
	f := c.Flags()
	f.StringVar(&o.define.Name, "name", "", "set the `name` of the schedule (default: the name of the matrix)")
	f.StringVar(&o.define.Cron, "cron", "",
		"start a run at each slot of `expression` (required): \"minute hour day month weekday\", or "+
			strings.Join(schedule.Descriptors, " "))
	f.StringVar(&o.define.Zone, "tz", "", "set the time `zone` of --cron (required), such as Europe/Berlin or UTC")
	f.StringVar(&o.define.MissedRuns, "missed-runs", schedule.MissedOnce,
		"set the `policy` for slots missed without a leading controller: once (run the last) or skip")
	f.DurationVar(&o.within, "within", 12*time.Hour, "set the maximum age of a slot that --missed-runs once runs")
	f.StringVar(&o.define.Overlap, "overlap", schedule.OverlapSkip,
		"set the `policy` for a slot while the previous run is active: skip or queue-one")
	f.StringArrayVar(&o.define.Hooks, "hook", nil,
		"call this `hook` of the controller's --hooks file after each run; repeatable")
	f.BoolVar(&o.replace, "replace", false, "replace the schedule with that name; its history is kept")
	narrowing(c, &o.narrow)
	o.server.addChoice(c, "")
	return c
}

func (o *addOptions) add(c *cobra.Command, conn *wire.Client, args []string) error {
	ctx, file := c.Context(), args[0]
	text, err := os.ReadFile(file)
	if err != nil {
		return exit{ExitBadMatrix, fmt.Errorf("read matrix: %w", err)}
	}
	d := &o.define
	d.Within = plan.Duration(o.within)
	d.Matrix = schedule.Matrix{File: filepath.Base(file), Path: absolute(file), Server: plan.Redact(o.server.url),
		Text:  string(text),
		Quick: o.narrow.Quick, Set: o.narrow.Set, Filter: o.narrow.Filter}
	m, run, wrong := expandText(ctx, file, text, o.narrow)
	if wrong == nil && len(run.Cells) == 0 {
		wrong = nothingLeft(run)
	}
	d.Name = cmp.Or(d.Name, run.Name, "unknown") // an unreadable matrix has no name
	hooks := unknownHooks(ctx, conn, d.Hooks)
	if err := ctx.Err(); err != nil {
		return err
	}
	if errors.Is(hooks, wire.ErrNoController) {
		return hooks
	}
	if err := errors.Join(wrong, d.Check(), noSecrets(file, m), hooks); err != nil {
		return exit{ExitBadMatrix, err}
	}
	s, err := o.store(ctx, conn)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "%s: %s × %s, about %s, at %s %s\n", s.Name, display.Count(len(run.Cells), "cell"),
		repetitions(run), about(run), s.Cron, s.Zone)
	if text := inMemory(run); text != "" {
		fmt.Fprintln(c.ErrOrStderr(), text)
	}
	if run.Influx != nil {
		fmt.Fprintln(c.ErrOrStderr(), "the InfluxDB of the matrix is not used: scheduled runs write no points to it")
	}
	return writeSlots(c.OutOrStdout(), s, time.Now(), 3)
}

// expandText loads and expands a matrix. The matrix is nil if it cannot be loaded.
func expandText(ctx context.Context, file string, text []byte, n matrix.Narrow) (*matrix.Matrix, plan.Run, error) {
	m, err := matrix.Load(file, text, n)
	if err != nil {
		return nil, plan.Run{}, err
	}
	run, err := m.Run(ctx)
	if err == nil {
		err = executable(file, run)
	}
	return m, run, err
}

// inMemory returns the advice for a broker in the memory of an agent whose cells need several agents; empty if there is
// none.
func inMemory(run plan.Run) string {
	most, name := 1, ""
	for _, c := range run.Cells {
		if n := c.Agents(); c.InProcess && n > most {
			most, name = n, c.Broker.Name
		}
	}
	if name == "" {
		return ""
	}
	return fmt.Sprintf("broker %s runs in the memory of an agent; start one agent with all slots (lockstep-agent --slots %d), or set a server in the options of the broker", name, most)
}

// store adds the schedule, or with --replace changes it.
func (o *addOptions) store(ctx context.Context, conn *wire.Client) (schedule.Schedule, error) {
	if !o.replace {
		s := schedule.New(o.define, wire.NewName(), submitter(), time.Now().UTC())
		err := conn.PutSchedule(ctx, s, 0)
		if errors.Is(err, wire.ErrChanged) {
			err = fmt.Errorf("schedule %s already exists; pass another --name, or --replace", s.Name)
		}
		return s, err
	}
	return edit(ctx, conn, o.define.Name, func(s *schedule.Schedule) error {
		s.Redefine(o.define, submitter(), time.Now().UTC())
		return nil
	})
}

// noSecrets returns an error for a matrix that contains secrets, because its text is stored on the control plane.
func noSecrets(file string, m *matrix.Matrix) error {
	literals := m.Literals()
	if len(literals) == 0 {
		return nil
	}
	return fmt.Errorf("schedules must not contain secrets, because the control plane stores them; use ${env:NAME} or ${file:/path} in\n%s: %s",
		file, strings.Join(literals, "\n"+file+": "))
}

// unknownHooks returns an error for each hook that the leading controller does not have.
func unknownHooks(ctx context.Context, conn *wire.Client, hooks []string) error {
	if len(hooks) == 0 {
		return nil
	}
	there, err := conn.Hooks(ctx)
	if err != nil {
		return err
	}
	if len(there) == 0 {
		return fmt.Errorf("--hook %s: the controller has no hooks; start it with --hooks (docs/reference/schedules.md)", strings.Join(hooks, ", "))
	}
	var errs []error
	for _, hook := range hooks {
		if slices.Contains(there, hook) {
			continue
		}
		err := fmt.Errorf("hook %q: not in the controller's --hooks file, which has %s", hook,
			strings.Join(there, ", "))
		err = fmt.Errorf("%w%s", err, plan.DidYouMean(hook, there))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// edit changes a schedule. Its errors contain the remedy.
func edit(ctx context.Context, conn *wire.Client, name string,
	change func(*schedule.Schedule) error) (schedule.Schedule, error) {
	s, err := conn.EditSchedule(ctx, name, change)
	if errors.Is(err, wire.ErrChanged) {
		err = fmt.Errorf("schedule %s was modified concurrently by %s; run ctl schedule show %s and retry",
			name, s.By, name)
	}
	if err != nil {
		return s, unknownSchedule(ctx, conn, name, err)
	}
	return s, nil
}

// unknownSchedule adds the existing schedules to an error about an unknown one.
func unknownSchedule(ctx context.Context, conn *wire.Client, name string, err error) error {
	if !errors.Is(err, wire.ErrNoSchedule) {
		return err
	}
	all, listed := conn.Schedules(ctx)
	if listed != nil || len(all) == 0 {
		return fmt.Errorf("no schedule %s; add it with ctl schedule add", name)
	}
	var names []string
	for _, kept := range all {
		names = append(names, kept.Name)
	}
	return fmt.Errorf("no schedule %s; use one of %s", name, strings.Join(names, ", "))
}

// scheduleEdit returns a command that changes one schedule.
func scheduleEdit(name, short string, change func(context.Context, *cobra.Command, *wire.Client,
	string) error) *cobra.Command {
	var server serverFlags
	c := &cobra.Command{Use: name + " NAME", Short: short, Example: "  ctl schedule " + name + " nightly",
		Args: arguments(cobra.ExactArgs(1))}
	c.RunE = server.onFleet(func(c *cobra.Command, conn *wire.Client, args []string) error {
		return change(c.Context(), c, conn, args[0])
	})
	server.addChoice(c, "")
	return c
}

// asItIs is returned by an edit that changes nothing. The command prints it and succeeds.
type asItIs string

func (e asItIs) Error() string { return string(e) }

// unchanged prints an asItIs, and returns all other errors.
func unchanged(out io.Writer, err error) error {
	var unchanged asItIs
	if errors.As(err, &unchanged) {
		_, err = fmt.Fprintln(out, unchanged)
	}
	return err
}

func pauseSchedule(ctx context.Context, c *cobra.Command, conn *wire.Client, name string) error {
	s, err := edit(ctx, conn, name, func(s *schedule.Schedule) error {
		if s.Paused {
			return asItIs(fmt.Sprintf("%s is already paused, by %s", name, s.By))
		}
		s.Pause(submitter(), time.Now().UTC())
		return nil
	})
	if err != nil {
		return unchanged(c.OutOrStdout(), err)
	}
	fmt.Fprintf(c.OutOrStdout(), "%s is paused\n", name)
	if s.Current != nil {
		fmt.Fprintf(c.OutOrStdout(), "its run %s continues; stop it with ctl runs cancel\n", s.Current.Run)
	}
	return nil
}

func resumeSchedule(ctx context.Context, c *cobra.Command, conn *wire.Client, name string) error {
	s, err := edit(ctx, conn, name, func(s *schedule.Schedule) error {
		if !s.Paused {
			return asItIs(name + " is not paused")
		}
		s.Resume(submitter(), time.Now().UTC())
		return nil
	})
	if err != nil {
		return unchanged(c.OutOrStdout(), err)
	}
	fmt.Fprintf(c.OutOrStdout(), "%s is resumed\n", name)
	return writeSlots(c.OutOrStdout(), s, time.Now(), 1)
}

func askSchedule(ctx context.Context, c *cobra.Command, conn *wire.Client, name string) error {
	s, err := edit(ctx, conn, name, func(s *schedule.Schedule) error { return s.Ask(submitter(), time.Now().UTC()) })
	if err != nil {
		return err
	}
	fmt.Fprintln(c.OutOrStdout(), s.RunID(*s.Asked))
	return nil
}

func removeSchedule(ctx context.Context, c *cobra.Command, conn *wire.Client, name string) error {
	first := 0
	for {
		kept, err := conn.Schedule(ctx, name)
		if kept.Err == nil && err != nil { // a schedule that cannot be decoded can still be removed
			return unknownSchedule(ctx, conn, name, err)
		}
		if first != 0 && kept.Schedule.Edit != first {
			return fmt.Errorf("schedule %s was modified concurrently by %s; check it and retry", name,
				kept.Schedule.By)
		}
		first = kept.Schedule.Edit
		err = conn.RemoveSchedule(ctx, name, kept.Revision)
		if err == nil {
			fmt.Fprintf(c.OutOrStdout(), "%s removed\n", name)
		}
		if !errors.Is(err, wire.ErrChanged) {
			return err
		}
	}
}
