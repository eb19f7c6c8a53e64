package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/matrix"
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
	remove, err = external.Register(ctx, commands, logger(stderr, false))
	if err != nil {
		return nil, exit{ExitBadMatrix, fmt.Errorf("start the drivers of %s: %w", file, err)}
	}
	return remove, nil
}
