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
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/agent"
	"lockstep/internal/controller"
	"lockstep/internal/matrix"
	"lockstep/internal/metrics"
	"lockstep/internal/plan"
	"lockstep/internal/web"
	"lockstep/internal/wire"
)

// mostBeside bounds the runs that one controller executes at a time.
const mostBeside = 64

// Controller is the daemon that executes runs on a fleet.
func Controller(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var (
		s           serverFlags
		pages       webFlags
		listen, dir string
		config      string
		hooks       string
		replicas    int
		beside      int
		verbose     bool
		influx      influxFlags
	)
	root := &cobra.Command{
		Use:   "controller",
		Short: "Execute runs on a fleet of agents",
		Long: `controller takes runs from the control plane and has agents execute them in lockstep. With
--listen it serves the control plane itself, with streams kept under --dir; with --server it uses a NATS that is there.
Beyond loopback, --listen needs credentials: --nats-config with what "ctl fleet init" made, else
LOCKSTEP_TOKEN, or LOCKSTEP_USER and LOCKSTEP_PASSWORD. SIGHUP reads that configuration again.`,
		Example: `  controller --listen 127.0.0.1:4222 --dir /var/lib/lockstep
  controller --listen 0.0.0.0:4222 --dir /var/lib/lockstep --nats-config creds/nats.conf --creds creds/controller.nk
  controller --server tls://nats-1:4222 --ca creds/ca.crt --creds creds/controller.nk`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			preferTyped(c, "listen", "server")
			if (listen == "") == (s.url == "") {
				return exit{ExitBadMatrix, errors.New("give --listen to serve the control plane, or --server to use one; see controller --help")}
			}
			if config != "" && (listen == "" || s.creds == "") {
				return exit{ExitBadMatrix, errors.New("--nats-config is for --listen, and the controller needs --creds of one of its users; see controller --help")}
			}
			if replicas < 0 || replicas > 5 {
				return exit{ExitBadMatrix, fmt.Errorf("--replicas %d: want 1 to 5 servers, or none to leave it as it is", replicas)}
			}
			if beside < 1 || beside > mostBeside {
				return exit{ExitBadMatrix, fmt.Errorf("--side-by-side %d: give a number from 1 (one run after the other) to %d", beside, mostBeside)}
			}
			called, err := readHooks(hooks)
			if err != nil {
				return err
			}
			release, err := own("--dir", dir)
			if err != nil {
				return err
			}
			defer release()
			log := daemonLog(stderr, verbose)
			serve, unserve, err := pages.start(log)
			if err != nil {
				return err
			}
			defer unserve()
			conn, broken, stop, err := controlPlane(c.Context(), s, wire.ServerConfig{Listen: listen, Config: config, Auth: s.auth(), Dir: dir, Log: log})
			if err != nil {
				return err
			}
			defer stop()
			conn.Replicate(replicas)
			points, err := influx.daemon(dir, log)
			if err != nil {
				return err
			}
			standing := &controller.Standing{}
			cfg := controller.Config{Log: log, Version: version(), Hooks: called, SideBySide: beside, Points: points, Standing: standing}
			if dir != "" {
				if cfg.Copies, err = filepath.Abs(filepath.Join(dir, "runs")); err != nil { // hooks are told where it is
					return fmt.Errorf("find the folder of copies: %w", err)
				}
			}
			serve(func(access *web.Access) http.Handler {
				return web.New(web.Config{Conn: conn, Copies: cfg.Copies, Access: access, Version: version(), Log: log,
					Metrics: metrics.Controller(conn, standing, version(), log)})
			})
			served := make(chan error, 1)
			modest()
			go func() { served <- controller.Serve(c.Context(), conn, cfg) }()
			select {
			case err := <-served:
				return leave(err)
			case err := <-broken: // nothing can be said any more: it leaves as if it had been killed, and the next start goes on
				return fmt.Errorf("keep messages under %s: %w; make room there and start the controller again: its runs go on", dir, err)
			}
		},
	}
	s.add(root, "")
	pages.add(root, "web", "the web page and, at /metrics, figures for Prometheus")
	root.Flags().StringVar(&listen, "listen", "", "serve the control plane on `host:port`")
	root.Flags().StringVar(&config, "nats-config", "", "`file` with the users, permissions and certificate to serve with, as \"ctl fleet init\" makes it")
	root.Flags().StringVar(&dir, "dir", "", "`folder` for the control plane's streams and, below runs, a copy of every run; none: in memory, gone with the process")
	root.Flags().IntVar(&replicas, "replicas", 0, "`number` of servers of the control plane's cluster that keep each message; none: one, or as it is")
	root.Flags().IntVar(&beside, "side-by-side", 4, "`number` of runs that are executed at a time, at most, where they need other agents and other brokers; 1: one after the other")
	root.Flags().StringVar(&influx.file, "influx", "", "write the points of every run to the InfluxDB that this JSON `file` names; none: that of INFLUX_URL and so on, if there is one. Needs --dir")
	root.Flags().BoolVar(&influx.none, "no-influx", false, "write no points to InfluxDB, whatever the environment says")
	root.Flags().StringVar(&hooks, "hooks", "", "`file` that names what schedules may call after their runs; see docs/schedules.md. None: nothing")
	root.Flags().BoolVarP(&verbose, "verbose", "v", false, "log more")
	withDrivers(root)
	fromEnvironment(root)
	return execute(ctx, root, args, stdin, stdout, stderr)
}

