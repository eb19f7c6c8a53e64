package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"example.org/lockstep/lockstep/internal/files"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runview"
	"example.org/lockstep/lockstep/internal/sampling"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/internal/wire/lease"
)

// execution is one executed run. One goroutine uses it.
type execution struct {
	leader *leader
	queued *queuedRun
	record *wire.Recorder
	state  wire.RunState
	end    wire.End // of this submission
	of     int      // number of tasks; the maximum while the rounds are open
	log    *slog.Logger
	// between ends with the run's context, or when the controller hands over: no further attempt may begin.
	between     context.Context
	run         plan.Run
	short       time.Time                       // since when there are too few agents; zero: enough
	rounds      *sampling.Rounds                // the number of repetitions of each cell
	retries     map[string][]plan.FailedAttempt // failed attempts of tasks before this leadership, by task
	searches    map[string]runview.Search       // steps of searches before this leadership, by task
	unreachable map[string]string               // why a broker could not be reached before the first task, by plan.Broker.ID
}

// maxCrashes is how many leaderships may fail with the same task of a run in flight before the run is quarantined.
const maxCrashes = 2

// errEnded means that a former leader has recorded the end of the run.
var errEnded = errors.New("the run has ended")

// execute runs all tasks, stores the end of the run in its record and deletes its submission. When the controller stops
// or the lease is lost, the run stays in the queue. An error is not the run's own: another attempt may succeed.
func (x *execution) execute(ctx context.Context) error {
	var cancel context.CancelFunc
	x.between, cancel = wire.Either(ctx, x.leader.stopping)
	defer cancel()
	x.end.Reason = wire.EndDone
	err := wire.Guard(x.log, "run "+x.run.ID, func() error { return x.tasks(ctx) })
	if errors.Is(err, errEnded) {
		return x.close(ctx)
	}
	fenced := errors.Is(err, lease.ErrFenced)
	if err != nil && !fenced && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	switch {
	case err == nil:
	case fenced, x.leader.lease.Context().Err() != nil:
		return err
	case errors.Is(err, errCancelled): // the task in flight has no outcome
		x.end.Reason, x.end.Detail = wire.EndInterrupted, err.Error()
	case x.between.Err() != nil: // the controller stops or hands over
		x.nothingInFlight(context.WithoutCancel(ctx))
		return nil
	case x.end.Reason != wire.EndDone: // the reason was set where the error occurred
	case !wire.Hopeless(err) && !errors.Is(err, wire.ErrPanic):
		x.nothingInFlight(context.WithoutCancel(ctx))
		return err
	default:
		x.end.Reason, x.end.Detail = wire.EndFailed, err.Error()
	}
	return x.finish(ctx)
}

func (x *execution) reject(ctx context.Context, reason wire.EndReason, why error) error {
	x.log.Error("run rejected", "reason", reason, "err", why)
	x.end.Reason, x.end.Detail = reason, why.Error()
	return x.finish(ctx)
}

func (x *execution) tasks(ctx context.Context) error {
	todo, done, err := x.begin(ctx)
	if err != nil {
		return err
	}
	if r := x.queued.refusal; r != nil {
		x.end.Reason, x.end.Detail = r.Reason, r.Detail
		return errors.New(r.Detail)
	}
	first := true
	for n, t := range todo {
		if done[t.ID] || !x.rounds.Needed(t) {
			continue
		}
		if why := x.unreachableBroker(t.Cell); why != "" {
			if err := x.outcome(ctx, outcomeWithout(t, plan.FailedUnreachable, why)); err != nil {
				return err
			}
			continue
		}
		if x.run.Until != nil { // the place of a task depends on the tasks before it
			n = x.state.Done
		}
		if !first {
			if err := wire.Wait(x.between, x.run.Settle.D()); err != nil {
				return err
			}
		}
		first = false
		if err := x.task(ctx, t, n+1); err != nil {
			return err
		}
	}
	return nil
}

