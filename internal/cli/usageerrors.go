package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageErrors joins the errors of a command line into one with exit code ExitBadMatrix; nil if there are none.
func usageErrors(all []error) error {
	if err := errors.Join(all...); err != nil {
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

// arguments wraps a check of positional arguments. Its errors have the exit code ExitBadMatrix and refer to the help.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return exit{ExitBadMatrix, fmt.Errorf("%w; see %s --help", err, c.CommandPath())}
		}
		return nil
	}
}
