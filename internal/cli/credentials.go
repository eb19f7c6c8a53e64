package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/wire/keys"
)

func fleetCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "fleet",
		Short: "Make the certificates and credentials of a fleet",
		Long: `fleet makes what the peers of a control plane show to each other: a certificate authority, the servers'
certificate, a key for the controller, for clients, for viewers and for each agent, and the NATS configuration that says
what each may do. Copy to each host only what it needs; ca.key and the rest stay where they were made. See docs/security.md.`,
		Example: `  ctl fleet init creds --host bench-1,10.0.0.5
  ctl fleet agent creds load-1 load-2 broker-1
  ctl fleet show creds`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(fleetInit(), fleetAgent(), fleetShow(), fleetRenew(),
		fleetChange("rotate", "Give users new keys", "the old ones are refused", (*keys.Credentials).Rotate),
		fleetRemove(), fleetPassword())
	return c
}

// reloaded is the hint after a change of users: it has no effect before the servers reload their configuration.
const reloaded = "Copy nats.conf to the control plane and have it read again: systemctl reload lockstep-controller, or nats-server --signal reload.\n"

func fleetInit() *cobra.Command {
	var hosts, agents []string
	var cluster bool
	var at string
	c := &cobra.Command{
		Use:   "init DIR",
		Short: "Make a new fleet's certificates and credentials in DIR",
		Example: `  ctl fleet init creds --host bench-1 --agents load-1,load-2
  ctl fleet init creds --host nats-1,nats-2,nats-3 --cluster --at /etc/nats`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if cluster && len(hosts) < 3 {
				return exit{ExitBadMatrix, errors.New("a cluster needs three hosts at least: --host A,B,C")}
			}
			if err := agentNames(agents); err != nil {
				return err
			}
			if at == "" {
				at = absolute(args[0])
			}
			if !filepath.IsAbs(at) {
				return exit{ExitBadMatrix, fmt.Errorf("--at %q: want an absolute path", at)}
			}
			creds, err := keys.Make(args[0], at, hosts, cluster)
			if err != nil {
				return err
			}
			if err := creds.AddAgents(1, agents...); err != nil {
				return err
			}
			return showCredentials(c, args[0], creds)
		},
	}
	c.Flags().StringSliceVar(&hosts, "host", nil,
		"`names` and addresses by which the control plane is reached, besides this host's loopback")
	c.Flags().StringSliceVar(&agents, "agents", nil, "`names` of agents to make credentials for at once")
	c.Flags().BoolVar(&cluster, "cluster", false, "the hosts are a cluster of NATS servers: one configuration for each")
	c.Flags().StringVar(&at, "at", "",
		"`folder` where the certificates will lie on the control plane's servers; none: DIR")
	return c
}

// agentNames returns an error for each name that is not valid for an agent.
func agentNames(names []string) error {
	var faults []error
	for _, name := range names {
		if err := keys.CheckName(name); err != nil {
			faults = append(faults, fmt.Errorf("add agent: %w", err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return exit{ExitBadMatrix, err}
	}
	return nil
}

func fleetAgent() *cobra.Command {
	var slots int
	command := &cobra.Command{
		Use:   "agent DIR NAME...",
		Short: "Make credentials for more agents",
		Example: `  ctl fleet agent creds load-3 load-4
  ctl fleet agent --slots 4 creds load-5`,
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
				for _, name := range args[1:] {
					if u.Name == name {
						fmt.Fprintln(c.OutOrStdout(), filepath.Join(args[0], u.File()))
					}
				}
			}
			fmt.Fprint(c.ErrOrStderr(), reloaded)
			return nil
		},
	}
	command.Flags().IntVar(&slots, "slots", 1,
		"`number` of tasks that each may do side by side (agent --slots), as NAME, NAME.2 and so on")
	return command
}

func fleetChange(verb, short, then string, change func(*keys.Credentials, ...string) error) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " DIR NAME...",
		Short:   short + "; once the control plane has read its configuration again, " + then,
		Example: "  ctl fleet " + verb + " creds load-3",
		Args:    arguments(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			creds, err := keys.Open(args[0])
			if err != nil {
				return err
			}
			if err := change(creds, args[1:]...); err != nil {
				return err
			}
			fmt.Fprint(c.ErrOrStderr(), reloaded)
			return nil
		},
	}
}

func fleetRemove() *cobra.Command {
	var force bool
	c := fleetChange("remove", "Take users out", "they are refused",
		func(creds *keys.Credentials, names ...string) error {
			left := slices.DeleteFunc(creds.Controllers(),
				func(name string) bool { return slices.Contains(names, name) })
			if len(left) == 0 && !force && len(creds.Controllers()) > 0 {
				return exit{ExitBadMatrix,
					errors.New("no controller would be left, and no command makes another one's key: \"ctl fleet rotate\" gives it a new one; --force removes it all the same")}
			}
			return creds.Remove(names...)
		})
	c.Flags().BoolVar(&force, "force", false, "remove the last controller's key, too")
	return c
}

func fleetRenew() *cobra.Command {
	return &cobra.Command{
		Use:     "renew DIR",
		Short:   "Make a new certificate for the control plane's servers, by the same authority",
		Example: "  ctl fleet renew creds",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			creds, err := keys.Open(args[0])
			if err != nil {
				return err
			}
			if err := creds.Renew(); err != nil {
				return err
			}
			return showCredentials(c, args[0], creds)
		},
	}
}

func fleetShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show DIR",
		Short:   "List the users of a fleet, and until when its certificate holds",
		Example: "  ctl fleet show creds",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			creds, err := keys.Open(args[0])
			if err != nil {
				return err
			}
			return showCredentials(c, args[0], creds)
		},
	}
}

func showCredentials(c *cobra.Command, dir string, creds *keys.Credentials) error {
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
		rows = append(rows, []string{string(u.Role), name, u.Made.Format(time.DateOnly), filepath.Join(dir, u.File())})
	}
	err = tabulate(c.OutOrStdout(), []string{"ROLE", "NAME", "MADE", "FILE"}, rows)
	if err == nil {
		_, err = fmt.Fprintf(c.OutOrStdout(), "\nThe servers' certificate holds until %s.\n",
			until.Format(time.DateOnly))
	}
	if err != nil {
		return fmt.Errorf("show credentials: %w", err)
	}
	return nil
}
