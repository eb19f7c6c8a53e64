package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report/page"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/sampling"
	"example.org/lockstep/lockstep/internal/sink"
	"example.org/lockstep/lockstep/internal/wire"
)

// runOptions are the flags of the commands that run a matrix, and the run that they repeat or resume.
type runOptions struct {
	narrow      matrix.Narrow
	server      serverFlags
	runs        string
	resume      string
	injectFault string
	influx      influxFlags
	verbose     bool
	quiet       bool
	detach      bool
	format      string // of the results
	yes         bool
	rerun       *rerun    // nil: the matrix is a file, or the record of a run to resume
	origin      *plan.Run // the recorded plan of the run to repeat or resume; nil: the matrix is a file
	complete    bool      // whether the run to resume has all its outcomes
}

func runCommand() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "run FILE | run --resume RUN",
		Short: "Run a matrix and print its tables",
		Long: `run executes every cell of a matrix, prints the tables, and stores a record of the run under --runs. ctl show
prints the tables again from the record. The first Ctrl-C stops the run cleanly: queues and topics are removed from the
broker, and all measurements are kept. The second Ctrl-C ends ctl at once.

On a fleet (--server), the run does not depend on ctl: it continues if the terminal closes or ctl is killed. ctl runs attach
follows it again, and ctl runs cancel stops it.

If another user created the run of --resume, ctl lists the brokers with their options, secrets and files. It asks
for confirmation before it uses any of them. Without a terminal, pass --yes.

On a terminal, live metrics are shown below the finished tasks. These are progress, publish and consume rates of each
group, lag, latencies, agents and time left. NO_COLOR disables the colours of these and of the results. Without a terminal, or with
TERM=dumb, only the lines of the finished tasks are printed.

With --quiet, ctl prints no progress, tables or warnings. It prints problems to standard error as they occur. At the end it prints
the problems of the results, the failed rules, and the paths of record and report. A successful run prints only these paths.

Metrics are also written to InfluxDB if one is configured: by --influx FILE, else by the matrix (influx), else by the
environment. Its variables are INFLUX_URL, INFLUX_ORG, INFLUX_BUCKET and INFLUX_TOKEN (or INFLUXDB_V2_URL etc.). An InfluxDB outage does not change the
results or the record. Dropped points are written again once at the end of the run. The summary has the counts, and the
command for a later replay.

Exit codes:
  0    no cell failed or was invalid
  1    another error
  2    errors in the matrix or command line
  3    a cell failed or was invalid
  4    too few agents
  5    a rule (require) is violated
  8    a rule is inconclusive and none is violated
  130  interrupted`,
		Example: `  ctl run matrices/quick.cue
  ctl run --quick --filter mode=confirm-each matrices/async-vs-sync.cue
  ctl run --server nats://bench-1:4222 matrices/prefetch.cue
  ctl run --server nats://bench-1:4222 --detach matrices/prefetch.cue
  ctl run -o json matrices/quick.cue
  ctl run --resume latest`,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && o.resume == "" {
				return usageErrorf("no matrix given: pass a matrix file, or --resume RUN; see ctl run --help")
			}
			if len(args) == 1 && o.resume != "" {
				return usageErrorf("both a matrix file and --resume given: the record of %s contains its matrix; omit %s", o.resume, args[0])
			}
			if o.resume != "" && (o.narrow.Quick || len(o.narrow.Filter) > 0) {
				return usageErrorf("--quick or --filter with --resume: a run is resumed as it was started; omit them")
			}
			if err := o.check(); err != nil {
				return err
			}
			return o.run(c, args)
		},
	}
	o.flags(c)
	formatFlag(c, &o.format, "text", "json")
	quietFlag(c, &o.quiet)
	c.Flags().StringVar(&o.resume, "resume", "",
		"run the tasks of `RUN` without outcome; RUN is an id, a unique prefix of one, a path, or latest")
	return c
}

