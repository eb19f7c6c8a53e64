package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lockstep/internal/compare"
	"lockstep/internal/plan"
	"lockstep/internal/report"
	"lockstep/internal/report/page"
	"lockstep/internal/runs"
)

// compareOptions are the flags of ctl compare.
type compareOptions struct {
	compare.Options
	runs, format, out, failOn string
	effect                    string
	only                      []string
}

func compareCommand() *cobra.Command {
	var o compareOptions
	c := &cobra.Command{
		Use:   "compare RUN RUN... | compare --by AXIS RUN",
		Short: "Say what got better or worse between runs, or along an axis of one run, and what is noise",
		Long: `compare puts each further run beside the first, the base, cell by cell; or, with --by, the cells of
one run at each value of an axis beside those at the first. It says first what else differs: versions, hosts, the
brokers' settings, clocks, the matrix. A change is named where its p is at most --alpha over all tests together
(Mann–Whitney over the repetitions, Holm) and it is at least --effect; anything else is noise, "~". Of too few
repetitions it says how many it takes. Cells that only one side has, or that are not valid, are listed and left out.

Cells belong together by their id, which changes with the workload and the broker's name; --match names axes
instead. docs/compare.md tells how to read it.

Exit codes: 0 compared, whatever was found; 1 a record cannot be read; 2 the command line has faults, or no
cell has another to be compared with; with --fail-on worse, 7 something is worse, or nothing could be told.`,
		Example: `  ctl compare 20260102-150405-quick-3f9c latest
  ctl compare --by broker --value send.rate --value send.p99 latest
  ctl compare --match mode,threads --effect 10% --format html --out diff.html 20260102-150405-quick-3f9c latest
  ctl compare --fail-on worse 20260102-150405-quick-3f9c latest`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeRuns(&o.runs),
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	runsFlag(c, &o.runs)
	f := c.Flags()
	f.StringArrayVar(&o.Values, "value", nil, "compare the value of this `name` (docs/values.md); may be repeated; none: "+strings.Join(compare.Usual(), ", "))
	f.StringVar(&o.By, "by", "", "compare the values of this `axis` inside of one run")
	f.StringVar(&o.Base, "base", "", "with --by: the `value` of the axis that the others are compared with; none: its first")
	f.StringSliceVar(&o.Match, "match", nil, "`axes` by which cells belong together, with commas; none: their ids or, with --by, all other axes")
	f.StringArrayVar(&o.only, "only", nil, "keep only cells with `axis=value[,value]`; may be repeated")
	f.StringVar(&o.effect, "effect", "5%", "the least `change` that is named, like 5% or 0.05")
	f.Float64Var(&o.Alpha, "alpha", compare.DefaultAlpha, "the greatest `probability` of naming anything though nothing differs")
	f.StringVar(&o.format, "format", "text", "`text`, md, csv, json or html")
	f.StringVar(&o.out, "out", "", "`file` to write; none: standard output")
	f.StringVar(&o.failOn, "fail-on", "", "\"`worse`\": leave with code 7 if anything is worse, or if nothing could be told")
	return c
}

var compareFormats = []string{"text", "md", "csv", "json", "html"}

// check tells of every fault of the flags at once.
func (o *compareOptions) check() error {
	var faults []error
	if !slices.Contains(compareFormats, o.format) {
		faults = append(faults, fmt.Errorf("no format %q (there are: %s)", o.format, strings.Join(compareFormats, ", ")))
	}
	text, isPercent := strings.CutSuffix(strings.TrimSpace(o.effect), "%")
	effect, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if isPercent {
		effect /= 100
	}
	if err != nil || !(effect > 0 && effect < 10) {
		faults = append(faults, fmt.Errorf("--effect %q: give a change of more than 0 and less than 1000%%, like 5%% or 0.05", o.effect))
	}
	o.Effect = effect
	if !(o.Alpha > 0 && o.Alpha < 1) {
		faults = append(faults, fmt.Errorf("--alpha %v is not a probability between 0 and 1", o.Alpha))
	}
	if o.failOn != "" && o.failOn != "worse" {
		faults = append(faults, fmt.Errorf("--fail-on %q: there is only \"worse\"", o.failOn))
	}
	for _, only := range o.only {
		if axis, values, found := strings.Cut(only, "="); !found || axis == "" || values == "" {
			faults = append(faults, fmt.Errorf("--only %q: write it like mode=confirm-each or threads=1,5", only))
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
	for _, id := range args {
		r, err := o.read(id)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(x compare.Recorded) bool { return x.Run.ID == r.Run.ID }) {
			twice = fmt.Errorf("run %s is given twice: it differs in nothing from itself; give another run, or --by and one of its axes", r.Run.ID)
		}
		all = append(all, r)
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

// read reads a run, less the cells that --only leaves out.
func (o *compareOptions) read(id string) (compare.Recorded, error) {
	r, err := runs.Open(o.runs, id)
	if err != nil {
		return compare.Recorded{}, err
	}
	outcomes, err := r.Outcomes()
	if err != nil {
		return compare.Recorded{}, err
	}
	run := r.Plan()
	for _, only := range o.only {
		axis, values, _ := strings.Cut(only, "=")
		if !slices.Contains(run.Axes, axis) {
			return compare.Recorded{}, exit{ExitBadMatrix, fmt.Errorf("--only %s: run %s has no axis %q (there are: %s)", only, run.ID, axis, strings.Join(run.Axes, ", "))}
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
			return compare.Recorded{}, exit{ExitBadMatrix, fmt.Errorf("--only %s: run %s has no such cell (of %s there are: %s)", only, run.ID, axis, strings.Join(there, ", "))}
		}
	}
	return compare.Recorded{Run: run, Outcomes: outcomes}, nil
}

func (o *compareOptions) write(stdout io.Writer, c compare.Comparison) error {
	if o.out == "" {
		return o.render(stdout, c, width(stdout))
	}
	file, err := os.Create(o.out)
	if err != nil {
		return fmt.Errorf("write comparison: %w; give another place with --out", err)
	}
	if err := errors.Join(o.render(file, c, 0), file.Close()); err != nil {
		return fmt.Errorf("write comparison to %s: %w", o.out, err)
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

// verdict is the exit code that --fail-on asks for.
func (o *compareOptions) verdict(c compare.Comparison) error {
	n := c.Found()
	total := 0
	for _, k := range n {
		total += k
	}
	switch {
	case o.failOn == "":
		return nil
	case n[compare.Worse] > 0:
		return exit{ExitWorse, fmt.Errorf("worse: %d of %d", n[compare.Worse], total)}
	case !c.Told():
		return exit{ExitWorse, errors.New("nothing could be told, so that nothing has passed: see what the comparison says of repetitions and of what was left out")}
	}
	return nil
}
