package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/metrics"
	"example.org/lockstep/lockstep/internal/rules"
	"example.org/lockstep/lockstep/internal/web"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// maxParallelRuns limits --max-parallel-runs.
const maxParallelRuns = 64

type controllerOptions struct {
	server       serverFlags
	pages        webFlags
	influx       influxFlags
	access       accessFlags
	allowed      drivers.Access // parsed from access
	listen, dir  string
	open         bool
	config       string
	hooks        string
	drivers      string // the file of --drivers
	replicas     int
	parallelRuns int
	recordLimit  memory
	sync         string
	syncEvery    time.Duration // parsed from sync; 0: before each acknowledgement
	within       time.Duration
	verbose      bool
}

// Controller runs the daemon that executes runs on a fleet, and returns its exit code.
func Controller(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return execute(ctx, controllerCommand(), args, stdin, stdout, stderr)
}

func controllerCommand() *cobra.Command {
	var o controllerOptions
	root := &cobra.Command{
		Use:   "lockstep-controller",
		Short: "Execute runs on a fleet of agents",
		Long: `lockstep-controller receives runs from the control plane, and agents execute them in lockstep. With --listen the
controller serves the control plane itself. It stores streams under --dir, and copies of runs in the subfolder runs. With
--sync DURATION, a power failure can lose messages acknowledged in that time. With --server it uses a NATS server.
--listen requires credentials: --nats-config with the file of "ctl fleet init", else LOCKSTEP_TOKEN, or LOCKSTEP_USER and
LOCKSTEP_PASSWORD. SIGHUP reloads that configuration. With --open no credentials are required on loopback.

On SIGTERM or Ctrl-C the controller starts no further task. It hands over when the tasks in flight have ended; it waits
until their deadlines, or for --stop-within. A second signal aborts the tasks in flight and removes their topologies. A
third signal ends the controller at once.`,
		Example: `  lockstep-controller --listen 127.0.0.1:4222 --open --dir /var/lib/lockstep
  lockstep-controller --listen 0.0.0.0:4222 --dir /var/lib/lockstep \
    --nats-config creds/nats.conf --creds creds/controller.nk
  lockstep-controller --server tls://nats-1:4222 --ca creds/ca.crt --creds creds/controller.nk`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			preferTyped(c, "listen", "server")
			if err := o.check(); err != nil {
				return err
			}
			o.drivers = c.Flag("drivers").Value.String()
			return o.run(c.Context(), c.ErrOrStderr())
		},
	}
	o.add(root)
	root.AddCommand(expandSchedule())
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	return root
}

func (o *controllerOptions) add(c *cobra.Command) {
	o.server.add(c, "")
	f := c.Flags()
	f.StringVar(&o.listen, "listen", "", "serve the control plane on `host:port`")
	f.BoolVar(&o.open, "open", false,
		"serve on loopback without credentials, so that every user of this host has full access")
	f.StringVar(&o.config, "nats-config", "",
		"serve with the users, permissions and certificate in `file`, which \"ctl fleet init\" writes")
	f.StringVar(&o.dir, "dir", "",
		"store streams and a copy of every run in `folder` (default: streams in memory only, no copies)")
	f.StringVar(&o.sync, "sync", "always",
		"sync streams to disk \"always\" (before each acknowledgement) or every `duration`, such as 2m")
	f.IntVar(&o.replicas, "replicas", 0,
		"store new and existing streams on `number` servers of the cluster (default: 3 on a cluster, else 1)")
	f.IntVar(&o.parallelRuns, "max-parallel-runs", 4,
		"execute up to `number` runs in parallel if they share no agent and no broker")
	f.Var(&o.recordLimit, "record-limit",
		"store at most these `bytes` of all runs; the oldest copied runs are deleted (default 1GiB)")
	o.pages.add(c, "web", "web pages, and Prometheus metrics at /metrics,")
	f.StringVar(&o.influx.file, "influx", "",
		"write points to the InfluxDB of this JSON `file` (default: $INFLUX_URL, if set); needs --dir")
	f.BoolVar(&o.influx.none, "no-influx", false, "write no points to InfluxDB; ignore the environment")
	f.StringVar(&o.hooks, "hooks", "",
		"allow schedules to call the hooks in `file`; see docs/reference/schedules.md (default: no hooks)")
	o.access.add(c, "hooks and InfluxDB settings")
	f.DurationVar(&o.within, "stop-within", 0,
		"abort the tasks in flight `duration` after SIGTERM (default: the deadlines of the tasks)")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log debug messages")
	withDrivers(c)
	fromEnvironment(c)
}

