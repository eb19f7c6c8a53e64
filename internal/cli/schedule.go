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
	"text/tabwriter"
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
		scheduleAdd(), scheduleList(),
		scheduleReader("show", "Show a schedule: policies, matrix and next slots", writeSchedule,
			func(s schedule.Schedule) any { return s }),
		scheduleReader("history", "Show the results of a schedule's slots and hooks, newest last", writeHistory,
			func(s schedule.Schedule) any { return append([]schedule.Entry{}, s.History...) }),
		scheduleEdit("pause", "Pause a schedule; an active run continues", pauseSchedule),
		scheduleEdit("resume", "Resume a paused schedule, from the next slot", resumeSchedule),
		scheduleEdit("run", "Start a run now, even if the schedule is paused", askSchedule),
		scheduleEdit("remove", "Remove a schedule with its history; an active run continues", removeSchedule))
}

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
		return usageErrorf("read matrix: %w", err)
	}
	d := &o.define
	d.Within = plan.Duration(o.within)
	d.Matrix = schedule.Matrix{File: filepath.Base(file), Path: absolute(file), Server: plan.Redact(o.server.url),
		Text: string(text), Quick: o.narrow.Quick, Set: o.narrow.Set, Filter: o.narrow.Filter}
	m, run, wrong := expandText(ctx, file, text, o.narrow)
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
	slots, name := 1, ""
	for _, c := range run.Cells {
		if n := c.Agents(); c.InProcess && n > slots {
			slots, name = n, c.Broker.Name
		}
	}
	if name == "" {
		return ""
	}
	return fmt.Sprintf("broker %s runs in the memory of an agent; start one agent with all slots (lockstep-agent --slots %d), or set a server in the options of the broker", name, slots)
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
		errs = append(errs, fmt.Errorf("hook %q: not in the controller's --hooks file, which has %s%s", hook,
			strings.Join(there, ", "), plan.DidYouMean(hook, there)))
	}
	return errors.Join(errs...)
}

