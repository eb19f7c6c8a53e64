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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/agent"
	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/metrics"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/web"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/internal/wire/keys"
	"example.org/lockstep/lockstep/pkg/drivers"
)

type agentOptions struct {
	server      serverFlags
	metrics     webFlags
	cfg         agent.Config
	injectFault string
	access      accessFlags
	cloud       bool
	observe     []string
	labels      []string
	within      time.Duration
	verbose     bool
}

// Agent runs the daemon of a client host and returns its exit code.
func Agent(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return execute(ctx, agentCommand(), args, stdin, stdout, stderr)
}

func agentCommand() *cobra.Command {
	var o agentOptions
	root := &cobra.Command{
		Use:   "lockstep-agent",
		Short: "Generate load: execute tasks that the controller assigns to this host",
		Long: `lockstep-agent registers with the controller and executes the tasks that are assigned to it, one at a time. It
resolves references to secrets in a matrix (${env:NAME}, ${file:/path}) on this host, from the variables and files that
--env and --files allow.

With --observe it generates no load. It measures the resources that a broker's process on this host uses, in every task
against that broker. NAME is the name of the broker in matrices, or of its driver. TEXT is a part of its command line.

On SIGTERM or Ctrl-C an idle agent exits at once. A busy agent finishes the task in flight first; it waits until the
deadline of the task, or for --stop-within. A second signal ends it at once. After SIGUSR1 the controller assigns no
further task; the agent executes those that were assigned before and exits. Use SIGUSR1 to upgrade agents during a run.`,
		Example: `  lockstep-agent --server nats://bench-1:4222
  lockstep-agent --server nats://bench-1:4222 --name load-3
  lockstep-agent --server nats://bench-1:4222 --observe rabbit=port:5672`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return o.run(c.Context(), c.ErrOrStderr())
		},
	}
	o.add(root)
	return root
}

func (o *agentOptions) add(c *cobra.Command) {
	host, _ := os.Hostname() // check rejects an empty name
	o.server.add(c, "")
	o.metrics.add(c, "metrics", "Prometheus metrics, at /metrics,")
	faultsFlag(c, &o.injectFault)
	c.Flags().StringArrayVar(&o.labels, "label", nil,
		"label this agent with `name=value`, for \"on\" in matrices; repeatable")
	observeFlag(c, &o.observe)
	o.access.add(c, "matrices")
	f := c.Flags()
	f.BoolVar(&o.cloud, "cloud-identity", false,
		"allow matrices to use the cloud credentials of this host (AWS, Azure, GCP)")
	f.StringVar(&o.cfg.Name, "name", host,
		"register as `name`, which must be unique in the fleet (default: the name of the host)")
	f.Lookup("name").DefValue = "" // so that the help is the same on all hosts
	f.StringVar(&o.cfg.Dir, "dir", "",
		"store the temporary files of tasks in `folder` (default: the system's temporary folder)")
	f.IntVar(&o.cfg.Slots, "slots", 1,
		"execute up to `number` tasks in parallel; each slot is an agent: NAME, NAME.2 …")
	f.DurationVar(&o.within, "stop-within", 0,
		"abort the task in flight `duration` after SIGTERM (default: the deadline of the task)")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log debug messages")
	withDrivers(c)
	fromEnvironment(c)
}

// check parses the flags. The error lists all invalid flags.
func (o *agentOptions) check() error {
	var errs usageErrors
	if o.server.url == "" {
		errs.addf("no server given: pass --server or set LOCKSTEP_SERVER; see lockstep-agent --help")
	}
	if o.cfg.Name == "" {
		errs.addf("no agent name: this host has no host name; pass --name")
	} else if err := keys.CheckName(o.cfg.Name); err != nil {
		errs.addf("--name: %w", err)
	}
	errs.add(o.server.check())
	var err error
	o.cfg.Targets, err = faultTargets(o.injectFault)
	errs.add(err)
	o.cfg.Labels, err = labels(o.labels)
	errs.add(err)
	o.cfg.Observes, err = observed(o.observe)
	errs.add(err)
	if len(o.observe) > 0 && o.cfg.Slots > 1 {
		errs.addf("--slots %d with --observe: an observer generates no load and observes all tasks; omit --slots", o.cfg.Slots)
	}
	if o.cfg.Slots < 1 || o.cfg.Slots > keys.MaxSlots {
		errs.addf("--slots %d: out of range; pass a number from 1 to %d", o.cfg.Slots, keys.MaxSlots)
	}
	if o.within < 0 {
		errs.addf("--stop-within %v: negative duration; pass a duration such as 90s, or omit it", o.within)
	}
	o.cfg.Access, err = drivers.LimitedAccess(o.access.folders, o.access.variables, o.cloud)
	errs.add(err)
	return errs.join()
}

