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
	missing time.Time         // since when all agents together could not serve it; zero: they could
	refusal *wire.End         // it is not executed, as they still could not
	waiting string            // what it waits for, as last noted
	over    bool              // it was cancelled, or is refused
	why     error             // it was cancelled: the cause
	cancel  context.CancelCauseFunc
}

// executed reports whether a run is executed, or was until a former leader ended.
func (r *queuedRun) executed() bool { return r.begun || r.former }

// newQueuedRun reads a submission. A run that a former leader had begun keeps the agents that it had.
func newQueuedRun(ctx context.Context, r wire.Request, noted wire.RunState, lookup lookup) *queuedRun {
	q := &queuedRun{Request: r, noted: noted, waiting: noted.Waiting, agents: map[string]bool{}}
	if q.over = cmp.Or(r.Err, check(r.Submission)) != nil; q.over {
		return q
	}
	if noted.Seq == r.Seq && noted.State == wire.StateRunning {
		q.former = len(noted.Agents) > 0
		for _, name := range noted.Agents {
			q.agents[name] = true
		}
	}
	done, seen := map[string]bool{}, map[string]bool{}
	for _, id := range r.Submission.Done {
		done[id] = true
	}
	for _, t := range r.Submission.Run.Tasks() {
		key := fmt.Sprint(t.Cell.Workload.Roles(), t.Cell.Workload.Targets())
		if !done[t.ID] && !seen[key] {
			seen[key] = true
			q.needs = append(q.needs, t.Cell)
		}
	}
	slices.SortStableFunc(q.needs, func(a, b plan.Cell) int { return cmp.Compare(b.Agents(), a.Agents()) })
	q.brokers = brokerIdentities(ctx, r.Submission.Run, lookup)
	return q
}

// lookup resolves the name of a host, as net.Resolver.LookupNetIP does.
type lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// lookupTimeout bounds how long the names of one submission are resolved.
const lookupTimeout = 2 * time.Second

// brokerIdentities maps the identities of a run's brokers to their names in the matrix. Two brokers with an identity in
// common are never loaded by two runs at the same time. The identities of a broker are the names and addresses of its hosts,
// as brokers of one host share its cores; without hosts, its driver with its options, whoever logs in.
func brokerIdentities(ctx context.Context, run plan.Run, lookup lookup) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
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
				for _, address := range addresses(ctx, host, lookup) {
					brokers[address] = b.Name
				}
			}
		}
	}
	return brokers
}

// addresses are those of a host; none if its name cannot be resolved here. All addresses of this host are one.
func addresses(ctx context.Context, host string, lookup lookup) (all []string) {
	found := []netip.Addr{netip.IPv6Loopback()}
	if a, err := netip.ParseAddr(host); err == nil {
		found[0] = a
	} else if host != "localhost" {
		found, _ = lookup(ctx, "ip", host)
	}
	own, _ := net.InterfaceAddrs() // without them, the addresses of this host differ
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
