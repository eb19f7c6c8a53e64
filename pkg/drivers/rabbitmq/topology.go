package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// queueName returns the name of a subscription's queue. All subscriptions read the same stream, so a stream has one
// name.
func (o *options) queueName(t drivers.Topology, subscription, queue int) string {
	if t.Existing != "" {
		return drivers.QueueName(t.Existing, queue)
	}
	if o.Queue.Type == stream {
		subscription = 0
	}
	return fmt.Sprintf("%s-s%d-q%d", t.Name, subscription, queue)
}

// queueSets returns the number of sets of queues: one per subscription, or one in all for streams.
func (o *options) queueSets(t drivers.Topology) int {
	if o.Queue.Type == stream {
		return 1
	}
	return t.Subscriptions
}

// exchangeName returns the exchange for messages to a queue. "" is the default exchange.
func (o *options) exchangeName(t drivers.Topology, queue int) string {
	switch {
	case t.Existing != "":
		return o.Exchange.Existing
	case o.Exchange.Type == exchangeDefault:
		return ""
	case o.Exchange.Type == exchangeFanout:
		return fmt.Sprintf("%s-q%d", t.Name, queue)
	}
	return t.Name
}

// exchangeNames returns the exchanges to declare.
func (o *options) exchangeNames(t drivers.Topology) []string {
	switch o.Exchange.Type {
	case exchangeDefault:
		return nil
	case exchangeFanout:
		names := make([]string, t.Queues)
		for q := range names {
			names[q] = o.exchangeName(t, q)
		}
		return names
	}
	return []string{o.exchangeName(t, 0)}
}

// Headers that bindings of a headers exchange match: queue, binding, and binding that was created while messages flow.
const (
	headerQueue   = "q"
	headerBinding = "k"
	headerChurn   = "x"
)

// route selects binding k of a queue, by routing key or by headers.
type route struct {
	key     string
	headers amqp.Table
}

// routes returns the routes to a queue, one per binding.
func (o *options) routes(t drivers.Topology, queue int) []route {
	if o.Exchange.Type == exchangeDefault || t.Existing != "" {
		return []route{{key: o.queueName(t, 0, queue)}}
	}
	all := make([]route, max(t.Bindings, 1))
	for k := range all {
		all[k].key = "q" + strconv.Itoa(queue) + ".k" + strconv.Itoa(k)
		if o.Exchange.Type == exchangeHeaders {
			all[k].headers = amqp.Table{headerQueue: int64(queue), headerBinding: int64(k)}
		}
	}
	return all
}

// extraRoute returns the route of a binding that was created while messages flow.
func (o *options) extraRoute(queue int, key uint32) route {
	r := route{key: "q" + strconv.Itoa(queue) + ".x" + strconv.FormatUint(uint64(key), 10)}
	if o.Exchange.Type == exchangeHeaders {
		r.headers = amqp.Table{headerQueue: int64(queue), headerChurn: int64(key)}
	}
	return r
}

// binding returns the arguments of the binding for a route.
func (r route) binding() amqp.Table {
	if r.headers == nil {
		return nil
	}
	arguments := amqp.Table{"x-match": "all"}
	maps.Copy(arguments, r.headers)
	return arguments
}

// Setup deletes existing queues and exchanges of these names, and declares them again, empty.
func (s *session) Setup(ctx context.Context, t drivers.Topology) error {
	if err := s.checkServer(); err != nil {
		return fmt.Errorf("set up %s: %w", t.Name, err)
	}
	at, err := s.place(ctx, t.QueueNode, 0, t, "")
	if err != nil {
		return fmt.Errorf("set up %s: %w", t.Name, err)
	}
	s.task.Store(&t)
	err = s.administer(ctx, at, func(ch *amqp.Channel) error { return s.remove(ch, t) })
	if err == nil {
		err = s.putPolicy(ctx, t)
	}
	nodes := 1
	if t.QueueNode == drivers.SpreadNode {
		nodes = min(len(s.endpoints), s.options.queueSets(t)*t.Queues)
	}
	for node := 0; err == nil && node < nodes; node++ {
		on := at
		if nodes > 1 {
			on = s.from(node)
		}
		err = s.administer(ctx, on, func(ch *amqp.Channel) error { return s.declare(ch, t, node, nodes) })
	}
	if err == nil && s.options.mirrored() {
		err = s.awaitMirrors(ctx, t)
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", t.Name, err)
	}
	return nil
}

// withFix adds the fix to the error of an object that does not exist, which option names.
func withFix(err error, option string) error {
	var broker *amqp.Error
	if errors.As(err, &broker) && broker.Code == amqp.NotFound {
		return fmt.Errorf("%w: check %s and the vhost of the url", err, option)
	}
	return err
}

