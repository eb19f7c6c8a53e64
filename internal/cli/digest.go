package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"lockstep/internal/compare"
	"lockstep/internal/digest"
	"lockstep/internal/history"
	"lockstep/internal/plan"
	"lockstep/internal/runs"
	"lockstep/internal/sink"
)

// digestOptions are the flags of ctl digest.
type digestOptions struct {
	runs, baseline, format, failOn string
	influx                         influxFlags
}

// hookDirectory names the record of the run that a schedule's hook is called for.
const hookDirectory = "LOCKSTEP_RUN_DIR"

func digestCommand() *cobra.Command {
	var o digestOptions
	c := &cobra.Command{
		Use:   "digest [RUN]",
		Short: "Report what changed in a run: statuses, alarms, since when, how sure",
		Long: `digest looks at every cell of a run in the history of its folder. It reports values that are no numbers any more
(backlog, a flag, a verdict, missing); alarms: values whose level changed in the last three runs, since which run, how
sure that is, and what else changed then; which cells are new; what failed, and which rules are not met; and, where there is a baseline of the matrix (ctl baseline set) or --baseline names one, how the run compares
with it. It is printed, and written beside the record as digest.md and digest.html; where an InfluxDB is named (--influx, the
environment), what got worse or better goes there too, for the marks of the nightly dashboard.

As a schedule's hook it needs no RUN: it takes the one that the hook is called for.

Exit codes: 0 whatever it says; 1 a record or the history cannot be read; with --fail-on worse, 7 something got worse.`,
		Example: `  ctl digest latest
  ctl digest --baseline release-4.0 --format json latest
  ctl digest --fail-on worse latest`,
		Args:              arguments(cobra.MaximumNArgs(1)),
		ValidArgsFunction: completeRuns(&o.runs),
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	runsFlag(c, &o.runs)
	f := c.Flags()
	f.StringVar(&o.baseline, "baseline", "", "`name` of the baseline to compare with; none: that of the matrix, if there is one")
	f.StringVar(&o.format, "format", "md", "`md`, html or json")
	o.influx.add(c)
	f.StringVar(&o.failOn, "fail-on", "", "\"`worse`\": leave with code 7 if anything got worse")
	return c
}

func (o *digestOptions) run(c *cobra.Command, args []string) error {
	var faults []error
	write, known := map[string]func(digest.Digest, io.Writer) error{"md": digest.Digest.Markdown, "html": digest.Digest.HTML, "json": digest.Digest.JSON}[o.format]
	if !known {
		faults = append(faults, fmt.Errorf("no format %q (there are: md, html, json)", o.format))
	}
	if o.failOn != "" && o.failOn != "worse" {
		faults = append(faults, fmt.Errorf("--fail-on %q: there is only \"worse\"", o.failOn))
	}
	if len(args) == 0 && os.Getenv(hookDirectory) == "" {
		faults = append(faults, errors.New("give a run: its id, the beginning of one, a path, or latest"))
	}
	faults = append(faults, o.influx.check())
	if errors.Join(faults...) != nil {
		return exit{ExitBadMatrix, errors.Join(faults...)}
	}
	record, root, err := o.record(args)
	if err != nil {
		return err
	}
	d, err := o.digest(c, record, root)
	if err != nil {
		return err
	}
	var shown bytes.Buffer
	if err := errors.Join(keepDigest(record, d), write(d, &shown)); err != nil {
		return fmt.Errorf("write the digest: %w", err)
	}
	if _, err := shown.WriteTo(c.OutOrStdout()); err != nil {
		return err
	}
	if err := o.mark(c, record.Plan(), d.Remarks()); err != nil {
		return err
	}
	if n := d.Worse(); o.failOn != "" && n > 0 {
		return exit{ExitWorse, fmt.Errorf("worse: %d", n)}
	}
	return nil
}

// mark writes remarks to InfluxDB, if one is named.
func (o *digestOptions) mark(c *cobra.Command, run plan.Run, found []digest.Remark) error {
	if len(found) == 0 {
		return nil
	}
	if run.Influx.Starred() { // a token that stood in the matrix is not kept
		run.Influx = nil
	}
	to, err := o.influx.open(run, c.ErrOrStderr(), logger(c.ErrOrStderr(), false))
	if to == nil || err != nil {
		return err
	}
	remarks := make([]sink.Remark, len(found))
	for i, r := range found {
		remarks[i] = sink.Remark(r)
	}
	to.Remark(run, remarks)
	err = to.Drain(c.Context())
	if d := to.Close(c.Context()); err == nil && d.Dropped > 0 {
		err = fmt.Errorf("InfluxDB has not accepted %d of %d remarks: %s", d.Dropped, d.Points, d.LastError)
	}
	return err
}

// record opens the run, and tells the folder that it is in.
func (o *digestOptions) record(args []string) (record *runs.Run, root string, err error) {
	id := os.Getenv(hookDirectory)
	if len(args) > 0 {
		id = args[0]
	}
	if record, err = runs.Open(o.runs, id); err != nil {
		return nil, "", err
	}
	return record, filepath.Dir(record.Dir()), nil
}

func (o *digestOptions) digest(c *cobra.Command, record *runs.Run, root string) (digest.Digest, error) {
	store := history.Of(root)
	if err := freshen(c, store); err != nil {
		return digest.Digest{}, err
	}
	own, err := measuredIn(record)
	if err != nil {
		return digest.Digest{}, err
	}
	m := digest.Made{Recorded: own, History: store}
	if m.Baseline, err = o.base(store, root, own.Run.Name); err != nil {
		return digest.Digest{}, err
	}
	return digest.Of(m)
}

// base reads the baseline; nil: there is none, and none was asked for.
func (o *digestOptions) base(store *history.Store, root, matrix string) (*compare.Recorded, error) {
	all, err := store.Baselines()
	if err != nil {
		return nil, err
	}
	var b plan.Baseline
	for _, x := range all {
		if o.baseline == "" && x.Name == matrix {
			b = x
		}
	}
	if o.baseline != "" {
		if b, err = store.Baseline(o.baseline); err != nil {
			return nil, err
		}
	}
	if b.Run == "" {
		return nil, nil
	}
	record, err := runs.Open(root, b.Run)
	if err != nil {
		return nil, fmt.Errorf("read the baseline %s: %w; set another one (ctl baseline set), or remove it (ctl baseline remove %s)", b.Name, err, b.Name)
	}
	r, err := measuredIn(record)
	return &r, err
}

func measuredIn(record *runs.Run) (compare.Recorded, error) {
	outcomes, err := record.Outcomes()
	return compare.Recorded{Run: record.Plan(), Outcomes: outcomes}, err
}

// keepDigest writes it beside the record.
func keepDigest(record *runs.Run, d digest.Digest) error {
	var md, html bytes.Buffer
	return errors.Join(d.Markdown(&md), d.HTML(&html), record.WriteFile("digest.md", md.Bytes()), record.WriteFile("digest.html", html.Bytes()))
}
