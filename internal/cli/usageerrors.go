package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
)

// usageErrorf returns an error with exit code ExitBadMatrix.
func usageErrorf(format string, args ...any) error {
	return exit{ExitBadMatrix, fmt.Errorf(format, args...)}
}

// usageErrors collects the errors of a command line.
type usageErrors []error

// add adds an error; nil: nothing.
func (e *usageErrors) add(err error) { *e = append(*e, err) }

func (e *usageErrors) addf(format string, args ...any) { e.add(fmt.Errorf(format, args...)) }

// join joins the errors into one with exit code ExitBadMatrix; nil if there are none.
func (e usageErrors) join() error {
	if err := errors.Join(e...); err != nil {
		return exit{ExitBadMatrix, err}
	}
	return nil
}

// invalidValue returns an error that states which values a flag accepts. It returns err for types whose own errors do.
func invalidValue(f *pflag.Flag, err error) error {
	switch f.Value.Type() {
	case "bool":
		return errors.New("not a boolean; pass true or false")
	case "int", "uint64":
		return errors.New("not a number; pass a whole number")
	case "duration":
		return errors.New("not a duration; pass a number with its unit, such as 90s or 2m30s")
	}
	return err
}

// arguments wraps a check of positional arguments. Its errors have the exit code ExitBadMatrix, and state the remedy.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch err := check(c, args); {
		case err == nil:
			return nil
		case c.HasAvailableSubCommands() && len(args) > 0:
			return exit{ExitBadMatrix, unknownCommand(c, args[0])}
		}
		return usageErrorf("%s given; write %s; see %s --help", display.Count(len(args), "argument"),
			strings.TrimSuffix(c.UseLine(), " [flags]"), c.CommandPath())
	}
}

// unknownCommand returns an error that suggests a subcommand of c with a similar name, or a command elsewhere with this
// name.
func unknownCommand(c *cobra.Command, name string) error {
	err := fmt.Errorf("unknown command %q for %s", name, c.CommandPath())
	siblings := map[string]string{}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			siblings[sub.Name()] = sub.CommandPath()
		}
	}
	near := siblings[plan.ClosestMatch(name, slices.Sorted(maps.Keys(siblings)))]
	var search func(*cobra.Command)
	search = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Name() == name && sub.IsAvailableCommand() {
				near = sub.CommandPath()
			}
			search(sub)
		}
	}
	search(c.Root())
	if near == "" {
		return fmt.Errorf("%w; see %s --help", err, c.CommandPath())
	}
	return fmt.Errorf("%w; did you mean %s?", err, near)
}

// flagError returns the error of an invalid command line: with the values that the flag accepts, or a similar flag.
func flagError(c *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		err = fmt.Errorf("--%s %q: %w", f.Name, invalid.GetValue(), invalidValue(f, invalid.Unwrap()))
	case errors.As(err, &unknown):
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := plan.ClosestMatch(unknown.GetSpecifiedName(), names); near != "" {
			return usageErrorf("%w; did you mean --%s?", err, near)
		}
	}
	return usageErrorf("%w; see %s --help", err, c.CommandPath())
}