// begin creates the record of the run, also of a cancelled one, or continues it, and determines the remaining tasks.
func (x *execution) begin(ctx context.Context) (todo []plan.Task, done map[string]bool, err error) {
	ctx, cancel := wire.WithGracePeriod(ctx, stopTimeout)
	defer cancel()
	h := runview.New(x.run)
	same := true
	err = x.record.Review(ctx, func(e wire.Entry) {
		h.Apply(e, time.Now())
		same = same && (e.Plan == nil || e.Plan.Same(x.run))
	})
	if err != nil {
		return nil, nil, err
	}
	if !same { // a record of two plans cannot be copied
		err := fmt.Errorf("run %s is already recorded with another plan; submit it with another id", x.run.ID)
		x.end.Reason, x.end.Detail = wire.EndRefused, err.Error()
		return nil, nil, err
	}
	if setTimes(&x.state, h, x.end.Submission) {
		x.end = *h.End
		return nil, nil, errEnded
	}
	h.AddDone(x.queued.request.Submission.Done, x.queued.request.Submission.Numbers)
	x.searches, x.retries, x.rounds, x.unreachable = h.Searches, h.Retries, h.Rounds, h.Unreachable
	x.count()
	done = h.AllDone()
	x.leader.queue.require(x.queued, done)
	todo = x.run.Tasks()
	if x.run.Until != nil {
		todo = slices.DeleteFunc(todo, func(t plan.Task) bool { return !x.rounds.Needed(t) })
	}
	x.log.Info("run started", "tasks", x.of, "done", len(done), "taken over", h.Accepted)
	x.state.Done, x.state.Failed = len(done), h.Count(plan.Invalid)+h.Count(plan.Unknown)
	x.state.Started = cmp.Or(x.state.Started, time.Now())
	x.leader.put(ctx, x.state)
	had := slices.Clone(x.state.Agents)
	if h.Attempt != nil {
		had = append(had, h.Attempt.Started.Agents...)
	}
	x.leader.agents.awaitThat(ctx, wire.LostAfter, func() bool { // a new leader has received no heartbeats yet
		return !slices.ContainsFunc(had, func(name string) bool { return !x.leader.agents.has(name) })
	})
	x.leader.queue.endReservation(x.queued)
	if h.Accepted {
		return todo, done, x.takeOver(ctx, h) // the contacts of the former leader count
	}
	x.unreachable = map[string]string{} // of a former contact that was not completed
	unreachable := x.contact(todo, done)
	if !h.Planned {
		x.run.Ceilings = nil // a run that is repeated from a record may have those of other hosts
		if slices.ContainsFunc(todo, func(t plan.Task) bool { return !done[t.ID] && x.unreachableBroker(t.Cell) == "" }) {
			x.run.Ceilings = x.ceilings(todo)
		}
	}
	if errors.Is(context.Cause(x.between), errStopping) { // the next leader makes the contacts and measures them
		return nil, nil, errStopping
	}
	if !h.Planned {
		if err := x.leader.history.addBases(ctx, &x.run); err != nil {
			return nil, nil, err
		}
		if err := x.record.Plan(ctx, x.run); err != nil {
			return nil, nil, err
		}
	}
	for _, e := range append([]wire.RunEvent{{Kind: wire.RunAccepted}}, unreachable...) {
		if err := x.event(ctx, e); err != nil {
			return nil, nil, err
		}
	}
	return todo, done, nil
}

// usableAgents returns the agents that this run may use, sorted by name, and stores their names in the run's state.
func (x *execution) usableAgents(ctx context.Context) []wire.AgentInfo {
	fit := x.leader.queue.agentsOf(x.queued)
	if now := x.leader.queue.names(x.queued); !slices.Equal(now, x.state.Agents) {
		x.state.Agents = now
		x.leader.put(ctx, x.state)
	}
	return fit
}

