package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageErrors returns all errors of a command line as one; nil if there are none.
func usageErrors(all []error) error {
	if err := errors.Join(all...); err != nil {
		return exit{ExitBadMatrix, err}
	}
	return nil
}

// invalidValue says which values a flag takes, where the error of its package does not.
func invalidValue(f *pflag.Flag, err error) error {
	switch f.Value.Type() {
	case "bool":
		return errors.New("want true or false")
	case "int", "uint64":
		return errors.New("want a whole number")
	case "duration":
		return errors.New("want a duration with its unit, as 90s or 2m30s")
	}
	return err
}

// arguments wraps a check of positional arguments so that a mistake there has its exit code and points to the help.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return exit{ExitBadMatrix, fmt.Errorf("%w; see %s --help", err, c.CommandPath())}
		}
		return nil
	}
}