// flags adds the flags that ctl run and ctl bundle rerun share.
func (o *runOptions) flags(c *cobra.Command) {
	narrowing(c, &o.narrow)
	o.influx.add(c, "the matrix or environment")
	o.server.addChoice(c, " (default: run locally)")
	runsFlag(c, &o.runs)
	faultsFlag(c, &o.injectFault)
	c.Flags().BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation for a record that this user did not create")
	c.Flags().BoolVar(&o.detach, "detach", false, "return after submitting the run; print its id")
	c.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "log the control plane")
}

// check returns an error for flags that exclude each other.
func (o *runOptions) check() error {
	if o.detach && o.format == "json" {
		return usageErrorf("-o json with --detach: ctl prints only the id of the run; omit -o, and use ctl runs attach -o json")
	}
	if o.injectFault != "" && o.server.url != "" {
		return usageErrorf("--faults with --server: each agent of a fleet has its own --faults file; omit --faults")
	}
	if o.detach && o.server.url == "" {
		return usageErrorf("--detach without a fleet: pass --server or --context, or set LOCKSTEP_SERVER")
	}
	return errors.Join(o.server.check(), o.influx.check())
}

func quietFlag(c *cobra.Command, to *bool) {
	c.Flags().BoolVarP(to, "quiet", "q", false, "print only problems and the paths of record and report")
}

func runsFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "runs", "runs", "use run records in `folder`")
}

// stopLimit limits the wait for the end of a cancelled run on a fleet.
const stopLimit = 2 * time.Minute

// run submits the run, follows it, and prints its tables.
func (o *runOptions) run(c *cobra.Command, args []string) error {
	ctx := c.Context()
	submission, err := o.submission(ctx, args)
	if err != nil {
		return err
	}
	run := submission.Run
	if o.complete {
		fmt.Fprintf(c.ErrOrStderr(), "nothing to run: all tasks of run %s have an outcome\n", run.ID)
		return o.conclude(ctx, c, run.ID, wire.End{Reason: wire.EndDone})
	}
	if len(run.Cells) == 0 {
		return nothingLeft(run)
	}
	if o.origin != nil {
		if err := consent(c, o.yes, *o.origin, run); err != nil {
			return err
		}
	}
	if o.rerun != nil {
		if err := o.rerun.before(ctx, c.ErrOrStderr(), run, submission.Run.Source.Server); err != nil {
			return err
		}
	}
	targets, err := faultTargets(o.injectFault)
	if err != nil {
		return err
	}
	if o.server.url == "" {
		if err := unlabelled(run); err != nil {
			return err
		}
	}
	if run.Bases == nil {
		run.Bases = o.bases(c.ErrOrStderr(), run)
		submission.Run.Bases = run.Bases
	}
	background := context.WithoutCancel(ctx) // the first Ctrl-C must not end the control plane of a local run
	stderr := newConsole(c.ErrOrStderr())
	log := logger(stderr, slog.LevelWarn, o.verbose)
	points, err := o.points(run, stderr, log)
	if err != nil {
		return err
	}
	defer points.Close(background)
	submission.Run.Influx = run.Influx.Redacted() // only this process writes its points
	var conn *wire.Client
	var disconnect func()
	if o.server.url == "" {
		conn, disconnect, err = local(background, run.Agents, targets, log)
	} else if conn, err = o.server.dial(background); err == nil {
		disconnect = conn.Close
	}
	if err != nil {
		return err
	}
	defer disconnect()
	if o.server.url != "" {
		if o.server.name != "" && !o.quiet {
			fmt.Fprintf(stderr, "using the fleet of context %s, %s\n", o.server.name, plan.Redact(o.server.url))
		}
		if _, limit, err := conn.StorageQuota(ctx); err == nil && !o.quiet { // else Submit returns the error
			fmt.Fprint(stderr, snapshotWarning(run, limit/2))
		}
	}
	if err := writable(o.runs); err != nil {
		return err
	}
	if o.resume == "" {
		if err := noteCreated(submission.Run); err != nil { // the run itself is not affected
			fmt.Fprintf(stderr,
				"cannot store that this user created the run; later commands will ask for confirmation: %v\n", err)
		}
	}
	var earlier wire.RunState
	if o.resume != "" {
		earlier, _ = conn.RunState(ctx, run.ID) // else Submit returns the error
	}
	printed := make(chan struct{})
	waits := time.AfterFunc(2*time.Second, func() {
		defer close(printed)
		fmt.Fprintln(stderr, "no controller has accepted the run yet; trying for 30 s")
	})
	err = conn.Submit(ctx, submission)
	if !waits.Stop() {
		<-printed
	}
	if errors.Is(err, wire.ErrQueued) {
		return fmt.Errorf("%w; follow it: %s, or stop it: ctl runs cancel %s%s", err, o.attachAgain(run.ID), run.ID,
			o.server.hint())
	}
	if err != nil {
		return err
	}
	if o.server.url != "" && !o.quiet {
		fmt.Fprintf(stderr, "follow it again: %s; stop it: ctl runs cancel %s%s\n", o.attachAgain(run.ID), run.ID,
			o.server.hint())
	}
	if o.detach {
		fmt.Fprintln(c.OutOrStdout(), run.ID)
		return nil
	}
	end, err := o.follow(ctx, conn, submission, earlier.Ended, stderr, points)
	if err != nil {
		return err
	}
	return o.conclude(background, c, run.ID, end)
}

