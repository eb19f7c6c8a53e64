package rabbitmq

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// ofQueues adds the counts of messages in the queues of the task's topology. If a queue is missing, there is no sum,
// because it would look complete.
func (p *probe) ofQueues(ctx context.Context) {
	t := p.task
	if t == nil {
		return
	}
	want := p.session.options.queueSets(*t) * t.Queues
	if p.session.prober.plugins {
		p.seldom("queues", func() error { return p.queuesOfPlugins(ctx, t.Name+"-s", want) })
	}
	if p.session.api != nil {
		p.seldom("list", func() error { return p.queuesOfManagement(ctx, t.Name+"-s", want) })
	}
}

// queuesOfPlugins adds up the queues that the nodes report. Each node reports the queues that it leads. If two nodes
// report the same queue, because its leader moved, there is no sum.
func (p *probe) queuesOfPlugins(ctx context.Context, prefix string, want int) error {
	if len(p.scrapes) == 0 {
		return nil
	}
	nodes := p.session.plugins
	answers := make([]map[string]queueMessages, len(nodes))
	err := kit.Each(len(nodes), func(i int) (err error) {
		answers[i], err = p.session.scrapeQueues(ctx, nodes[i], prefix)
		return err
	})
	queues, reports := map[string]queueMessages{}, 0
	for _, answer := range answers {
		maps.Copy(queues, answer)
		reports += len(answer)
	}
	if err != nil && len(p.scrapes) == len(nodes) {
		return err
	}
	if reports == len(queues) {
		p.depth(slices.Collect(maps.Values(queues)), want)
	}
	return nil
}

// depth adds the sums over all queues, if every queue reported the count.
func (p *probe) depth(queues []queueMessages, want int) {
	add := func(name string, count func(queueMessages) *float64) {
		sum := 0.0
		for _, q := range queues {
			n := count(q)
			if n == nil {
				return
			}
			sum += *n
		}
		p.add(name, "", sum)
	}
	if len(queues) == want {
		add(drivers.MetricQueueDepth, func(q queueMessages) *float64 { return q.All })
		add(drivers.MetricUnacked, func(q queueMessages) *float64 { return q.Unacked })
	}
}

// queuePage is the number of queues per page of the management API.
const queuePage = 500

// queuesOfManagement adds the number of the task's queues, and the number of queues that lack a replica. If plugins are
// not used, it also adds the counts of their messages.
func (p *probe) queuesOfManagement(ctx context.Context, prefix string, want int) error {
	type item struct {
		queueInfo
		queueMessages
	}
	var queues []queueMessages
	short, replicated := 0, p.session.options.Queue.Type != classic || p.session.options.mirrored()
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
		if err := p.session.api.get(ctx, query, &answer, "queues", p.session.endpoints[0].vhost); err != nil {
			return fmt.Errorf("list queues: %w", err)
		}
		for _, i := range answer.Items {
			queues = append(queues, i.queueMessages)
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
	if !p.session.prober.plugins {
		p.depth(queues, want)
	}
	return nil
}
