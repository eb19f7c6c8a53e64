package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lockstep/internal/controller"
	"lockstep/internal/wire"
)

// lookEvery is the interval at which lookout checks for a leading controller. It reports an absence after two failed
// checks in sequence.
const lookEvery = 3 * time.Second

// need returns an error if no server is given.
func (s *serverFlags) need() error {
	if s.url == "" {
		return exit{ExitBadMatrix, errors.New("no server given: pass --server nats://host:port or --context NAME, or set LOCKSTEP_SERVER")}
	}
	return nil
}

// dial connects to the fleet. Its error contains the remedy.
func (s *serverFlags) dial(ctx context.Context) (*wire.Client, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	conn, err := wire.DialClient(ctx, s.url, s.auth())
	if err != nil {
		err = fmt.Errorf("%w; %s", err, s.remedy(err))
		if s.name != "" {
			err = fmt.Errorf("context %s: %w", s.name, err)
		}
		return nil, err
	}
	return conn, nil
}

// remedy returns the advice for an error of dialling the control plane.
func (s *serverFlags) remedy(err error) string {
	var unknown x509.UnknownAuthorityError
	auth := s.auth()
	switch {
	case errors.As(err, &unknown):
		return "this host does not trust its certificate authority: pass --ca with the ca.crt of \"ctl fleet init\""
	case wire.Unaccepted(err) && auth.Creds == "" && auth.Token == "" && auth.User == "":
		return "this control plane requires credentials: pass --creds with a key of \"ctl fleet init\" or \"fleet add\", " +
			"or set LOCKSTEP_TOKEN, or LOCKSTEP_USER and LOCKSTEP_PASSWORD"
	case wire.Unaccepted(err):
		return "this control plane rejects the credentials: check --creds, or LOCKSTEP_TOKEN, LOCKSTEP_USER and LOCKSTEP_PASSWORD"
	}
	if s.name != "" {
		return "check that a controller (or its NATS server) is running there, and its URL: ctl context list"
	}
	return "check --server, and that a controller (or its NATS server) is running there"
}

// lookout prints, until ctx ends, why a queued run waits, and when the controller or the control plane disappears and
// returns.
func lookout(ctx context.Context, conn *wire.Client, run string, p *progress) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	missed, queued := 0, ""
	for begun := false; ; {
		if !begun && missed == 0 {
			words := ""
			if words, begun = queue(ctx, conn, run); words != "" && words != queued {
				p.print("%s", words)
				queued = words
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		_, err := conn.Leader(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			missed = 0
			p.back()
		default:
			missed++
			words := "the control plane does not respond; waiting for it"
			if errors.Is(err, wire.ErrNoController) {
				words = "no controller leads; the run continues when one is back"
			}
			if missed > 1 {
				p.away(words)
			}
		}
	}
}

// queue returns the text for a queued run, with the reason for its wait, and whether the run has begun. The text is
// empty before the controller has given a reason.
func queue(ctx context.Context, conn *wire.Client, run string) (words string, begun bool) {
	state, err := findRun(ctx, conn, run)
	switch {
	case err != nil, state.State == wire.StateQueued && state.Waiting == "", state.Over(): // of an earlier submission
		return "", false
	case state.State != wire.StateQueued:
		return "", true
	}
	return fmt.Sprintf("run %s is queued: %s", run, state.Waiting), false
}

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
		RunE:              func(c *cobra.Command, args []string) error { return o.attach(c, args[0]) },
	}
	o.server.addChoice(c, "")
	runsFlag(c, &o.runs)
	formatFlag(c, &o.format, "text", "json")
	return c
}

func (o *runOptions) attach(c *cobra.Command, name string) error {
	if err := o.server.need(); err != nil {
		return err
	}
	ctx := c.Context()
	conn, err := o.server.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	state, err := findRun(ctx, conn, name)
	if err != nil {
		return err
	}
	if err := writable(o.runs); err != nil {
		return err
	}
	p := newProgress(newConsole(c.ErrOrStderr()), wire.Submission{})
	defer p.close()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go lookout(watching, conn, state.Run, p)
	end, err := controller.Record(ctx, conn, state.Run, o.runs, p.show, nil)
	p.close()
	if ctx.Err() != nil {
		return exit{ExitInterrupted, fmt.Errorf("detached; the run continues; follow it again: %s", o.attachAgain(state.Run))}
	}
	if errors.Is(err, wire.ErrNoRun) {
		return o.left(ctx, state.Run, err)
	}
	if err != nil {
		return fmt.Errorf("%w; copy the partial record: ctl runs pull %s%s", err, state.Run, o.server.hint())
	}
	return o.conclude(ctx, c, state.Run, end)
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
