package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/internal/compare"
	"lockstep/internal/history"
	"lockstep/internal/plan"
	"lockstep/internal/report"
	"lockstep/internal/report/page"
	"lockstep/internal/runs"
)

// compareOptions are the flags of ctl compare.
type compareOptions struct {
	compare.Options
	runs, format, out string
	failOn            bool
	effect            string
	only              []string
}

func compareCommand() *cobra.Command {
	var o compareOptions
	c := &cobra.Command{
		Use:   "compare RUN RUN... | compare --by AXIS RUN",
		Short: "Compare runs, or the values of an axis of one run: better, worse, no difference shown or inconclusive",
		Long: `compare puts each further run beside the first, the base, cell by cell; or, with --by, the cells of
one run at each value of an axis beside those at the first. It first lists what else differs: versions, hosts, the
brokers' settings, clocks, the matrix. A difference is shown where its p is at most --alpha over all tests together
(Holm) and it is at least --effect. With --by the tests are of repetitions (Mann–Whitney), which are interleaved.
Between runs they are of the runs' medians (t-test), with the run-to-run spread of at least 5 earlier runs of the
cell with the base's broker version and hosts; before there are so many the result is inconclusive. It is also
inconclusive, with the reason, where repetitions have no number or flags, or are too few.

Cells belong together by their id, which changes with the workload and the broker's name; --match names axes
instead. Cells that only one side has are listed. docs/compare.md explains the result.

Exit codes: 0 compared, whatever was found; 1 a record cannot be read; 2 the command line has errors, or no
cell has another to be compared with; with --fail-on-regression, 7 something is worse, 8 nothing is, and something is
inconclusive or left out.`,
		Example: `  ctl compare 20260102-150405-quick-3f9c latest
  ctl compare --by broker --value publish.rate --value publish.p99 latest
  ctl compare --match mode,threads --effect 10% --format html --out diff.html 20260102-150405-quick-3f9c latest
  ctl compare --fail-on-regression 20260102-150405-quick-3f9c latest`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeRuns(&o.runs),
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	runsFlag(c, &o.runs)
	f := c.Flags()
	f.StringArrayVar(&o.Values, "value", nil,
		"compare the value of this `name` (docs/values.md); may be repeated; none: "+
			strings.Join(compare.Usual(), ", "))
	f.StringVar(&o.By, "by", "", "compare the values of this `axis` inside of one run")
	f.StringVar(&o.Base, "base", "",
		"with --by: the `value` of the axis that the others are compared with; none: its first")
	f.StringSliceVar(&o.Match, "match", nil,
		"`axes` by which cells belong together, with commas; none: their ids or, with --by, all other axes")
	f.StringArrayVar(&o.only, "filter", nil, "keep only cells with `axis=value[,value]`; may be repeated")
	f.StringVar(&o.effect, "effect", "5%", "the least `change` that is named, like 5% or 0.05")
	f.Float64Var(&o.Alpha, "alpha", compare.DefaultAlpha,
		"the greatest `probability` of naming anything though nothing differs")
	f.StringVar(&o.format, "format", "text", "`text`, md, csv, json or html")
	f.StringVar(&o.out, "out", "", "`file` to write; none: standard output")
	f.BoolVar(&o.failOn, "fail-on-regression", false,
		"exit with code 7 if anything is worse, with 8 if anything is inconclusive or left out")
	return c
}

var compareFormats = []string{"text", "md", "csv", "json", "html"}

// check parses and checks the flags. The error lists all invalid ones.
func (o *compareOptions) check() error {
	var faults []error
	if !slices.Contains(compareFormats, o.format) {
		faults = append(faults, fmt.Errorf("no format %q (there are: %s)", o.format,
			strings.Join(compareFormats, ", ")))
	}
	text, isPercent := strings.CutSuffix(strings.TrimSpace(o.effect), "%")
	effect, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if isPercent {
		effect /= 100
	}
	if err != nil || !(effect > 0 && effect < 10) {
		faults = append(faults,
			fmt.Errorf("--effect %q: give a change of more than 0 and less than 1000%%, like 5%% or 0.05", o.effect))
	}
	o.Effect = effect
	if !(o.Alpha > 0 && o.Alpha < 1) {
		faults = append(faults, fmt.Errorf("--alpha %v is not a probability between 0 and 1", o.Alpha))
	}
	for _, only := range o.only {
		if axis, values, found := strings.Cut(only, "="); !found || axis == "" || values == "" {
			faults = append(faults, fmt.Errorf("--filter %q: write it like mode=confirm-each or threads=1,5", only))
		}
	}
	return errors.Join(faults...)
}

func (o *compareOptions) run(c *cobra.Command, args []string) error {
	if err := o.check(); err != nil {
		return exit{ExitBadMatrix, err}
	}
	var all []compare.Recorded
	var twice error
	root := ""
	for _, id := range args {
		r, dir, err := o.read(id)
		if err != nil {
			return err
		}
		root = cmp.Or(root, filepath.Dir(dir))
		if slices.ContainsFunc(all, func(x compare.Recorded) bool { return x.Run.ID == r.Run.ID }) {
			twice = fmt.Errorf("run %s is given twice: it differs in nothing from itself; give another run, or --by and one of its axes", r.Run.ID)
		}
		all = append(all, r)
	}
	if o.By == "" {
		store := history.Of(root)
		err := freshen(c, store)
		if err == nil {
			o.Spread, err = store.SpreadsOf(all, o.Values)
		}
		if err != nil {
			return err
		}
	}
	found, err := compare.Compare(all, o.Options)
	if err = errors.Join(twice, err); err != nil {
		return exit{ExitBadMatrix, err}
	}
	if err := o.write(c.OutOrStdout(), found); err != nil {
		return err
	}
	return o.verdict(found)
}

// read reads a run without the cells that --filter excludes, and returns its directory.
func (o *compareOptions) read(id string) (r compare.Recorded, dir string, err error) {
	record, err := runs.Open(o.runs, id)
	if err != nil {
		return r, "", err
	}
	outcomes, err := record.Outcomes()
	if err != nil {
		return r, "", err
	}
	run := record.Plan()
	for _, only := range o.only {
		axis, values, _ := strings.Cut(only, "=")
		if !slices.Contains(run.Axes, axis) {
			return r, "", exit{ExitBadMatrix, fmt.Errorf("--filter %s: run %s has no axis %q (there are: %s)", only,
				run.ID, axis, strings.Join(run.Axes, ", "))}
		}
		var there []string
		run.Cells = slices.DeleteFunc(slices.Clone(run.Cells), func(c plan.Cell) bool {
			at, _ := c.Coordinate(axis)
			if !slices.Contains(there, at) {
				there = append(there, at)
			}
			return at != values && !slices.Contains(strings.Split(values, ","), at)
		})
		if len(run.Cells) == 0 {
			return r, "", exit{ExitBadMatrix, fmt.Errorf("--filter %s: run %s has no such cell (of %s there are: %s)",
				only, run.ID, axis, strings.Join(there, ", "))}
		}
	}
	return compare.Recorded{Run: run, Outcomes: outcomes}, record.Dir(), nil
}

func (o *compareOptions) write(stdout io.Writer, c compare.Comparison) error {
	if o.out == "" {
		return o.render(stdout, c, width(stdout))
	}
	if err := writeOutput("comparison", o.out, "--out",
		func(w io.Writer) error { return o.render(w, c, 0) }); err != nil {
		return err
	}
	fmt.Fprintln(stdout, o.out)
	return nil
}

func (o *compareOptions) render(w io.Writer, c compare.Comparison, width int) error {
	switch o.format {
	case "md":
		return report.NewCompared(c).Markdown(w, c)
	case "csv":
		return report.CompareCSV(w, c)
	case "json":
		return report.CompareJSON(w, c)
	case "html":
		return page.WriteComparison(w, c)
	}
	return report.NewCompared(c).Text(w, c, width)
}

// verdict returns an error with the exit code of --fail-on-regression. It names the cells that were not compared.
func (o *compareOptions) verdict(c compare.Comparison) error {
	n := c.Found()
	total, left := 0, ""
	for _, k := range n {
		total += k
	}
	for _, l := range c.Left {
		left += fmt.Sprintf("; left out: %s, %s", l.Cell, l.Reason)
	}
	switch {
	case !o.failOn:
		return nil
	case n[compare.Worse] > 0:
		return exit{ExitWorse, fmt.Errorf("worse: %d of %d%s", n[compare.Worse], total, left)}
	case n[compare.Inconclusive] > 0 || total == 0 || left != "":
		return exit{ExitInconclusive, fmt.Errorf("inconclusive: %d of %d%s", n[compare.Inconclusive], total, left)}
	}
	return nil
}