// ceilings returns the ceiling of each load of the run. It measures those that are not known, on the agents of the
// first task with this load, at most maxCeilings. It measures none while another run is executed, which would affect
// both. Cells on the loopback driver have no ceiling: their results are ceilings.
func (x *execution) ceilings(tasks []plan.Task) []plan.Ceiling {
	store := x.leader.cfg.Ceilings
	if store == nil {
		return nil
	}
	var all []plan.Ceiling
	seen := map[plan.LoadShape]bool{}
	fit := x.usableAgents(x.between)
	measured := 0
	if !x.leader.queue.alone(x.queued) {
		measured = maxCeilings
	}
	for _, t := range tasks {
		for _, part := range t.Parts() {
			shape, publishes := part.Cell.Workload.Shape()
			if !publishes || part.Cell.Broker.Driver == "loopback" || seen[shape] {
				continue
			}
			seen[shape] = true
			ceiling := plan.Ceiling{Load: shape}
			publishers := probes(t, fit, func(a *plan.Assignment) bool {
				a.Ceiling, a.Deadline = true, plan.Duration(ceilingLimit)
				a.Task.Cell.Broker = plan.Broker{Name: "loopback"} // the agent needs neither its options nor its secrets
				return a.Task.Group == part.Group && a.Publishers.Count > 0
			})
			if len(publishers) > 0 {
				hosts := make([]string, len(publishers))
				for i, p := range publishers {
					hosts[i] = fmt.Sprintf("%s %d %s", p.agent.Version, p.agent.Cores, p.agent.Host)
				}
				slices.Sort(hosts)
				key := fmt.Sprintf("%+v on %s", shape, strings.Join(hosts, ", "))
				limits, known, unread := store.get(key)
				var err error
				if !known && measured < maxCeilings && x.between.Err() == nil {
					measured++
					switch limits, err = x.measureCeiling(publishers); {
					case err == nil && !x.leader.queue.alone(x.queued): // a run that began meanwhile has affected it
						measured = maxCeilings
					case err == nil:
						known, err = true, store.put(key, limits)
					case errors.Is(err, errNoCeiling):
						measured = maxCeilings // the others would not get one either
					}
				}
				if err = errors.Join(unread, err); err != nil {
					x.log.Warn("ceiling of the load generator", "mode", shape.Mode, "err", err)
				}
				if known {
					ceiling.Limits = &limits
				}
			}
			all = append(all, ceiling)
		}
	}
	return all
}

// probe is an assignment of one agent that ends at the first step: a ceiling, or a contact of a broker.
type probe struct {
	agent      wire.AgentInfo
	assignment plan.Assignment
}

// probes returns the assignments of a task that change accepts and makes probes; none if agents are missing.
func probes(t plan.Task, fit []wire.AgentInfo, change func(*plan.Assignment) bool) (all []probe) {
	agents, missing := assignAgents(t.Cell, fit)
	if missing != nil {
		return nil
	}
	for i, a := range plan.Assign(t, names(agents)) {
		if change(&a) {
			a.Task.Attempt = wire.NewName()
			all = append(all, probe{agents[i], a})
		}
	}
	return all
}

// errNoCeiling means that an agent did not respond.
var errNoCeiling = errors.New("an agent did not report its ceiling")

// measureCeiling measures on all agents at the same time.
func (x *execution) measureCeiling(publishers []probe) (plan.Limits, error) {
	arrivals := make([]wire.Arrival, len(publishers))
	var measuring errgroup.Group
	for i, p := range publishers {
		measuring.Go(func() (err error) {
			arrivals[i], err = x.open(p)
			return err
		})
	}
	if err := measuring.Wait(); err != nil {
		return plan.Limits{}, fmt.Errorf("%w: %w", errNoCeiling, err)
	}
	var all plan.Limits
	for _, v := range arrivals {
		if v.Error != "" {
			return plan.Limits{}, errors.New(v.Error)
		}
		if v.Limits == nil || v.Limits.Rate <= 0 || v.Limits.Rate > maxCeiling {
			return plan.Limits{}, fmt.Errorf("agent %s published nothing, or reported an impossible rate", v.Agent)
		}
		all.Rate += v.Limits.Rate
		all.Publish, all.EndToEnd = max(all.Publish, v.Limits.Publish), max(all.EndToEnd, v.Limits.EndToEnd)
	}
	return all, nil
}

const (
	// maxContacts limits the number of brokers, with different options, that are contacted at the same time.
	maxContacts = 16
	// maxContactAttempts is the number of agents that contact a broker: after a failure, of different hosts.
	maxContactAttempts = 2
)

// contact is the contact with one broker before the first task of a run.
type contact struct {
	id      string   // plan.Broker.ID
	names   []string // in the matrix
	probes  []probe  // of the first task that uses it; none if agents are missing, or the broker runs in their process
	failure string   // empty: reached, or not known
}

