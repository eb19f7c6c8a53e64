package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// variable returns the name of the environment variable of a daemon's flag.
func variable(flag string) string {
	if flag == "label" {
		return "LOCKSTEP_LABELS" // contains all labels
	}
	return "LOCKSTEP_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment lets environment variables set every flag of a daemon, so that service units are the same on all
// hosts. The command line has precedence. Repeatable flags take a list, separated by commas or white space.
func fromEnvironment(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if name := variable(f.Name); !strings.Contains(f.Usage, name) {
			f.Usage += " [$" + name + "]"
		}
	})
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		var faults []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			value, ok := os.LookupEnv(variable(f.Name))
			if !ok || value == "" || f.Changed || f.Name == "help" || f.Name == "version" {
				return
			}
			if err := setFlag(f, value); err != nil {
				faults = append(faults, fmt.Sprintf("environment variable %s=%q: %v", variable(f.Name), value,
					invalidValue(f, err)))
			}
		})
		if len(faults) > 0 {
			return exit{ExitBadMatrix, fmt.Errorf("%s; see %s --help", strings.Join(faults, "; "), c.CommandPath())}
		}
		return nil
	}
}

// preferTyped resolves flags that exclude each other. If the command line sets one of them, it clears those that only
// the environment sets.
func preferTyped(c *cobra.Command, flags ...string) {
	if !slices.ContainsFunc(flags, c.Flags().Changed) {
		return
	}
	for _, name := range flags {
		if f := c.Flags().Lookup(name); !f.Changed {
			_ = f.Value.Set("") // a text flag accepts any value
		}
	}
}

func setFlag(f *pflag.Flag, value string) error {
	several, is := f.Value.(pflag.SliceValue)
	if !is {
		return f.Value.Set(value)
	}
	if f.Name == observeFlagName { // its commands contain blanks
		return several.Replace(strings.Split(value, ","))
	}
	return several.Replace(strings.FieldsFunc(value,
		func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' }))
}
