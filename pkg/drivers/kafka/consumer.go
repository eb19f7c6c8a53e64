package kafka

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// consumer is the common part of both libraries' consumers. It passes messages to the engine and commits positions.
// Kafka has no acknowledgement of single messages. A commit stores, per partition, the position at which the group
// would continue, and so acknowledges all messages before it. A consumer ends before its Conn if its group removes it,
// or the broker rejects a fetch or commit, or does not answer its end. Other consumers of the Conn continue. With
// kafka-go, a member that its group removes does not end: it joins again by itself. It has more than 20 fields: the
// parts of both libraries, the positions, and what ends it.
type consumer struct {
	lifetime
	conn         *conn
	session      *session
	spec         drivers.ConsumerSpec
	topic, group string
	id           string // client ID, which identifies the member of the group
	handle       drivers.Handler
	source       source
	receiving    context.Context // ends with Stop, or the consumer: no more calls of the handler
	stop         context.CancelFunc
	running      sync.WaitGroup // the goroutine that calls the handler
	once         sync.Once

	mu         sync.Mutex      // locked while positions change, and during a blocking commit
	changed    *sync.Cond      // uses mu: something was committed, or the consumer ends
	handling   bool            // the handler runs
	unanswered []position      // of deliveries, the oldest first
	positions  map[int32]int64 // by partition: the position after the last acknowledged message that is in no commit yet
	accepted   int             // acknowledged messages that are in no commit yet
	committing int             // messages of the running commit, if receiving continues meanwhile
	deliveries []drivers.Delivery
}

// source receives messages with one of the libraries.
type source interface {
	// start joins the group. It returns when partitions have been assigned.
	start(ctx context.Context) error
	// run delivers messages until the consumer ends.
	run()
	// commit commits positions as a member of the group, and waits for the answer.
	commit(ctx context.Context, positions map[int32]int64) error
	// leave leaves the group. It may be called after an error of start.
	leave()
}

// message is a message of a fetch, and the position after it.
type message struct {
	body []byte
	next int64
}

type position struct {
	partition int32 // nowhere: it was committed
	next      int64
}

// Consumer joins the group of its subscription to the queue. It returns when partitions have been assigned to the
// group's members. A group continues at its committed position, or starts with the first message, so no message can be
// missed.
func (c *conn) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer,
	error) {
	k := newConsumer(c, spec, handle)
	if err := c.session.adopt(ctx, k.group); err != nil {
		k.end()
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	context.AfterFunc(k.receiving, k.look)
	k.source = newFranzSource(k)
	if c.session.options.Client == kafkaGo {
		k.source = &goSource{c: k}
	}
	// If ctx ends first, the consumer breaks, so that no call of the library keeps waiting.
	joined := context.AfterFunc(ctx, func() { k.broke(ctx.Err()) })
	err := k.source.start(ctx)
	if !joined() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = k.Close()
		return nil, fmt.Errorf("connect consumer: join group %s: %w", k.group, explain(err))
	}
	k.running.Go(k.source.run)
	c.connected()
	return k, nil
}

// newConsumer makes a consumer without a source.
func newConsumer(c *conn, spec drivers.ConsumerSpec, handle drivers.Handler) *consumer {
	k := &consumer{conn: c, session: c.session, spec: spec, topic: topicName(spec.Topology, spec.Queue),
		group: c.session.options.groupName(spec.Topology, spec.Subscription, spec.Queue), id: clientID + "-" + rand.Text()[:12], handle: handle,
		positions: map[int32]int64{}}
	k.changed = sync.NewCond(&k.mu)
	k.begin(c.ctx)
	k.receiving, k.stop = context.WithCancel(k.ctx)
	context.AfterFunc(k.ctx, func() {
		k.broke(nil) // by the Conn, unless the consumer has ended
		k.look()
	})
	return k
}

// broke ends the consumer because of why, or because its Conn has ended.
func (k *consumer) broke(why error) {
	k.over.Store(true)
	k.EndWith(k.conn, why)
	k.cancel()
}

// ended reports whether the consumer, or its Conn, has ended.
func (k *consumer) ended() bool { return k.over.Load() || k.conn.over.Load() }

func (k *consumer) why() error { return cmp.Or(k.Err(), k.conn.why()) }

// dial is the dial function of the consumer's library.
func (k *consumer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return k.conn.dialFor(ctx, &k.lifetime, network, address)
}

// deliver passes messages of one partition to the handler, in batches. It returns early when the consumer ends.
func (k *consumer) deliver(partition int32, messages []message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(messages) > 0 {
		for k.deliverable() == 0 && k.receiving.Err() == nil {
			k.changed.Wait()
		}
		if k.receiving.Err() != nil {
			return
		}
		some := messages[:min(len(messages), k.deliverable())]
		messages = messages[len(some):]
		k.deliveries = k.deliveries[:0]
		for _, m := range some {
			k.deliveries = append(k.deliveries, drivers.Delivery{Body: m.body, Stream: uint32(partition)})
			k.unanswered = append(k.unanswered, position{partition, m.next})
		}
		k.handling = true
		k.mu.Unlock()
		k.handle(k.deliveries)
		k.mu.Lock()
		k.handling = false
		if k.accepted > 0 {
			k.commit(k.session.options.Commit == "blocking")
		}
	}
}

