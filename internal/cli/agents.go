package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

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
