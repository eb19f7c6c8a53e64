package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/internal/wire/keys"
)

func fleetCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "fleet",
		Short: "List the agents of a fleet, and manage its credentials",
		Long: `fleet lists agents, and creates the certificates and keys with which the programs of a fleet authenticate. These are
a certificate authority, the certificate of the servers, and keys for the controller, clients, viewers and each agent. It
also writes the NATS configuration with the permissions of each. Copy to each host only the files that it needs. Keep
ca.key and the other files where they were created. See docs/howto/secure-a-fleet.md.`,
		Example: `  ctl fleet init creds --host bench-1,10.0.0.5
  ctl fleet add creds load-1 load-2 broker-1
  ctl fleet agents --server nats://bench-1:4222`,
	},
		fleetAgents(), fleetInit(), fleetAdd(), fleetShow(), fleetRenew(),
		fleetChange("rotate", "Replace the keys of users", "the old keys are rejected", (*keys.Credentials).Rotate),
		fleetRemove(), fleetPassword())
}

// reloaded and renewed are the hints after a change: it has no effect before the servers reload their configuration.
const (
	reloaded = "Copy nats.conf" + toReload
	renewed  = "Copy server.crt and server.key" + toReload
	toReload = " to the control plane and reload it: systemctl reload lockstep-controller, or nats-server --signal reload.\n"
)

func fleetInit() *cobra.Command {
	var hosts, agents []string
	var cluster bool
	var at string
	c := &cobra.Command{
		Use:   "init DIR",
		Short: "Create the certificates and credentials of a new fleet in DIR",
		Example: `  ctl fleet init creds --host bench-1 --agents load-1,load-2
  ctl fleet init creds --host nats-1,nats-2,nats-3 --cluster --at /etc/nats`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if cluster && len(hosts) < 3 {
				return usageErrorf("--cluster: fewer than three hosts; pass --host A,B,C")
			}
			if err := agentNames(agents); err != nil {
				return err
			}
			if at == "" {
				at = absolute(args[0])
			}
			if !filepath.IsAbs(at) {
				return usageErrorf("--at %q: not absolute; pass an absolute path", at)
			}
			creds, err := keys.Make(args[0], at, hosts, cluster)
			if err != nil {
				return err
			}
			if err := creds.AddAgents(1, agents...); err != nil {
				return err
			}
			return showCredentials(c, creds, args)
		},
	}
	c.Flags().StringSliceVar(&hosts, "host", nil,
		"issue the certificate for these `names` and addresses of the control plane, besides loopback")
	c.Flags().StringSliceVar(&agents, "agents", nil, "also create credentials for the agents with these `names`")
	c.Flags().BoolVar(&cluster, "cluster", false, "configure the hosts as a cluster of NATS servers, with one configuration for each")
	c.Flags().StringVar(&at, "at", "",
		"use this `folder` of the control plane's servers for the certificates (default: DIR)")
	return c
}

// agentNames returns an error for each name that is not valid for an agent.
func agentNames(names []string) error {
	var errs usageErrors
	for _, name := range names {
		if err := keys.CheckName(name); err != nil {
			errs.addf("add agent: %w", err)
		}
	}
	return errs.join()
}

// onCredentials returns a RunE function that calls do with the credentials in the folder that is the first argument.
func onCredentials(do func(c *cobra.Command, creds *keys.Credentials, args []string) error) func(*cobra.Command,
	[]string) error {
	return func(c *cobra.Command, args []string) error {
		creds, err := keys.Open(args[0])
		if err != nil {
			return err
		}
		return do(c, creds, args)
	}
}

func fleetAdd() *cobra.Command {
	var slots int
	command := &cobra.Command{
		Use:   "add DIR NAME...",
		Short: "Create credentials for more agents",
		Example: `  ctl fleet add creds load-3 load-4
  ctl fleet add --slots 4 creds load-5`,
		Args: arguments(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := agentNames(args[1:]); err != nil {
				return err
			}
			creds, err := keys.Open(args[0])
			if err != nil {
				return err
			}
			if err := creds.AddAgents(slots, args[1:]...); err != nil {
				return err
			}
			for _, u := range creds.Users {
				if slices.Contains(args[1:], u.Name) {
					fmt.Fprintln(c.OutOrStdout(), filepath.Join(args[0], u.File()))
				}
			}
			fmt.Fprint(c.ErrOrStderr(), reloaded)
			return nil
		},
	}
	command.Flags().IntVar(&slots, "slots", 1,
		"allow each agent a `number` of slots (lockstep-agent --slots): NAME, NAME.2 …")
	return command
}

