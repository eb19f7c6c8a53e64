package artemis

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/drivers"
)

func address(t drivers.Topology, queue int) string { return fmt.Sprintf("%s.q%d", t.Name, queue) }

// queue names the queue of a subscription. An anycast address has one queue, with its own name.
func (o *options) queue(t drivers.Topology, subscription, queue int) string {
	if o.multicast(t.Subscriptions) {
		return fmt.Sprintf("%s.q%d.s%d", t.Name, queue, subscription)
	}
	return address(t, queue)
}

// queueConfig is what the management operation createQueue takes.
type queueConfig struct {
	Name              string `json:"name"`
	Address           string `json:"address"`
	Routing           string `json:"routing-type"`
	Durable           bool   `json:"durable"`
	AutoCreateAddress bool   `json:"auto-create-address"`
	AutoDelete        bool   `json:"auto-delete"`
}

// Setup makes an address for each queue, and on it a queue for each subscription. What there was of these names goes
// first, with its messages and consumers.
func (s *session) Setup(ctx context.Context, t drivers.Topology) error {
	if err := s.use(t); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
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

// announce tells of durable queues what the server does not honour of the label.
func (s *session) announce(ctx context.Context, t drivers.Topology) error {
	if !t.Persistent {
		return nil
	}
	said, err := s.attributes(ctx)
	if err != nil {
		return err
	}
	for _, doubt := range s.options.flags(said) {
		s.Env().Event(drivers.EventNotice, doubt)
	}
	return nil
}

// Teardown removes the addresses with all that is on them.
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

// errNoAddress is how the broker's error for a missing address begins.
const errNoAddress = "AMQ229203"

// remove deletes addresses, their queues, and the links to them. What is not there is no error.
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

// Leftovers lists addresses; each has the queues of one queue index of a task.
func (s *session) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	var names []string
	if err := s.read(ctx, attribute("broker", "AddressNames"), &names); err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	slices.Sort(names)
	var found []drivers.Leftover
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			found = append(found, drivers.Leftover{Kind: "address", Name: name})
		}
	}
	return found, nil
}

// Cleanup removes addresses.
func (s *session) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	names := make([]string, len(these))
	for i, l := range these {
		names[i] = l.Name
	}
	if err := s.remove(ctx, names); err != nil {
		return fmt.Errorf("cleanup: %w", err)
	}
	return nil
}
