package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// runQueue holds the queued and the executed runs in the order of submission. Safe for concurrent use.
type runQueue struct {
	agents  *fleet
	maxRuns int // maximum of executed runs
	lookup  lookup
	mu      sync.Mutex
	runs    []*queuedRun // in the order of submission
	read    bool         // all messages that were queued when this controller began to lead were added
	// resolving is the total time of name lookups before read was set. Only the goroutine that adds uses it.
	resolving time.Duration
	changed   chan struct{}
}

// gatherTime is how long a run at its turn waits for missing agents before it is refused.
const gatherTime = 3 * time.Second

// add adds a message of the queue. noted is the last state of its run. A cancellation is for all earlier submissions.
func (q *runQueue) add(ctx context.Context, r wire.Request, noted wire.RunState) (idle bool) {
	var submitted *queuedRun
	if r.Submission != nil || r.Submits {
		q.mu.Lock()
		if q.read {
			q.resolving = 0
		}
		limit := lookupTimeout - q.resolving
		q.mu.Unlock()
		began := time.Now()
		looking, cancel := context.WithTimeout(ctx, limit)
		submitted = newQueuedRun(looking, r, noted, q.lookup)
		cancel()
		q.resolving += time.Since(began)
	}
	defer q.wake()
	q.mu.Lock()
	defer q.mu.Unlock()
	if submitted != nil {
		q.runs = append(q.runs, submitted)
		return false
	}
	idle = true
	cause := errCancelled
	if r.By != "" {
		cause = fmt.Errorf("%w by %s", errCancelled, r.By)
	}
	for _, run := range q.runs {
		if run.request.Run != r.Run || run.request.Seq > r.Seq {
			continue
		}
		idle, run.rejected, run.cause = false, true, cause
		if run.cancel != nil {
			run.cancel(run.cause)
		}
	}
	return idle
}

// complete is called when every message that was queued at the start of this leadership was added.
func (q *runQueue) complete() {
	q.mu.Lock()
	q.read = true
	q.mu.Unlock()
	q.wake()
}

func (q *runQueue) wake() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// start sets the function that cancels a run that begins. It calls it at once if the run was cancelled meanwhile.
func (q *runQueue) start(run *queuedRun, cancel context.CancelCauseFunc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	run.cancel = cancel
	if run.rejected {
		cancel(cmp.Or(run.cause, errCancelled))
	}
}

// finish removes an ended run, which frees its agents and brokers.
func (q *runQueue) finish(run *queuedRun) {
	q.mu.Lock()
	q.runs = slices.DeleteFunc(q.runs, func(o *queuedRun) bool { return o == run })
	q.mu.Unlock()
	q.agents.agentsFreed()
	q.wake()
}

func (q *runQueue) contains(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.runs, func(run *queuedRun) bool { return run.request.Run == id })
}

func (q *runQueue) alone(run *queuedRun) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !slices.ContainsFunc(q.runs, func(o *queuedRun) bool { return o != run && o.executed() })
}

// endReservation ends the reservation of agents that are missing since a former leader had the run.
func (q *runQueue) endReservation(run *queuedRun) {
	q.mu.Lock()
	defer q.mu.Unlock()
	run.takenOver = false
}

func (q *runQueue) require(run *queuedRun, done map[string]bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if run.refusal == nil {
		run.require(done)
	}
}

func (q *runQueue) names(run *queuedRun) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Sorted(maps.Keys(run.agents))
}

// agentsOf returns the agents that an executed run may use, sorted by name. Lost agents are replaced by free ones.
func (q *runQueue) agentsOf(run *queuedRun) []wire.AgentInfo {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(q.pass().living, func(a wire.AgentInfo) bool { return !run.agents[a.Agent] })
}

// next marks the runs whose turn it is as begun and returns them. waiting: the reason to wait has changed.
func (q *runQueue) next() (begin, waiting []*queuedRun) {
	q.mu.Lock()
	defer q.mu.Unlock()
	anyWaits := slices.ContainsFunc(q.runs, func(run *queuedRun) bool { return !run.begun })
	// until all messages are read, a later run may turn out to be begun by a former leader, with its agents
	if !q.read || !anyWaits {
		return nil, nil
	}
	p := q.pass()
	for i, run := range q.runs {
		wait := ""
		switch {
		case run.begun:
			continue
		case run.takenOver:
		case slices.ContainsFunc(q.runs[:i], func(o *queuedRun) bool { return o.request.Run == run.request.Run }):
			wait = "its earlier submission"
		case run.rejected:
			run.needs, run.brokers = nil, nil
		default:
			wait = q.admit(p, run)
		}
		if wait == "" {
			run.begun = true
			begin = append(begin, run)
		} else if wait != run.waiting {
			run.waiting = wait
			waiting = append(waiting, run)
		}
	}
	return begin, waiting
}

// schedulingPass is the state of one pass over the queue. Runs are visited in the order of submission, and each run
// reserves what later runs must leave to it. The queue's mutex is locked.
type schedulingPass struct {
	living  []wire.AgentInfo      // that can accept a task, sorted by name
	users   map[string]*queuedRun // by agent
	brokers map[string]*queuedRun // by identity of the broker
	running int
}