// readHooks reads the file that says what is called after the runs of schedules.
func readHooks(file string) (*controller.Hooks, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, exit{ExitBadMatrix, fmt.Errorf("read hooks: %w", err)}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o002 != 0 {
		return nil, exit{ExitBadMatrix, errors.Join(err, fmt.Errorf("read hooks: anybody on this host may write to %s and so have commands run; chmod o-w it", file))}
	}
	all, err := matrix.Hooks(file, text)
	if err != nil {
		return nil, err
	}
	hooks, err := controller.NewHooks(all)
	if err != nil {
		return nil, exit{ExitBadMatrix, fmt.Errorf("read hooks of %s: %w", file, err)}
	}
	return hooks, nil
}

// controlPlane serves one, or dials the one that is there. broken receives why one that is served cannot go on.
func controlPlane(ctx context.Context, s serverFlags, cfg wire.ServerConfig) (conn *wire.Conn, broken <-chan error, stop func(), err error) {
	background := context.WithoutCancel(ctx)
	if cfg.Listen == "" {
		conn, err := dialPatiently(ctx, s, cfg.Log)
		if err != nil {
			return nil, nil, nil, err
		}
		return conn, nil, conn.Close, nil
	}
	server, err := wire.Embedded(background, cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	conn, err = server.Connect(background)
	if err != nil {
		server.Close()
		return nil, nil, nil, err
	}
	deafen := onHangup(func() {
		if err := server.Reload(); err != nil {
			cfg.Log.Error("the control plane goes on as it was", "error", err)
			return
		}
		cfg.Log.Info("read the control plane's configuration again")
	})
	cfg.Log.Info("control plane is up", "url", server.URL())
	return conn, server.Broken(), func() { deafen(); conn.Close(); server.Close() }, nil
}

// onHangup calls reload at every SIGHUP until stop is called, which waits for a reload that is going on.
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

// dialPatiently keeps trying: daemons start in any order.
func dialPatiently(ctx context.Context, s serverFlags, log *slog.Logger) (*wire.Conn, error) {
	const least, most = 250 * time.Millisecond, 5 * time.Second
	if err := s.readable(); err != nil {
		return nil, err
	}
	for pause := least; ; pause = min(2*pause, most) {
		conn, err := wire.Dial(context.WithoutCancel(ctx), s.url, s.auth())
		if err == nil {
			log.Info("connected to the control plane", "url", plan.Redact(s.url))
			return conn, nil
		}
		log.Warn("control plane does not answer yet, trying again", "error", err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// drainSignal asks an agent to leave as soon as no task is in flight.
const drainSignal = syscall.SIGUSR1

// Agent is the daemon on a client host.
func Agent(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var (
		s        serverFlags
		figures  webFlags
		cfg      agent.Config
		disturb  string
		readable []string
		observe  []string

		labelled []string
		verbose  bool
	)
	host, _ := os.Hostname() // an empty name is refused below
	root := &cobra.Command{
		Use:   "agent",
		Short: "Execute this host's part of every task",
		Long: `agent registers with the controller and executes what it is assigned, one task at a time. References
to secrets in a matrix (${env:NAME}, ${file:/path}) are filled in here, from this host's environment and files, and
leave it no more.

With --observe it takes no load: it measures what a broker's process on this host uses in every task that is run against that broker.

SIGTERM ends the task in flight. SIGUSR1 has the agent leave after it: it takes no further task, which is how agents
are upgraded while a run goes on.`,
		Example: `  agent --server nats://bench-1:4222
  agent --server nats://bench-1:4222 --name load-3
  agent --server nats://bench-1:4222 --observe rabbit=port:5672`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if s.url == "" || cfg.Name == "" {
				return exit{ExitBadMatrix, errors.New("an agent needs --server and a --name; see agent --help")}
			}
			if err := wire.CheckName(cfg.Name); err != nil {
				return exit{ExitBadMatrix, fmt.Errorf("--name: %w", err)}
			}
			var err error
			if cfg.Targets, err = disturbable(disturb); err != nil {
				return err
			}
			if cfg.Labels, err = labels(labelled); err != nil {
				return err
			}
			if cfg.Observes, err = observed(observe); err != nil {
				return err
			}
			if len(observe) > 0 && cfg.Slots > 1 {
				return exit{ExitBadMatrix, fmt.Errorf("--slots %d with --observe: an observer takes no load, and observes all tasks at once; leave --slots out", cfg.Slots)}
			}
			if cfg.Slots < 1 || cfg.Slots > wire.MostSlots {
				return exit{ExitBadMatrix, fmt.Errorf("--slots %d: give a number from 1 to %d", cfg.Slots, wire.MostSlots)}
			}
			if cfg.Dir != "" {
				cfg.Spool = filepath.Join(cfg.Dir, "spool")
			}
			files, err := agent.OpenFiles(readable)
			if err != nil {
				return exit{ExitBadMatrix, err}
			}
			release, err := own("--dir", cfg.Dir)
			if err != nil {
				return err
			}
			defer release()
			cfg.Files = &files
			cfg.Log, cfg.Version = daemonLog(stderr, verbose), version()
			asked, ignore := signal.NotifyContext(c.Context(), drainSignal)
			defer ignore()
			cfg.Drain = asked.Done()
			serve, unserve, err := figures.start(cfg.Log)
			if err != nil {
				return err
			}
			defer unserve()
			conn, err := dialPatiently(asked, s, cfg.Log)
			if err != nil {
				return leave(err)
			}
			defer conn.Close()
			cfg.Standing = &agent.Standing{}
			serve(func(*web.Access) http.Handler {
				return onlyMetrics(metrics.Agent(cfg.Standing, conn.Linked, version(), cfg.Log))
			})
			return leave(agent.Serve(c.Context(), conn, cfg))
		},
	}
	s.add(root, "")
	figures.add(root, "metrics", "figures for Prometheus, at /metrics,")
	disturbFlag(root, &disturb)
	root.Flags().StringArrayVar(&readable, "files", nil, "absolute `folder` of which matrices may read secrets (${file:/path}) and payloads; may be repeated. None: no file")
	labelFlag(root, &labelled)
	observeFlag(root, &observe)
	root.Flags().StringVar(&cfg.Name, "name", host, "`name` of this agent, unique in the fleet")
	root.Flags().StringVar(&cfg.Dir, "dir", "", "`folder` for what tasks keep on disk while they last and, in spool, for what the control plane does not take until it does; none: the temporary folder, and no spool")
	root.Flags().IntVar(&cfg.Slots, "slots", 1, "`number` of tasks side by side, each in a slot that is an agent of its own: NAME, NAME.2 and so on")
	root.Flags().BoolVarP(&verbose, "verbose", "v", false, "log more")
	withDrivers(root)
	fromEnvironment(root)
	return execute(ctx, root, args, stdin, stdout, stderr)
}

// leave makes of a daemon's end what it is: asked to stop is no error.
func leave(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func daemonLog(stderr io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
}

// modest has a controller collect its garbage sooner than Go does by itself: it has time, and large fleets' heartbeats and records pass through its memory.
func modest() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
}
