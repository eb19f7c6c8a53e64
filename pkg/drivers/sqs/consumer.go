package sqs

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"lockstep/pkg/drivers"
)

// consumer receives messages, passes them to the handler and deletes them, in sequence.
type consumer struct {
	spec     drivers.ConsumerSpec
	on       joined
	leave    func()
	log      *slog.Logger
	event    func(drivers.EventKind, string)
	where    string
	fifo     bool
	wait     time.Duration
	poll     time.Duration // used if wait is 0
	patience time.Duration // maximum time for an answer, in addition to wait
	forget   func(error)
	handle   drivers.Handler
	notice   *drivers.Notice

	buffer     []byte // decoded bodies
	deliveries []drivers.Delivery
	handles    []string // receipt handles of deliveries

	mu       sync.Mutex
	unacked  []string // accepted and not yet deleted
	room     chan struct{}
	acking   sync.Mutex // one acknowledge at a time
	notified sync.Once

	ctx    context.Context // of all requests
	cancel context.CancelFunc
	stop   chan struct{}
	broken chan struct{}
	break1 sync.Once
	ended  sync.WaitGroup
	once   sync.Once
}

// Consumer connects a consumer. Setup created its queue, so no message is missed.
func (s *session) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer,
	error) {
	c, err := s.consumer(ctx, spec, handle)
	if err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	return c, nil
}

func (s *session) consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (*consumer, error) {
	if err := s.checkConsumer(spec); err != nil {
		return nil, err
	}
	on, leave, err := s.join(ctx, spec.Topology, spec.Queue, spec.Connection, true)
	if err != nil {
		return nil, err
	}
	name := s.queueName(spec.Topology, spec.Queue)
	c := &consumer{
		spec: spec, on: on, leave: leave, log: s.env.Log, event: s.env.Event, where: s.options.address(),
		fifo: s.options.FIFO,
		wait: s.options.times.wait, poll: s.options.times.poll, patience: s.options.times.confirm, handle: handle,
		notice: drivers.NewNotice(spec.OnClosed),
		forget: func(err error) { s.forget(name, err) },
		room:   make(chan struct{}, 1), stop: make(chan struct{}), broken: make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	on.Join(c)
	c.ended.Go(c.run)
	if spec.Ack == drivers.AckInterval {
		c.ended.Go(c.acknowledgeAtIntervals)
	}
	return c, nil
}

func (s *session) checkConsumer(spec drivers.ConsumerSpec) error {
	switch {
	case !slices.Contains(acks(&s.options), spec.Ack):
		return fmt.Errorf("acknowledgement %q: %w", spec.Ack, drivers.ErrUnsupported)
	case spec.Batch < 1:
		return fmt.Errorf("a receive batch of %d: it must be 1 or more", spec.Batch)
	case spec.Prefetch < 0:
		return fmt.Errorf("a prefetch of %d: it must be 0 (unlimited) or more", spec.Prefetch)
	case spec.Ack == drivers.AckEvery && spec.AckEvery < 1:
		return fmt.Errorf("acknowledge every %d messages: it must be 1 or more", spec.AckEvery)
	case spec.Ack == drivers.AckInterval && spec.AckInterval <= 0:
		return fmt.Errorf("acknowledge every %v: it must be more than 0", spec.AckInterval)
	case spec.Subscription != 0:
		return fmt.Errorf("subscription %d: %w", spec.Subscription, drivers.ErrUnsupported)
	}
	return nil
}

// Broke ends the consumer because its link broke.
func (c *consumer) Broke(cause error) {
	c.break1.Do(func() { close(c.broken) })
	c.cancel()
	c.notice.Broke(fmt.Errorf("%w: %w", drivers.ErrClosed, cause))
}

// Abandon ends the consumer because its session is closed.
func (c *consumer) Abandon() {
	c.notice.End()
	c.break1.Do(func() { close(c.broken) })
	c.cancel()
}

// over reports whether no more messages may be passed to the handler.
func (c *consumer) over() bool {
	select {
	case <-c.stop:
		return true
	case <-c.broken:
		return true
	default:
		return false
	}
}

// pause waits for d, or until the consumer ends.
func (c *consumer) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.stop:
	case <-c.broken:
	}
}

