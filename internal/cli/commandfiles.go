package cli

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/files"
	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers/external"
)

// withDrivers adds the flag --drivers. The drivers of its file are registered while the command runs.
func withDrivers(c *cobra.Command) {
	var file string
	c.Flags().StringVar(&file, "drivers", os.Getenv("LOCKSTEP_DRIVERS"),
		"load external drivers from `file` (docs/howto/external-drivers.md) [$LOCKSTEP_DRIVERS]")
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if file == "" {
			return run(c, args)
		}
		remove, err := addDrivers(c.Context(), file, c.ErrOrStderr())
		if err != nil {
			return err
		}
		defer remove()
		return run(c, args)
	}
}

// addDrivers starts and registers the drivers of a file. remove unregisters and stops them.
func addDrivers(ctx context.Context, file string, stderr io.Writer) (remove func(), err error) {
	text, err := readCommands("the drivers file", file)
	if err != nil {
		return nil, err
	}
	named, err := matrix.Commands(file, text)
	if err != nil {
		return nil, err
	}
	commands := make(map[string]external.Command, len(named))
	for name, c := range named {
		commands[name] = external.Command(c).From(filepath.Dir(absolute(file)))
	}
	remove, err = external.Register(ctx, commands, logger(stderr, slog.LevelWarn, false))
	if err != nil {
		return nil, usageErrorf("start the drivers of %s: %w", file, err)
	}
	return remove, nil
}

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

// readCommands reads a file with commands that this host runs. name is that of the file in errors. A file that other
// users can change is an error.
func readCommands(name, file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, usageErrorf("read %s: %w", name, err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err = cmp.Or(err, files.CheckTrusted(f)); err != nil {
		return nil, usageErrorf("read %s, which has commands: %w", name, err)
	}
	return text, nil
}
