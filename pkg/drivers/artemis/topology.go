package artemis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/amqp10"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

func address(t drivers.Topology, queue int) string {
	if t.Existing != "" {
		return drivers.QueueName(t.Existing, queue)
	}
	return fmt.Sprintf("%s.q%d", t.Name, queue)
}

// queue returns the name of a subscription's queue. An anycast address has one queue, with the name of the address.
func (o *options) queue(t drivers.Topology, subscription, queue int) string {
	if o.multicast(t.Subscriptions) {
		return fmt.Sprintf("%s.q%d.s%d", t.Name, queue, subscription)
	}
	return address(t, queue)
}

// target returns the terminus of a publisher: the address of its queue.
func (o *options) target(t drivers.Topology, queue int) amqp10.Terminus {
	return amqp10.Terminus{Address: address(t, queue), Capabilities: o.capabilities(t)}
}

// source returns the terminus of a consumer: the queue of its subscription. The name contains both the address and the
// queue, so that a link creates no other queue of the address.
func (o *options) source(t drivers.Topology, subscription, queue int) amqp10.Terminus {
	return amqp10.Terminus{Address: address(t, queue) + "::" + o.queue(t, subscription, queue),
		Capabilities: o.capabilities(t)}
}

// queueConfig is the argument of the management operation createQueue.
type queueConfig struct {
	Name              string `json:"name"`
	Address           string `json:"address"`
	Routing           string `json:"routing-type"`
	Durable           bool   `json:"durable"`
	AutoCreateAddress bool   `json:"auto-create-address"`
	AutoDelete        bool   `json:"auto-delete"`
}

// Setup creates an address per queue, and on it a queue per subscription. It first removes existing addresses of these
// names, with their messages and consumers.
func (s *session) Setup(ctx context.Context, t drivers.Topology) error {
	s.Task.Store(&t)
	if err := s.announce(ctx, t); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	if err := s.remove(ctx, addresses(t)); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	routing, queues := "ANYCAST", 1
	if s.options.multicast(t.Subscriptions) {
		routing, queues = "MULTICAST", t.Subscriptions
	}
	var calls []call
	for q := range t.Queues {
		for sub := range queues {
			calls = append(calls, operation("broker", "createQueue", text(queueConfig{
				Name: s.options.queue(t, sub, q), Address: address(t, q), Routing: routing, Durable: t.Persistent,
				AutoCreateAddress: true,
			}), false))
		}
	}
	answers, err := s.manage(ctx, calls...)
	if err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	for i, a := range answers {
		if err := a.err(); err != nil {
			return fmt.Errorf("set up: create queue %s: %w", calls[i].arguments[0], err)
		}
	}
	return nil
}

// Verify asks the broker for each existing queue. With its default settings, a link to a missing queue would create it.
func (s *session) Verify(ctx context.Context, t drivers.Topology) error {
	s.Task.Store(&t)
	var calls []call
	for _, name := range addresses(t) {
		calls = append(calls, attribute("queue."+name, "Address"), attribute("queue."+name, "RoutingType"))
	}
	answers, err := s.manage(ctx, calls...)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	var errs []error
	for q, name := range addresses(t) {
		var address, routing string
		err := errors.Join(answers[2*q].value(&address), answers[2*q+1].value(&routing))
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("verify queue %s: %w", name, err))
		case address != name || routing != "ANYCAST":
			errs = append(errs, fmt.Errorf("verify queue %s: address %s, routing type %s: use an anycast queue with the name of its address",
				name, address, routing))
		}
	}
	return errors.Join(errs...)
}

// announce sends a notice for each setting that the label of durable queues assumes and the server does not honour.
func (s *session) announce(ctx context.Context, t drivers.Topology) error {
	if !t.Persistent {
		return nil
	}
	values, err := s.attributes(ctx)
	if err != nil {
		return err
	}
	for _, flag := range s.options.flags(values) {
		s.Env().Event(drivers.EventNotice, flag)
	}
	return nil
}

// Teardown removes the addresses, with their queues and messages.
func (s *session) Teardown(ctx context.Context, t drivers.Topology) error {
	if err := s.remove(ctx, addresses(t)); err != nil {
		return fmt.Errorf("tear down: %w", err)
	}
	return nil
}

func addresses(t drivers.Topology) []string {
	all := make([]string, t.Queues)
	for q := range all {
		all[q] = address(t, q)
	}
	return all
}

// errNoAddress is the prefix of the broker's error for a missing address.
const errNoAddress = "AMQ229203"

// remove deletes addresses, their queues, and the links to them. A missing address is not an error.
func (s *session) remove(ctx context.Context, names []string) error {
	var calls []call
	for _, name := range names {
		calls = append(calls, operation("broker", "deleteAddress", name, true))
	}
	answers, err := s.manage(ctx, calls...)
	if err != nil {
		return err
	}
	for i, a := range answers {
		if err := a.err(); err != nil && !strings.HasPrefix(a.fault(), errNoAddress) {
			return fmt.Errorf("delete address %s: %w", names[i], err)
		}
	}
	return nil
}

const kindAddress = "address"

// Leftovers lists addresses. Each address has the queues of one queue index of a task.
func (s *session) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	var names []string
	if err := s.read(ctx, attribute("broker", "AddressNames"), &names); err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	return kit.Leftovers(kindAddress, prefix, names), nil
}

// Cleanup removes addresses. A missing address is not an error.
func (s *session) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	return kit.Cleanup(these, map[string]func([]string) error{kindAddress: func(names []string) error {
		return s.remove(ctx, names)
	}})
}