// snapshotRate is the approximate size of an agent's snapshots in bytes per second. It is 3 KiB at 100 messages per
// second, and 18 KiB at 100,000.
const snapshotRate = 10 << 10

// snapshotWarning returns a line if the snapshots of a run may need more than limit bytes, the share of one run.
func snapshotWarning(run plan.Run, limit uint64) string {
	need := 0.0
	for _, t := range run.Tasks() {
		need += float64(t.Cell.Agents()) * plan.Estimate(t.Cell.Workload).Seconds() * snapshotRate
	}
	if need <= float64(limit) {
		return ""
	}
	return fmt.Sprintf("the run may end early: its snapshots need about %.0f MiB, and the control plane stores at most %d MiB per run; "+
		"start all controllers with --record-limit %.0fGiB, or run fewer cells at a time with --filter\n", need/(1<<20),
		limit>>20, math.Ceil(2*need/(1<<30)))
}

// follow copies a submitted run until it ends, and cancels it if ctx ends before. It prints no event up to since, the
// end of an earlier submission; zero: there was none.
func (o *runOptions) follow(ctx context.Context, conn *wire.Client, submission wire.Submission, since time.Time,
	stderr *console, points *sink.Sink) (wire.End, error) {
	run, background := submission.Run.ID, context.WithoutCancel(ctx)
	following, leave := context.WithCancel(background)
	defer leave()
	p := newProgress(stderr, submission, o.quiet)
	p.since = since
	defer p.close()
	if o.server.url != "" {
		go lookout(following, conn, run, p)
	}
	var replaying atomic.Bool // the run has ended, and dropped points are written again
	stop := context.AfterFunc(ctx, func() {
		if replaying.Load() {
			leave()
			return
		}
		o.stop(ctx, conn, run, stderr, leave)
	})
	defer stop()
	show := func(e controller.Progress) {
		if e.Kind == controller.ReplayStarted {
			replaying.Store(true)
		}
		p.show(e)
	}
	end, err := controller.Record(following, conn, run, o.runs, show, points)
	switch {
	case err == nil:
		return end, nil
	case o.server.url != "":
		return end, o.left(ctx, run, err)
	case ctx.Err() == nil: // the record cannot be written: cancel the run
		err = fmt.Errorf("%w; cannot store results in %s: free disk space or correct it, then resume: %s", err,
			o.runs, o.again(run))
		return end, errors.Join(err, conn.Cancel(background, run, submitter()))
	}
	return end, exit{ExitInterrupted, fmt.Errorf("stopped before the run reported its end: %w; resume: %s", err,
		o.again(run))}
}

