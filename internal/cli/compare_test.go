package cli

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"lockstep/internal/plan"
)

// misgiven runs a command, and fails the test unless it leaves with the code of faulty command lines and says what is wanted.
func misgiven(t *testing.T, c *cobra.Command, want string, args ...string) {
	t.Helper()
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	c.SetArgs(args)
	c.SilenceErrors, c.SilenceUsage = true, true
	err := c.ExecuteContext(t.Context())
	var left exit
	if !errors.As(err, &left) || left.code != ExitBadMatrix || !strings.Contains(err.Error(), want) {
		t.Errorf("%v: %v; want code %d and %q", args, err, ExitBadMatrix, want)
	}
}

func TestARunIsNotComparedWithItself(t *testing.T) {
	root := t.TempDir()
	twoCells(t, root, plan.Valid, plan.Valid)
	misgiven(t, compareCommand(), "run run-1 is given twice", "--runs", root, "run-1", "latest")
	misgiven(t, compareCommand(), `--effect "0": give a change of more than 0`, "--runs", root, "--effect", "0", "run-1", "latest")
}

func TestAnExportOfUnknownValuesIsAFaultOfTheCommandLine(t *testing.T) {
	root := t.TempDir()
	twoCells(t, root, plan.Valid, plan.Valid)
	misgiven(t, exportCommand(), `there is no value "nope" (docs/values.md lists them`, "--runs", root, "--format", "gobench", "--values", "nope", "run-1")
}

func TestAHistoryOfAnUnknownValueIsAFaultOfTheCommandLine(t *testing.T) {
	root := t.TempDir()
	twoCells(t, root, plan.Valid, plan.Valid)
	misgiven(t, historyCommand(), `--value: there is no value "send.rat" (docs/values.md lists them); did you mean "send.rate"?`, "--runs", root, "--value", "send.rat")
}
