package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/matrix"
)

// The help lists commands in the order in which they are used.
func init() { cobra.EnableCommandSorting = false }

// Ctl runs the client program ctl and returns its exit code.
func Ctl(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return execute(ctx, ctlCommand(), args, stdin, stdout, stderr)
}

// Commands returns the commands of the three programs, for their man pages.
func Commands() []*cobra.Command {
	return []*cobra.Command{ctlCommand(), controllerCommand(), agentCommand()}
}

func ctlCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "ctl",
		Short: "Run declarative test matrices against message brokers",
		Long: `ctl expands a CUE matrix file into cells. Agents run each cell in lockstep against the broker. ctl stores
a record of every run and prints the summary tables that the matrix defines.

Without a fleet, everything runs inside the process of ctl. With --server, --context or LOCKSTEP_SERVER, ctl submits the
same run to a fleet of agents.`,
		Example: `  ctl run matrices/quick.cue
  ctl plan --quick matrices/async-vs-sync.cue
  ctl run --filter mode=confirm-each --set 'axes.threads=[1,5]' matrices/async-vs-sync.cue
  ctl show latest`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Write a matrix", []*cobra.Command{initCommand(), importCommand(), vetCommand(), planCommand(), explainCommand(), driversCommand()}},
		{"Run it", []*cobra.Command{doctorCommand(), runCommand(), runsCommand()}},
		{"Results", []*cobra.Command{showCommand(), compareCommand(), historyCommand()}},
		{"Share results", []*cobra.Command{bundleCommand()}},
		{"Fleet", []*cobra.Command{contextCommand(), fleetCommand(), scheduleCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title + ":"})
		for _, c := range group.commands {
			c.GroupID = group.title
			root.AddCommand(c)
		}
	}
	return root
}

// parent returns a command that only has subcommands: without one it prints its help.
func parent(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.Args = arguments(cobra.NoArgs)
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.AddCommand(commands...)
	return c
}

// narrowing adds the flags of commands that read a matrix: --quick, --set and --filter, which change the matrix without
// editing the file, and --drivers.
func narrowing(c *cobra.Command, n *matrix.Narrow) {
	withDrivers(c)
	f := c.Flags()
	f.BoolVar(&n.Quick, "quick", false, "run the short form of the matrix (sets its tag quick)")
	f.StringArrayVar(&n.Set, "set", nil, "replace a field before evaluation, `path=value` in CUE; repeatable")
	f.StringArrayVar(&n.Filter, "filter", nil, "keep only cells with `axis=value[,value]`; repeatable")
	completeFlag(c, "filter", completeFilter(expanded))
}

// load reads a matrix file.
func load(file string, n matrix.Narrow) (*matrix.Matrix, error) {
	source, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; correct the path, or create a matrix: ctl init DRIVER -f %s", err, display.ShellWord(file))
	}
	if err != nil {
		return nil, usageErrorf("read matrix: %w", err)
	}
	return matrix.Load(file, source, n)
}

func absolute(file string) string {
	if path, err := filepath.Abs(file); err == nil {
		return path
	}
	return file
}

func vetCommand() *cobra.Command {
	var n matrix.Narrow
	c := &cobra.Command{
		Use:   "vet FILE...",
		Short: "Check every cell of matrices and report all errors",
		Example: `  ctl vet matrices/quick.cue
  ctl vet --quick --set 'axes.threads=[1,5]' matrices/*.cue`,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, files []string) error {
			bad := false
			for _, file := range files {
				run, err := expand(c.Context(), file, n)
				if err == nil {
					err = executable(file, run)
				}
				if err := c.Context().Err(); err != nil {
					return err
				}
				if err != nil {
					fmt.Fprintln(c.ErrOrStderr(), err)
					bad = true
					continue
				}
				fmt.Fprintf(c.OutOrStdout(), "%s: %s, %d excluded, no errors\n", file,
					display.Count(len(run.Cells), "cell"), len(run.Excluded))
				for _, note := range repetitionNotes(run) {
					fmt.Fprintf(c.OutOrStdout(), "%s: note: %s\n", file, note)
				}
			}
			if bad {
				return exit{code: ExitBadMatrix}
			}
			return nil
		},
	}
	narrowing(c, &n)
	return c
}
