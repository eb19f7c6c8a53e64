package kafka

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
)

// consumer is the common part of both libraries' consumers. It passes messages to the engine and commits positions.
// Kafka has no acknowledgement of single messages. A commit stores, per partition, the position at which the group
// would continue, and so acknowledges all messages before it.
type consumer struct {
	spec         legacy.ConsumerSpec
	session      *session
	link         *link
	topic, group string
	id           string // client ID, which identifies the member of the group
	handle       legacy.Handler
	source       source
	notice       *legacy.Notice
	once         sync.Once
	stop         chan struct{} // closed by Close: no more calls of the handler

	mu      sync.Mutex // locked while the handler runs and while positions change
	changed *sync.Cond // uses mu: something was committed, or the consumer ends
	// by partition: the position after the last accepted message that is in no commit yet
	positions  map[int32]int64
	accepted   int // accepted messages that are in no commit yet
	unanswered int // messages of the running commit, if receiving continues meanwhile
	deliveries []drivers.Delivery
}

// source receives messages with one of the libraries.
type source interface {
	// start joins the group. It returns when partitions have been assigned.
	start(ctx context.Context) error
	// commit commits positions as a member of the group, and waits for the answer.
	commit(positions map[int32]int64) error
	// end leaves the group. It returns when no more messages are delivered.
	end()
}

// message is a message of a fetch, and the position after it.
type message struct {
	body []byte
	next int64
}

// Consumer joins the group of its subscription to the queue. It returns when partitions have been assigned to the
// group's members. A group continues at its committed position, or starts with the first message, so no message can be
// missed.
func (s *session) Consumer(ctx context.Context, spec legacy.ConsumerSpec, handle legacy.Handler) (legacy.Consumer,
	error) {
	s.remember(spec.Topology)
	group := groupName(spec.Topology, spec.Subscription, spec.Queue)
	if err := s.adopt(ctx, group); err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	l, err := s.link()
	if err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	c := &consumer{
		spec: spec, session: s, link: l, topic: topicName(spec.Topology, spec.Queue), group: group, id: newID(),
		handle: handle,
		notice: legacy.NewNotice(spec.OnClosed), stop: make(chan struct{}), positions: map[int32]int64{},
	}
	c.changed = sync.NewCond(&c.mu)
	c.source = newFranzSource(c)
	if s.options.Client == kafkaGo {
		c.source = &goSource{c: c}
	}
	if err := c.begin(ctx); err != nil {
		return nil, fmt.Errorf("connect consumer: join group %s: %w", group, explain(err))
	}
	l.connected()
	l.watch(c, func(err error) {
		c.notice.Broke(err)
		go c.look() // look waits for the handler
	})
	return c, nil
}

// newID returns a random client ID.
func newID() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	return clientID + "-" + hex.EncodeToString(b)
}

// begin starts the source. If ctx ends first, it breaks the link, so that no call of the library keeps waiting.
func (c *consumer) begin(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { c.link.broke(ctx.Err()) })
	err := c.source.start(ctx)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = c.Close()
		return err
	}
	if c.spec.Ack == drivers.AckInterval {
		go c.tick()
	}
	return nil
}

// Close waits for the handler, commits the messages that it accepted, and leaves the group.
func (c *consumer) Close() error {
	c.once.Do(func() {
		c.notice.End()
		c.link.unwatch(c)
		late := time.AfterFunc(2*grace,
			func() { c.link.broke(errors.New("the broker does not answer while a consumer ends")) })
		defer late.Stop()
		close(c.stop)
		c.mu.Lock()
		c.commit(true)
		c.changed.Broadcast()
		c.mu.Unlock()
		c.source.end()
		if c.link.over.Load() {
			c.session.orphaned(c.group, c.id)
		}
		c.link.close()
	})
	return nil
}
