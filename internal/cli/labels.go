package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
)

func labelFlag(c *cobra.Command, to *[]string) {
	c.Flags().StringArrayVar(to, "label", nil,
		"label this agent with `name=value`, for \"on\" in matrices; repeatable")
}

// labels parses the values of --label.
func labels(given []string) (map[string]string, error) {
	all := map[string]string{}
	var faults []error
	for _, text := range given {
		name, value, paired := strings.Cut(strings.TrimSpace(text), "=")
		err := matrix.Label(name, value)
		if !paired {
			err = fmt.Errorf("label %q: no value; write for example zone=a", text)
		}
		if before, twice := all[name]; err == nil && twice {
			err = fmt.Errorf("label %q: given twice, as %q and %q; omit one", name, before, value)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("--label: %w", err))
			continue
		}
		all[name] = value
	}
	return all, usageErrors(faults)
}

// unlabelled returns an error if a cell requires labels: agents in this process have none.
func unlabelled(run plan.Run) error {
	for _, c := range run.Cells {
		for _, r := range c.Workload.Roles() {
			if len(r.On) > 0 {
				return exit{ExitBadMatrix,
					fmt.Errorf("cell %s requires %s on agents with %s: local agents have no labels; use a fleet with --server, or remove \"on\" from the cell",
						c.Name(), r.Name, r.On)}
			}
		}
	}
	return nil
}
