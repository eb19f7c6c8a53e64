package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"example.org/lockstep/lockstep/internal/agent"
	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// brokerTimeout limits the opening of a broker and the listing of its leftovers together, and their removal.
const brokerTimeout = 30 * time.Second

type cleanupOptions struct {
	narrow matrix.Narrow
	server serverFlags
	runs   string
	run    string
	yes    bool
}

func runsCleanup() *cobra.Command {
	var o cleanupOptions
	c := &cobra.Command{
		Use:   "cleanup FILE | cleanup RUN",
		Short: "Remove the queues and topics of killed runs, after confirmation",
		Long: `cleanup connects to the brokers of a matrix or of a recorded run. It lists the queues, topics and other objects
whose names begin with lockstep- (with a record: lockstep- and the run id). After confirmation it removes them. A run
that has ended, or was stopped by one Ctrl-C, leaves nothing. Do not clean up during a run: cleanup also removes the
objects that the run uses. It refuses the record of an active run; for a run of a fleet, it queries the fleet. If this
user did not create the recorded run, cleanup first lists the brokers with their options and secrets. It requires
confirmation before it connects.

This host connects to the brokers, with its own secrets. Some brokers cannot list their objects (no management API, or no
support in the driver). On these, cleanup removes each topology of the run by name, for which it needs the record.

Exit codes:
  0  nothing is left, or the removal was declined
  1  the run is active, a broker did not answer, or it did not remove everything
  2  no terminal for the confirmation, or an error in the command line`,
		Example: `  ctl runs cleanup matrices/prefetch.cue
  ctl runs cleanup --run 20260102-150405-prefetch-3f9c --yes matrices/prefetch.cue
  ctl runs cleanup latest`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeRuns(&o.runs),
		RunE:              func(c *cobra.Command, args []string) error { return o.cleanup(c, args[0]) },
	}
	narrowing(c, &o.narrow)
	o.server.addChoice(c, "")
	runsFlag(c, &o.runs)
	c.Flags().StringVar(&o.run, "run", "", "with FILE: clean up only after runs whose id begins with `id`")
	c.Flags().BoolVarP(&o.yes, "yes", "y", false,
		"skip the confirmation, also for records of other users, and if the fleet does not answer")
	return c
}

// target is one broker to clean up.
type target struct {
	broker   plan.Broker
	attempts []plan.Task // attempts of the record, one element per group
	cleanup  *agent.Cleanup
	found    []drivers.Leftover
	blind    bool // the broker cannot list its topologies: those of attempts are removed by name
}

func (o *cleanupOptions) cleanup(c *cobra.Command, of string) error {
	prefix, targets, err := o.targets(c, of)
	if err != nil {
		return err
	}
	out, complain := c.OutOrStdout(), c.ErrOrStderr()
	failed := false
	report := func(t *target, err error) {
		failed = true
		fmt.Fprintf(complain, "broker %s: %v\n", t.broker.Name, err)
	}
	var found []*target
	for _, t := range targets {
		if err := t.look(c.Context(), prefix); err != nil {
			report(t, err)
		}
		if t.cleanup != nil {
			defer t.cleanup.Close() //nolint:errcheck // it was only queried
		}
		if len(t.found) > 0 || t.blind {
			found = append(found, t)
		}
	}
	switch sure, err := o.sure(c, prefix, found); {
	case err != nil:
		return err
	case !sure && len(found) > 0:
		fmt.Fprintln(out, "nothing removed")
	case sure:
		for _, t := range found {
			if err := t.remove(c.Context()); err != nil {
				report(t, err)
				continue
			}
			fmt.Fprintf(out, "broker %s: removed\n", t.broker.Name)
		}
	}
	if failed {
		return exit{code: ExitError}
	}
	return nil
}

// sure prints the leftovers and asks for consent to remove them.
func (o *cleanupOptions) sure(c *cobra.Command, prefix string, found []*target) (bool, error) {
	out := c.OutOrStdout()
	if len(found) == 0 {
		fmt.Fprintf(out, "nothing to remove: no broker that answered has an object whose name begins with %s\n", prefix)
		return false, nil
	}
	var rows [][]string
	for _, t := range found {
		if t.blind {
			rows = append(rows, []string{t.broker.Name, "topologies",
				fmt.Sprintf("of %d attempts of the run; the broker cannot list which of them exist", len(t.attempts))})
		}
		for _, x := range t.found {
			rows = append(rows, []string{t.broker.Name, x.Kind, plan.Redact(x.Name)})
		}
	}
	if err := tabulate(out, []string{"BROKER", "KIND", "NAME"}, rows); err != nil {
		return false, err
	}
	return ask(c, o.yes, "Remove all of these? Active runs use such objects.",
		"nothing removed: no terminal for the confirmation; pass --yes to remove all of these")
}

// ask asks a question on the terminal and reports whether the answer was y or yes. yes skips the question. Without a
// terminal the error is refusal.
func ask(c *cobra.Command, yes bool, question, refusal string) (bool, error) {
	switch in, isFile := c.InOrStdin().(*os.File); {
	case yes:
		return true, nil
	case !isFile || !term.IsTerminal(int(in.Fd())):
		return false, exit{ExitBadMatrix, errors.New(refusal)}
	}
	fmt.Fprintf(c.ErrOrStderr(), "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // a read from a terminal cannot be cancelled; it ends with the program
		line, _ := bufio.NewReader(c.InOrStdin()).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case a := <-answer:
		return a == "y" || a == "yes", nil
	case <-c.Context().Done():
		return false, c.Context().Err()
	}
}

