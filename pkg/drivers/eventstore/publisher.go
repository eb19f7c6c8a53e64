package eventstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/google/uuid"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/requests"
)

// modes are the confirmed modes, because the broker answers every append.
var modes = []drivers.Mode{drivers.ConfirmWindow, drivers.ConfirmBatch, drivers.ConfirmEach,
	drivers.ConnectionPerMessageConfirm}

// eventType is the type of all events.
const eventType = "lockstep"

type publisher struct {
	*requests.Publisher
	session *session
	link    *link
	stream  string
	options esdb.AppendToStreamOptions
	id      uuid.UUID // its first half is the first half of all event IDs
	events  atomic.Uint64
}

// Publisher connects a publisher. spec decides which connection it uses.
func (s *session) Publisher(ctx context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	p, err := s.publish(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	return p, nil
}

func (s *session) publish(ctx context.Context, spec drivers.PublisherSpec) (*publisher, error) {
	switch {
	case !slices.Contains(modes, spec.Mode):
		return nil, fmt.Errorf("mode %q: every append is answered: %w", spec.Mode, drivers.ErrUnsupported)
	case spec.Mandatory:
		return nil, fmt.Errorf("mandatory messages: EventStoreDB gives none back: %w", drivers.ErrUnsupported)
	}
	if err := checkTopology(spec.Topology); err != nil {
		return nil, err
	}
	on, leave, err := s.join(ctx, spec.Node, spec.Connection)
	if err != nil {
		return nil, err
	}
	patience := duration(s.options.Confirm)
	p := &publisher{session: s, link: on, stream: streamName(spec.Topology, spec.Queue),
		options: esdb.AppendToStreamOptions{Deadline: &patience}}
	_, _ = rand.Read(p.id[:8]) // never fails
	p.Publisher = requests.New(requests.Plan{
		Spec: spec, Lane: p.lane, Lanes: max(1, min(spec.MaxInFlight, s.options.Concurrency)), Most: 1,
		Patience: patience, Leave: leave,
	})
	if err := s.enrol(p, spec.Topology); err != nil {
		return nil, errors.Join(err, p.Publisher.Close())
	}
	on.watch(p, p.Broke)
	return p, nil
}

// lane returns the function that sends one append at a time. Its waiting time includes the time that the library itself
// needs.
func (p *publisher) lane(waiting *drivers.Waiting) requests.Publish {
	var events []esdb.EventData
	return func(ctx context.Context, batch []drivers.Message, verdicts []error) (int, error) {
		if cause := p.link.cause(); cause != nil {
			return 0, cause // the library would reconnect
		}
		events = events[:0]
		for i := range batch {
			events = append(events, esdb.EventData{EventID: p.next(), EventType: eventType, Data: batch[i].Body})
		}
		waiting.Begin()
		defer waiting.End()
		if err := p.link.enter(ctx); err != nil {
			return 0, err
		}
		_, err := p.link.client.AppendToStream(ctx, p.stream, p.options, events...)
		p.link.leave()
		clear(events) // do not keep the bodies
		if err == nil {
			return len(batch), nil
		}
		if err = p.link.verdict(err); !errors.Is(err, drivers.ErrRejected) {
			return 0, err
		}
		for i := range verdicts {
			verdicts[i] = err
		}
		return len(batch), nil
	}
}

// next returns the ID of the next event: a random half and a counter.
func (p *publisher) next() uuid.UUID {
	id := p.id
	binary.BigEndian.PutUint64(id[8:], p.events.Add(1))
	return id
}

// Close sends the remaining messages and waits up to grace for the answers.
func (p *publisher) Close() error {
	p.link.unwatch(p)
	err := p.Publisher.Close()
	p.session.discharge(p)
	return err
}

func (p *publisher) abandon() {
	p.Abandon()
	_ = p.Close() // never returns an error
}
