package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
)

func faultsFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "faults", "",
		"allow faults on the targets in `file`; see docs/howto/inject-faults.md (default: no targets)")
}

// faultTargets reads the file of targets into which matrices may inject faults on this host.
func faultTargets(file string) ([]plan.Target, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, exit{ExitBadMatrix, fmt.Errorf("read the faults file: %w", err)}
	}
	return matrix.Targets(file, text)
}