// contact makes agents open and close a session with each broker of the tasks that are not done. The unreachable ones
// are stored in x.unreachable and returned as events. A broker whose agents are missing is not contacted.
func (x *execution) contact(tasks []plan.Task, done map[string]bool) (events []wire.RunEvent) {
	var contacts []*contact
	byKey := map[string]*contact{}
	fit := x.usableAgents(x.between)
	for _, t := range tasks {
		if done[t.ID] {
			continue
		}
		for _, b := range t.Cell.Brokers() {
			c := byKey[b.Key()]
			if c == nil {
				c = &contact{id: b.ID(), probes: probes(t, fit, func(a *plan.Assignment) bool {
					a.Contact, a.Deadline = true, a.Task.Cell.Workload.Connect
					return a.Task.Cell.Broker.Key() == b.Key() && !a.Task.Cell.InProcess
				})}
				byKey[b.Key()] = c
				contacts = append(contacts, c)
			}
			if !slices.Contains(c.names, b.Name) {
				c.names = append(c.names, b.Name)
			}
		}
	}
	var opening errgroup.Group
	opening.SetLimit(maxContacts)
	for _, c := range contacts {
		opening.Go(func() error { c.failure = x.reach(c); return nil })
	}
	_ = opening.Wait() // the functions return no errors
	for i, c := range contacts {
		same := func(o *contact) bool { return o.failure == c.failure }
		if c.failure == "" || slices.ContainsFunc(contacts[:i], same) { // reported with an earlier one
			continue
		}
		e := wire.RunEvent{Kind: wire.BrokerUnreachable, Reason: c.failure}
		var names []string
		for _, o := range contacts[i:] {
			if same(o) {
				x.unreachable[o.id], e.Brokers, names = o.failure, append(e.Brokers, o.id), append(names, o.names...)
			}
		}
		slices.Sort(names)
		e.Detail = fmt.Sprintf("broker %s: %s; start the broker, or correct its options in the matrix",
			strings.Join(slices.Compact(names), ", "), c.failure)
		x.log.Info("broker unreachable", "broker", names, "why", c.failure)
		events = append(events, e)
	}
	return events
}

// reach makes agents open a session with a broker, one after the other, until one succeeds or maxContactAttempts
// have failed. It returns the last failure; empty: one succeeded, or none reported a result.
func (x *execution) reach(c *contact) (failure string) {
	attempts, failed := 0, map[string]bool{} // by host
	for _, p := range c.probes {
		if failed[p.agent.Host] {
			continue
		}
		if attempts == maxContactAttempts || x.between.Err() != nil {
			break
		}
		attempts++
		arrival, err := x.open(p)
		switch {
		case err != nil:
			x.log.Warn("no response to the contact of a broker", "broker", c.names, "agent", p.agent.Agent, "err", err)
		case arrival.Error == "":
			return ""
		default:
			failed[p.agent.Host], failure = true, arrival.Error
		}
	}
	return failure
}

// open makes an agent execute a probe. An error means that the agent did not report the result.
func (x *execution) open(p probe) (arrival wire.Arrival, err error) {
	m := newMailbox(x.log, p.assignment.Task, []*part{{agent: p.agent}})
	defer m.open(x.leader.lease, nil, nil)()
	defer x.leader.ownership.own(m)()
	m.command(p.agent, wire.Command{Assignment: &p.assignment})
	began, reported := time.Now(), false
	take := func(r agentReport) {
		x.leader.agents.alive(p.agent)
		if reported = r.arrival != nil; reported {
			arrival = *r.arrival
		}
		err = r.err
	}
	waited := x.leader.agents.await(x.between, m.reports, take, func() (time.Duration, error) {
		if reported || err != nil {
			return 0, err
		}
		if lives, _, _ := x.leader.agents.process(p.agent); !lives {
			return 0, fmt.Errorf("agent %s was lost", p.agent.Agent)
		}
		limit := p.assignment.Deadline.D() + stepMargin
		if left := limit - time.Since(began); left > 0 {
			return left, nil
		}
		return 0, fmt.Errorf("no response within %v", limit)
	})
	return arrival, waited
}

// unreachableBroker returns why the brokers of a cell cannot be used; "": all were reached, or not contacted.
func (x *execution) unreachableBroker(c plan.Cell) string {
	for _, b := range c.Brokers() {
		if why := x.unreachable[b.ID()]; why != "" {
			return "broker " + b.Name + ": " + why
		}
	}
	return ""
}

