package eventstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/requests"
)

// modes are the confirmed modes, because the broker answers every append.
var modes = []drivers.Mode{drivers.ConfirmWindow, drivers.ConfirmBatch, drivers.ConfirmEach,
	drivers.ConnectionPerMessageConfirm}

const (
	// eventType is the type of all events.
	eventType = "lockstep"
	// maxAppendSize is the default maximum size of an append in EventStoreDB, in bytes. The server also counts
	// eventOverhead bytes per event, at most, for its type and headers.
	maxAppendSize = 1 << 20
	eventOverhead = 256
)

type publisher struct {
	conn    *conn
	stream  string
	options kurrentdb.AppendToStreamOptions
	id      uuid.UUID // its first half is the first half of all event IDs
	events  atomic.Uint64
}

func (c *conn) Publisher(_ context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	s := c.session
	s.task.Store(&spec.Topology)
	timeout := s.options.Confirm.Std()
	p := &publisher{conn: c, stream: streamName(spec.Topology, spec.Queue),
		options: kurrentdb.AppendToStreamOptions{Deadline: &timeout}}
	_, _ = rand.Read(p.id[:8]) // never fails
	return requests.New(requests.Plan{
		Conn: c.Conn, Spec: spec, Lane: p.lane, Lanes: max(1, min(spec.MaxInFlight, s.options.Concurrency)),
		MaxPerRequest: s.options.AppendBatch, Patience: timeout,
	}), nil
}

// lane returns the function that sends one append at a time. Its waiting time includes the time that the library itself
// needs.
func (p *publisher) lane(waiting *drivers.Waiting) requests.Publish {
	var events []kurrentdb.EventData
	return func(ctx context.Context, batch []drivers.Message, verdicts []error) (int, error) {
		events = events[:0]
		size := 0
		for i := range batch {
			if size += len(batch[i].Body) + eventOverhead; size > maxAppendSize && i > 0 {
				break
			}
			events = append(events, kurrentdb.EventData{EventID: p.next(), EventType: eventType, Data: batch[i].Body})
		}
		waiting.Begin()
		defer waiting.End()
		err := p.append(ctx, events)
		n := len(events)
		clear(events) // do not keep the bodies
		if err != nil && !errors.Is(err, drivers.ErrRejected) {
			return 0, err
		}
		for i := range n {
			verdicts[i] = err
		}
		return n, nil
	}
}

// append sends one append and waits for its answer. The limit of concurrent appends keeps them from waiting in gRPC,
// where the end of each call wakes up all waiting calls. With 400 appends, that reduces the throughput by two thirds.
func (p *publisher) append(ctx context.Context, events []kurrentdb.EventData) error {
	select {
	case p.conn.appends <- struct{}{}:
		defer func() { <-p.conn.appends }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := p.conn.client.AppendToStream(ctx, p.stream, p.options, events...); err != nil {
		return p.conn.verdict(ctx, err)
	}
	return nil
}

// next returns the ID of the next event: a random half and a counter.
func (p *publisher) next() uuid.UUID {
	id := p.id
	binary.BigEndian.PutUint64(id[8:], p.events.Add(1))
	return id
}