// check parses and checks the flags. The error lists all invalid ones.
func (o *controllerOptions) check() error {
	var errs usageErrors
	if (o.listen == "") == (o.server.url == "") {
		errs.addf("no control plane given, or two: pass either --listen to serve one or --server to use one; see lockstep-controller --help")
	}
	if o.config != "" && (o.listen == "" || o.server.creds == "") {
		errs.addf("--nats-config without --listen or without --creds: pass both; --creds is the key of the controller; see lockstep-controller --help")
	}
	if auth := o.server.auth(); o.open && (o.config != "" || auth.Creds != "" || auth.Token != "" || auth.User != "") {
		errs.addf("--open with credentials: omit --open, or omit --nats-config, --creds (LOCKSTEP_CREDS), LOCKSTEP_TOKEN and LOCKSTEP_USER")
	}
	if o.replicas < 0 || o.replicas > 5 {
		errs.addf("--replicas %d: out of range; pass 1 to 5, or omit it", o.replicas)
	}
	if o.sync != "always" {
		var err error
		if o.syncEvery, err = time.ParseDuration(o.sync); err != nil || o.syncEvery <= 0 {
			errs.addf("--sync %q: not a duration; pass always, or a duration such as 2m", o.sync)
		}
	}
	errs.add(o.server.check())
	var err error
	o.allowed, err = drivers.LimitedAccess(o.access.folders, o.access.variables, false)
	errs.add(err)
	if o.within < 0 {
		errs.addf("--stop-within %v: negative duration; pass a duration such as 90s, or omit it", o.within)
	}
	if o.parallelRuns < 1 || o.parallelRuns > maxParallelRuns {
		errs.addf("--max-parallel-runs %d: out of range; pass a number from 1 (one run at a time) to %d",
			o.parallelRuns, maxParallelRuns)
	}
	return errs.join()
}

// run serves until ctx ends and no task is in flight, or until the embedded control plane fails.
func (o *controllerOptions) run(ctx context.Context, stderr io.Writer) error {
	hooks, err := readHooks(o.hooks, o.allowed)
	if err != nil {
		return err
	}
	release, err := lockDir("--dir", o.dir)
	if err != nil {
		return err
	}
	defer release()
	log := logger(stderr, slog.LevelInfo, o.verbose)
	status := &controller.Status{}
	defer supervise(log, status.Stuck)()
	points, written, err := o.influx.daemon(o.dir, o.allowed, log)
	if err != nil {
		return err
	}
	serve, unserve, err := o.pages.start(log)
	if err != nil {
		return err
	}
	defer unserve()
	connect, broken, stop, err := controlPlane(ctx, o.server, wire.ServerConfig{Listen: o.listen, Config: o.config,
		Auth: o.server.auth(), Open: o.open, Dir: o.dir, Sync: o.syncEvery, Log: log, Record: int64(o.recordLimit)})
	if err != nil {
		return err
	}
	defer stop()
	if o.dir == "" && o.server.url == "" {
		log.Warn("the runs, their results and the schedules are lost when this controller ends: pass --dir to store them")
	}
	conn, err := connect(ctx)
	if err != nil {
		return leave(log, err)
	}
	defer conn.Close()
	pages, err := wire.NewClient(ctx, connect) // separate: requests of pages cannot close the controller's connection
	if err != nil {
		return err
	}
	defer pages.Close()
	cfg := controller.Config{Log: log, Version: version(), Hooks: hooks, MaxParallelRuns: o.parallelRuns,
		Points: points, Status: status, Ceilings: controller.OpenCeilings("", ""),
		Store:  wire.StoreConfig{RecordLimit: int64(o.recordLimit), Replicas: o.replicas},
		Expand: expander(o.drivers, expandTime, expandMemory)}
	if o.dir != "" {
		if cfg.Copies, err = filepath.Abs(filepath.Join(o.dir, "runs")); err != nil { // hooks get this path
			return fmt.Errorf("resolve the folder of run copies: %w", err)
		}
		cfg.Ceilings = controller.OpenCeilings(filepath.Join(o.dir, "ceilings.json"), build())
	}
	serve(func(access *web.Access) http.Handler {
		return web.New(web.Config{Conn: pages, Copies: cfg.Copies, Access: access, Version: version(), Log: log,
			Metrics: metrics.Controller(pages, status, written, version(), log)})
	})
	serving, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	cfg.Stop = ctx.Done()
	again := make(chan os.Signal, 2)
	defer signal.Stop(again)
	defer context.AfterFunc(ctx, func() {
		log.Info("stopping: hands over after the tasks in flight; a second signal aborts them")
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		var late <-chan time.Time
		if o.within > 0 {
			late = time.After(o.within)
		}
		select {
		case <-again:
		case <-late:
		case <-serving.Done():
		}
		giveUp()
	})()
	served := make(chan error, 1)
	go func() { served <- controller.Serve(serving, conn, cfg) }()
	select {
	case err := <-served:
		return leave(log, err)
	case err := <-broken: // no message can be stored: exit as if killed, the next start continues the runs
		return fmt.Errorf("store messages under %s: %w; free disk space and restart the controller, which continues its runs",
			o.dir, err)
	}
}