// stop reacts to a signal. It cancels a followed run, or leaves it running on a fleet after SIGTERM. It calls leave,
// which stops following, if no controller may be left to report the end of the run.
func (o *runOptions) stop(ctx context.Context, conn *wire.Client, run string, stderr io.Writer, leave func()) {
	if o.server.url != "" && errors.Is(context.Cause(ctx), errTerminated) {
		leave() // the run continues on the fleet
		return
	}
	fmt.Fprintln(stderr, "stopping: closing connections and removing queues and topics (press again to stop at once)")
	if err := conn.Cancel(context.WithoutCancel(ctx), run, submitter()); err != nil {
		fmt.Fprintln(stderr, err)
		leave()
	}
	if o.server.url != "" { // its controller may have failed
		time.AfterFunc(stopLimit, leave)
	}
}

// points opens the sink of a followed run. With --detach, only the controller can write points, to an InfluxDB of its
// own.
func (o *runOptions) points(run plan.Run, stderr io.Writer, log *slog.Logger) (*sink.Sink, error) {
	switch {
	case !o.detach && o.quiet:
		return o.influx.open(run.Influx, io.Discard, log)
	case !o.detach:
		return o.influx.open(run.Influx, stderr, log)
	case o.influx.file != "":
		return nil, usageErrorf("--influx with --detach: ctl writes points only while it follows the run; omit one, or pass --influx to the controller")
	case run.Influx != nil && !o.influx.none:
		fmt.Fprintln(stderr,
			"no points are written to the InfluxDB of the matrix: with --detach, ctl does not follow the run (see lockstep-controller --influx)")
	}
	return nil, nil
}

// left returns the error of a run on a fleet that was not followed to its end. The error contains the command that
// continues it.
func (o *runOptions) left(ctx context.Context, id string, err error) error {
	if ctx.Err() != nil {
		return exit{ExitInterrupted, fmt.Errorf("detached before the run ended; follow it again: %s", o.attachAgain(id))}
	}
	if errors.Is(err, wire.ErrNoRecord) {
		return err
	}
	if errors.Is(err, wire.ErrNoRun) {
		return fmt.Errorf("run %s is no longer on the control plane, which may have been restarted without its data; "+
			"resume from the copy: %s", id, o.again(id))
	}
	return fmt.Errorf("%w; the run continues without this copy; follow it: %s, or stop it: ctl runs cancel %s%s", err, o.attachAgain(id),
		id, o.server.hint())
}

// conclude prints and writes the tables, and returns an error with the exit code of the run.
func (o *runOptions) conclude(ctx context.Context, c *cobra.Command, id string, end wire.End) error {
	var stopped error // by the controller
	switch end.Reason {
	case wire.EndNoAgents:
		return exit{ExitNoAgents, fmt.Errorf("%s; start more agents (list them: ctl fleet agents%s), or narrow the matrix with --filter or --set", end.Detail,
			o.server.hint())}
	case wire.EndNoTarget:
		return exit{ExitNoAgents, errors.New(end.Detail)}
	case wire.EndRefused:
		return fmt.Errorf("the controller rejected the run: %s", end.Detail)
	case wire.EndQuarantined:
		stopped = fmt.Errorf("run %s is quarantined: %s; retry: %s", id, end.Detail, o.again(id))
	case wire.EndFailed:
		stopped = errors.New(end.Detail)
	}
	record, err := runs.Open(o.runs, id)
	if err != nil && end.Reason == wire.EndInterrupted {
		return exit{ExitInterrupted, errors.New("interrupted before the first task")}
	}
	if err != nil {
		return cmp.Or(stopped, err)
	}
	if o.rerun != nil {
		if err := o.rerun.after(c.OutOrStdout(), record); err != nil {
			return err
		}
	}
	kept := page.Keep(record)
	out := c.OutOrStdout()
	if o.format == "json" {
		out = c.ErrOrStderr()
	}
	shown := mainResults
	if o.quiet {
		shown = onlyProblems
	}
	code, err := printResults(out, record, shown, o.server.hint())
	if o.format == "json" && err == nil {
		err = printTables(c.OutOrStdout(), record, o.format)
	}
	if err := remember(ctx, o.runs, record.Plan().ID); err != nil { // the record is not affected
		fmt.Fprintln(c.ErrOrStderr(), display.Clean(err.Error()))
	}
	if err := errors.Join(err, kept); err != nil {
		return err
	}
	switch {
	case stopped != nil:
		return stopped
	case end.Reason == wire.EndInterrupted:
		return exit{ExitInterrupted, fmt.Errorf("interrupted; resume: %s", o.again(id))}
	case code != ExitOK:
		return exit{code, fmt.Errorf("exit code %d: %s", code, exitReasons[code])}
	}
	return nil
}

