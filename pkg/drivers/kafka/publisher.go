package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// publisher is the common part of both libraries' publishers. Done and Err are those of its Conn.
type publisher struct {
	drivers.Ended // of conn

	conn    *conn
	out     producer
	maxBody int // bytes
	closed  atomic.Bool
	once    sync.Once
}

// producer sends one publisher's messages to the partitions of one topic, with one of the libraries. It settles each
// accepted message exactly once.
type producer interface {
	// send copies the body. It blocks while the broker or network accepts no more.
	send(ctx context.Context, m drivers.Message) error
	// flush sends what is buffered.
	flush()
	// end flushes and waits until all messages are settled. It breaks the Conn if that takes too long. Messages are
	// rejected from the start of end.
	end()
}

// overhead is an upper bound for the size of a batch with one record, without its body.
const overhead = 128

// Publisher returns when the leaders of the topic's partitions have answered. It does not wait for them in modes with a
// connection per message, which measure the time of connecting.
func (c *conn) Publisher(ctx context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	p := &publisher{Ended: c, conn: c, maxBody: c.session.options.BatchBytes - overhead}
	connect := c.franzProducer
	if c.transport != nil {
		connect = c.goProducer
	}
	var err error
	if p.out, err = connect(ctx, spec); err != nil {
		return nil, fmt.Errorf("connect publisher: %w", explain(err))
	}
	c.connected()
	return p, nil
}

// Publish copies the message into a batch of its partition. With keys, this is the key modulo the number of partitions.
func (p *publisher) Publish(ctx context.Context, m drivers.Message) error {
	if p.closed.Load() || p.conn.over.Load() {
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	if len(m.Body) > p.maxBody {
		return fmt.Errorf("publish: a body of %d bytes does not fit into a batch: give batchBytes of %d or more",
			len(m.Body), len(m.Body)+overhead)
	}
	return p.out.send(ctx, m)
}

func (p *publisher) Flush(context.Context) error {
	if p.conn.over.Load() {
		return fmt.Errorf("flush: %w", drivers.ErrClosed)
	}
	p.out.flush()
	return nil
}

// Close sends what is buffered and waits for outstanding confirms.
func (p *publisher) Close() error {
	p.once.Do(func() {
		p.closed.Store(true)
		p.out.end()
	})
	return nil
}

// refusals are the errors after which the broker has not stored a message and will not store it. After any other error
// this is unknown: a leader that was replaced, or whose followers did not answer in time, may have stored the message.
var refusals = []error{
	kerr.NotEnoughReplicas, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.CorruptMessage,
	kerr.InvalidTimestamp, kerr.InvalidTopicException, kerr.InvalidRequiredAcks, kerr.TopicAuthorizationFailed,
	kerr.ClusterAuthorizationFailed, kerr.PolicyViolation,
	kerr.UnsupportedCompressionType, kerr.UnsupportedForMessageFormat, kerr.ThrottlingQuotaExceeded,
}

// verdict converts the result of a batch to the confirm's error. It breaks the Conn if it is unknown whether the batch
// was stored.
func verdict(c *conn, err error) error {
	switch {
	case err == nil:
		return nil
	case slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) }):
		return fmt.Errorf("%w: %w", drivers.ErrRejected, err)
	}
	c.broke(fmt.Errorf("publish: %w", err))
	return fmt.Errorf("%w: %w", drivers.ErrClosed, err)
}
