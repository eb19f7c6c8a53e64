package activemq

import (
	"context"
	"fmt"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/amqp10"
)

func queue(t drivers.Topology, subscription, queue int) string {
	if t.Existing != "" {
		return drivers.QueueName(t.Existing, queue)
	}
	return fmt.Sprintf("%s.q%d.s%d", t.Name, queue, subscription)
}

// scheme is the prefix of queue names. Without it, a name could mean a topic.
const scheme = "queue://"

func terminus(name string) amqp10.Terminus {
	return amqp10.Terminus{Address: scheme + name, Capabilities: []string{"queue"}}
}

// source returns the queue of a consumer's subscription.
func source(t drivers.Topology, subscription, q int) amqp10.Terminus {
	return terminus(queue(t, subscription, q))
}

// target returns the destination of a publisher. With several subscriptions it is a composite destination: the broker
// puts a copy of each message into every queue of it before it confirms.
func target(t drivers.Topology, q int) amqp10.Terminus {
	var all []string
	for sub := range max(t.Subscriptions, 1) {
		all = append(all, scheme+queue(t, sub, q))
	}
	return amqp10.Terminus{Address: strings.Join(all, ","), Capabilities: []string{"queue"}}
}

func queues(t drivers.Topology) []string {
	var all []string
	for q := range t.Queues {
		for sub := range max(t.Subscriptions, 1) {
			all = append(all, queue(t, sub, q))
		}
	}
	return all
}

// Setup creates a queue per subscription and queue index, and empties existing ones.
func (s *session) Setup(ctx context.Context, t drivers.Topology) error {
	s.Task.Store(&t)
	return s.empty(ctx, "set up", queues(t))
}

// Teardown empties the queues. AMQP cannot remove a queue of ActiveMQ. The broker removes it if it is configured to
// remove inactive queues.
func (s *session) Teardown(ctx context.Context, t drivers.Topology) error {
	return s.empty(ctx, "tear down", queues(t))
}

func (s *session) empty(ctx context.Context, doing string, names []string) error {
	all := make([]amqp10.Terminus, len(names))
	for i, name := range names {
		all[i] = terminus(name)
	}
	if err := s.Purge(ctx, all); err != nil {
		return fmt.Errorf("%s: %w (with jolokia, queues are removed however much is in them)", doing, err)
	}
	return nil
}
