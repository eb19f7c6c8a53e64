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
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/controller"
	"lockstep/internal/matrix"
	"lockstep/internal/metrics"
	"lockstep/internal/plan"
	"lockstep/internal/web"
	"lockstep/internal/wire"
	"lockstep/pkg/drivers"
)

// maxBeside limits --max-parallel-runs.
const maxBeside = 64

// controllerOptions are the flags of the controller.
type controllerOptions struct {
	server      serverFlags
	pages       webFlags
	influx      influxFlags
	access      accessFlags
	allowed     drivers.Access // parsed from access
	listen, dir string
	open        bool
	config      string
	hooks       string
	drivers     string // the file of --drivers
	replicas    int
	beside      int
	room        memory
	sync        string
	syncEvery   time.Duration // parsed from sync; 0: before each acknowledgement
	within      time.Duration
	verbose     bool
}

// Controller runs the daemon that executes runs on a fleet, and returns its exit code.
func Controller(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var o controllerOptions
	root := &cobra.Command{
		Use:   "controller",
		Short: "Execute runs on a fleet of agents",
		Long: `controller takes runs from the control plane and has agents execute them in lockstep. With
--listen it serves the control plane itself, with streams kept under --dir; with --server it uses a NATS that is there.
--listen needs credentials: --nats-config with what "ctl fleet init" made, else LOCKSTEP_TOKEN, or
LOCKSTEP_USER and LOCKSTEP_PASSWORD. SIGHUP reads that configuration again. With --open it needs none on loopback.

SIGTERM and Ctrl-C have the controller begin no further task, and hand over when those in flight have ended, for which it
waits until the tasks' deadlines, or --stop-within. The second signal gives the tasks in flight up in order, and the third leaves at once.`,
		Example: `  controller --listen 127.0.0.1:4222 --open --dir /var/lib/lockstep
  controller --listen 0.0.0.0:4222 --dir /var/lib/lockstep --nats-config creds/nats.conf --creds creds/controller.nk
  controller --server tls://nats-1:4222 --ca creds/ca.crt --creds creds/controller.nk`,
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
	return execute(ctx, root, args, stdin, stdout, stderr)
}

func (o *controllerOptions) add(c *cobra.Command) {
	o.server.add(c, "")
	f := c.Flags()
	f.StringVar(&o.listen, "listen", "", "serve the control plane on `host:port`")
	f.BoolVar(&o.open, "open", false,
		"serve on loopback without credentials: every user of this host may then do everything")
	f.StringVar(&o.config, "nats-config", "",
		"`file` with the users, permissions and certificate to serve with, as \"ctl fleet init\" makes it")
	f.StringVar(&o.dir, "dir", "",
		"`folder` for the control plane's streams and, below runs, a copy of every run; none: in memory, gone with the process")
	f.StringVar(&o.sync, "sync", "always",
		"when streams under --dir are synced to the disk: \"always\", before each message is acknowledged, or every `duration`, as 2m: a power cut loses what was acknowledged since")
	f.IntVar(&o.replicas, "replicas", 0,
		"`number` of servers of the control plane's cluster that keep each message; default three on a cluster, else one; streams that exist keep theirs")
	f.IntVar(&o.beside, "max-parallel-runs", 4,
		"`number` of runs that are executed at a time, at most, where they need other agents and other brokers; 1: one after the other")
	f.Var(&o.room, "record-limit",
		"Keep at most these `bytes` of all runs; the oldest copied runs are deleted for newer ones (default 1GiB)")
	o.pages.add(c, "web", "the web page and, at /metrics, metrics for Prometheus")
	f.StringVar(&o.influx.file, "influx", "",
		"write the points of every run to the InfluxDB that this JSON `file` names; none: that of INFLUX_URL and so on, if there is one. Needs --dir")
	f.BoolVar(&o.influx.none, "no-influx", false, "write no points to InfluxDB, whatever the environment says")
	f.StringVar(&o.hooks, "hooks", "",
		"`file` that names what schedules may call after their runs; see docs/schedules.md. None: nothing")
	o.access.add(c, "references in the files of --hooks and --influx")
	f.DurationVar(&o.within, "stop-within", 0,
		"`time` after which SIGTERM gives the tasks in flight up; none: the tasks' own deadlines")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log more")
	withDrivers(c)
	fromEnvironment(c)
}

// check parses and checks the flags. The error lists all invalid ones.
func (o *controllerOptions) check() error {
	var faults []error
	if (o.listen == "") == (o.server.url == "") {
		faults = append(faults,
			errors.New("give --listen to serve the control plane, or --server to use one; see controller --help"))
	}
	if o.config != "" && (o.listen == "" || o.server.creds == "") {
		faults = append(faults,
			errors.New("--nats-config is for --listen, and the controller needs --creds of one of its users; see controller --help"))
	}
	if auth := o.server.auth(); o.open && (o.config != "" || auth.Creds != "" || auth.Token != "" || auth.User != "") {
		faults = append(faults,
			errors.New("--open serves without credentials: leave it out, or leave out --nats-config, --creds (LOCKSTEP_CREDS), LOCKSTEP_TOKEN and LOCKSTEP_USER"))
	}
	if o.replicas < 0 || o.replicas > 5 {
		faults = append(faults, fmt.Errorf("--replicas %d: want 1 to 5 servers, or none to leave it as it is",
			o.replicas))
	}
	if o.sync != "always" {
		var err error
		if o.syncEvery, err = time.ParseDuration(o.sync); err != nil || o.syncEvery <= 0 {
			faults = append(faults, fmt.Errorf("--sync %q: give always, or a duration as 2m", o.sync))
		}
	}
	err := o.server.check()
	if err != nil {
		faults = append(faults, err)
	}
	if o.allowed, err = drivers.LimitedAccess(o.access.folders, o.access.variables, false); err != nil {
		faults = append(faults, err)
	}
	if o.within < 0 {
		faults = append(faults, fmt.Errorf("--stop-within %v: give a time, 90s say, or leave it out", o.within))
	}
	if o.beside < 1 || o.beside > maxBeside {
		faults = append(faults,
			fmt.Errorf("--max-parallel-runs %d: give a number from 1 (one run after the other) to %d", o.beside,
				maxBeside))
	}
	return usageErrors(faults)
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
	log := daemonLog(stderr, o.verbose)
	standing := &controller.Status{}
	defer supervise(log, standing.Stuck)()
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
		Auth: o.server.auth(), Open: o.open, Dir: o.dir, Sync: o.syncEvery, Log: log, Record: int64(o.room)})
	if err != nil {
		return err
	}
	defer stop()
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	pages, err := wire.NewClient(ctx, connect) // separate: requests of pages cannot close the controller's connection
	if err != nil {
		return err
	}
	defer pages.Close()
	cfg := controller.Config{Log: log, Version: version(), Hooks: hooks, SideBySide: o.beside, Points: points,
		Status: standing,
		Store:  wire.StoreConfig{RecordLimit: int64(o.room), Replicas: o.replicas},
		Expand: expander(o.drivers, expandTime, expandMemory)}
	if o.dir != "" {
		if cfg.Copies, err = filepath.Abs(filepath.Join(o.dir, "runs")); err != nil { // hooks get this path
			return fmt.Errorf("find the folder of copies: %w", err)
		}
	}
	serve(func(access *web.Access) http.Handler {
		return web.New(web.Config{Conn: pages, Copies: cfg.Copies, Access: access, Version: version(), Log: log,
			Metrics: metrics.Controller(pages, standing, written, version(), log)})
	})
	serving, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	cfg.Stop = ctx.Done()
	again := make(chan os.Signal, 2)
	defer signal.Stop(again)
	defer context.AfterFunc(ctx, func() {
		log.Info("asked to leave: hands over after the tasks in flight; a second signal gives them up")
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
		return fmt.Errorf("keep messages under %s: %w; make room there and start the controller again: its runs go on",
			o.dir, err)
	}
}