// exitReasons are the reasons of the exit codes of a run that has ended.
var exitReasons = map[int]string{ExitFailedCells: "a cell failed or was invalid", ExitViolated: "a rule is violated",
	ExitInconclusive: "a rule is inconclusive"}

// again returns the command that resumes a run.
func (o *runOptions) again(id string) string {
	return "ctl run --resume " + id + folderHint(o.runs) + o.server.hint()
}

// attachAgain returns the command that follows a run on a fleet again, into the same folder.
func (o *runOptions) attachAgain(id string) string {
	return "ctl runs attach " + id + folderHint(o.runs) + o.server.hint()
}

// folderHint returns the flag --runs that another command needs for a folder, or "" for the default folder.
func folderHint(runs string) string {
	if runs == "runs" {
		return ""
	}
	return " --runs " + display.ShellWord(runs)
}

// writable creates the folder of records and checks that it can be written, before anything is measured.
func writable(root string) error {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return fmt.Errorf("create the records folder: %w; pass another with --runs", err)
	}
	probe, err := os.MkdirTemp(root, ".probe-*")
	if err != nil {
		return fmt.Errorf("write to the records folder: %w; pass another with --runs", err)
	}
	return os.Remove(probe)
}

// newRunID returns a sortable id with a random part, which makes collisions unlikely: "20260102-150405-quick-3f9c".
func newRunID(name string) string {
	var random [2]byte
	_, _ = rand.Read(random[:]) // never fails
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name)
	if len(clean) > 12 {
		clean = clean[:12]
	}
	return time.Now().UTC().Format("20060102-150405") + "-" + strings.Trim(clean, "-") + "-" +
		hex.EncodeToString(random[:])
}

// bases returns the numbers of this folder's history that the rules of a run need. It prints a warning for each missing
// one.
func (o *runOptions) bases(stderr io.Writer, run plan.Run) []plan.Base {
	all := history.Of(o.runs).Bases(run)
	effect := "; the rules that need it will be inconclusive"
	if o.server.url != "" {
		effect = "; rules that need it use the baseline of the fleet, if there is one"
	}
	for _, b := range all {
		if b.Why != "" {
			fmt.Fprintln(stderr, display.Clean(b.Why+effect))
		}
	}
	return all
}

// lookEvery is the interval at which lookout checks for a leading controller. It reports an absence after two failed
// checks in sequence.
const lookEvery = 3 * time.Second

