package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// ofQueues adds the counts of messages in the queues of the task's topology. If a queue is missing, there is no sum,
// because it would look complete.
func (p *probe) ofQueues(ctx context.Context) {
	t := p.prober.topology
	if t.Name == "" {
		return
	}
	want := p.options.queueSets(t) * t.Queues
	if p.prober.plugins {
		p.seldom("queues", func() error { return p.queuesOfPlugins(ctx, t.Name+"-s", want) })
	}
	if p.api != nil {
		p.seldom("list", func() error { return p.queuesOfManagement(ctx, t.Name+"-s", want) })
	}
}

// queuesOfPlugins adds up the queues that the nodes report. Each node reports the queues that it leads. If two nodes
// report the same queue, because its leader moved, there is no sum.
func (p *probe) queuesOfPlugins(ctx context.Context, prefix string, want int) error {
	if len(p.scrapes) == 0 {
		return nil
	}
	nodes := p.metrics.nodes
	answers, errs := make([]map[string]queueMessages, len(nodes)), make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { answers[i], errs[i] = p.metrics.scrapeQueues(ctx, n, p.endpoints[0].vhost, prefix) })
	}
	wg.Wait()
	queues, twice := map[string]queueMessages{}, false
	for _, answer := range answers {
		for name, q := range answer {
			_, already := queues[name]
			twice = twice || already
			queues[name] = q
		}
	}
	if err := errors.Join(errs...); err != nil && len(p.scrapes) == len(nodes) {
		return err
	}
	if !twice {
		p.depth(slices.Collect(maps.Values(queues)), want)
	}
	return nil
}

// depth adds the sums over all queues, if every queue reported the count.
func (p *probe) depth(queues []queueMessages, want int) {
	var all, unacked float64
	allSaid, unackedSaid := len(queues) == want, len(queues) == want
	for _, q := range queues {
		all, unacked = all+q.all, unacked+q.unacked
		allSaid, unackedSaid = allSaid && q.allSaid, unackedSaid && q.unackedSaid
	}
	if allSaid {
		p.add(drivers.MetricQueueDepth, "", all)
	}
	if unackedSaid {
		p.add(drivers.MetricUnacked, "", unacked)
	}
}

// queuePage is the number of queues per page of the management API.
const queuePage = 500

// queuesOfManagement adds the number of the task's queues, and the number of queues that lack a replica. If plugins are
// not used, it also adds the counts of their messages.
func (p *probe) queuesOfManagement(ctx context.Context, prefix string, want int) error {
	type item struct {
		queueInfo
		Messages *float64 `json:"messages"`
		Unacked  *float64 `json:"messages_unacknowledged"`
		Online   []string `json:"online"`
	}
	var queues []queueMessages
	short, replicated := 0, p.options.Queue.Type != classic || p.options.mirrored()
	for page, pages := 1, 1; page <= pages; page++ {
		var answer struct {
			Items []item `json:"items"`
			Pages int    `json:"page_count"`
		}
		query := columns("name,messages,messages_unacknowledged,node,leader,members,online,slave_nodes,synchronised_slave_nodes")
		query.Set("name", "^"+regexp.QuoteMeta(prefix))
		query.Set("use_regex", "true")
		query.Set("page", strconv.Itoa(page))
		query.Set("page_size", strconv.Itoa(queuePage))
		if err := p.api.query(ctx, query, &answer, "queues", p.endpoints[0].vhost); err != nil {
			return fmt.Errorf("list queues: %w", err)
		}
		for _, i := range answer.Items {
			var q queueMessages
			if i.Messages != nil {
				q.all, q.allSaid = *i.Messages, true
			}
			if i.Unacked != nil {
				q.unacked, q.unackedSaid = *i.Unacked, true
			}
			queues = append(queues, q)
			if len(i.Online) < len(i.Members) && len(i.Online) > 0 || len(i.Synchronised) < len(i.Mirrors) {
				short++
			}
		}
		pages = answer.Pages
	}
	p.add(drivers.MetricQueues, "", float64(len(queues)))
	if replicated {
		p.add(drivers.MetricUnderReplicated, "", float64(short))
	}
	if !p.prober.plugins {
		p.depth(queues, want)
	}
	return nil
}