// takeOver continues a run of a former leader. The task in flight is repeated: this leader does not have the reports.
func (x *execution) takeOver(ctx context.Context, h *runview.State) error {
	x.end.Ran, x.end.Failed = h.Ran, h.Failed
	name := x.leader.lease.Lease.Holder().Name
	e := wire.RunEvent{Kind: wire.TakenOver, Detail: fmt.Sprintf("controller %s has taken over", name)}
	if x.record.PreviousEpoch() == x.leader.lease.Epoch() {
		e.Detail = fmt.Sprintf("controller %s continues the run after an error of the control plane", name)
	}
	if h.Attempt == nil {
		e.Detail += ": no task was in flight"
		return x.event(ctx, e)
	}
	f := h.Attempt.Started
	e.Task, e.Attempt, e.N = f.Task, f.Attempt, f.N
	e.Detail += ": the task in flight is repeated"
	if err := x.event(ctx, e); err != nil {
		return err
	}
	x.log.Warn("run taken over", "task", e.Task, "attempt", e.Attempt, "what", e.Detail, "epoch", x.leader.lease.Epoch(),
		"previous", x.record.PreviousEpoch())
	x.leader.agents.awaitThat(ctx, finishLimit, func() bool { // the load of its agents would affect the next attempt
		return !slices.ContainsFunc(x.leader.agents.list(), func(a wire.AgentInfo) bool { return a.Attempt == h.Attempt.Ref })
	})
	e.Kind = wire.TaskInterrupted
	return x.event(ctx, e)
}

// countCrash counts a former leadership that failed with the run in flight. After maxCrashes it returns an error.
func (x *execution) countCrash() error {
	if x.state.InFlight != "" && x.state.Epoch != x.leader.lease.Epoch() {
		if x.state.Blamed != x.state.InFlight {
			x.state.Blamed, x.state.Crashes = x.state.InFlight, nil
		}
		x.state.Crashes = append(x.state.Crashes, x.state.Epoch)
	}
	if len(x.state.Crashes) < maxCrashes {
		return nil
	}
	what := "task " + x.state.Blamed + " in flight"
	if x.state.Blamed == wire.StartInFlight {
		what = "this run before its next task"
	} else if x.queued.request.Err == nil {
		for _, c := range x.queued.request.Submission.Run.Redacted().Cells {
			if n, is := strings.CutPrefix(x.state.Blamed, c.ID+"-r"); is {
				what = fmt.Sprintf("repetition %s of cell %s (task %s) in flight", n, cmp.Or(c.Name(), c.ID),
					x.state.Blamed)
			}
		}
	}
	epochs := strings.ReplaceAll(strings.Trim(fmt.Sprint(x.state.Crashes), "[]"), " ", ", ")
	return fmt.Errorf("controllers failed %d times with %s (epochs %s); find the cause in the logs of these controllers and report it",
		len(x.state.Crashes), what, epochs)
}

// inFlight stores what is in flight from now on. It waits while the control plane does not answer. Nothing may begin
// after another error: a crash of this controller would not be counted.
func (x *execution) inFlight(ctx context.Context, what string) error {
	ctx, cancel := wire.WithGracePeriod(ctx, stopTimeout)
	defer cancel()
	if x.state.InFlight = what; what != x.state.Blamed {
		x.state.Blamed, x.state.Crashes = "", nil
	}
	for {
		err := x.leader.lease.PutRun(ctx, x.state)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}

// nothingInFlight stores that nothing is in flight.
func (x *execution) nothingInFlight(ctx context.Context) {
	ctx, cancel := wire.WithGracePeriod(ctx, stopTimeout)
	defer cancel()
	x.state.InFlight = ""
	x.leader.put(ctx, x.state)
}

func (x *execution) count() {
	x.of = x.rounds.Tasks()
	x.state.Tasks, x.state.AtMost = x.of, x.rounds.Open()
}

// event stores an event of the run, also within stopTimeout after the end of ctx.
func (x *execution) event(ctx context.Context, e wire.RunEvent) error {
	ctx, cancel := wire.WithGracePeriod(ctx, stopTimeout)
	defer cancel()
	e.At, e.Of = time.Now(), x.of
	return x.record.Event(ctx, e)
}

// outcome stores an outcome, also within stopTimeout after the end of ctx, and adds it to the rounds.
func (x *execution) outcome(ctx context.Context, o plan.Outcome) error {
	x.end.Ran++
	if o.Failed() {
		x.end.Failed++
	}
	ctx, cancel := wire.WithGracePeriod(ctx, stopTimeout)
	defer cancel()
	if err := x.record.Outcome(ctx, o); err != nil {
		return err
	}
	x.leader.cfg.Status.count(o.Verdict)
	x.rounds.Add(o)
	x.count()
	x.state.InFlight, x.state.Blamed, x.state.Crashes = "", "", nil
	x.state.Done++
	if o.Failed() {
		x.state.Failed++
	}
	x.leader.put(ctx, x.state)
	return nil
}

// finish stores the end of the run as the last event of its record, and then closes the journal. On an error the run
// stays in the queue for another attempt. Each of the two takes at most stopTimeout, also after the end of ctx.
func (x *execution) finish(ctx context.Context) error {
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := x.record.Event(storing, wire.RunEvent{At: time.Now(), Kind: wire.RunEnded, Of: x.of,
		End: &x.end}); err != nil {
		return fmt.Errorf("end run: %w", err)
	}
	x.log.Info("run ended", "reason", x.end.Reason, "ran", x.end.Ran, "failed", x.end.Failed)
	return x.close(ctx)
}

// close stores the end in the run's state and deletes the submission, within stopTimeout, also after the end of ctx.
func (x *execution) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	x.state.State, x.state.Detail, x.state.Agents, x.state.Waiting = string(x.end.Reason), x.end.Detail, nil, ""
	x.state.InFlight, x.state.Blamed, x.state.Crashes = "", "", nil
	x.state.Ended = cmp.Or(x.state.Ended, time.Now())
	err := x.leader.lease.PutRun(ctx, x.state) // the copies of a run follow its state
	if err == nil {
		err = x.leader.lease.Dequeue(ctx, x.state.Run, x.end.Submission)
	}
	if err != nil {
		return fmt.Errorf("end run: %w", err)
	}
	return nil
}

