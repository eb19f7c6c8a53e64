package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire"
)

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

func scheduleShow() *cobra.Command {
	return scheduleReader("show", "Show a schedule: policies, matrix and next slots",
		writeSchedule,
		func(s schedule.Schedule) any { return s })
}

func scheduleHistory() *cobra.Command {
	return scheduleReader("history", "Show the results of a schedule's slots and hooks, newest last", writeHistory,
		func(s schedule.Schedule) any { return append([]schedule.Entry{}, s.History...) })
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
			last = e.At.In(table.Zone()).Format(slotForm) + ": " + cameOf(e)
		}
		rows = append(rows, []string{s.Name, s.Cron, s.Zone, next, stateText(s), last})
	}
	return tabulate(out, []string{"NAME", "CRON", "TZ", "NEXT", "NOW", "LAST"}, rows)
}

// stateText returns the current state of a schedule.
func stateText(s schedule.Schedule) string {
	word := "idle"
	switch {
	case s.Current != nil:
		word = string(s.Current.State) + " " + s.Current.Run
	case s.Asked != nil:
		word = "requested"
	case s.Paused:
		return "paused"
	}
	if s.Paused {
		word += ", paused"
	}
	return word
}

func cameOf(e schedule.Entry) string {
	if e.Tasks.Total() == 0 {
		return string(e.State)
	}
	return fmt.Sprintf("%s, %d valid, %d invalid, %d unknown", e.State, e.Tasks.Valid, e.Tasks.Invalid, e.Tasks.Unknown)
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
		rows = append(rows, []string{at, display.Dash(e.Run), cameOf(e), display.Dash(strings.Join(hooks, ", ")),
			schedule.Cut(display.Dash(why), 200)})
	}
	return tabulate(out, []string{"SLOT", "RUN", "RESULT", "HOOKS", "REASON"}, rows)
}