// edit changes a schedule. Its errors contain the remedy.
func edit(ctx context.Context, conn *wire.Client, name string,
	change func(*schedule.Schedule) error) (schedule.Schedule, error) {
	s, err := conn.EditSchedule(ctx, name, change)
	if errors.Is(err, wire.ErrChanged) {
		err = fmt.Errorf("schedule %s was modified concurrently by %s; run ctl schedule show %s and retry", name, s.By, name)
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
			return fmt.Errorf("schedule %s was modified concurrently by %s; check it and retry", name, kept.Schedule.By)
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

func scheduleList() *cobra.Command {
	var server serverFlags
	var format string
	c := &cobra.Command{Use: "list", Short: "List schedules with their next slot and last result",
		Example: "  ctl schedule list", Args: arguments(cobra.NoArgs)}
	c.RunE = server.onFleet(func(c *cobra.Command, conn *wire.Client, _ []string) error {
		all, err := conn.Schedules(c.Context())
		if err != nil {
			return err
		}
		if format == "json" {
			return schedulesJSON(c.OutOrStdout(), c.ErrOrStderr(), all)
		}
		return writeSchedules(c.OutOrStdout(), all, time.Now())
	})
	formatFlag(c, &format, "text", "json")
	server.addChoice(c, "")
	return c
}

// schedulesJSON prints schedules as JSON, and those that cannot be decoded as errors.
func schedulesJSON(out, stderr io.Writer, all []wire.KeptSchedule) error {
	valid := []schedule.Schedule{}
	for _, kept := range all {
		if kept.Err != nil {
			fmt.Fprintf(stderr, "schedule %s is invalid: %v; remove it\n", kept.Name, kept.Err)
			continue
		}
		valid = append(valid, kept.Schedule)
	}
	return printJSON(out, valid)
}

// scheduleReader returns a command that prints one schedule, or with -o json the result of data.
func scheduleReader(use, short string, show func(io.Writer, schedule.Schedule, time.Time) error,
	data func(schedule.Schedule) any) *cobra.Command {
	var server serverFlags
	var format string
	c := &cobra.Command{Use: use + " NAME", Short: short, Example: "  ctl schedule " + use + " nightly",
		Args: arguments(cobra.ExactArgs(1))}
	c.RunE = server.onFleet(func(c *cobra.Command, conn *wire.Client, args []string) error {
		kept, err := conn.Schedule(c.Context(), args[0])
		if err != nil {
			return unknownSchedule(c.Context(), conn, args[0], err)
		}
		if format == "json" {
			return printJSON(c.OutOrStdout(), data(kept.Schedule))
		}
		return show(c.OutOrStdout(), kept.Schedule, time.Now())
	})
	formatFlag(c, &format, "text", "json")
	server.addChoice(c, "")
	return c
}

const slotForm = "2006-01-02 15:04 MST"

// writeSlots prints the next n slots.
func writeSlots(out io.Writer, s schedule.Schedule, now time.Time, n int) error {
	table, err := schedule.NewTimetable(s.Cron, s.Zone)
	if err != nil {
		return err
	}
	var slots []string
	for next := table.Next(now); n > 0 && !next.IsZero(); next, n = table.Next(next), n-1 {
		slots = append(slots, next.Format(slotForm))
	}
	_, err = fmt.Fprintf(out, "next: %s\n", strings.Join(slots, ", "))
	return err
}

func writeSchedules(out io.Writer, all []wire.KeptSchedule, now time.Time) error {
	var rows [][]string
	for _, kept := range all {
		s := kept.Schedule
		if kept.Err != nil {
			rows = append(rows, []string{kept.Name, "–", "–", "–", "invalid", kept.Err.Error()})
			continue
		}
		next, last := "–", "–"
		table, err := schedule.NewTimetable(s.Cron, s.Zone)
		if err != nil {
			return err
		}
		if !s.Paused {
			next = table.Next(now).Format(slotForm)
		}
		if n := len(s.History); n > 0 {
			e := s.History[n-1]
			last = e.At.In(table.Zone()).Format(slotForm) + ": " + resultOf(e)
		}
		rows = append(rows, []string{s.Name, s.Cron, s.Zone, next, stateText(s), last})
	}
	return tabulate(out, []string{"NAME", "CRON", "TZ", "NEXT", "NOW", "LAST"}, rows)
}

// stateText returns the current state of a schedule.
func stateText(s schedule.Schedule) string {
	text := "idle"
	switch {
	case s.Current != nil:
		text = string(s.Current.State) + " " + s.Current.Run
	case s.Asked != nil:
		text = "requested"
	case s.Paused:
		return "paused"
	}
	if s.Paused {
		text += ", paused"
	}
	return text
}

func resultOf(e schedule.Entry) string {
	if e.Tasks.Total() == 0 {
		return string(e.State)
	}
	return fmt.Sprintf("%s, %d valid, %d invalid, %d failed", e.State, e.Tasks.Valid, e.Tasks.Invalid, e.Tasks.Unknown)
}

func writeSchedule(out io.Writer, s schedule.Schedule, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	missed := s.MissedRuns
	if s.MissedRuns == schedule.MissedOnce {
		missed += fmt.Sprintf(", within %s", s.Within)
	}
	var flags []string
	if s.Matrix.Quick {
		flags = append(flags, "--quick")
	}
	for _, set := range s.Matrix.Set {
		flags = append(flags, "--set '"+set+"'")
	}
	for _, only := range s.Matrix.Filter {
		flags = append(flags, "--filter '"+only+"'")
	}
	for _, row := range [][2]string{{"name", s.Name}, {"cron", s.Cron}, {"tz", s.Zone}, {"missed-runs", missed},
		{"overlap", s.Overlap}, {"hooks", strings.Join(s.Hooks, ", ")},
		{"matrix", s.Matrix.Path}, {"flags", strings.Join(flags, " ")},
		{"changed", s.Changed.UTC().Format(slotForm) + " by " + s.By}, {"now", stateText(s)}} {
		fmt.Fprintf(w, "%s:\t%s\n", row[0], cmp.Or(row[1], "–"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if !s.Paused {
		if err := writeSlots(out, s, now, 5); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "\n// %s\n%s", s.Matrix.File, s.Matrix.Text)
	return err
}

func writeHistory(out io.Writer, s schedule.Schedule, _ time.Time) error {
	table, err := schedule.NewTimetable(s.Cron, s.Zone)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, e := range s.History {
		var hooks []string
		why := strings.Join(strings.Fields(e.Why), " ")
		for _, c := range e.Hooks {
			hooks = append(hooks, c.Hook+" "+string(c.State))
			if c.Why != "" {
				why = strings.TrimPrefix(why+"; "+c.Hook+": "+c.Why, "; ")
			}
		}
		at := e.At.In(table.Zone()).Format(slotForm)
		switch {
		case e.Asked && e.By != "":
			at += " (requested by " + e.By + ")"
		case e.Asked:
			at += " (requested)"
		}
		if e.Missed > 0 && e.State != schedule.Skipped {
			why = strings.TrimPrefix(why+fmt.Sprintf("; %d missed", e.Missed), "; ")
		}
		rows = append(rows, []string{at, display.Dash(e.Run), resultOf(e), display.Dash(strings.Join(hooks, ", ")),
			schedule.Cut(display.Dash(why), 200)})
	}
	return tabulate(out, []string{"SLOT", "RUN", "RESULT", "HOOKS", "REASON"}, rows)
}
