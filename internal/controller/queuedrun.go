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

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// queuedRun is one submission, from when it is read until its run has ended.
type queuedRun struct {
	wire.Request
	noted   wire.RunState     // when it was read
	needs   []plan.Cell       // that are left to measure, the largest first; each kind of need for agents once
	brokers map[string]string // names in the matrix by identity: see brokerIdentities
	begun   bool              // it is executed
	former  bool              // by a former leader; its agents may not have been heard yet, and stay reserved
	agents  map[string]bool   // reserved for it
	short   time.Time         // since when all agents together could not serve it; zero: they could
	refusal *wire.End         // it is not executed, as they still could not
	waiting string            // what it waits for, as last noted
	// rejected runs only end: they were cancelled, with a cause, or their submission cannot be executed.
	rejected bool
	cause    error
	cancel   context.CancelCauseFunc
}

// executed reports whether a run is executed, or was until a former leader ended.
func (r *queuedRun) executed() bool { return r.begun || r.former }

// newQueuedRun reads a submission. A run that a former leader had begun keeps the agents that it had.
func newQueuedRun(ctx context.Context, r wire.Request, noted wire.RunState, lookup lookup) *queuedRun {
	q := &queuedRun{Request: r, noted: noted, waiting: noted.Waiting, agents: map[string]bool{}}
	if q.Err = cmp.Or(r.Err, check(r.Submission)); q.Err == nil {
		if q.brokers = brokerIdentities(ctx, r.Submission.Run, lookup); len(q.brokers) > maxIdentities {
			q.Err = fmt.Errorf("the run has brokers with %d names and addresses: want at most %d", len(q.brokers),
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

// require sets what the tasks need that are not done.
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

// lookup resolves the name of a host, as net.Resolver.LookupNetIP does.
type lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// lookupTimeout bounds how long the names of one submission are resolved, and those of all submissions that a new
// leader finds in the queue. maxIdentities bounds those of the brokers of a run.
const (
	lookupTimeout = 2 * time.Second
	maxIdentities = 10_000
)

// brokerIdentities maps the identities of a run's brokers to their names in the matrix. Two brokers with an identity in
// common are never loaded by two runs at the same time. The identities of a broker are the names and addresses of its
// hosts, as brokers of one host share its cores; without hosts, its driver with its options, whoever logs in.
func brokerIdentities(ctx context.Context, run plan.Run, lookup lookup) map[string]string {
	own, _ := net.InterfaceAddrs() // without them, the addresses of this host differ
	brokers, seen := map[string]string{}, map[string]bool{}
	for _, cell := range run.Cells {
		for _, b := range cell.Brokers() {
			key := b.Driver + " " + b.Via + " " + string(b.Options)
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

// addresses are those of a host; none if its name cannot be resolved here. All addresses of this host are one.
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
