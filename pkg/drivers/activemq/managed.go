package activemq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// managedSession is a session with the option jolokia. Connect and Setup are those of session.
type managedSession struct {
	*session
	jolokia *jolokia
	grown   kit.Rates // per broker, because the brokers have separate counters
}

var _ interface {
	drivers.Describer
	drivers.Prober
	drivers.Cleaner
	drivers.Verifier
} = (*managedSession)(nil)

// Close closes all connections.
func (s *managedSession) Close() error {
	s.jolokia.close()
	return s.session.Close()
}

// Teardown removes the queues, with their messages.
func (s *managedSession) Teardown(ctx context.Context, t drivers.Topology) error {
	if err := s.jolokia.execute(ctx, removeQueue, queues(t)); err != nil {
		return fmt.Errorf("tear down: %w", err)
	}
	return nil
}

// Verify looks for the existing queues in the list of all queues.
func (s *managedSession) Verify(ctx context.Context, t drivers.Topology) error {
	s.Task.Store(&t)
	all, err := s.Leftovers(ctx, "")
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	var errs []error
	for _, name := range queues(t) {
		if !slices.Contains(all, drivers.Leftover{Kind: kindQueue, Name: name}) {
			errs = append(errs, fmt.Errorf("verify: no queue %s at the broker", name))
		}
	}
	return errors.Join(errs...)
}

// removeQueue has no effect if the queue does not exist.
const removeQueue = "removeQueue(java.lang.String)"

// queueBeans returns a pattern for the MBeans of queues whose names begin with prefix.
func queueBeans(prefix string) string {
	return brokerBean + ",destinationType=Queue,destinationName=" + prefix + "*"
}

const kindQueue = "queue"

// Leftovers lists queues.
func (s *managedSession) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	_, replies, err := s.jolokia.ask(ctx, question{Type: "search", MBean: queueBeans(prefix)})
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	var beans []string
	if err := replies[0].read(&beans); err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	for i, b := range beans {
		beans[i] = destination(b)
	}
	return kit.Leftovers(kindQueue, prefix, beans), nil
}

// destination returns the name of a queue from the name of its MBean.
func destination(bean string) string {
	_, properties, _ := strings.Cut(bean, ":")
	for p := range strings.SplitSeq(properties, ",") {
		if name, ok := strings.CutPrefix(p, "destinationName="); ok {
			return name
		}
	}
	return ""
}

// Cleanup removes queues, with their messages.
func (s *managedSession) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	return kit.Cleanup(these, map[string]func([]string) error{kindQueue: func(names []string) error {
		return s.jolokia.execute(ctx, removeQueue, names)
	}})
}

// Describe adds settings from Jolokia.
func (s *managedSession) Describe(ctx context.Context) (drivers.Description, error) {
	d, err := s.session.Describe(ctx)
	if err != nil {
		return d, err
	}
	broker, _, err := s.jolokia.ask(ctx)
	if err != nil {
		return drivers.Description{}, fmt.Errorf("describe ActiveMQ: %w", err)
	}
	d.Members = []string{broker.Name}
	d.Settings["persistence"] = strconv.FormatBool(broker.Persistent)
	d.Settings["memory_limit"] = strconv.FormatInt(broker.MemoryLimit, 10)
	d.Settings["store_limit"] = strconv.FormatInt(broker.StoreLimit, 10)
	return d, nil
}
