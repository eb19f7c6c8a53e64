package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/digest"
	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/sink"
)

type digestOptions struct {
	runs   *string // the folder
	format string
	failOn bool
	influx influxFlags
}

// hookDirectory is the variable with the record directory of the run for which a hook is called.
const hookDirectory = "LOCKSTEP_RUN_DIR"

func historyDigest(runs *string) *cobra.Command {
	o := digestOptions{runs: runs}
	c := &cobra.Command{
		Use:   "digest [RUN]",
		Short: "Summarise the changes of a run since earlier runs",
		Long: `digest compares every cell of a run with the history in its folder. It reports:
- values that are no longer a number (backlog, a flag, a verdict, missing);
- alarms: values whose level changed in the last three scheduled runs, with the run, the p value and other changes;
- new cells, failed tasks, and rules that are not met, with the rules about a baseline.

The digest is printed, and written as digest.md and digest.html into the directory of the run. If an InfluxDB is
configured (--influx or the environment), alarms are also written there, as annotations of the dashboard trend.
To compare two runs, use ctl compare. As the hook of a schedule, digest needs no RUN: it uses the run of the hook.

Exit codes, of which 3 to 8 need --fail-on-regression, and the first that applies is used:
  0  digest written (a hook that exits with another code has failed)
  1  a record or the history cannot be read
  3  a task failed, is invalid or was not run
  5  a rule is violated
  7  a value got worse
  8  a rule is inconclusive, or no series has enough runs for an alarm`,
		Example: `  ctl history digest latest
  ctl history digest -o json latest
  ctl history digest --fail-on-regression latest`,
		Args:              arguments(cobra.MaximumNArgs(1)),
		ValidArgsFunction: completeRuns(o.runs),
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	f := c.Flags()
	formatFlag(c, &o.format, "md", "html", "json")
	o.influx.add(c, "the environment")
	f.BoolVar(&o.failOn, "fail-on-regression", false,
		"exit with code 3, 5, 7 or 8 if the run is worse than earlier runs")
	return c
}

func (o *digestOptions) run(c *cobra.Command, args []string) error {
	var errs usageErrors
	write := map[string]func(digest.Digest, io.Writer) error{"md": digest.Digest.Markdown,
		"html": digest.Digest.HTML, "json": digest.Digest.JSON}[o.format]
	if len(args) == 0 && os.Getenv(hookDirectory) == "" {
		errs.addf("no run given: pass its id, a unique prefix of one, a path, or latest")
	}
	errs.add(o.influx.check())
	if err := errs.join(); err != nil {
		return err
	}
	id := os.Getenv(hookDirectory)
	if len(args) > 0 {
		id = args[0]
	}
	record, err := runs.Open(*o.runs, id)
	if err != nil {
		return err
	}
	store := history.Of(filepath.Dir(record.Dir()))
	if err := freshen(c, store); err != nil {
		return err
	}
	outcomes, err := record.Outcomes()
	if err != nil {
		return err
	}
	d, err := digest.Of(compare.Recorded{Run: record.Plan(), Outcomes: outcomes}, store)
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
	return o.verdict(d)
}

// verdict returns an error with the exit code of --fail-on-regression. The codes for tasks and rules are those of ctl
// run.
func (o *digestOptions) verdict(d digest.Digest) error {
	rules := report.Failed(d.Rules)
	var code int
	switch {
	case !o.failOn:
		return nil
	case len(d.Problems) > 0 || d.Unfinished != "":
		code = ExitFailedCells
	case rules[report.Violated] > 0:
		code = ExitViolated
	case d.Worse() > 0:
		code = ExitWorse
	case rules[report.Inconclusive] > 0 || d.Tested == 0:
		code = ExitInconclusive
	default:
		return nil
	}
	return exit{code, errors.New(d.Title())}
}

// mark writes remarks to the InfluxDB that a flag or the environment names. It ignores the one of the record, which the
// author of the record chose.
func (o *digestOptions) mark(c *cobra.Command, run plan.Run, found []digest.Remark) error {
	if len(found) == 0 {
		return nil
	}
	to, err := o.influx.open(nil, c.ErrOrStderr(), logger(c.ErrOrStderr(), slog.LevelWarn, false))
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
		err = fmt.Errorf("write annotations to InfluxDB: %d of %d not accepted: %s", d.Dropped, d.Points, d.LastError)
	}
	return err
}

// keepDigest writes the digest beside the record as Markdown and HTML.
func keepDigest(record *runs.Run, d digest.Digest) error {
	var md, html bytes.Buffer
	return errors.Join(d.Markdown(&md), d.HTML(&html), record.WriteFile("digest.md", md.Bytes()),
		record.WriteFile("digest.html", html.Bytes()))
}