// deliverable returns how many messages may be passed to the handler now.
func (k *consumer) deliverable() int {
	if k.spec.Prefetch == 0 {
		return k.spec.Batch
	}
	return max(0, min(k.spec.Batch, k.free()))
}

// free returns how many messages the prefetch allows.
func (k *consumer) free() int { return k.spec.Prefetch - len(k.unanswered) - k.accepted - k.committing }

// allowance waits until deliverable is not 0, and returns how many messages to fetch.
func (k *consumer) allowance() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.deliverable() == 0 && k.receiving.Err() == nil {
		k.changed.Wait()
	}
	if k.spec.Prefetch == 0 {
		return max(k.spec.Batch, 500)
	}
	return max(1, k.free())
}

// Ack commits the positions after the n oldest messages, when the handler returns or at once.
func (k *consumer) Ack(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, m := range k.unanswered[:n] {
		if last := i == n-1 || k.unanswered[i+1].partition != m.partition; last && m.partition != nowhere {
			k.positions[m.partition] = m.next
		}
	}
	k.unanswered = k.unanswered[:copy(k.unanswered, k.unanswered[n:])]
	k.accepted += n
	if !k.handling {
		k.commit(k.session.options.Commit == "blocking")
	}
}

// Nack is like Ack: Kafka has no negative acknowledgement, and Redelivery is not declared.
func (k *consumer) Nack(n int) { k.Ack(n) }

// commit commits the positions of all acknowledged messages. The caller holds mu. A blocking commit keeps mu locked
// until the answer arrives. A background commit first waits, with mu unlocked, for the previous commit.
func (k *consumer) commit(blocking bool) {
	for k.committing > 0 && !k.ended() {
		k.changed.Wait()
	}
	positions, n := k.positions, k.accepted
	k.accepted = 0
	if len(positions) == 0 || k.ended() {
		k.changed.Broadcast()
		return
	}
	k.positions = make(map[int32]int64, len(positions))
	if blocking {
		k.send(positions)
		return
	}
	k.committing = n
	go func() {
		k.send(positions)
		k.mu.Lock()
		k.committing = 0
		k.mu.Unlock()
		k.changed.Broadcast()
	}()
}

// send commits positions. After an error the consumer breaks, because the group may have removed this member. From Stop
// on, it also breaks after some time, because the libraries may continue to wait after the end of a context.
func (k *consumer) send(positions map[int32]int64) {
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	defer context.AfterFunc(k.receiving, func() {
		select {
		case <-time.After(2 * grace):
			k.broke(errNoAnswer)
		case <-ctx.Done():
		}
	})()
	if err := k.source.commit(ctx, positions); err != nil {
		k.broke(fmt.Errorf("commit positions of group %s: %w", k.group, err))
	}
	k.changed.Broadcast()
}

// revoke is called before partitions are given up, while the handler does not run. It commits all messages that the
// handler has processed, because the next owner of a partition would receive the rest again. When the consumer leaves
// the group, it commits only what was acknowledged.
func (k *consumer) revoke() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.receiving.Err() == nil {
		for i, m := range k.unanswered {
			if m.partition != nowhere {
				k.positions[m.partition] = m.next
			}
			k.unanswered[i].partition = nowhere
		}
	}
	k.commit(true)
}

// look wakes the waiting goroutines, so that they check the state again.
func (k *consumer) look() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changed.Broadcast()
}

// Stop waits for the handler. The group is not rebalanced until Close, so that Ack can commit.
func (k *consumer) Stop() {
	k.stop()
	k.running.Wait()
}

var errNoAnswer = errors.New("the broker does not answer while a consumer ends")

// Close commits the acknowledged messages, and leaves the group. If the consumer broke before, the broker may still
// have it as a member. Close removes that if the Conn still works. Otherwise the next Consumer of the group does.
func (k *consumer) Close() error {
	k.once.Do(func() {
		k.Stop()
		late := time.AfterFunc(2*grace, func() { k.broke(errNoAnswer) })
		defer late.Stop()
		k.mu.Lock()
		k.commit(true)
		k.mu.Unlock()
		k.source.leave()
		broken := k.ended()
		k.end()
		if !broken {
			return
		}
		k.session.mu.Lock()
		k.session.staleMembers[k.group] = append(k.session.staleMembers[k.group], k.id)
		k.session.mu.Unlock()
		if !k.conn.over.Load() {
			ctx, cancel := context.WithTimeout(context.Background(), grace)
			defer cancel()
			if err := k.session.adopt(ctx, k.group); err != nil {
				k.session.env.Event(drivers.EventNotice, fmt.Sprintf("remove %s from group %s: %v", k.id, k.group, err))
			}
		}
	})
	return nil
}
