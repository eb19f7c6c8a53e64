package controller

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// claim is one submission: what its run wants, and what it has.
type claim struct {
	wire.Request
	noted   wire.RunState     // how it stood when it was read
	wants   []plan.Workload   // of its cells, the largest first; each kind of need once
	brokers map[string]string // what tells them apart to the broker's name in the matrix
	begun   bool              // it is executed
	former  bool              // by a former leader; its agents may not have been heard yet, and stay reserved
	agents  map[string]bool   // reserved for it
	waiting string            // for what, in words
	over    bool              // it was cancelled, or is refused
	why     error             // it was cancelled: the cause
	cancel  context.CancelCauseFunc
}

// newClaim is the claim of a submission. A run that a former leader had begun keeps the agents that it had.
func newClaim(r wire.Request, noted wire.RunState) *claim {
	c := &claim{Request: r, noted: noted, waiting: noted.Waiting, brokers: map[string]string{}, agents: map[string]bool{}}
	if c.over = cmp.Or(r.Err, check(r.Submission)) != nil; c.over {
		return c
	}
	if noted.Seq == r.Seq && noted.State == wire.StateRunning {
		c.former = true
		for _, name := range noted.Agents {
			c.agents[name] = true
		}
	}
	done := map[string]bool{}
	for _, id := range r.Submission.Done {
		done[id] = true
	}
	c.want(r.Submission.Run.Tasks(), done)
	for _, cell := range r.Submission.Run.Cells {
		for _, b := range cell.Brokers() {
			for _, key := range identities(b) {
				c.brokers[key] = b.Name
			}
		}
	}
	return c
}

// want sets what the tasks that are left need.
func (c *claim) want(todo []plan.Task, done map[string]bool) {
	c.wants = nil
	seen := map[string]bool{}
	for i, t := range todo {
		if done[t.ID] {
			continue
		}
		w := todo[i].Cell.Workload
		if key := fmt.Sprint(w.Roles(), w.Targets()); !seen[key] {
			seen[key] = true
			c.wants = append(c.wants, w)
		}
	}
	slices.SortStableFunc(c.wants, func(a, b plan.Workload) int { return cmp.Compare(seats(b), seats(a)) })
}

// seats is how many agents a workload needs for its roles.
func seats(w plan.Workload) (n int) {
	for _, r := range w.Roles() {
		n += r.Agents
	}
	return n
}

// identities are what tells that two brokers are one: the driver with the same options, whoever logs in, or an address in common.
func identities(b plan.Broker) []string {
	options := string(b.Redacted().Options)
	var short bytes.Buffer
	if json.Compact(&short, []byte(options)) == nil {
		options = short.String()
	}
	all := []string{b.Driver + " " + b.Via + " " + options}
	for _, e := range plan.Endpoints(b.Options) {
		if u, err := url.Parse(e); err == nil && u.Host != "" {
			e = u.Host
		}
		all = append(all, e)
	}
	return all
}
