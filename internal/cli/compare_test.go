package cli

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/plan"
)

// misgiven runs a command. The test fails unless its exit code is that of command-line errors and its message contains
// want.
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
	misgiven(t, compareCommand(), "run run-1 was given twice", "--runs", root, "run-1", "latest")
	misgiven(t, compareCommand(), `--effect "0": out of range; pass a change of more than 0`, "--runs", root, "--effect", "0",
		"run-1", "latest")
}

func TestExportOfUnknownValuesIsAUsageError(t *testing.T) {
	root := t.TempDir()
	twoCells(t, root, plan.Valid, plan.Valid)
	misgiven(t, showCommand(), `unknown value "nope" (docs/reference/values.md lists them`, "--runs", root, "-o",
		"gobench", "--metric", "nope", "run-1")
}

func TestHistoryOfAnUnknownValueIsAUsageError(t *testing.T) {
	root := t.TempDir()
	twoCells(t, root, plan.Valid, plan.Valid)
	misgiven(t, historyCommand(),
		`--metric: unknown metric "publish.rat" (see docs/reference/values.md); did you mean "publish.rate"?`, "--runs",
		root, "--metric", "publish.rat")
}

// A gate does not pass if a cell was left out, and names it. Worse values are listed first.
func TestFailOnRegressionListsOmittedCells(t *testing.T) {
	for _, x := range []struct {
		found  compare.Finding
		left   bool
		failOn bool
		code   int
		want   string
	}{
		{compare.NoDifference, false, true, 0, ""},
		{compare.NoDifference, true, true, ExitInconclusive, "inconclusive: 0 of 1; not compared: mode=x, only in A"},
		{compare.Inconclusive, true, true, ExitInconclusive, "inconclusive: 1 of 1; not compared: mode=x, only in A"},
		{compare.Worse, true, true, ExitWorse, "worse: 1 of 1; not compared: mode=x, only in A"},
		{compare.Worse, true, false, 0, ""},
	} {
		c := compare.Comparison{Values: []compare.Value{{Rows: []compare.Row{{Changes: []compare.Change{{Finding: x.found}}}}}}}
		if x.left {
			c.Left = []compare.Left{{Cell: "mode=x", Sides: []string{"B"}, Reason: "only in A"}}
		}
		o := compareOptions{failOn: x.failOn}
		var left exit
		if err := o.verdict(c); errors.As(err, &left) != (x.code != 0) || left.code != x.code || err != nil &&
			err.Error() != x.want {
			t.Errorf("%s, left out %v: %v, want code %d and %q", x.found, x.left, err, x.code, x.want)
		}
	}
}
