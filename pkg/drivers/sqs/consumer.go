package sqs

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/requests"
)

// consumer sends the requests of a requests.Consumer. Keys are receipt handles.
type consumer struct {
	client   *sqs.Client
	at       string // URL of the queue
	queue    uint32
	event    func(drivers.EventKind, string)
	where    string
	fifo     bool
	wait     time.Duration
	poll     time.Duration // used if wait is 0
	hidden   time.Duration // visibility time of messages; 0: that of the queue, which Setup set
	forget   func(error)
	notified sync.Once
}

// Consumer connects a consumer. Setup created its queue, so no message is missed.
func (c *conn) Consumer(ctx context.Context, spec drivers.ConsumerSpec, handle drivers.Handler) (drivers.Consumer, error) {
	at, err := c.find(ctx, spec.Topology, spec.Queue, true)
	if err != nil {
		return nil, fmt.Errorf("connect consumer: %w", err)
	}
	s, o := c.session, &c.session.options
	name := s.queueName(spec.Topology, spec.Queue)
	n := &consumer{client: c.client, at: at, queue: uint32(spec.Queue), event: s.env.Event, where: o.address(), fifo: o.FIFO,
		wait: o.WaitTime.Std(), poll: o.PollInterval.Std(), forget: func(err error) { s.forget(name, err) }}
	if spec.Topology.Existing != "" {
		n.hidden = o.Visibility.Std()
	}
	settled := maxPerRequest
	if spec.Ack == drivers.AckEach {
		settled = 1
	}
	return requests.NewConsumer(requests.ConsumerPlan[string]{
		Conn: c.Conn, Spec: spec, Handle: handle,
		Receiver:  func() requests.Receive[string] { return n.receive },
		Receivers: o.concurrent(o.Receivers, spec.Prefetch, maxPerRequest), MaxReceived: maxPerRequest,
		Settle: n.settle, Settlers: o.deleters(spec.Prefetch, settled), MaxSettled: settled,
		ReceivePatience: o.WaitTime.Std() + o.ConfirmTimeout.Std(), Patience: o.ConfirmTimeout.Std(),
	}), nil
}

var systemAttributes = []types.MessageSystemAttributeName{
	types.MessageSystemAttributeNameApproximateReceiveCount, types.MessageSystemAttributeNameMessageGroupId,
}

// once turns the retries of a request off. A response with messages may have been lost: they are hidden until their
// visibility time ends. The connection then breaks, so that this is known.
func once(o *sqs.Options) { o.Retryer = aws.NopRetryer{} }

// receive requests messages. A consumer that is rejected pauses before it ends: otherwise it would reconnect and be
// rejected in a loop.
func (c *consumer) receive(ctx context.Context, limit int) ([]requests.Received[string], time.Duration, error) {
	attributes := systemAttributes
	if !c.fifo {
		attributes = attributes[:1]
	}
	answer, err := c.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &c.at, MaxNumberOfMessages: int32(limit), WaitTimeSeconds: int32(c.wait / time.Second),
		MessageSystemAttributeNames: attributes, VisibilityTimeout: int32(c.hidden / time.Second),
	}, once)
	switch {
	case throttled(err):
		c.notify("the service throttles requests for messages: " + err.Error())
		return nil, pollInterval, nil
	case err != nil:
		var pause time.Duration
		if answered(err) {
			c.forget(err)
			pause = pollInterval
		}
		return nil, pause, fmt.Errorf("receive from SQS at %s: %w", c.where, explain(err))
	case c.wait == 0:
		return c.decode(answer.Messages), c.poll, nil
	}
	return c.decode(answer.Messages), 0, nil
}

// decode converts messages. A body that is not base64 is not from Lockstep, and is passed on unchanged.
func (c *consumer) decode(messages []types.Message) []requests.Received[string] {
	all := make([]requests.Received[string], 0, len(messages))
	for i := range messages {
		m := &messages[i]
		text := aws.ToString(m.Body)
		body, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			body = []byte(text)
		}
		d := drivers.Delivery{Body: body, Redelivered: redelivered(m), Stream: c.queue}
		if c.fifo {
			group, _ := strconv.ParseUint(m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)], 10, 32)
			d.Stream = uint32(group)
		}
		all = append(all, requests.Received[string]{Delivery: d, Key: aws.ToString(m.ReceiptHandle)})
	}
	return all
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

// settle deletes accepted messages, and makes others visible again immediately. An answer of the service with an error
// is reported; any other error breaks the connection.
func (c *consumer) settle(ctx context.Context, handles []string, how requests.Settling) error {
	doing, request := "acknowledge", c.remove
	if how != requests.Accepted {
		doing, request = "give back", c.giveBack
	}
	failed, err := request(ctx, handles)
	switch {
	case err != nil && !answered(err):
		return fmt.Errorf("%s messages of SQS at %s: %w", doing, c.where, err)
	case err != nil:
		c.notify(doing + ": rejected, messages will be delivered again: " + err.Error())
	case len(failed) > 0:
		c.notify(fmt.Sprintf("%s: %d of %d messages rejected, they will be delivered again: %s: %s", doing, len(failed),
			len(handles), aws.ToString(failed[0].Code), aws.ToString(failed[0].Message)))
	}
	return nil
}

// remove deletes messages. It returns those that the service did not delete.
func (c *consumer) remove(ctx context.Context, handles []string) ([]types.BatchResultErrorEntry, error) {
	if len(handles) == 1 {
		_, err := c.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &c.at,
			ReceiptHandle: &handles[0]})
		return nil, err
	}
	entries := make([]types.DeleteMessageBatchRequestEntry, len(handles))
	for i := range handles {
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: &entryIDs[i], ReceiptHandle: &handles[i]}
	}
	answer, err := c.client.DeleteMessageBatch(ctx,
		&sqs.DeleteMessageBatchInput{QueueUrl: &c.at, Entries: entries})
	if err != nil {
		return nil, err
	}
	return answer.Failed, nil
}

// giveBack makes messages visible again. It returns those for which the service did not.
func (c *consumer) giveBack(ctx context.Context, handles []string) ([]types.BatchResultErrorEntry, error) {
	entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, len(handles))
	for i := range handles {
		entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{Id: &entryIDs[i], ReceiptHandle: &handles[i]}
	}
	answer, err := c.client.ChangeMessageVisibilityBatch(ctx,
		&sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &c.at, Entries: entries})
	if err != nil {
		return nil, err
	}
	return answer.Failed, nil
}

// notify reports a problem that does not end the consumer. It reports only the first one: every message may have it.
func (c *consumer) notify(what string) {
	c.notified.Do(func() { c.event(drivers.EventNotice, "consumer: "+what) })
}
