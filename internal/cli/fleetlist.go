package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/display"
	"lockstep/internal/runs"
	"lockstep/internal/wire"
)

// tabulate prints rows of texts as a table in the width of the terminal.
func tabulate(out io.Writer, head []string, rows [][]string) error {
	return display.NewTable(head, rows).Write(out, width(out))
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func runsCommand() *cobra.Command {
	var s serverFlags
	var folder string
	var asJSON, local, wide bool
	c := &cobra.Command{
		Use:   "runs",
		Short: "List the runs of a fleet, or those that there are records of",
		Long: `runs lists what waits, runs and has ended on the fleet of --server; without one, or with --local, the
records below --runs. The newest is first.`,
		Example: `  ctl runs
  ctl runs --server nats://bench-1:4222 --json`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if s.url == "" || local {
				return localRuns(c.OutOrStdout(), folder, asJSON)
			}
			conn, err := s.dial(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			all, err := conn.Runs(c.Context())
			if err != nil {
				return err
			}
			slices.Reverse(all)
			if asJSON {
				return printJSON(c.OutOrStdout(), append([]wire.RunState{}, all...))
			}
			return fleetRuns(c.OutOrStdout(), all, time.Now(), wide)
		},
	}
	s.add(c, "; none: records of this host")
	runsFlag(c, &folder)
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	c.Flags().BoolVar(&wide, "wide", false, "write DETAIL in full length")
	c.Flags().BoolVar(&local, "local", false, "list the records of this host, whatever LOCKSTEP_SERVER says")
	return c
}

// fleetRuns lists runs in their order; wide does not cut details.
func fleetRuns(out io.Writer, all []wire.RunState, now time.Time, wide bool) error {
	var rows [][]string
	for _, r := range all {
		by := r.By
		if r.Schedule != "" {
			by = "schedule " + r.Schedule
		}
		detail := r.Detail
		if r.Waiting != "" {
			detail = "waits: " + r.Waiting
		}
		if !wide {
			detail = display.Cut(detail, maxDetail)
		}
		rows = append(rows, []string{r.Run, r.Name, r.State, display.Dash(by), stamp(r.Submitted), took(r, now),
			strconv.Itoa(r.Done), bound(r.AtMost) + strconv.Itoa(r.Tasks), strconv.Itoa(r.Failed), display.Dash(detail)})
	}
	columns := width(out)
	if wide {
		columns = 0
	}
	head := []string{"RUN", "MATRIX", "STATE", "BY", "SUBMITTED", "TOOK", "DONE", "OF", "FAILED", "DETAIL"}
	return display.NewTable(head, rows).Write(out, columns)
}

// maxDetail is how many columns DETAIL may take without --wide.
const maxDetail = 60

// took is how long a run has run, or waits.
func took(r wire.RunState, now time.Time) string {
	from, to := r.Started, r.Ended
	if from.IsZero() {
		return "–"
	}
	if to.IsZero() {
		to = now
	}
	return display.Elapsed(to.Sub(from))
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.Local().Format(time.DateTime)
}

func localRuns(out io.Writer, root string, asJSON bool) error {
	all, err := runs.List(root)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(out, append([]runs.Summary{}, all...))
	}
	var rows [][]string
	for _, s := range all {
		rows = append(rows, []string{s.ID, s.Name, s.Started.Format(time.DateTime), strconv.Itoa(s.Done), bound(s.AtMost) + strconv.Itoa(s.Tasks)})
	}
	return tabulate(out, []string{"RUN", "MATRIX", "STARTED", "DONE", "OF"}, rows)
}

func agentsCommand() *cobra.Command {
	var s serverFlags
	var asJSON, wide bool
	c := &cobra.Command{
		Use:   "agents",
		Short: "List the agents of a fleet",
		Example: `  ctl agents --server nats://bench-1:4222
  ctl agents --json`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.need(); err != nil {
				return err
			}
			conn, err := s.dial(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			agents, err := conn.Agents(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), append([]wire.AgentInfo{}, agents...))
			}
			return fleetAgents(c.OutOrStdout(), agents, time.Now(), wide)
		},
	}
	s.add(c, "")
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	c.Flags().BoolVar(&wide, "wide", false, "tell also how well the clock is known, cores, version, and the task that an agent is busy with")
	return c
}

// fleetAgents lists agents, and after them why those that are refused are; wide tells more of each.
func fleetAgents(out io.Writer, agents []wire.AgentInfo, now time.Time, wide bool) error {
	head := []string{"AGENT", "STATE", "HOST", "LABELS", "CLOCK", "SEEN"}
	if wide {
		head = append(head, "CORES", "VERSION", "BUSY WITH")
	}
	var rows [][]string
	var refused []string
	for _, a := range agents {
		clock := offset(a.Offset)
		if !wide {
			clock, _, _ = strings.Cut(clock, " ±")
		}
		row := []string{a.Agent, doing(a), a.Host, display.Dash(labelled(a.Labels)), clock, max(0, now.Sub(a.Seen)).Round(100 * time.Millisecond).String()}
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

// doing is an agent's state in a word.
func doing(a wire.AgentInfo) string {
	switch {
	case a.Refused != "":
		return "refused"
	case a.Draining:
		return "leaves"
	case a.Busy != "":
		return "busy"
	case a.Observer:
		return "observes"
	}
	return "free"
}

// labelled writes labels: "role=load zone=a".
func labelled(labels map[string]string) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, name+"="+labels[name])
	}
	return strings.Join(words, " ")
}

// offset is how far a clock is from the controller's.
func offset(o *wire.Offset) string {
	if o == nil {
		return "not known"
	}
	ms := func(ns int64) string { return strconv.FormatFloat(float64(ns)/1e6, 'f', 3, 64) }
	return fmt.Sprintf("%s ms ± %s", ms(o.Offset), ms(o.Bound))
}