// pass begins a pass. Executed runs keep their agents, and get free agents in place of lost ones.
func (q *runQueue) pass() *schedulingPass {
	p := &schedulingPass{living: q.agents.available(), users: map[string]*queuedRun{}, brokers: map[string]*queuedRun{}}
	for _, r := range q.runs {
		if !r.executed() {
			continue
		}
		p.running++
		for id := range r.brokers {
			p.brokers[id] = r
		}
		for name := range r.agents {
			if r.takenOver || q.agents.has(name) {
				p.users[name] = r
			} else {
				delete(r.agents, name)
			}
		}
	}
	for _, r := range q.runs {
		if r.begun && !r.takenOver {
			p.reserve(r)
		}
	}
	return p
}

// reserve gives a run the free agents that it needs, or all that it could use, and returns the first cell with too few.
func (p *schedulingPass) reserve(r *queuedRun) (short *plan.Cell) {
	for i, c := range r.needs {
		chosen, missing := assignAgents(c, append(p.usedBy(r), p.usedBy(nil)...)) // its own agents come first
		if missing != nil && short == nil {
			short = &r.needs[i]
		}
		for _, a := range chosen {
			r.agents[a.Agent], p.users[a.Agent] = true, r
		}
	}
	for _, a := range p.usedBy(nil) {
		if short != nil && slices.ContainsFunc(r.needs, func(c plan.Cell) bool { return isCandidate(a, c.Workload) }) {
			p.users[a.Agent] = r
		}
	}
	return short
}

// usedBy lists the agents that a run uses; nil: the free agents.
func (p *schedulingPass) usedBy(user *queuedRun) []wire.AgentInfo {
	return slices.DeleteFunc(slices.Clone(p.living), func(a wire.AgentInfo) bool { return p.users[a.Agent] != user })
}

// isCandidate reports whether an agent could take part in a cell.
func isCandidate(a wire.AgentInfo, w plan.Workload) bool {
	for name := range w.Targets() {
		if a.Targets[name] != nil {
			return true
		}
	}
	return slices.ContainsFunc(w.Roles(), func(r plan.Role) bool { return !a.Observer && r.On.Within(a.Labels) })
}

// admit returns what a run waits for; empty: the run begins.
//
// A run that waits for other runs reserves its brokers and the agents that it needs. While there are too few agents, it
// reserves all agents that it could use. So no later submission delays it.
//
// A run that all living agents cannot serve reserves none. It is refused after gatherTime if nothing else makes it
// wait.
func (q *runQueue) admit(p *schedulingPass, r *queuedRun) (waiting string) {
	var missing *wire.End
	for _, c := range r.needs {
		if _, missing = assignAgents(c, p.living); missing != nil {
			break
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.brokers)) {
		user, why := p.brokers[id], ""
		switch id {
		case unresolvedHost:
			user, why = p.brokers[anyHost], ", whose host name the controller cannot resolve"
		case anyHost:
			user, why = p.brokers[unresolvedHost], ", which may be on a host whose name the controller cannot resolve"
		}
		if user != nil && user != r && waiting == "" {
			waiting = fmt.Sprintf("broker %s%s, %s", r.brokers[id], why, user.uses())
		}
		if missing == nil && p.brokers[id] == nil {
			p.brokers[id] = r
		}
	}
	if waiting == "" && p.running >= q.maxRuns {
		waiting = fmt.Sprintf("a free slot: at most %d runs are executed in parallel", q.maxRuns)
	}
	if missing != nil {
		if r.short.IsZero() {
			r.short = time.Now()
			time.AfterFunc(gatherTime, q.wake)
		}
		if waiting == "" && time.Since(r.short) >= gatherTime {
			r.refusal, r.needs, r.brokers = missing, nil, nil
			return ""
		}
		return missing.Detail
	}
	r.short = time.Time{}
	if short := p.reserve(r); short != nil && waiting == "" {
		waiting = q.missing(p, r, short.Workload)
	}
	if waiting == "" {
		p.running++
	} else {
		clear(r.agents)
	}
	return waiting
}

// missing returns how many agents a run waits for, and which runs use them.
func (q *runQueue) missing(p *schedulingPass, r *queuedRun, w plan.Workload) string {
	_, unfilled := assignRoles(w, p.usedBy(r))
	need := map[string]int{} // by labels
	for _, role := range unfilled {
		need[role.On.String()] += role.Agents
	}
	var wanted []string
	for _, on := range slices.Sorted(maps.Keys(need)) {
		text := fmt.Sprintf("%d more agents with %s", need[on], on)
		if need[on] == 1 {
			text = "1 more agent with " + on
		}
		wanted = append(wanted, strings.TrimSuffix(text, " with "))
	}
	text := []string{cmp.Or(strings.Join(wanted, " and "), "agents for its faults")}
	for _, user := range q.runs {
		if slices.ContainsFunc(p.living, func(a wire.AgentInfo) bool {
			return user != r && p.users[a.Agent] == user && isCandidate(a, w)
		}) {
			text = append(text, user.uses())
		}
	}
	return strings.Join(text, ", ")
}

