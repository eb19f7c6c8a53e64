package cli

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/wire"
)

// findRun finds a run of the control plane by its id, a prefix that only one id has, or "latest".
func findRun(ctx context.Context, conn *wire.Client, name string) (wire.RunState, error) {
	runs, err := conn.Runs(ctx)
	if err != nil {
		return wire.RunState{}, err
	}
	if name == "latest" && len(runs) > 0 {
		return runs[len(runs)-1], nil
	}
	var found []wire.RunState
	for _, r := range runs {
		if r.Run == name {
			return r, nil
		}
		if strings.HasPrefix(r.Run, name) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return wire.RunState{}, fmt.Errorf("no run %q on the control plane; %s", name, knownRuns(runs))
	}
	return wire.RunState{}, fmt.Errorf("ambiguous run id: %d runs begin with %q; %s", len(found), name, knownRuns(found))
}

// knownRuns lists runs, newest first, for error messages.
func knownRuns(runs []wire.RunState) string {
	const most = 10
	if len(runs) == 0 {
		return "it has no runs"
	}
	var lines []string
	for _, r := range slices.Backward(runs) {
		if len(lines) == most {
			lines = append(lines, fmt.Sprintf("and %d more (see ctl runs list)", len(runs)-most))
			break
		}
		lines = append(lines, fmt.Sprintf("%s (%s, %s)", r.Run, r.Name, r.State))
	}
	return "available: " + strings.Join(lines, ", ")
}

// submitter returns user@host, the name under which this ctl submits runs and changes schedules.
func submitter() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname() // empty: not known
	return name + "@" + host
}

func runsAttach() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "attach RUN",
		Short: "Follow a run of a fleet and print its tables when it ends",
		Long: `attach prints the progress of a run and copies its record to --runs, as ctl run does, with the same exit
codes. It also works for a run that has ended. Ctrl-C ends attach; the run continues.

RUN is an id, a unique prefix of one, or latest.`,
		Example: `  ctl runs attach latest --server nats://bench-1:4222
  ctl runs attach 20260102-150405-quick-3f9c`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeFleetRuns(&o.server),
		RunE:              o.server.onFleet(o.attach),
	}
	o.server.addChoice(c, "")
	runsFlag(c, &o.runs)
	formatFlag(c, &o.format, "text", "json")
	quietFlag(c, &o.quiet)
	return c
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