// look opens the broker and lists its leftovers whose names begin with prefix. Without support for listing, it sets
// blind if the record has attempts.
func (t *target) look(ctx context.Context, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	var err error
	if t.cleanup, err = agent.OpenCleanup(ctx, t.broker, drivers.FullAccess()); err != nil {
		return err
	}
	all, err := t.cleanup.Leftovers(ctx, prefix)
	switch {
	case errors.Is(err, drivers.ErrUnsupported) && len(t.attempts) > 0:
		t.blind = true
		return nil
	case errors.Is(err, drivers.ErrUnsupported):
		return fmt.Errorf("%w: run cleanup with the record of the run, which removes its topologies by name", err)
	}
	// the driver may list more; only names with the prefix are removed
	t.found = slices.DeleteFunc(all, func(x drivers.Leftover) bool { return !strings.HasPrefix(x.Name, prefix) })
	return err
}

// remove removes the leftovers that look found, or the topologies of all attempts if the broker cannot list them.
func (t *target) remove(ctx context.Context) error {
	if !t.blind {
		ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
		defer cancel()
		return t.cleanup.Remove(ctx, t.found)
	}
	var errs []error
	for _, task := range t.attempts {
		errs = append(errs, t.cleanup.Teardown(ctx, task))
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// everything is the prefix of the names of all runs.
const everything = "lockstep-"

// targets returns the distinct brokers of a matrix or a record, and the name prefix of the leftovers to remove.
func (o *cleanupOptions) targets(c *cobra.Command, of string) (prefix string, targets []*target, err error) {
	var run plan.Run
	var timeline []runs.TimelineEvent
	recorded := true
	if info, missing := os.Stat(of); missing == nil && info.Mode().IsRegular() || strings.HasSuffix(of, ".cue") {
		recorded = false
		run, err = expand(c.Context(), of, o.narrow)
	} else {
		run, timeline, err = o.record(c, of)
	}
	if err != nil {
		return "", nil, err
	}
	if len(run.Cells) == 0 {
		return "", nil, nothingLeft(run)
	}
	prefix = everything + o.run
	if recorded {
		prefix = everything + run.ID + "-"
	}
	byKey := map[string]*target{}
	add := func(b plan.Broker) *target {
		if byKey[b.Key()] == nil {
			byKey[b.Key()] = &target{broker: b}
			targets = append(targets, byKey[b.Key()])
		}
		return byKey[b.Key()]
	}
	for _, broker := range run.Brokers() {
		add(broker)
	}
	attempts := map[string][]string{} // by task: names at a broker contain the attempt
	for _, m := range timeline {
		if m.Kind == runs.TimelineStart {
			attempts[m.Task] = append(attempts[m.Task], m.Name)
		}
	}
	for _, task := range run.Tasks() {
		for _, task.Attempt = range attempts[task.ID] {
			for _, part := range task.Parts() {
				t := add(part.Cell.Broker)
				t.attempts = append(t.attempts, part)
			}
		}
	}
	return prefix, targets, nil
}

// record expands the matrix of a recorded run again, because the record contains no secrets. It asks for consent if
// this ctl did not create the run.
func (o *cleanupOptions) record(c *cobra.Command, id string) (plan.Run, []runs.TimelineEvent, error) {
	switch {
	case o.run != "":
		return plan.Run{}, nil, usageErrorf("--run with a record: a record belongs to one run; omit --run")
	case o.narrow.Quick || len(o.narrow.Filter) > 0:
		return plan.Run{}, nil, usageErrorf("--quick or --filter with a record: cleanup uses the matrix of the record; omit them")
	}
	record, err := runs.Open(o.runs, id)
	if err != nil {
		return plan.Run{}, nil, err
	}
	if err := o.checkEnded(c, record.Plan()); err != nil {
		return plan.Run{}, nil, err
	}
	timeline, err := record.Timeline()
	if err != nil {
		return plan.Run{}, nil, err
	}
	again := runOptions{narrow: o.narrow, runs: o.runs, resume: id}
	again.server.url = record.Plan().Source.Server
	s, err := again.resumption(c.Context())
	if errors.Is(err, runs.ErrLocked) {
		return plan.Run{}, nil, fmt.Errorf("clean up %s: the run is active: %w; stop it first", record.Plan().ID,
			runs.ErrLocked)
	}
	if err != nil {
		id = record.Plan().ID
		return plan.Run{}, nil,
			fmt.Errorf("clean up with the record of %s, or with a matrix of its brokers: ctl runs cleanup --run %s FILE: %w",
				id, id, err)
	}
	return s.Run, timeline, consent(c, o.yes, record.Plan(), s.Run)
}

// checkEnded returns an error if a run of a fleet is active. The fleet must be selected. If it does not answer, cleanup
// needs the user's consent.
func (o *cleanupOptions) checkEnded(c *cobra.Command, run plan.Run) error {
	server := run.Source.Server
	if server == "" { // the lock of the record shows whether a local run is active
		return nil
	}
	if server != plan.Redact(o.server.url) {
		return usageErrorf("clean up %s: it ran on the fleet at %s, which may still run it; pass its --server or --context",
			run.ID, server)
	}
	state, err := either(c.Context(), &o.server, func(conn *wire.Client) (wire.RunState, error) {
		return conn.RunState(c.Context(), run.ID)
	}, nil)
	if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "query run %s: %v\n", run.ID, err)
		sure, err := ask(c, o.yes, "The fleet does not answer, and the run may be active. Clean up?",
			"nothing removed: the fleet does not answer; pass --yes if the run is not active")
		if err == nil && !sure {
			err = exit{ExitError, errors.New("nothing removed")}
		}
		return err
	}
	if state.Run != "" && !state.Over() {
		return fmt.Errorf("clean up %s: the run is %s on the fleet; cancel it first, which also cleans up: ctl runs cancel %s%s",
			run.ID, state.State, run.ID, o.server.hint())
	}
	return nil
}
