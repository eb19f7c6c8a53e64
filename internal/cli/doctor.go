package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/agent"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// check is one result of doctor. The result of a warning or problem ends with the remedy.
type check struct {
	Name   string `json:"check"`
	State  string `json:"state"`
	Result string `json:"result"`
}

// The states of checks. With warnings runs are possible, but may be limited.
const (
	stateOK      = "ok"
	stateWarning = "warning"
	stateProblem = "problem"
)

// Limits below which doctor warns.
const (
	minOpenFiles = 65_536
	minPorts     = 20_000
	minFreeDisk  = 1 << 30          // bytes
	maxClock     = time.Millisecond // error of an agent's clock
)

func doctorCommand() *cobra.Command {
	var s serverFlags
	var n matrix.Narrow
	var folder, format string
	c := &cobra.Command{
		Use:   "doctor [FILE]",
		Short: "Check this host, the brokers of a matrix and the agents of a fleet",
		Long: `doctor checks the prerequisites of runs: CPU load, limits of open files and ports, the clock, the folder of the
records, its free space. With FILE, it connects from this host to each broker of the matrix. With --server, it checks
the agents of the fleet: refused ones, and the error of their clocks.

Exit codes: 0 no problem, possibly with warnings; 1 a problem; 2 an error in the matrix or the command line.`,
		Example: `  ctl doctor
  ctl doctor matrices/quick.cue
  ctl doctor --server nats://bench-1:4222`,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.check(); err != nil {
				return err
			}
			checks := append(hostChecks(), recordsCheck(folder))
			if len(args) == 1 {
				run, err := expand(c.Context(), args[0], n)
				if err != nil {
					return err
				}
				checks = append(checks, brokerChecks(c.Context(), run)...)
			}
			if s.url != "" {
				checks = append(checks, fleetChecks(c.Context(), &s)...)
			}
			var rows [][]string
			problems := 0
			for _, k := range checks {
				if k.State == stateProblem {
					problems++
				}
				rows = append(rows, []string{k.Name, k.State, display.Clean(k.Result)})
			}
			var err error
			if format == "json" {
				err = printJSON(c.OutOrStdout(), checks)
			} else {
				err = tabulateText(c.OutOrStdout(), width(c.OutOrStdout()), []string{"CHECK", "STATE", "RESULT"}, rows)
			}
			if err != nil {
				return err
			}
			if problems > 0 {
				return exit{ExitError, fmt.Errorf("%s found", display.Count(problems, "problem"))}
			}
			return nil
		},
	}
	narrowing(c, &n)
	s.addChoice(c, " (default: check no fleet)")
	runsFlag(c, &folder)
	formatFlag(c, &format, "text", "json")
	return c
}

// recordsCheck checks that records can be written to a folder. It leaves the folder as it was.
func recordsCheck(folder string) check {
	k := check{"records folder", stateOK, folder}
	parent := folder
	for _, err := os.Stat(parent); errors.Is(err, os.ErrNotExist) && parent != filepath.Dir(parent); _, err = os.Stat(parent) {
		parent = filepath.Dir(parent) // the folder is created by the first run
	}
	probe, err := os.MkdirTemp(parent, ".probe-*")
	if err == nil {
		err = os.Remove(probe)
	}
	if err != nil {
		return check{k.Name, stateProblem, err.Error() + "; pass another folder with --runs"}
	}
	if free, known := freeDisk(parent); known {
		k.Result += ", " + display.Bytes(free) + " free"
		if free < minFreeDisk {
			k.State, k.Result = stateWarning, k.Result+"; free disk space or pass another folder with --runs"
		}
	}
	return k
}

// brokerChecks connects to each broker of a run, all at the same time.
func brokerChecks(ctx context.Context, run plan.Run) []check {
	brokers := run.Brokers()
	checks := make([]check, len(brokers))
	var describing sync.WaitGroup
	for i, b := range brokers {
		describing.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
			defer cancel()
			subject, err := agent.Describe(ctx, b, drivers.FullAccess())
			if err != nil {
				checks[i] = check{"broker " + b.Name, stateProblem,
					err.Error() + "; start the broker, or correct its options in the matrix"}
				return
			}
			checks[i] = check{"broker " + b.Name, stateOK, display.Dash(strings.TrimSpace(subject.Product + " " + subject.Version))}
		})
	}
	describing.Wait()
	return checks
}

// fleetChecks checks the control plane and the agents of a fleet.
func fleetChecks(ctx context.Context, s *serverFlags) []check {
	k := check{"control plane", stateOK, plan.Redact(s.url)}
	if s.name != "" {
		k.Result += ", context " + s.name
	}
	conn, err := s.dial(ctx)
	if err != nil {
		return []check{{k.Name, stateProblem, err.Error()}}
	}
	defer conn.Close()
	agents, err := conn.Agents(ctx)
	switch {
	case err != nil:
		k.State, k.Result = stateProblem, err.Error()
	case len(agents) == 0:
		k.State, k.Result = stateProblem, "no agents; start agents with this --server"
	}
	checks := []check{k}
	for _, a := range agents {
		checks = append(checks, agentCheck(a))
	}
	return checks
}

func agentCheck(a wire.AgentInfo) check {
	k := check{"agent " + a.Agent, stateOK, fmt.Sprintf("%s, host %s, version %s", a.State(), a.Host, display.Dash(a.Version))}
	if a.Offset != nil {
		k.Result += fmt.Sprintf(", clock error at most %v", time.Duration(a.Offset.Bound))
	}
	switch {
	case a.Refused != "":
		k.State, k.Result = stateProblem, "refused: "+a.Refused
	case a.Version != version():
		k.State = stateWarning
		k.Result += fmt.Sprintf("; this ctl has version %s: install the same release on all hosts", version())
	case a.Offset != nil && a.Offset.Bound > maxClock.Nanoseconds():
		k.State = stateWarning
		k.Result += "; end-to-end latencies have this error: reduce the latency to the control plane"
	}
	return k
}
