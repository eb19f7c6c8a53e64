package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"lockstep/internal/export"
	"lockstep/internal/plan"
	"lockstep/internal/runs"
)

// exportOptions are the flags of ctl export.
type exportOptions struct {
	format, out string
	values      []string
	windows     bool
}

func exportCommand() *cobra.Command {
	var o exportOptions
	var folder string
	c := &cobra.Command{
		Use:   "export RUN -o csv|parquet|gobench|omb",
		Short: "Export the outcomes of a run as CSV, Parquet, Go benchmark or OpenMessaging Benchmark files",
		Long: `export writes the outcomes of a recorded run in one of these formats:
- csv, parquet: one row per repetition of each cell and group, with all values; with --windows, one row per second;
- gobench: input of benchstat, one line per valid repetition, with the values of the matrix's tables or of --metric;
- omb: one result file of the OpenMessaging Benchmark per repetition, in the folder of -f.

Exit codes: 0 written; 1 not written; 2 an error in the command line.`,
		Example: `  ctl export latest -o csv -f outcomes.csv
  ctl export latest -o parquet --windows -f seconds.parquet
  ctl export latest -o gobench | go tool benchstat -row .fullname /dev/stdin
  ctl export latest -o omb -f results`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeRuns(&folder),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return exit{ExitBadMatrix, err}
			}
			run, err := runs.Open(folder, args[0])
			if err != nil {
				return err
			}
			return o.export(c, run)
		},
	}
	runsFlag(c, &folder)
	formatFlag(c, &o.format, "csv", "parquet", "gobench", "omb")
	fileFlag(c, &o.out, "write to `file`, or for omb to a folder (default: standard output)")
	c.Flags().StringSliceVar(&o.values, "metric", nil,
		"gobench: write the comma-separated metric `names`, or all (default: those of the matrix's tables)")
	completeFlag(c, "metric", completeMetrics)
	c.Flags().BoolVar(&o.windows, "windows", false, "csv, parquet: write one row per second instead of one per repetition")
	return c
}

// check lists all invalid and conflicting flags.
func (o exportOptions) check() error {
	var faults []error
	if o.windows && (o.format == "gobench" || o.format == "omb") {
		faults = append(faults, fmt.Errorf("--windows with -o %s: use csv or parquet", o.format))
	}
	if len(o.values) > 0 && o.format != "gobench" {
		faults = append(faults, fmt.Errorf("--metric with -o %s: this format contains all metrics; omit --metric", o.format))
	}
	if o.out == "" && o.format == "omb" {
		faults = append(faults, errors.New("no folder given for -o omb: pass -f DIR"))
	}
	return errors.Join(faults...)
}

func (o exportOptions) export(c *cobra.Command, run *runs.Run) error {
	outcomes, err := run.Outcomes()
	if err != nil {
		return err
	}
	if o.format == "omb" {
		return o.omb(c, run, outcomes)
	}
	return o.write(c.OutOrStdout(), func(w io.Writer) error {
		if o.format == "gobench" {
			left, err := export.GoBench(w, run.Plan(), outcomes, o.values)
			if errors.Is(err, export.ErrUnknown) {
				err = exit{ExitBadMatrix, err}
			}
			if left.Invalid+left.Empty > 0 {
				fmt.Fprintf(c.ErrOrStderr(), "omitted: %d that are not valid, %d without any of the values\n",
					left.Invalid, left.Empty)
			}
			return err
		}
		table := export.Values
		if o.windows {
			table = export.Windows
		}
		t, err := table(run)
		if err != nil {
			return err
		}
		if o.format == "parquet" {
			return export.Parquet(w, t)
		}
		return export.CSV(w, t)
	})
}

// write writes the export to standard output, or to the file of -f, which is replaced only if f succeeds.
func (o exportOptions) write(stdout io.Writer, f func(io.Writer) error) error {
	if o.out == "" {
		return f(stdout)
	}
	return writeOutput("export", o.out, "--file", f)
}

// omb writes one file per valid repetition, named after the run and the task, and prints its path.
func (o exportOptions) omb(c *cobra.Command, run *runs.Run, outcomes []plan.Outcome) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("create the export folder: %w; pass another with --file", err)
	}
	invalid := 0
	for _, x := range outcomes {
		if x.Verdict != plan.Valid {
			invalid++
			continue
		}
		result, err := export.OMB(run, x)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(result); err != nil {
			return fmt.Errorf("export task %s: %w", x.Task, err)
		}
		name := filepath.Join(o.out, run.Plan().ID+"-"+x.Task+".json")
		if err := os.WriteFile(name, text.Bytes(), 0o644); err != nil { //nolint:gosec // results are for others to read
			return fmt.Errorf("export task %s: %w", x.Task, err)
		}
		fmt.Fprintln(c.OutOrStdout(), name)
	}
	if invalid > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "omitted: %d that are not valid\n", invalid)
	}
	return nil
}