// readHooks reads the file of commands that the controller calls after the runs of schedules.
func readHooks(file string, access drivers.Access) (*controller.Hooks, error) {
	if file == "" {
		return nil, nil
	}
	text, err := readCommands("the hooks file", file)
	if err != nil {
		return nil, err
	}
	all, err := matrix.Hooks(file, text)
	if err != nil {
		return nil, err
	}
	hooks, err := controller.NewHooks(all, access)
	if err != nil {
		return nil, usageErrorf("read hooks of %s: %w", file, err)
	}
	return hooks, nil
}

// controlPlane returns a function that connects to the control plane: to an embedded server if cfg.Listen is set, else
// to the server of s. broken receives the error that ended an embedded server.
func controlPlane(ctx context.Context, s serverFlags, cfg wire.ServerConfig) (
	connect func(context.Context) (*wire.Conn, error), broken <-chan error, stop func(), err error) {
	if cfg.Listen == "" {
		return func(ctx context.Context) (*wire.Conn, error) { return dialPatiently(ctx, s, cfg.Log) }, nil, func() {}, nil
	}
	server, err := wire.Embedded(context.WithoutCancel(ctx), cfg)
	if err != nil {
		if errors.Is(err, wire.ErrOpen) {
			err = fmt.Errorf("%w: pass --nats-config and --creds with files of \"ctl fleet init\", or set LOCKSTEP_TOKEN, "+
				"or LOCKSTEP_USER and LOCKSTEP_PASSWORD; --open on 127.0.0.1 allows every user of this host", err)
		}
		if errors.Is(err, wire.ErrAsked) {
			err = exit{ExitBadMatrix, err}
		}
		return nil, nil, nil, err
	}
	stopListening := onHangup(func() {
		if err := server.Reload(); err != nil {
			cfg.Log.Error("reload failed: the control plane keeps its configuration", "error", err)
			return
		}
		cfg.Log.Info("control plane configuration reloaded")
	})
	cfg.Log.Info("control plane started", "url", server.URL())
	return server.Connect, server.Broken(), func() { stopListening(); server.Close() }, nil
}

// onHangup calls reload at each SIGHUP. stop ends that, and waits for a call in progress.
func onHangup(reload func()) (stop func()) {
	signals, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		defer close(ended)
		for range signals {
			reload()
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-ended
	}
}

// memory is a flag with a number of bytes, at least wire.MinRecord; 0: not set.
type memory int64

func (m *memory) String() string {
	if *m == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*m), 10)
}

func (m *memory) Set(text string) error {
	n, ok := rules.Memory(text)
	if !ok {
		return errors.New("not a size; pass for example 4GiB, 500MB or 1073741824")
	}
	if n < wire.MinRecord || n > maxRecord {
		return fmt.Errorf("out of range; pass %d MiB to %d TiB", int64(wire.MinRecord)>>20, int64(maxRecord)>>40)
	}
	*m = memory(n)
	return nil
}

func (*memory) Type() string { return "bytes" }

// maxRecord is the maximum of --record-limit.
const maxRecord = 64 << 40
