package eventstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"lockstep/pkg/drivers"
)

// A queue is a stream. Each subscription to it is a persistent subscription group, which Setup creates, so that no
// later message is missed. An existing stream is kept, and its groups start after its last event.

func streamName(t drivers.Topology, queue int) string { return t.Name + "-q" + strconv.Itoa(queue) }

func groupName(t drivers.Topology, subscription int) string {
	return t.Name + "-s" + strconv.Itoa(subscription)
}

func checkTopology(t drivers.Topology) error {
	if t.Name == "" || t.Queues < 1 || t.Subscriptions < 1 || t.Bindings < 1 {
		return fmt.Errorf("topology %q: it needs a name and at least one queue, subscription and binding", t.Name)
	}
	if t.Bindings > 1 {
		return fmt.Errorf("topology %q: %d bindings for each queue: EventStoreDB routes nothing: %w", t.Name,
			t.Bindings, drivers.ErrUnsupported)
	}
	return nil
}

// Setup creates the groups and sets the limits of the streams.
func (s *session) Setup(ctx context.Context, t drivers.Topology) error {
	err := checkTopology(t)
	if err == nil {
		s.heard(t)
		err = s.administer(ctx, func(ctx context.Context, l *link) error {
			return eachQueue(t, func(queue int) error { return s.declare(ctx, l, t, queue) })
		})
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", t.Name, err)
	}
	return nil
}

// heard stores the topology for Probe.
func (s *session) heard(t drivers.Topology) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topology = t
}

// eachQueue calls do for all queues, up to 8 at a time, and joins the errors.
func eachQueue(t drivers.Topology, do func(queue int) error) error {
	errs := make([]error, t.Queues)
	places := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for queue := range t.Queues {
		places <- struct{}{}
		wg.Go(func() {
			errs[queue] = do(queue)
			<-places
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *session) declare(ctx context.Context, l *link, t drivers.Topology, queue int) error {
	stream := streamName(t, queue)
	from, err := l.behind(ctx, stream)
	if err != nil {
		return fmt.Errorf("look for stream %s: %w", stream, err)
	}
	if s.options.MaxCount > 0 {
		var m esdb.StreamMetadata
		m.SetMaxCount(s.options.MaxCount)
		if _, err := l.client.SetStreamMetadata(ctx, stream, esdb.AppendToStreamOptions{}, m); err != nil {
			return fmt.Errorf("bound stream %s: %w", stream, l.explain(err))
		}
	}
	for subscription := range t.Subscriptions {
		if t.Consumers == 0 {
			break
		}
		if err := s.declareGroup(ctx, l, stream, groupName(t, subscription), from); err != nil {
			return fmt.Errorf("create persistent subscription %s to stream %s: %w", groupName(t, subscription), stream,
				err)
		}
	}
	return nil
}

func (s *session) declareGroup(ctx context.Context, l *link, stream, group string, from esdb.StreamPosition) error {
	settings := s.options.settings()
	o := esdb.PersistentStreamSubscriptionOptions{Settings: &settings, StartFrom: from}
	err := l.client.CreatePersistentSubscription(ctx, stream, group, o)
	if is(err, esdb.ErrorCodeResourceAlreadyExists) {
		if err = l.client.DeletePersistentSubscription(ctx, stream, group,
			esdb.DeletePersistentSubscriptionOptions{}); err == nil {
			err = l.client.CreatePersistentSubscription(ctx, stream, group, o)
		}
	}
	return l.explain(err)
}

// behind returns the position after the last event of a stream. esdb.End is not used: it would be the end at the time
// when the server processes the request.
func (l *link) behind(ctx context.Context, stream string) (esdb.StreamPosition, error) {
	reading, err := l.client.ReadStream(ctx, stream,
		esdb.ReadStreamOptions{Direction: esdb.Backwards, From: esdb.End{}}, 1)
	if err != nil {
		return nil, l.explain(err)
	}
	defer reading.Close()
	last, err := reading.Recv()
	switch {
	case err == nil:
		return esdb.Revision(last.OriginalEvent().EventNumber + 1), nil
	case is(err, esdb.ErrorCodeResourceNotFound), errors.Is(err, io.EOF):
		return esdb.Start{}, nil
	}
	return nil, l.explain(err)
}

// Teardown deletes groups and streams. The streams are soft-deleted, so that their names can be used again.
func (s *session) Teardown(ctx context.Context, t drivers.Topology) error {
	err := checkTopology(t)
	if err == nil {
		err = s.administer(ctx, func(ctx context.Context, l *link) error {
			return eachQueue(t, func(queue int) error { return l.remove(ctx, t, queue) })
		})
	}
	if err != nil {
		return fmt.Errorf("tear down %s: %w", t.Name, err)
	}
	return nil
}

func (l *link) remove(ctx context.Context, t drivers.Topology, queue int) error {
	stream := streamName(t, queue)
	for subscription := range t.Subscriptions {
		if err := l.removeGroup(ctx, stream, groupName(t, subscription)); err != nil {
			return err
		}
	}
	return l.removeStream(ctx, stream)
}

func (l *link) removeGroup(ctx context.Context, stream, group string) error {
	err := l.client.DeletePersistentSubscription(ctx, stream, group, esdb.DeletePersistentSubscriptionOptions{})
	if err != nil && !is(err, esdb.ErrorCodeResourceNotFound) {
		return fmt.Errorf("delete persistent subscription %s to stream %s: %w", group, stream, l.explain(err))
	}
	return nil
}

// removeStream deletes a stream, if it exists, together with its limits.
func (l *link) removeStream(ctx context.Context, stream string) error {
	there, err := l.holds(ctx, stream)
	if err == nil && there {
		_, err = l.client.DeleteStream(ctx, stream, esdb.DeleteStreamOptions{})
		if is(err, esdb.ErrorCodeStreamDeleted) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("delete stream %s: %w", stream, l.explain(err))
	}
	return nil
}

// holds reports whether a stream has an event that can be read.
func (l *link) holds(ctx context.Context, stream string) (bool, error) {
	reading, err := l.client.ReadStream(ctx, stream,
		esdb.ReadStreamOptions{Direction: esdb.Backwards, From: esdb.End{}}, 1)
	if err != nil {
		return false, err
	}
	defer reading.Close()
	_, err = reading.Recv()
	if is(err, esdb.ErrorCodeResourceNotFound) || is(err, esdb.ErrorCodeStreamDeleted) || errors.Is(err, io.EOF) {
		return false, nil
	}
	return err == nil, err
}

// is reports whether an error of the library has this code.
func is(err error, code esdb.ErrorCode) bool {
	var known *esdb.Error
	return errors.As(err, &known) && known.Code() == code
}

// explain adds a fix to errors of the library. It breaks the link as verdict does.
func (l *link) explain(err error) error {
	if err == nil {
		return nil
	}
	_ = l.verdict(err)
	cause := l.cause()
	switch {
	case cause != nil && is(err, esdb.ErrorCodeNotLeader):
		return fmt.Errorf("%w (only the leader has persistent subscriptions: give the urls of all nodes, and node: \"any\")", cause)
	case cause != nil:
		return cause
	case is(err, esdb.ErrorCodeAccessDenied), is(err, esdb.ErrorCodeUnauthenticated):
		return fmt.Errorf("%w (give a user who may: persistent subscriptions are made by $ops and $admins)", err)
	}
	return err
}
