package eventstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// A queue is a stream. Each subscription to it is a persistent subscription group, which Setup creates, so that no
// later message is missed, also for topologies without consumers: Probe and Leftovers need them. An existing stream is
// kept, and its groups start after its last event.

func streamName(t drivers.Topology, queue int) string { return t.Name + "-q" + strconv.Itoa(queue) }

func groupName(t drivers.Topology, subscription int) string {
	return t.Name + "-s" + strconv.Itoa(subscription)
}

// Setup creates the groups and sets the limits of the streams.
func (s *session) Setup(ctx context.Context, t drivers.Topology) error {
	s.task.Store(&t)
	if err := s.eachQueue(ctx, t, s.declare); err != nil {
		return fmt.Errorf("set up %s: %w", t.Name, err)
	}
	return nil
}

// Teardown deletes groups and streams. The streams are soft-deleted, so that their names can be used again.
func (s *session) Teardown(ctx context.Context, t drivers.Topology) error {
	err := s.eachQueue(ctx, t, func(ctx context.Context, c *conn, t drivers.Topology, queue int) error {
		for subscription := range t.Subscriptions {
			if err := c.remove(ctx, streamName(t, queue), groupName(t, subscription)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("tear down %s: %w", t.Name, err)
	}
	return nil
}

// eachQueue calls do for all queues, a few at a time.
func (s *session) eachQueue(ctx context.Context, t drivers.Topology,
	do func(ctx context.Context, c *conn, t drivers.Topology, queue int) error) error {
	c, err := s.leader(ctx)
	if err != nil {
		return err
	}
	return kit.Each(t.Queues, func(queue int) error { return do(ctx, c, t, queue) })
}

func (s *session) declare(ctx context.Context, c *conn, t drivers.Topology, queue int) error {
	stream := streamName(t, queue)
	last, exists, err := c.last(ctx, stream)
	if err != nil {
		return err
	}
	if s.options.MaxCount > 0 {
		var m kurrentdb.StreamMetadata
		m.SetMaxCount(s.options.MaxCount)
		if _, err := c.client.SetStreamMetadata(ctx, stream, kurrentdb.AppendToStreamOptions{}, m); err != nil {
			return fmt.Errorf("limit stream %s: %w", stream, c.explain(ctx, err))
		}
	}
	settings := s.options.settings()
	// Not kurrentdb.End: it would be the end at the time when the server processes the request.
	o := kurrentdb.PersistentStreamSubscriptionOptions{Settings: &settings, StartFrom: kurrentdb.Start{}}
	if exists {
		o.StartFrom = kurrentdb.Revision(last + 1)
	}
	for subscription := range t.Subscriptions {
		group := groupName(t, subscription)
		err := c.client.CreatePersistentSubscription(ctx, stream, group, o)
		if is(err, kurrentdb.ErrorCodeResourceAlreadyExists) {
			if err := c.removeGroup(ctx, stream, group); err != nil {
				return err
			}
			err = c.client.CreatePersistentSubscription(ctx, stream, group, o)
		}
		if err != nil {
			return fmt.Errorf("create persistent subscription %s to stream %s: %w", group, stream, c.explain(ctx, err))
		}
	}
	return nil
}

// last returns the revision of the last event of a stream that can be read.
func (c *conn) last(ctx context.Context, stream string) (revision uint64, exists bool, err error) {
	reading, err := c.client.ReadStream(ctx, stream,
		kurrentdb.ReadStreamOptions{Direction: kurrentdb.Backwards, From: kurrentdb.End{}}, 1)
	var event *kurrentdb.ResolvedEvent
	if err == nil {
		defer reading.Close()
		event, err = reading.Recv()
	}
	switch {
	case err == nil:
		return event.OriginalEvent().EventNumber, true, nil
	case errors.Is(err, io.EOF), is(err, kurrentdb.ErrorCodeResourceNotFound),
		is(err, kurrentdb.ErrorCodeStreamDeleted):
		return 0, false, nil
	}
	return 0, false, fmt.Errorf("read the end of stream %s: %w", stream, c.explain(ctx, err))
}

func (c *conn) removeGroup(ctx context.Context, stream, group string) error {
	err := c.client.DeletePersistentSubscription(ctx, stream, group, kurrentdb.DeletePersistentSubscriptionOptions{})
	if err != nil && !is(err, kurrentdb.ErrorCodeResourceNotFound) {
		return fmt.Errorf("delete persistent subscription %s to stream %s: %w", group, stream, c.explain(ctx, err))
	}
	return nil
}

// remove deletes a stream, if it exists, together with its limits, and then a group. Without a group, Leftovers would
// not find the stream.
func (c *conn) remove(ctx context.Context, stream, group string) error {
	_, exists, err := c.last(ctx, stream)
	if err != nil {
		return err
	}
	if exists {
		_, err = c.client.DeleteStream(ctx, stream, kurrentdb.DeleteStreamOptions{})
		if err != nil && !is(err, kurrentdb.ErrorCodeStreamDeleted) {
			return fmt.Errorf("delete stream %s: %w", stream, c.explain(ctx, err))
		}
	}
	return c.removeGroup(ctx, stream, group)
}
