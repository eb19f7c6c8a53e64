package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"lockstep/internal/matrix"
	"lockstep/internal/plan"
)

func faultsFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "faults", "",
		"`file` that says what faults may be done to on this host; see docs/faults.md. None: nothing")
}

// faultTargets reads the file of targets into which matrices may inject faults on this host.
func faultTargets(file string) ([]plan.Target, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, exit{ExitBadMatrix, fmt.Errorf("read what may be disturbed: %w", err)}
	}
	return matrix.Targets(file, text)
}
