package controller

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// queuedRun is one submission, from the time it is read until its run has ended.
type queuedRun struct {
	wire.Request
	noted   wire.RunState     // when the submission was read
	needs   []plan.Cell       // cells still to measure, the largest first; one per distinct need for agents
	brokers map[string]string // names in the matrix by identity: see brokerIdentities
	begun   bool              // this leadership executes it
	former  bool              // a former leader executed it; its agents stay reserved before they report again
	agents  map[string]bool   // reserved for it
	short   time.Time         // since when all agents together could not serve it; zero: they can
	refusal *wire.End         // why it is refused
	waiting string            // the stored reason to wait
	// rejected runs only end: they were cancelled (cause), or their submission cannot be executed.
	rejected bool
	cause    error
	cancel   context.CancelCauseFunc
}

// executed reports whether this leadership executes the run, or a former one did until it ended.
func (r *queuedRun) executed() bool { return r.begun || r.former }

// newQueuedRun reads a submission. A run that a former leader executed keeps its agents.
func newQueuedRun(ctx context.Context, r wire.Request, noted wire.RunState, lookup lookup) *queuedRun {
	q := &queuedRun{Request: r, noted: noted, waiting: noted.Waiting, agents: map[string]bool{}}
	if q.Err = cmp.Or(r.Err, check(r.Submission)); q.Err == nil {
		if q.brokers = brokerIdentities(ctx, r.Submission.Run, lookup); len(q.brokers) > maxIdentities {
			q.Err = fmt.Errorf("the run has brokers with %d names and addresses; the maximum is %d", len(q.brokers),
				maxIdentities)
		}
	}
	if q.rejected = q.Err != nil; q.rejected {
		q.brokers = nil
		return q
	}
	if noted.Seq == r.Seq && noted.State == wire.StateRunning {
		q.former = true
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
	for _, t := range r.Submission.Run.Tasks() {
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

// lookupTimeout bounds the name lookups of one submission, and those of all submissions that a new leader finds in the
// queue. maxIdentities bounds the identities of the brokers of one run.
const (
	lookupTimeout = 2 * time.Second
	maxIdentities = 10_000
)

// brokerIdentities maps the identities of a run's brokers to their names in the matrix. Two runs never load brokers
// with a common identity at the same time. The identities are the names and addresses of the broker's hosts, as brokers
// on one host share its cores. A broker without hosts is identified by its driver and its options without secrets.
func brokerIdentities(ctx context.Context, run plan.Run, lookup lookup) map[string]string {
	own, _ := net.InterfaceAddrs() // on an error, addresses of this host count as different
	brokers, seen := map[string]string{}, map[string]bool{}
	for _, cell := range run.Cells {
		for _, b := range cell.Brokers() {
			key := b.Key()
			if seen[key] {
				continue
			}
			seen[key] = true
			hosts := b.Hosts()
			if len(hosts) == 0 {
				brokers[b.Driver+" "+string(b.Redacted().Options)] = b.Name
			}
			for _, host := range hosts {
				if brokers[host] != "" {
					continue
				}
				brokers[host] = b.Name
				for _, address := range addresses(ctx, host, own, lookup) {
					brokers[address] = b.Name
				}
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

// uses returns in words that a run uses, or will use first, what another run waits for.
func (r *queuedRun) uses() string {
	if r.executed() {
		return "used by run " + r.Run
	}
	return "reserved for run " + r.Run
}
