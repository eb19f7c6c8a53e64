package cli

import (
	"fmt"
	"os"
	"runtime"

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
	text, err := readCommands("the faults file", file)
	if err != nil {
		return nil, err
	}
	return matrix.Targets(file, text)
}

// readCommands reads a file with commands that this host runs. name is that of the file in errors. A file that every
// user can write is an error, except on Windows, where permissions are not bits of the mode.
func readCommands(name, file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(file)
	}
	if err == nil && info.Mode().Perm()&0o002 != 0 && runtime.GOOS != "windows" {
		err = fmt.Errorf("every user of this host can write to %s and thereby run commands; run chmod o-w on it", file)
	}
	if err != nil {
		return nil, exit{ExitBadMatrix, fmt.Errorf("read %s: %w", name, err)}
	}
	return text, nil
}