// queuedRun is one submission, from the time it is read until its run has ended.
type queuedRun struct {
	request   wire.Request
	noted     wire.RunState     // when the submission was read
	needs     []plan.Cell       // cells still to measure, the largest first; one per distinct need for agents
	brokers   map[string]string // names in the matrix by identity: see brokerIdentities
	begun     bool              // this leadership executes it
	takenOver bool              // a former leader executed it; its agents stay reserved before they report again
	agents    map[string]bool   // reserved for it
	short     time.Time         // since when all agents together could not serve it; zero: they can
	refusal   *wire.End         // why it is refused
	waiting   string            // the stored reason to wait
	// rejected runs only end: they were cancelled (cause), or their submission cannot be executed.
	rejected bool
	cause    error
	cancel   context.CancelCauseFunc
}

// executed reports whether this leadership executes the run, or a former one did until it ended.
func (r *queuedRun) executed() bool { return r.begun || r.takenOver }

// newQueuedRun reads a submission. A run that a former leader executed keeps its agents.
func newQueuedRun(ctx context.Context, r wire.Request, noted wire.RunState, lookup lookup) *queuedRun {
	q := &queuedRun{request: r, noted: noted, waiting: noted.Waiting, agents: map[string]bool{}}
	if q.request.Err = cmp.Or(r.Err, check(r.Submission)); q.request.Err == nil {
		if q.brokers = brokerIdentities(ctx, r.Submission.Run, lookup); len(q.brokers) > maxIdentities {
			q.request.Err = fmt.Errorf("the run has brokers with %d names and addresses; the maximum is %d", len(q.brokers),
				maxIdentities)
		}
	}
	if q.rejected = q.request.Err != nil; q.rejected {
		q.brokers = nil
		return q
	}
	if noted.Seq == r.Seq && noted.State == wire.StateRunning {
		q.takenOver = true
		for _, name := range noted.Agents {
			q.agents[name] = true
		}
	}
	done := map[string]bool{}
	for _, id := range r.Submission.Done {
		done[id] = true
	}
	q.require(done)
	return q
}

func (r *queuedRun) require(done map[string]bool) {
	r.needs = nil
	seen := map[string]bool{}
	for _, t := range r.request.Submission.Run.Tasks() {
		key := fmt.Sprint(t.Cell.Workload.Roles(), t.Cell.Workload.Targets())
		if !done[t.ID] && !seen[key] {
			seen[key] = true
			r.needs = append(r.needs, t.Cell)
		}
	}
	slices.SortStableFunc(r.needs, func(a, b plan.Cell) int { return cmp.Compare(b.Agents(), a.Agents()) })
}

// lookup resolves a host name, as net.Resolver.LookupNetIP does.
type lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

const (
	// limit of the name lookups of one submission, and of all submissions that a new leader finds in the queue
	lookupTimeout = 2 * time.Second
	maxIdentities = 10_000 // of the brokers of one run

	anyHost        = "any host"        // the identity of each broker with hosts
	unresolvedHost = "unresolved host" // of those with a name that cannot be resolved: they may be the same as any other
)

// brokerIdentities maps the identities of a run's brokers to their names in the matrix. Two runs never load brokers
// with a common identity at the same time. The identities are the names and addresses of the broker's hosts, as brokers
// on one host share its cores. A broker without hosts is identified by its driver and its options without secrets.
func brokerIdentities(ctx context.Context, run plan.Run, lookup lookup) map[string]string {
	own, _ := net.InterfaceAddrs() // on an error, addresses of this host count as different
	brokers := map[string]string{}
	for _, b := range run.Brokers() {
		hosts := b.Hosts()
		if len(hosts) == 0 {
			brokers[b.Driver+" "+string(b.Redacted().Options)] = b.Name
		}
		for _, host := range hosts {
			if brokers[host] != "" {
				continue
			}
			brokers[host], brokers[anyHost] = b.Name, b.Name
			all := addresses(ctx, host, own, lookup)
			if len(all) == 0 {
				brokers[unresolvedHost] = b.Name
			}
			for _, address := range all {
				brokers[address] = b.Name
			}
		}
	}
	return brokers
}

// addresses returns the addresses of a host; none if its name cannot be resolved. Those of this host count as one.
func addresses(ctx context.Context, host string, own []net.Addr, lookup lookup) (all []string) {
	found := []netip.Addr{netip.IPv6Loopback()}
	if a, err := netip.ParseAddr(host); err == nil {
		found[0] = a
	} else if host != "localhost" {
		found, _ = lookup(ctx, "ip", host)
	}
	for _, a := range found {
		a = a.Unmap().WithZone("")
		text := a.String()
		isOwn := func(o net.Addr) bool { return strings.HasPrefix(o.String(), text+"/") }
		if a.IsLoopback() || a.IsUnspecified() || slices.ContainsFunc(own, isOwn) {
			text = "loopback"
		}
		all = append(all, text)
	}
	return all
}

// uses returns text: a run uses, or will use first, the resource that another run waits for.
func (r *queuedRun) uses() string {
	if r.executed() {
		return "used by run " + r.request.Run
	}
	return "reserved for run " + r.request.Run
}
