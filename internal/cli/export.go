package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

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

// exportFormats are the values of --format.
var exportFormats = []string{"csv", "parquet", "gobench", "omb"}

func exportCommand() *cobra.Command {
	var o exportOptions
	var folder string
	c := &cobra.Command{
		Use:   "export RUN --format csv|parquet|gobench|omb",
		Short: "Write a run's outcomes for other tools: notebooks, benchstat, the OpenMessaging Benchmark's",
		Long: `export writes the outcomes of a run from its record.

csv and parquet have a row for each repetition of each cell and group, with all values; with --windows
a row for each second. gobench is what benchstat reads: a line for each repetition that is valid, with
the values of the matrix's tables or those of --values. omb makes a result file of the OpenMessaging
Benchmark for each repetition, in the folder -o.

Exit codes: 0 it is written; 2 the command line has errors; 1 it is not written.`,
		Example: `  ctl export latest --format csv -o night.csv
  ctl export latest --format parquet --windows -o seconds.parquet
  ctl export latest --format gobench | go tool benchstat -row .fullname /dev/stdin
  ctl export latest --format omb -o results`,
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
	c.Flags().StringVar(&o.format, "format", "csv", "csv, parquet, gobench or omb")
	c.Flags().StringVarP(&o.out, "output", "o", "", "`file` to write (omb: the folder); none: standard output")
	c.Flags().StringSliceVar(&o.values, "values", nil,
		"gobench: the `values` to write, or all; none: those of the matrix's tables")
	c.Flags().BoolVar(&o.windows, "windows", false, "csv, parquet: a row for each second instead of each repetition")
	return c
}

// check lists all invalid and conflicting flags.
func (o exportOptions) check() error {
	var faults []error
	known := false
	for _, f := range exportFormats {
		known = known || f == o.format
	}
	if !known {
		faults = append(faults, fmt.Errorf("no format %q (there are: %s)", o.format, strings.Join(exportFormats, ", ")))
	}
	if o.windows && (o.format == "gobench" || o.format == "omb") {
		faults = append(faults, fmt.Errorf("--windows is for csv and parquet, not for %s", o.format))
	}
	if len(o.values) > 0 && o.format != "gobench" {
		faults = append(faults, fmt.Errorf("--values is for gobench: %s has all of them", o.format))
	}
	if o.out == "" && o.format == "omb" {
		faults = append(faults, errors.New("omb makes a file for each repetition: give the folder with -o"))
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
				fmt.Fprintf(c.ErrOrStderr(), "left out: %d that are not valid, %d without any of the values\n",
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

// write writes the export to standard output, or to the file of -o, which is replaced only if f succeeds.
func (o exportOptions) write(stdout io.Writer, f func(io.Writer) error) error {
	if o.out == "" {
		return f(stdout)
	}
	return writeOutput("export", o.out, "-o", f)
}

// omb writes one file per valid repetition, named after the run and the task, and prints its path.
func (o exportOptions) omb(c *cobra.Command, run *runs.Run, outcomes []plan.Outcome) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("make the folder of the export: %w; give another with -o", err)
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
		fmt.Fprintf(c.ErrOrStderr(), "left out: %d that are not valid\n", invalid)
	}
	return nil
}