// Verify declares existing queues passively, and the exchange. That needs no permission.
func (s *session) Verify(ctx context.Context, t drivers.Topology) error {
	err := s.administer(ctx, anywhere, func(ch *amqp.Channel) error {
		for q := range t.Queues {
			name := s.options.queueName(t, 0, q)
			if _, err := ch.QueueDeclarePassive(name, false, false, false, false, nil); err != nil {
				return fmt.Errorf("existing queue %s: %w", name, withFix(err, "topology.existing"))
			}
		}
		if name := s.options.Exchange.Existing; name != "" {
			if err := ch.ExchangeDeclarePassive(name, exchangeDirect, false, false, false, false, nil); err != nil {
				return fmt.Errorf("existing exchange %s: %w", name, withFix(err, "exchange.existing"))
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}

// Teardown deletes by name everything that Setup declares.
func (s *session) Teardown(ctx context.Context, t drivers.Topology) error {
	err := s.administer(ctx, anywhere, func(ch *amqp.Channel) error { return s.remove(ch, t) })
	if len(s.options.Policy) > 0 {
		gone := s.api.call(ctx, http.MethodDelete, nil, nil, nil, "policies", s.endpoints[0].vhost, t.Name)
		if !errors.Is(gone, errNotThere) {
			err = errors.Join(err, gone)
		}
	}
	if err != nil {
		return fmt.Errorf("tear down %s: %w", t.Name, err)
	}
	return nil
}

// administer calls work with a new channel, on the session's first connection or on a new connection to a chosen node.
func (s *session) administer(ctx context.Context, at []endpoint, work func(*amqp.Channel) error) error {
	s.adminMu.Lock()
	defer s.adminMu.Unlock()
	c := s.admin
	if at != nil {
		var err error
		if c, err = s.dial(ctx, administration, at); err != nil {
			return err
		}
		defer c.Close()
	} else if c.amqp.IsClosed() {
		var err error
		if c, err = s.dial(ctx, administration, anywhere); err != nil {
			return err
		}
		s.admin = c
	}
	return c.within(ctx, func() error {
		ch, err := c.amqp.Channel()
		if err != nil {
			return fmt.Errorf("open channel at %s: %w", c.address, err)
		}
		if err := work(ch); err != nil {
			return err
		}
		return c.closeChannel(ch)
	})
}

// remove deletes queues and exchanges without waiting for each answer. An error of the broker closes the channel, so
// the answer to barrier is enough. Deleting an object that does not exist succeeds.
func (s *session) remove(ch *amqp.Channel, t drivers.Topology) error {
	o := &s.options
	for set := range o.queueSets(t) {
		for q := range t.Queues {
			if _, err := ch.QueueDelete(o.queueName(t, set, q), false, false, true); err != nil {
				return fmt.Errorf("delete queue: %w", err)
			}
		}
	}
	for _, name := range o.exchangeNames(t) {
		if err := ch.ExchangeDelete(name, false, true); err != nil {
			return fmt.Errorf("delete exchange: %w", err)
		}
	}
	return barrier(ch, "delete queues and exchanges")
}

// barrier waits until the broker has processed everything that was sent on the channel before.
func barrier(ch *amqp.Channel, what string) error {
	if err := ch.Qos(1, 0, false); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// declare declares the exchanges with the first of nodes, and the queues of one of them.
func (s *session) declare(ch *amqp.Channel, t drivers.Topology, node, nodes int) error {
	o := &s.options
	durable := o.durable()
	for _, name := range o.exchangeNames(t) {
		if node > 0 {
			break
		}
		if err := ch.ExchangeDeclare(name, o.Exchange.Type, durable, false, false, false,
			table(o.Exchange.Arguments)); err != nil {
			return fmt.Errorf("declare %s exchange: %w", o.Exchange.Type, err)
		}
	}
	arguments := o.queueArguments()
	if t.QueueNode.Chosen() || t.QueueNode == drivers.SpreadNode && !o.located() {
		major, _ := release(s.admin)
		argument, value := o.locator(major, o.queueSets(t)*t.Queues)
		arguments[argument] = value
	}
	for set := range o.queueSets(t) {
		for q := range t.Queues {
			if (set*t.Queues+q)%nodes != node {
				continue
			}
			name := o.queueName(t, set, q)
			if _, err := ch.QueueDeclare(name, durable, false, false, true, arguments); err != nil {
				return fmt.Errorf("declare %s queue: %w", o.Queue.Type, err)
			}
			exchange := o.exchangeName(t, q)
			if exchange == "" {
				continue
			}
			for _, r := range o.routes(t, q) {
				if err := ch.QueueBind(name, r.key, exchange, true, r.binding()); err != nil {
					return fmt.Errorf("bind queue: %w", err)
				}
			}
		}
	}
	return barrier(ch, fmt.Sprintf("declare %s queues and bindings", o.Queue.Type))
}

// manyQueues is the number of queues from which the server's "balanced" selects nodes at random.
const manyQueues = 1000

// locator returns the argument that places queues at a server of this major release: on the node of the declaring
// connection or, behind a single address, balanced by the server. RabbitMQ 4.3 rejects x-queue-master-locator.
func (o *options) locator(major, queues int) (argument, value string) {
	argument, value = "x-queue-leader-locator", "balanced"
	if o.Queue.Type == classic && major < 4 {
		argument, value = "x-queue-master-locator", "min-masters"
		if queues >= manyQueues { // the server counts all queues for each
			value = "random"
		}
	}
	if len(o.All()) > 1 {
		value = "client-local"
	}
	return argument, value
}

// located reports whether the options place queues.
func (o *options) located() bool {
	for _, name := range []string{"queue-leader-locator", "queue-master-locator"} {
		if o.Queue.Arguments["x-"+name] != nil || o.Policy[name] != nil {
			return true
		}
	}
	return false
}