// lookout prints, until ctx ends, why a queued run waits, and when the controller or the control plane disappears and
// returns.
func lookout(ctx context.Context, conn *wire.Client, run string, p *progress) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	missed, queued := 0, ""
	for begun := false; ; {
		if !begun && missed == 0 {
			text := ""
			if text, begun = queue(ctx, conn, run); text != "" && text != queued {
				p.print("%s", text)
				queued = text
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		_, err := conn.Leader(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			missed = 0
			p.back()
		default:
			missed++
			why := "the control plane does not respond; waiting for it"
			if errors.Is(err, wire.ErrNoController) {
				why = "no controller leads; the run continues when one is back"
			}
			if missed > 1 {
				p.away(why)
			}
		}
	}
}

// queue returns the text for a queued run, with the reason for its wait, and whether the run has begun. The text is
// empty before the controller has given a reason.
func queue(ctx context.Context, conn *wire.Client, run string) (text string, begun bool) {
	state, err := findRun(ctx, conn, run)
	switch {
	case err != nil, state.State == wire.StateQueued && state.Waiting == "", state.Over(): // of an earlier submission
		return "", false
	case state.State != wire.StateQueued:
		return "", true
	}
	return fmt.Sprintf("run %s is queued: %s", run, state.Waiting), false
}

func (o *runOptions) attach(c *cobra.Command, conn *wire.Client, args []string) error {
	ctx := c.Context()
	state, err := findRun(ctx, conn, args[0])
	if err != nil {
		return err
	}
	if err := writable(o.runs); err != nil {
		return err
	}
	p := newProgress(newConsole(c.ErrOrStderr()), wire.Submission{}, o.quiet)
	defer p.close()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go lookout(watching, conn, state.Run, p)
	end, err := controller.Record(ctx, conn, state.Run, o.runs, p.show, nil)
	p.close()
	if ctx.Err() != nil {
		return exit{ExitInterrupted, fmt.Errorf("detached; the run continues; follow it again: %s", o.attachAgain(state.Run))}
	}
	if errors.Is(err, wire.ErrNoRun) {
		if state.Over() && state.Copied {
			return withCopy(ctx, conn, state.Run, err)
		}
		return o.left(ctx, state.Run, err)
	}
	if err != nil {
		return fmt.Errorf("%w; copy the partial record: ctl runs pull %s%s", err, state.Run, o.server.hint())
	}
	return o.conclude(ctx, c, state.Run, end)
}

// submission returns the run of a matrix, or the rest of a run to resume.
func (o *runOptions) submission(ctx context.Context, args []string) (wire.Submission, error) {
	if o.resume != "" {
		s, err := o.resumption(ctx)
		s.By = submitter()
		return s, err
	}
	var run plan.Run
	var err error
	if o.rerun != nil {
		run, err = o.rerun.expand(ctx, o.narrow, o.server.url == "")
	} else {
		run, err = expand(ctx, args[0], o.narrow)
	}
	if err == nil {
		err = executable(args[0], run)
	}
	if err != nil {
		return wire.Submission{}, err
	}
	run.ID, run.Version, run.Started = newRunID(run.Name), plan.RecordFormat, time.Now().UTC()
	run.Source.Path, run.Source.Server = absolute(args[0]), plan.Redact(o.server.url)
	return wire.Submission{Run: run, By: submitter()}, nil
}

// resumption expands the matrix of a recorded run again, because the record contains no secrets. It uses the copy in
// the record if nothing was redacted in it. Else it reads the original file, which must be unchanged.
func (o *runOptions) resumption(ctx context.Context) (wire.Submission, error) {
	record, err := runs.Open(o.runs, o.resume)
	if err != nil && o.server.url != "" {
		err = fmt.Errorf("%w; if the run is on the fleet, copy its record first: ctl runs pull %s%s%s", err, display.ShellWord(o.resume),
			folderHint(o.runs), o.server.hint())
	}
	if err != nil {
		return wire.Submission{}, err
	}
	old := record.Plan()
	o.origin = &old
	if server := plan.Redact(o.server.url); server != old.Source.Server {
		return wire.Submission{}, usageErrorf("resume %s: it ran %s and would continue %s; use the same --server or --context as before",
			old.ID, where(old.Source.Server), where(server))
	}
	if err := o.goOnIn(record); err != nil {
		return wire.Submission{}, err
	}
	set := old.Source.Set
	if len(o.narrow.Set) > 0 {
		set = o.narrow.Set
	} else if strings.Contains(strings.Join(set, ""), stars) {
		return wire.Submission{}, usageErrorf("resume %s: its --set contained a password, which is not in the record; pass the same again: %s (or use ${env:NAME} next time)",
			old.ID, quoted(set))
	}
	source := []byte(old.Source.Text)
	if hexDigest(source) != old.Source.SHA256 {
		if !created(old) {
			return wire.Submission{}, fmt.Errorf("resume %s: "+
				"its matrix has passwords, which are not in the record, and the matrix file of another user is not read; "+
				"run the matrix itself", old.ID)
		}
		if source, err = os.ReadFile(old.Source.Path); err != nil {
			return wire.Submission{},
				fmt.Errorf("resume %s: its matrix has secrets, which are not in the record; read the matrix file: %w",
					old.ID, err)
		}
		if hexDigest(source) != old.Source.SHA256 {
			return wire.Submission{}, fmt.Errorf("resume %s: %s has changed since the run started; start a new run", old.ID,
				old.Source.Path)
		}
	}
	m, err := matrix.Load(old.Source.File, source,
		matrix.Narrow{Quick: old.Source.Quick, Set: set, Filter: old.Source.Filter})
	if err != nil {
		return wire.Submission{}, err
	}
	run, err := m.Run(ctx)
	if err != nil {
		return wire.Submission{}, err
	}
	if !slices.Equal(run.Source.Set, old.Source.Set) {
		begun := "and it was started without --set"
		if len(old.Source.Set) > 0 {
			begun = "and it was started with " + quoted(old.Source.Set)
		}
		return wire.Submission{}, usageErrorf("resume %s: --set differs: a run is resumed as it was started, %s; omit --set",
			old.ID, begun)
	}
	rounds := record.Rounds()
	o.complete = !slices.ContainsFunc(old.Tasks(),
		func(t plan.Task) bool { return !record.Done(t.ID) && rounds.Needed(t) })
	run.ID, run.Version, run.Started, run.Source, run.Bases = old.ID, old.Version, old.Started, old.Source, old.Bases
	s := wire.Submission{Run: run, Done: record.DoneTasks()}
	outcomes, err := record.Outcomes()
	s.Numbers = sampling.Numbers(old, outcomes)
	return s, err
}

// goOnIn sets --runs to the folder of a run that was given by its path. It fails if another ctl runs it.
func (o *runOptions) goOnIn(record *runs.Run) error {
	id := record.Plan().ID
	dir, err := filepath.EvalSymlinks(record.Dir())
	if err != nil {
		return fmt.Errorf("resume %s: %w", id, err)
	}
	if filepath.Base(dir) != id {
		return usageErrorf("resume %s: its folder is %s; rename the folder to the run id", id, dir)
	}
	if here, err := filepath.EvalSymlinks(filepath.Join(o.runs, id)); err != nil || here != dir {
		o.runs = filepath.Dir(dir)
	}
	if o.server.url != "" { // the fleet prevents that
		return nil
	}
	switch err := record.Lock(); {
	case errors.Is(err, runs.ErrLocked):
		return fmt.Errorf("resume %s: %w; wait until it ends, or stop it first", id, runs.ErrLocked)
	case err != nil:
		return fmt.Errorf("resume %s: %w", id, err)
	}
	return record.Close() // recording the run locks it again
}

func where(server string) string {
	if server == "" {
		return "locally"
	}
	return "on the fleet at " + server
}

// quoted formats --set flags for a shell.
func quoted(set []string) string { return "--set '" + strings.Join(set, "' --set '") + "'" }

// nothingLeft returns an error with the reasons why a matrix has no cell to run.
func nothingLeft(run plan.Run) error {
	var reasons []string
	for _, x := range run.Excluded {
		if text := x.Kind + ": " + x.Reason; !slices.Contains(reasons, text) {
			reasons = append(reasons, text)
		}
	}
	return usageErrorf("%s: no cells to run: all %d combinations are excluded:\n  %s", run.Source.File,
		len(run.Excluded), strings.Join(reasons, "\n  "))
}
