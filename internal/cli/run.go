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
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/controller"
	"lockstep/internal/display"
	"lockstep/internal/matrix"
	"lockstep/internal/plan"
	"lockstep/internal/report/page"
	"lockstep/internal/runs"
	"lockstep/internal/sink"
	"lockstep/internal/wire"
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
	detach      bool
	format      string // of the results
	yes         bool
	rerun       *rerun    // nil: the matrix is a file, or the record of a run to resume
	origin      *plan.Run // the recorded plan of the run to repeat or resume; nil: the matrix is a file
	// complete is true if the run to resume has all its outcomes.
	complete bool
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
				return exit{ExitBadMatrix, errors.New("no matrix given: pass a matrix file, or --resume RUN; see ctl run --help")}
			}
			if len(args) == 1 && o.resume != "" {
				return exit{ExitBadMatrix,
					fmt.Errorf("both a matrix file and --resume given: the record of %s contains its matrix; omit %s", o.resume, args[0])}
			}
			if o.resume != "" && (o.narrow.Quick || len(o.narrow.Filter) > 0) {
				return exit{ExitBadMatrix,
					errors.New("--quick or --filter with --resume: a run is resumed as it was started; omit them")}
			}
			if err := o.check(); err != nil {
				return err
			}
			return o.run(c, args)
		},
	}
	o.flags(c)
	formatFlag(c, &o.format, "text", "json")
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
	c.Flags().BoolVarP(&o.yes, "yes", "y", false,
		"skip the confirmation for a record that this user did not create")
	c.Flags().BoolVar(&o.detach, "detach", false, "return after submitting the run; print its id")
	c.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "log the control plane")
}

// check returns an error for flags that exclude each other.
func (o *runOptions) check() error {
	if o.detach && o.format == "json" {
		return exit{ExitBadMatrix, errors.New("-o json with --detach: ctl prints only the id of the run; omit -o, and use ctl runs attach -o json")}
	}
	if o.injectFault != "" && o.server.url != "" {
		return exit{ExitBadMatrix,
			errors.New("--faults with --server: each agent of a fleet has its own --faults file; omit --faults")}
	}
	if o.detach && o.server.url == "" {
		return exit{ExitBadMatrix,
			errors.New("--detach without a fleet: pass --server or --context, or set LOCKSTEP_SERVER")}
	}
	return errors.Join(o.server.check(), o.influx.check())
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
		return exit{ExitBadMatrix, nothingLeft(run)}
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
	log := logger(stderr, o.verbose)
	points, err := o.points(run, stderr, log)
	if err != nil {
		return err
	}
	defer points.Close(background)
	submission.Run.Influx = run.Influx.Redacted() // only this process writes its points
	fleet, err := o.server.connect(background, run.Agents, targets, log)
	if err != nil {
		return err
	}
	defer fleet.close()
	if o.server.url != "" {
		if o.server.name != "" {
			fmt.Fprintf(stderr, "using the fleet of context %s, %s\n", o.server.name, plan.Redact(o.server.url))
		}
		if _, limit, err := fleet.conn.RecordRoom(ctx); err == nil { // else Submit returns the error
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
		earlier, _ = fleet.conn.RunState(ctx, run.ID) // else Submit returns the error
	}
	printed := make(chan struct{})
	waits := time.AfterFunc(2*time.Second, func() {
		defer close(printed)
		fmt.Fprintln(stderr, "no controller has accepted the run yet; trying for 30 s")
	})
	err = fleet.conn.Submit(ctx, submission)
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
	if o.server.url != "" {
		fmt.Fprintf(stderr, "follow it again: %s; stop it: ctl runs cancel %s%s\n", o.attachAgain(run.ID), run.ID,
			o.server.hint())
	}
	if o.detach {
		fmt.Fprintln(c.OutOrStdout(), run.ID)
		return nil
	}
	end, err := o.follow(ctx, fleet.conn, submission, earlier.Ended, stderr, points)
	if err != nil {
		return err
	}
	return o.conclude(background, c, run.ID, end)
}

// snapshotRate is the approximate size of an agent's snapshots in bytes per second. It is 3 KiB at 100 messages per
// second, and 18 KiB at 100,000.
const snapshotRate = 10 << 10

// snapshotWarning returns a line if the snapshots of a run may need more than room bytes, the share of one run.
func snapshotWarning(run plan.Run, room uint64) string {
	need := 0.0
	for _, t := range run.Tasks() {
		need += float64(t.Cell.Agents()) * plan.Estimate(t.Cell.Workload).Seconds() * snapshotRate
	}
	if need <= float64(room) {
		return ""
	}
	return fmt.Sprintf("the run may end early: its snapshots need about %.0f MiB, and the control plane stores at most %d MiB per run; "+
		"start all controllers with --record-limit %.0fGiB, or run fewer cells at a time with --filter\n", need/(1<<20),
		room>>20, math.Ceil(2*need/(1<<30)))
}

// follow copies a submitted run until it ends, and cancels it if ctx ends before. It prints no event up to since, the
// end of an earlier submission; zero: there was none.
func (o *runOptions) follow(ctx context.Context, conn *wire.Client, submission wire.Submission, since time.Time,
	stderr *console,
	points *sink.Sink) (wire.End, error) {
	run, background := submission.Run.ID, context.WithoutCancel(ctx)
	following, leave := context.WithCancel(background)
	defer leave()
	p := newProgress(stderr, submission)
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
	case !o.detach:
		return o.influx.open(run.Influx, stderr, log)
	case o.influx.file != "":
		return nil,
			exit{ExitBadMatrix,
				errors.New("--influx with --detach: ctl writes points only while it follows the run; omit one, or pass --influx to the controller")}
	case run.Influx != nil && !o.influx.none:
		fmt.Fprintln(stderr,
			"no points are written to the InfluxDB of the matrix: with --detach, ctl does not follow the run (see controller --influx)")
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
	if end.Reason == wire.EndNoAgents {
		return exit{ExitNoAgents, fmt.Errorf("%s; start more agents, or narrow the matrix with --filter or --set", end.Detail)}
	}
	if end.Reason == wire.EndNoTarget {
		return exit{ExitNoAgents, errors.New(end.Detail)}
	}
	if end.Reason == wire.EndRefused {
		return fmt.Errorf("the controller rejected the run: %s", end.Detail)
	}
	var stopped error // by the controller
	switch end.Reason {
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
	code, err := printResults(out, record, false)
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
		return exit{code: code}
	}
	return nil
}

// again returns the command that resumes a run.
func (o *runOptions) again(id string) string {
	return "ctl run --resume " + id + o.elsewhere() + o.server.hint()
}

// attachAgain returns the command that follows a run on a fleet again, into the same folder.
func (o *runOptions) attachAgain(id string) string {
	return "ctl runs attach " + id + o.elsewhere() + o.server.hint()
}

// elsewhere returns the flag --runs, or "" for the default folder.
func (o *runOptions) elsewhere() string {
	if o.runs == "runs" {
		return ""
	}
	return " --runs " + shellWord(o.runs)
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

func readable(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
