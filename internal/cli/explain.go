package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/pkg/drivers"
)

func explainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain [NAME]",
		Short: "Describe a value, a flag or a field of a matrix, or print the schema",
		Long: `explain describes a value, a flag, an axis, a publish mode or a field of a matrix. Without NAME, it prints
the schema of matrices, with the options of every driver.`,
		Example: `  ctl explain e2e.p99
  ctl explain client-bound
  ctl explain publishers.maxInFlight
  ctl explain | less`,
		Args: arguments(cobra.MaximumNArgs(1)),
		ValidArgsFunction: func(_ *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
			return startingWith(start, explained()), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				_, err := io.WriteString(c.OutOrStdout(), matrix.Schema())
				return err
			}
			name, known := args[0], false
			print := func(format string, a ...any) {
				known = true
				fmt.Fprintln(c.OutOrStdout(), display.Hang(fmt.Sprintf(format, a...), width(c.OutOrStdout()), 2))
			}
			if v, is := plan.Metrics(nil).Join(drivers.Metrics()...).ValueNamed(name); is {
				print("value %s, heading %q, unit %s: %s", v.Name, v.Title, v.Unit, v.Doc)
			}
			if text, remedy := report.Meaning(plan.Flag(name)); text != "" {
				print("flag %s: %s; %s", name, text, remedy)
			}
			for _, state := range report.States {
				if state[0] == name {
					print("%s: %s", name, state[1])
				}
			}
			if f, is := matrix.Explain(name); is {
				text := ""
				if f.Default != "" {
					text = ", default " + f.Default
				}
				print("field %s (%s%s): %s", name, strings.Join(strings.Fields(f.Type), " "), text, f.Doc)
			}
			if axis, is := matrix.Explain("axes." + name); is {
				print("axis %s: %s", name, axis.Doc)
			}
			if mode, is := matrix.Explain("publishers.mode"); is && slices.Contains(drivers.Modes(), drivers.Mode(name)) {
				print("%s is a publish mode. %s", name, strings.TrimPrefix(mode.Doc, "Publish mode. "))
			}
			if known {
				return nil
			}
			err := fmt.Errorf("explain %q: no value, flag, axis, mode or field has this name", name)
			if near := plan.ClosestMatch(name, append(matrix.Siblings(name), explained()...)); near != "" {
				return usageErrorf("%w; did you mean %q?", err, near)
			}
			return usageErrorf("%w; list all fields: ctl explain", err)
		},
	}
	withDrivers(c)
	return c
}

// explained returns the names of all values, flags, publish modes and states of rows.
func explained() []string {
	names := valueNames()
	for _, f := range plan.Flags() {
		names = append(names, string(f))
	}
	for _, mode := range drivers.Modes() {
		names = append(names, string(mode))
	}
	for _, state := range report.States {
		names = append(names, state[0])
	}
	return names
}

func driversCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "drivers [NAME]",
		Short: "List the drivers, or print the options and metrics of one",
		Example: `  ctl drivers
  ctl drivers rabbitmq`,
		Args:              arguments(cobra.MaximumNArgs(1)),
		ValidArgsFunction: completeDrivers,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				var rows [][]string
				for _, name := range drivers.Names() {
					if d, err := drivers.Lookup(name); err == nil {
						rows = append(rows, []string{name, strings.Join(strings.Fields(d.Info().Doc), " ")})
					}
				}
				return tabulateText(c.OutOrStdout(), width(c.OutOrStdout()), []string{"DRIVER", "BROKER"}, rows)
			}
			d, err := lookupDriver(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "// %s\n%s\n// Metrics (broker.NAME.mean, p50, max) and their units:\n//\n",
				strings.Join(strings.Fields(d.Info().Doc), " "), d.Info().Schema)
			for _, m := range d.Info().Metrics {
				if err == nil {
					_, err = fmt.Fprintf(c.OutOrStdout(), "//\t%-20s %-7s %s\n", m.Name, m.Unit, m.Doc)
				}
			}
			return err
		},
	}
	withDrivers(c)
	return c
}

// lookupDriver returns a driver by its name. The error suggests a similar name.
func lookupDriver(name string) (drivers.Driver, error) {
	d, err := drivers.Lookup(name)
	if err != nil {
		err = fmt.Errorf("%w%s", err, plan.DidYouMean(name, drivers.Names()))
		return nil, exit{ExitBadMatrix, err}
	}
	return d, nil
}
