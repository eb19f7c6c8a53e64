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

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/page"
	"example.org/lockstep/lockstep/internal/runs"
)

type compareOptions struct {
	options           compare.Options
	runs, format, out string
	failOn            bool
	effect            string
	filter            []string
}

func compareCommand() *cobra.Command {
	var o compareOptions
	c := &cobra.Command{
		Use:   "compare RUN RUN... | compare --by AXIS RUN",
		Short: "Compare runs, or the values of an axis of one run",
		Long: `compare compares each further run with the first run, the base, cell by cell. With --by, it compares the
cells of one run at each value of an axis with the cells at the first value. The results are better, worse, no difference
shown, and inconclusive. First it lists the other differences: versions, hosts, broker settings, clocks, the matrix.

A difference is reported if it is at least --effect and its p, corrected for all tests (Holm), is at most --alpha. With
--by, the tests compare repetitions (Mann–Whitney), which are interleaved. Between runs, they compare the medians of the
runs (t-test) with the run-to-run spread of at least 5 earlier runs of the cell. These have the broker version and hosts
of the base; with fewer of them the result is inconclusive. A result is also inconclusive if repetitions have flags or
no number, or if there are too few; the reason is printed.

Cells are matched by their id, which depends on the workload and the name of the broker. --match selects axes instead.
Cells that only one side has are listed. See docs/howto/compare-runs.md.

Exit codes:
  0  compared, with any result
  1  a record cannot be read
  2  an error in the command line, or no cells to compare
  7  with --fail-on-regression: a value is worse
  8  with --fail-on-regression: none is worse, but one is inconclusive or not compared`,
		Example: `  ctl compare 20260102-150405-quick-3f9c latest
  ctl compare --by broker --metric publish.rate --metric publish.p99 latest
  ctl compare --match mode,threads --effect 10% -o html 20260102-150405-quick-3f9c latest
  ctl compare --fail-on-regression 20260102-150405-quick-3f9c latest`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeRuns(&o.runs),
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	runsFlag(c, &o.runs)
	f := c.Flags()
	f.StringSliceVar(&o.options.Values, "metric", nil,
		"compare the comma-separated metric `names` (docs/reference/values.md); repeatable (default "+
			strings.Join(compare.Usual(), ", ")+")")
	f.StringVar(&o.options.By, "by", "", "compare the values of this `axis` within one run")
	f.StringVar(&o.options.Base, "base", "", "use this `value` of the axis --by as the base (default: the first)")
	f.StringSliceVar(&o.options.Match, "match", nil,
		"match cells by these comma-separated `axes` (default: cell ids; with --by, all other axes)")
	f.StringArrayVar(&o.filter, "filter", nil, "keep only cells with `axis=value[,value]`; repeatable")
	f.StringVar(&o.effect, "effect", "5%", "report a difference of at least this `ratio`, such as 5% or 0.05")
	f.Float64Var(&o.options.Alpha, "alpha", compare.DefaultAlpha,
		"set the maximum `probability` of reporting any difference where there is none")
	completeFlag(c, "metric", completeMetrics)
	completeFlag(c, "by", completeAxes(&o.runs))
	completeFlag(c, "match", completeAxes(&o.runs))
	completeFlag(c, "filter", completeFilter(func(_ *cobra.Command, args []string) plan.Run { return recordedPlan(o.runs, args) }))
	formatFlag(c, &o.format, "text", "md", "csv", "json", "html")
	fileFlag(c, &o.out, "write to `file` (default: standard output)")
	f.BoolVar(&o.failOn, "fail-on-regression", false,
		"exit with code 7 if a value is worse, with 8 if one is inconclusive or not compared")
	return c
}

// check parses and checks the flags. The error lists all invalid ones.
func (o *compareOptions) check() error {
	var errs usageErrors
	text, isPercent := strings.CutSuffix(strings.TrimSpace(o.effect), "%")
	effect, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if isPercent {
		effect /= 100
	}
	if err != nil || !(effect > 0 && effect < 10) {
		errs.addf("--effect %q: out of range; pass a change of more than 0 and less than 1000%%, such as 5%% or 0.05", o.effect)
	}
	o.options.Effect = effect
	if !(o.options.Alpha > 0 && o.options.Alpha < 1) {
		errs.addf("--alpha %v: out of range; pass a probability between 0 and 1", o.options.Alpha)
	}
	for _, filter := range o.filter {
		if axis, values, found := strings.Cut(filter, "="); !found || axis == "" || values == "" {
			errs.addf("--filter %q: not of the form axis=value; write for example mode=confirm-each or threads=1,5", filter)
		}
	}
	return errs.join()
}

func (o *compareOptions) run(c *cobra.Command, args []string) error {
	if err := o.check(); err != nil {
		return err
	}
	var all []compare.Recorded
	var duplicate error
	root := ""
	for _, id := range args {
		r, dir, err := o.read(id)
		if err != nil {
			return err
		}
		root = cmp.Or(root, filepath.Dir(dir))
		if slices.ContainsFunc(all, func(x compare.Recorded) bool { return x.Run.ID == r.Run.ID }) {
			duplicate = fmt.Errorf("run %s was given twice; pass a different run, or --by with one of its axes", r.Run.ID)
		}
		all = append(all, r)
	}
	if o.options.By == "" {
		store := history.Of(root)
		err := freshen(c, store)
		if err == nil {
			o.options.Spread, err = store.SpreadsOf(all, o.options.Values)
		}
		if err != nil {
			return err
		}
	}
	found, err := compare.Compare(all, o.options)
	if err = errors.Join(duplicate, err); err != nil {
		return exit{ExitBadMatrix, err}
	}
	if err := emit(c.OutOrStdout(), "comparison", o.format, o.out,
		func(w io.Writer) error { return o.render(w, found, width(w)) }); err != nil {
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
	for _, filter := range o.filter {
		axis, values, _ := strings.Cut(filter, "=")
		if !slices.Contains(run.Axes, axis) {
			return r, "", usageErrorf("--filter %s: run %s has no axis %q; use one of %s", filter,
				run.ID, axis, strings.Join(run.Axes, ", "))
		}
		var existing []string
		run.Cells = slices.DeleteFunc(slices.Clone(run.Cells), func(c plan.Cell) bool {
			at, _ := c.Coordinate(axis)
			if !slices.Contains(existing, at) {
				existing = append(existing, at)
			}
			return at != values && !slices.Contains(strings.Split(values, ","), at)
		})
		if len(run.Cells) == 0 {
			return r, "", usageErrorf("--filter %s: run %s has no such cell; values of %s are: %s",
				filter, run.ID, axis, strings.Join(existing, ", "))
		}
	}
	return compare.Recorded{Run: run, Outcomes: outcomes}, record.Dir(), nil
}

func (o *compareOptions) render(w io.Writer, c compare.Comparison, width int) error {
	switch o.format {
	case "md":
		return report.NewComparison(c).Markdown(w)
	case "csv":
		return report.CompareCSV(w, c)
	case "json":
		return report.CompareJSON(w, c)
	case "html":
		return page.WriteComparison(w, c)
	}
	return report.NewComparison(c).Text(w, width)
}

// verdict returns an error with the exit code of --fail-on-regression. It names the cells that were not compared.
func (o *compareOptions) verdict(c compare.Comparison) error {
	n := c.Found()
	total, left := 0, ""
	for _, k := range n {
		total += k
	}
	for _, l := range c.Left {
		left += fmt.Sprintf("; not compared: %s, %s", l.Cell, l.Reason)
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