// setTimes sets when a run began and ended from its record. It reports whether this submission of the run has ended.
func setTimes(s *wire.RunState, h *runview.State, submission uint64) (ended bool) {
	s.Ended = time.Time{}
	if ended = h.End != nil && h.End.Submission == submission; ended {
		s.Ended = h.Ended
	}
	if h.Accepted || ended {
		s.Started = h.Began
	}
	return ended
}

const (
	// maxCeilings is the number of ceilings that one run measures, about a second each. Later runs measure the rest.
	maxCeilings  = 10
	ceilingLimit = 5 * time.Second // for the measurement of one
	ceilingAge   = 24 * time.Hour  // after which a ceiling is measured again
	maxCeiling   = 1e12            // messages per second that an agent can report
)

// Ceilings stores measured ceilings, so that runs on equal agents do not measure them again. Safe for concurrent use.
type Ceilings struct {
	path  string // of the file; empty: in memory
	build string

	mu sync.Mutex
	of map[string]storedLimits // by build and load, and by version, host and cores of the agents
}

type storedLimits struct {
	Limits   plan.Limits `json:"limits"`
	Measured time.Time   `json:"measured"`
}

// OpenCeilings returns the ceilings of a file, which is created when the first is stored. An empty path keeps them in
// memory. A file that cannot be read is replaced. build distinguishes programs of the same version.
func OpenCeilings(path, build string) *Ceilings {
	return &Ceilings{path: path, build: build, of: map[string]storedLimits{}}
}

// load adds the ceilings of the file, as other processes may have written it.
func (c *Ceilings) load() error {
	data, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	stored := map[string]storedLimits{}
	if err == nil {
		err = json.Unmarshal(data, &stored)
	}
	if err != nil {
		return fmt.Errorf("read the ceilings of the load generator: %w", err)
	}
	maps.Copy(c.of, stored)
	return nil
}

func (c *Ceilings) get(key string) (limits plan.Limits, known bool, unread error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	unread = c.load()
	l, ok := c.of[c.build+key]
	return l.Limits, ok && time.Since(l.Measured) < ceilingAge, unread
}

func (c *Ceilings) put(key string, l plan.Limits) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.load() // reported before; it is replaced
	c.of[c.build+key] = storedLimits{l, time.Now()}
	maps.DeleteFunc(c.of, func(_ string, l storedLimits) bool { return time.Since(l.Measured) >= ceilingAge })
	if c.path == "" {
		return nil
	}
	data, err := json.Marshal(c.of)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(c.path), 0o755)
	}
	if err == nil {
		err = files.WriteRecord(c.path, data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("store the ceilings of the load generator: %w", err)
	}
	return nil
}