// run receives until the consumer is closed or the link breaks.
func (c *consumer) run() {
	for !c.over() {
		most := c.wanted()
		if most == 0 {
			select {
			case <-c.room:
			case <-c.stop:
			case <-c.broken:
			}
			continue
		}
		got, err := c.receive(most)
		switch {
		case err == nil && len(got) == 0 && c.wait == 0:
			c.pause(c.poll)
		case err == nil:
			c.deliver(got)
		case throttled(err):
			c.notify("the service throttles requests for messages: " + err.Error())
			c.pause(pollInterval)
		default:
			if answered(err) {
				c.forget(err)
				c.pause(pollInterval) // otherwise a consumer that reconnects would be rejected in a loop
			}
			c.on.Broke(fmt.Errorf("receive from SQS at %s: %w", c.where, explain(err)))
		}
	}
}

// wanted returns how many messages to request: the maximum of one request, within the prefetch.
func (c *consumer) wanted() int {
	if c.spec.Prefetch == 0 {
		return maxPerRequest
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(maxPerRequest, c.spec.Prefetch-len(c.unacked))
}

var systemAttributes = []types.MessageSystemAttributeName{
	types.MessageSystemAttributeNameApproximateReceiveCount, types.MessageSystemAttributeNameMessageGroupId,
}

func (c *consumer) receive(most int) ([]types.Message, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.wait+c.patience)
	defer cancel()
	attributes := systemAttributes
	if !c.fifo {
		attributes = attributes[:1]
	}
	answer, err := c.on.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &c.on.queue, MaxNumberOfMessages: int32(most), WaitTimeSeconds: int32(c.wait / time.Second),
		MessageSystemAttributeNames: attributes,
	})
	if err != nil {
		if c.ctx.Err() != nil && c.over() {
			return nil, nil // cancelled by Close
		}
		return nil, err
	}
	return answer.Messages, nil
}

// deliver passes messages to the handler in batches. After Close, it returns the rest to the queue.
func (c *consumer) deliver(got []types.Message) {
	c.decode(got)
	for from := 0; from < len(got); {
		if c.over() {
			c.giveBack(c.handles[from:])
			return
		}
		to := min(from+c.spec.Batch, len(got))
		err := c.handle(c.deliveries[from:to])
		if err != nil {
			c.giveBack(c.handles[from:to])
		} else {
			c.accept(c.handles[from:to])
		}
		from = to
	}
	if c.fifo {
		c.acknowledge() // the message groups deliver nothing more before that
	}
}

// decode converts messages to deliveries. A body that is not base64 is not from Lockstep, and is passed on unchanged.
func (c *consumer) decode(got []types.Message) {
	size := 0
	for i := range got {
		size += len(aws.ToString(got[i].Body))
	}
	c.buffer = slices.Grow(c.buffer[:0], size)
	c.deliveries, c.handles = c.deliveries[:0], c.handles[:0]
	for i := range got {
		m := &got[i]
		begin, text := len(c.buffer), aws.ToString(m.Body)
		decoded, err := base64.StdEncoding.AppendDecode(c.buffer, []byte(text))
		if err != nil {
			decoded = append(c.buffer[:begin], text...)
		}
		c.buffer = decoded
		d := drivers.Delivery{Body: c.buffer[begin:], Redelivered: redelivered(m), Stream: uint32(c.spec.Queue)}
		if c.fifo {
			group, _ := strconv.ParseUint(m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)], 10, 32)
			d.Stream = uint32(group)
		}
		c.deliveries, c.handles = append(c.deliveries, d), append(c.handles, aws.ToString(m.ReceiptHandle))
	}
}

func redelivered(m *types.Message) drivers.Tristate {
	switch m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)] {
	case "":
		return drivers.NotSaid
	case "1":
		return drivers.No
	}
	return drivers.Yes
}

// notify reports a problem that does not end the consumer. It reports only the first one: every message may have it.
func (c *consumer) notify(what string) {
	c.notified.Do(func() { c.event(drivers.EventNotice, "consumer: "+what) })
}

// Close waits for the current request, deletes the messages that the handler accepted, and returns the others to the
// queue.
func (c *consumer) Close() error {
	c.once.Do(func() {
		c.notice.End()
		close(c.stop)
		hard := time.AfterFunc(grace, c.cancel)
		c.ended.Wait()
		hard.Stop()
		c.acknowledge()
		c.cancel()
		c.on.Part(c)
		c.leave()
	})
	return nil
}