// readHooks reads the file of commands that the controller calls after the runs of schedules.
func readHooks(file string, access drivers.Access) (*controller.Hooks, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, exit{ExitBadMatrix, fmt.Errorf("read hooks: %w", err)}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o002 != 0 {
		return nil, exit{ExitBadMatrix, errors.Join(err,
			fmt.Errorf("read hooks: anybody on this host may write to %s and so have commands run; chmod o-w it",
				file))}
	}
	all, err := matrix.Hooks(file, text)
	if err != nil {
		return nil, err
	}
	hooks, err := controller.NewHooks(all, access)
	if err != nil {
		return nil, exit{ExitBadMatrix, fmt.Errorf("read hooks of %s: %w", file, err)}
	}
	return hooks, nil
}

// controlPlane returns a function that connects to the control plane: to an embedded server if cfg.Listen is set, else
// to the server of s. broken receives the error that ended an embedded server.
func controlPlane(ctx context.Context, s serverFlags, cfg wire.ServerConfig) (
	connect func(context.Context) (*wire.Conn, error), broken <-chan error, stop func(), err error) {
	background := context.WithoutCancel(ctx)
	if cfg.Listen == "" {
		return func(ctx context.Context) (*wire.Conn, error) { return dialPatiently(ctx, s, cfg.Log) }, nil, func() {},
			nil
	}
	server, err := wire.Embedded(background, cfg)
	if err != nil {
		return nil, nil, nil, unserved(err)
	}
	deafen := onHangup(func() {
		if err := server.Reload(); err != nil {
			cfg.Log.Error("the control plane goes on as it was", "error", err)
			return
		}
		cfg.Log.Info("read the control plane's configuration again")
	})
	cfg.Log.Info("control plane is up", "url", server.URL())
	return server.Connect, server.Broken(), func() { deafen(); server.Close() }, nil
}

// unserved adds the remedy to the error of an embedded control plane.
func unserved(err error) error {
	if errors.Is(err, wire.ErrOpen) {
		err = fmt.Errorf("%w: give --nats-config and --creds of what \"ctl fleet init\" makes, or set LOCKSTEP_TOKEN, "+
			"or LOCKSTEP_USER and LOCKSTEP_PASSWORD; or give --open on 127.0.0.1, for every user of this host", err)
	}
	if errors.Is(err, wire.ErrAsked) {
		return exit{ExitBadMatrix, err}
	}
	return err
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

// dialPatiently retries until it is connected or ctx ends, because daemons start in any order.
func dialPatiently(ctx context.Context, s serverFlags, log *slog.Logger) (*wire.Conn, error) {
	const least, most = 250 * time.Millisecond, 5 * time.Second
	for pause := least; ; pause = min(2*pause, most) {
		conn, err := wire.Dial(context.WithoutCancel(ctx), s.url, s.auth())
		if err == nil {
			conn.LogTo(log)
			log.Info("connected to the control plane", "url", plan.Redact(s.url))
			return conn, nil
		}
		log.Warn("cannot connect to the control plane, trying again", "error", err, "hint", s.remedy(err))
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// leave logs the end of a daemon. A cancelled context is a requested stop and not an error.
func leave(log *slog.Logger, err error) error {
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("serve: %w", err)
	}
	log.Info("ended in order")
	return nil
}

func daemonLog(stderr io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
}