func fleetChange(verb, short, then string, change func(*keys.Credentials, ...string) error) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " DIR NAME...",
		Short:   short,
		Long:    short + ". After the control plane has reloaded its configuration, " + then + ".",
		Example: "  ctl fleet " + verb + " creds load-3",
		Args:    arguments(cobra.MinimumNArgs(2)),
		RunE: onCredentials(func(c *cobra.Command, creds *keys.Credentials, args []string) error {
			if err := change(creds, args[1:]...); err != nil {
				return err
			}
			fmt.Fprint(c.ErrOrStderr(), reloaded)
			return nil
		}),
	}
}

func fleetRemove() *cobra.Command {
	var force bool
	c := fleetChange("remove", "Remove users", "they are rejected",
		func(creds *keys.Credentials, names ...string) error {
			left := slices.DeleteFunc(creds.Controllers(),
				func(name string) bool { return slices.Contains(names, name) })
			if len(left) == 0 && !force && len(creds.Controllers()) > 0 {
				return usageErrorf("remove the last controller: no command can create another controller key; replace it with \"ctl fleet rotate\", or pass --force")
			}
			return creds.Remove(names...)
		})
	c.Flags().BoolVar(&force, "force", false, "also remove the key of the last controller")
	return c
}

func fleetRenew() *cobra.Command {
	return &cobra.Command{
		Use:     "renew DIR",
		Short:   "Renew the certificate of the control plane's servers, with the same authority",
		Example: "  ctl fleet renew creds",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: onCredentials(func(c *cobra.Command, creds *keys.Credentials, args []string) error {
			if err := creds.Renew(); err != nil {
				return err
			}
			fmt.Fprint(c.ErrOrStderr(), renewed)
			return showCredentials(c, creds, args)
		}),
	}
}

func fleetShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show DIR",
		Short:   "List the users of a fleet, and when its certificate expires",
		Example: "  ctl fleet show creds",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE:    onCredentials(showCredentials),
	}
}

// showCredentials prints the users of the credentials in the folder that is the first argument.
func showCredentials(c *cobra.Command, creds *keys.Credentials, args []string) error {
	until, err := creds.Expires()
	if err != nil {
		return err
	}
	var rows [][]string
	for _, u := range creds.Users {
		name := u.Name
		if u.Slots > 1 {
			name = fmt.Sprintf("%s (%d slots)", name, u.Slots)
		}
		rows = append(rows, []string{string(u.Role), name, u.Made.Format(time.DateOnly), filepath.Join(args[0], u.File())})
	}
	err = tabulate(c.OutOrStdout(), []string{"ROLE", "NAME", "MADE", "FILE"}, rows)
	if err == nil {
		_, err = fmt.Fprintf(c.OutOrStdout(), "\nThe certificate of the servers expires on %s.\n",
			until.Format(time.DateOnly))
	}
	if err != nil {
		return fmt.Errorf("show credentials: %w", err)
	}
	return nil
}

func fleetAgents() *cobra.Command {
	var s serverFlags
	var format string
	c := &cobra.Command{
		Use:   "agents",
		Short: "List the agents of a fleet",
		Long: `agents lists the agents of a fleet. With -o wide, it also prints the clock error, cores, version and current
task.`,
		Example: `  ctl fleet agents --server nats://bench-1:4222
  ctl fleet agents -o json`,
		Args: arguments(cobra.NoArgs),
		RunE: s.onFleet(func(c *cobra.Command, conn *wire.Client, _ []string) error {
			agents, err := conn.Agents(c.Context())
			if err != nil {
				return err
			}
			if format == "json" {
				return printJSON(c.OutOrStdout(), append([]wire.AgentInfo{}, agents...))
			}
			return listAgents(c.OutOrStdout(), agents, time.Now(), format == "wide")
		}),
	}
	s.addChoice(c, "")
	formatFlag(c, &format, "text", "wide", "json")
	return c
}

// listAgents lists agents, then the reasons for refused agents. wide adds columns.
func listAgents(out io.Writer, agents []wire.AgentInfo, now time.Time, wide bool) error {
	head := []string{"AGENT", "STATE", "HOST", "LABELS", "CLOCK", "SEEN"}
	if wide {
		head = append(head, "CORES", "VERSION", "TASK")
	}
	var rows [][]string
	var refused []string
	for _, a := range agents {
		clock := a.Offset.String()
		if !wide {
			clock, _, _ = strings.Cut(clock, " ±")
		}
		row := []string{a.Agent, a.State(), a.Host, display.Dash(plan.Labels(a.Labels).String()), clock,
			max(0, now.Sub(a.Seen)).Round(100 * time.Millisecond).String()}
		if wide {
			row = append(row, strconv.Itoa(a.Cores), display.Dash(a.Version), display.Dash(a.Busy))
		}
		rows = append(rows, row)
		if a.Refused != "" {
			refused = append(refused, fmt.Sprintf("%s is refused: %s\n", a.Agent, a.Refused))
		}
	}
	if err := tabulate(out, head, rows); err != nil || len(refused) == 0 {
		return err
	}
	_, err := fmt.Fprint(out, "\n"+strings.Join(refused, ""))
	return err
}
