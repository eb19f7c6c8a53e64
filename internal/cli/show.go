package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/export"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/page"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
)

type showOptions struct {
	runs, format, file string
	all                bool
	per                string // the rows of csv and parquet: "" (tables, or perRepetition), perRepetition or perSecond
	metrics            []string
}

const (
	perRepetition = "repetition"
	perSecond     = "second"
)

func showCommand() *cobra.Command {
	var o showOptions
	c := &cobra.Command{
		Use:   "show RUN...",
		Short: "Print a recorded run: tables, report, or data for other tools",
		Long: `show prints the results of a recorded run. It uses only the record. The formats are:
- text, md, csv, json: the tables of the matrix. With --per, csv has one row per repetition or second instead;
- html: the report, one file that needs no network. With several runs, it shows them side by side;
- parquet: one row per repetition of each cell and group, with all values; with --per second, one row per second;
- gobench: input of benchstat, one line per valid repetition, with the values of the tables or of --metric;
- omb: one result file of the OpenMessaging Benchmark per valid repetition, in the folder of -f.

Exit codes: 0 printed; 1 not printed; 2 an error in the command line.`,
		Example: `  ctl show latest
  ctl show -o md 20260102-150405-quick-3f9c
  ctl show -o html -f both.html 20260102-150405-quick-3f9c 20260103-150405-quick-81d0
  ctl show -o csv --per repetition -f outcomes.csv latest
  ctl show -o gobench latest | go tool benchstat -row .fullname /dev/stdin
  ctl show -o omb -f results latest`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeRuns(&o.runs),
		RunE:              func(c *cobra.Command, args []string) error { return o.show(c, args) },
	}
	runsFlag(c, &o.runs)
	formatFlag(c, &o.format, "text", "md", "csv", "json", "html", "parquet", "gobench", "omb")
	fileFlag(c, &o.file, "write to `file`, or for omb to a folder (default: standard output)")
	f := c.Flags()
	f.BoolVar(&o.all, "all", false, fmt.Sprintf(
		"text: print all tables (default: the first, if it is long); html: details of all tasks (default: %d)",
		page.Detailed))
	f.StringVar(&o.per, "per", "", "csv, parquet: write one row per `unit`: repetition or second (default for csv: tables)")
	f.StringSliceVar(&o.metrics, "metric", nil,
		"gobench: write the comma-separated metric `names`, or all (default: those of the matrix's tables)")
	completeFlag(c, "per", cobra.FixedCompletions([]string{perRepetition, perSecond}, cobra.ShellCompDirectiveNoFileComp))
	completeFlag(c, "metric", completeMetrics)
	return c
}

// check lists all invalid and conflicting flags. names are the runs.
func (o *showOptions) check(names []string) error {
	var errs usageErrors
	if o.per != "" && o.per != perRepetition && o.per != perSecond {
		errs.addf("--per %q: unknown unit; use repetition or second", o.per)
	}
	if o.per != "" && o.format != "csv" && o.format != "parquet" {
		errs.addf("--per with -o %s: this format has no such rows; use -o csv or -o parquet", o.format)
	}
	if len(o.metrics) > 0 && o.format != "gobench" {
		errs.addf("--metric with -o %s: only gobench selects metrics; omit --metric", o.format)
	}
	if o.file == "" && o.format == "omb" {
		errs.addf("no folder given for -o omb: pass -f DIR")
	}
	if len(names) > 1 && o.format != "html" {
		errs.addf("several runs with -o %s: pass one run, or use -o html or ctl compare", o.format)
	}
	return errs.join()
}

func (o *showOptions) show(c *cobra.Command, names []string) error {
	if err := o.check(names); err != nil {
		return err
	}
	var all []*runs.Run
	for _, name := range names {
		run, err := runs.Open(o.runs, name)
		if err != nil {
			if fleet, failed := selectedFleet(); failed == nil && fleet != "" {
				err = fmt.Errorf("%w; if the run is on the fleet, copy its record: ctl runs pull %s%s", err, display.ShellWord(name),
					folderHint(o.runs))
			}
			return err
		}
		if slices.ContainsFunc(all, func(r *runs.Run) bool { return r.Plan().ID == run.Plan().ID }) {
			return usageErrorf("run %s was given twice; pass each run once (list runs with ctl runs list)", run.Plan().ID)
		}
		all = append(all, run)
	}
	if o.format == "omb" {
		return o.omb(c, all[0])
	}
	return emit(c.OutOrStdout(), "results", o.format, o.file, func(out io.Writer) error {
		return o.write(out, c.ErrOrStderr(), all)
	})
}

// write writes runs in a format other than omb. Only html has several.
func (o *showOptions) write(out, stderr io.Writer, all []*runs.Run) error {
	run := all[0]
	switch {
	case o.format == "html":
		return page.Write(out, all, page.Options{Full: o.all})
	case o.format == "gobench":
		outcomes, err := run.Outcomes()
		if err != nil {
			return err
		}
		left, err := export.GoBench(out, run.Plan(), outcomes, o.metrics)
		if errors.Is(err, export.ErrUnknown) {
			err = exit{ExitBadMatrix, err}
		}
		if left.Invalid+left.Empty > 0 {
			fmt.Fprintf(stderr, "omitted: %d that are not valid, %d without any of the values\n", left.Invalid, left.Empty)
		}
		return err
	case o.format == "parquet" || o.per != "":
		rows := export.Values
		if o.per == perSecond {
			rows = export.Windows
		}
		table, err := rows(run)
		if err != nil {
			return err
		}
		if o.format == "parquet" {
			return export.Parquet(out, table)
		}
		return export.CSV(out, table)
	case o.format != "text":
		return printTables(out, run, o.format)
	}
	shown := mainResults
	if o.all {
		shown = allResults
	}
	fleet, _ := fleetFlags(run.Plan().Source.Server) // without saved fleets, the suggested command has no flags
	if _, err := printResults(out, run, shown, fleet); err != nil {
		return err
	}
	timeline, err := run.Timeline()
	if end, ended := runs.EndOf(timeline); ended && end.Text != string(wire.EndDone) {
		fmt.Fprintln(out, display.Clean("the run has ended: "+end.Text+because(end.Detail)))
	}
	return err
}

// omb writes one file per valid repetition, named after the run and the task, and prints its path.
func (o *showOptions) omb(c *cobra.Command, run *runs.Run) error {
	outcomes, err := run.Outcomes()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.file, 0o755); err != nil {
		return fmt.Errorf("create the folder of results: %w; pass another with --file", err)
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
			return fmt.Errorf("write task %s: %w", x.Task, err)
		}
		name := filepath.Join(o.file, run.Plan().ID+"-"+x.Task+".json")
		if err := os.WriteFile(name, text.Bytes(), 0o644); err != nil { //nolint:gosec // results are for others to read
			return fmt.Errorf("write task %s: %w", x.Task, err)
		}
		fmt.Fprintln(c.OutOrStdout(), name)
	}
	if invalid > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "omitted: %d that are not valid\n", invalid)
	}
	return nil
}

// printTables prints the tables of a run as md, csv or json.
func printTables(out io.Writer, record *runs.Run, format string) error {
	outcomes, err := record.Outcomes()
	if err != nil {
		return err
	}
	files, err := report.Files(record.Plan(), outcomes)
	if err != nil {
		return err
	}
	_, err = out.Write(files["tables."+format])
	return err
}