// run serves until ctx ends and no task is in flight, or until the agent has drained after drainSignal.
func (o *agentOptions) run(ctx context.Context, stderr io.Writer) error {
	cfg := o.cfg
	release, err := lockDir("--dir", cfg.Dir)
	if err != nil {
		return err
	}
	defer release()
	cfg.Log, cfg.Version, cfg.Status = logger(stderr, slog.LevelInfo, o.verbose), version(), &agent.Status{}
	defer supervise(cfg.Log, cfg.Status.Stuck)()
	serve, unserve, err := o.metrics.start(cfg.Log)
	if err != nil {
		return err
	}
	defer unserve()
	serving, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	draining, ignore := signal.NotifyContext(context.WithoutCancel(ctx), drainSignal)
	defer ignore()
	cfg.Drain, cfg.Stop = draining.Done(), ctx.Done()
	dialling, stop := context.WithCancel(draining)
	defer stop()
	defer context.AfterFunc(ctx, func() {
		stop()
		if o.within > 0 {
			time.AfterFunc(o.within, giveUp)
		}
	})()
	conn, err := dialPatiently(dialling, o.server, cfg.Log)
	if err != nil {
		return leave(cfg.Log, err)
	}
	defer conn.Close()
	serve(func(*web.Access) http.Handler {
		return onlyMetrics(metrics.Agent(cfg.Status, conn.Linked, version(), cfg.Log))
	})
	return leave(cfg.Log, agent.Serve(serving, wire.NewAgent(conn), cfg))
}

// labels parses the values of --label.
func labels(given []string) (map[string]string, error) {
	all := map[string]string{}
	var errs usageErrors
	for _, text := range given {
		name, value, paired := strings.Cut(strings.TrimSpace(text), "=")
		err := matrix.Label(name, value)
		if !paired {
			err = fmt.Errorf("label %q: no value; write for example zone=a", text)
		}
		if before, twice := all[name]; err == nil && twice {
			err = fmt.Errorf("label %q: given twice, as %q and %q; omit one", name, before, value)
		}
		if err != nil {
			errs.addf("--label: %w", err)
			continue
		}
		all[name] = value
	}
	return all, errs.join()
}

// unlabelled returns an error if a cell requires labels: agents in this process have none.
func unlabelled(run plan.Run) error {
	for _, c := range run.Cells {
		for _, r := range c.Workload.Roles() {
			if len(r.On) > 0 {
				return usageErrorf("cell %s requires %s on agents with %s: local agents have no labels; use a fleet with --server, or remove \"on\" from the cell",
					c.Name(), r.Name, r.On)
			}
		}
	}
	return nil
}

const observeFlagName = "observe"

func observeFlag(c *cobra.Command, to *[]string) {
	c.Flags().StringArrayVar(to, observeFlagName, nil,
		"only measure `NAME=port:5672`, NAME=pid:1 or NAME=command:TEXT; repeatable [$LOCKSTEP_OBSERVE]")
}

// observed parses the values of --observe: the processes of brokers, by name. The error lists all invalid ones.
func observed(given []string) (map[string]plan.Processes, error) {
	all := map[string]plan.Processes{}
	var errs usageErrors
	for _, text := range given {
		name, p, err := observation(strings.TrimSpace(text))
		if err == nil && slices.Contains(all[name], p) {
			err = errors.New("given twice; omit one")
		}
		if err != nil {
			errs.addf("--observe %q: %w", text, err)
			continue
		}
		all[name] = append(all[name], p)
	}
	return all, errs.join()
}

// observation parses one value of --observe.
func observation(text string) (name string, p plan.Process, err error) {
	const forms = "write NAME=port:5672, NAME=pid:1234 or NAME=command:TEXT, where NAME is a broker of matrices or a driver"
	name, process, is := strings.Cut(text, "=")
	kind, value, hasKind := strings.Cut(process, ":")
	if !is || !hasKind || name == "" || value == "" || strings.ContainsAny(name, " \t\n,:") {
		return "", p, errors.New(forms)
	}
	number := func(max int) (int, error) {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > max {
			return 0, fmt.Errorf("%s: pass a number from 1 to %d, not %q", kind, max, value)
		}
		return n, nil
	}
	switch kind {
	case "port":
		p.Port, err = number(65535)
	case "pid":
		p.PID, err = number(1 << 22) // the maximum of Linux
	case "command":
		p.Command = value
	default:
		err = fmt.Errorf("%q: unknown way to find a process; %s", kind, forms)
	}
	return name, p, err
}
