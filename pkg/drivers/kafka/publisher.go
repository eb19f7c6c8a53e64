package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"

	"lockstep/pkg/drivers"
)

// publisher is what both libraries' publishers have in common.
type publisher struct {
	spec       drivers.PublisherSpec
	link       *link
	out        outlet
	leave      func()
	notice     *drivers.Notice
	partitions uint32
	most       int // bytes of a body
	closed     atomic.Bool
	once       sync.Once
}

// outlet is how a library sends one publisher's messages to the partitions of one topic. What it accepts it settles,
// once.
type outlet interface {
	// send copies the body; it blocks while the broker or the network will not take more.
	send(ctx context.Context, partition int32, m drivers.Message) error
	// flush has what is buffered sent.
	flush()
	// end flushes, and returns when all is settled: within the grace, or it breaks the link. From its beginning nothing
	// more is accepted.
	end()
}

// overhead is what a record has in a batch beside its body, and more.
const overhead = 128

// Publisher makes a client, or finds the one of that connection number. Except in modes with a connection for each
// message, which measure just that, it returns when the leaders of the topic's partitions have answered it.
func (s *session) Publisher(ctx context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	if err := s.checkPublisher(spec); err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	s.remember(spec.Topology)
	on, leave, err := s.join(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("connect publisher: %w", err)
	}
	p := &publisher{
		spec: spec, link: on.link, leave: leave, notice: drivers.NewNotice(spec.OnClosed),
		partitions: uint32(s.options.Partitions), most: s.options.BatchBytes - overhead,
	}
	if p.out, err = on.outlet(ctx, spec); err != nil {
		leave()
		return nil, fmt.Errorf("connect publisher: %w", explain(err))
	}
	on.link.watch(p, p.notice.Broke)
	return p, nil
}

func (s *session) checkPublisher(spec drivers.PublisherSpec) error {
	switch {
	case !slices.Contains(drivers.Modes(), spec.Mode):
		return fmt.Errorf("mode %q: %w", spec.Mode, drivers.ErrUnsupported)
	case spec.Mode.Confirmed() && s.options.acks == 0:
		return fmt.Errorf("mode %s with acks 0, which gives no confirms: %w", spec.Mode, drivers.ErrUnsupported)
	case spec.Mandatory:
		return fmt.Errorf("mandatory messages: Kafka gives none back: %w", drivers.ErrUnsupported)
	}
	if err := checkClientNode(spec.Node); err != nil {
		return err
	}
	return checkTopology(spec.Topology)
}

// checkClientNode refuses places: who publishes to a partition, or reads it, does so at its leader.
func checkClientNode(node drivers.Node) error {
	switch node {
	case "", drivers.AnyNode, nodeLeader:
		return nil
	}
	return fmt.Errorf("place a client on node %q: with Kafka it is at the leader of each partition: %w", node,
		drivers.ErrUnsupported)
}

// perMessage reports whether a publisher is for one message.
func perMessage(mode drivers.Mode) bool {
	return mode == drivers.ConnectionPerMessage || mode == drivers.ConnectionPerMessageConfirm
}

// holds reports whether the engine flushes after what belongs into one batch, for which the outlet then waits.
func holds(mode drivers.Mode) bool { return mode == drivers.ConfirmBatch }

// Publish copies the message into its partition's batch: that of its key modulo the partitions.
func (p *publisher) Publish(ctx context.Context, m drivers.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.closed.Load() || p.link.over.Load() {
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	if len(m.Body) > p.most {
		return fmt.Errorf("publish: a body of %d bytes does not fit into a batch: give batchBytes of %d or more",
			len(m.Body), len(m.Body)+overhead)
	}
	return p.out.send(ctx, int32(m.Key%p.partitions), m)
}

// Flush has the batches sent.
func (p *publisher) Flush(context.Context) error {
	if p.link.over.Load() {
		return fmt.Errorf("flush: %w", drivers.ErrClosed)
	}
	p.out.flush()
	return nil
}

// Close sends what is buffered, and waits for what is not confirmed.
func (p *publisher) Close() error {
	p.once.Do(func() {
		p.notice.End()
		p.closed.Store(true)
		p.link.unwatch(p)
		p.out.end()
		p.leave()
	})
	return nil
}

// refusals are the answers by which a broker says that it has not kept a message, and will not. Of any other answer but
// success it is not known what became of the messages: a leader that is deposed, or has waited for its followers in
// vain, may have kept them.
var refusals = []error{
	kerr.NotEnoughReplicas, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.CorruptMessage,
	kerr.InvalidTimestamp,
	kerr.InvalidTopicException, kerr.InvalidRequiredAcks, kerr.TopicAuthorizationFailed,
	kerr.ClusterAuthorizationFailed, kerr.PolicyViolation,
	kerr.UnsupportedCompressionType, kerr.UnsupportedForMessageFormat, kerr.ThrottlingQuotaExceeded,
}

// verdict turns what became of a batch into the confirm's error, and breaks the link if it is not known.
func verdict(l *link, err error) error {
	switch {
	case err == nil:
		return nil
	case slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) }):
		return fmt.Errorf("%w: %w", drivers.ErrRejected, err)
	}
	l.broke(fmt.Errorf("publish: %w", err))
	return fmt.Errorf("%w: %w", drivers.ErrClosed, err)
}
