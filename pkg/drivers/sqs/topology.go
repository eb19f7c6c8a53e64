package sqs

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// pollInterval is the interval at which changes are polled until they have taken effect.
const pollInterval = 200 * time.Millisecond

// queueName returns the name of a queue. It contains "_", which a topology's name cannot contain.
func (s *session) queueName(t drivers.Topology, queue int) string {
	if t.Existing != "" {
		return drivers.QueueName(t.Existing, queue)
	}
	name := t.Name + "_q" + strconv.Itoa(queue)
	if s.options.FIFO {
		name += ".fifo"
	}
	return name
}

// eachQueue calls do for all queues, a few at a time.
func (s *session) eachQueue(t drivers.Topology, do func(name string) error) error {
	return kit.Each(t.Queues, func(queue int) error { return do(s.queueName(t, queue)) })
}

// Setup creates the queues, and purges existing ones. A purge of AWS takes up to a minute, and only one per minute is
// allowed.
func (s *session) Setup(ctx context.Context, t drivers.Topology) error {
	if err := s.eachQueue(t, func(name string) error { return s.create(ctx, name) }); err != nil {
		return fmt.Errorf("set up %s: %w", t.Name, err)
	}
	s.note(t)
	return nil
}

func (s *session) create(ctx context.Context, name string) error {
	attributes := map[string]string{"VisibilityTimeout": strconv.Itoa(int(s.options.Visibility.Std() / time.Second))}
	if s.options.FIFO {
		attributes["FifoQueue"] = "true"
		if s.options.HighThroughput {
			attributes["DeduplicationScope"], attributes["FifoThroughputLimit"] = "messageGroup", "perMessageGroupId"
		}
	}
	client := s.client(s.admin, aws.NopRetryer{})
	made, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		return fmt.Errorf("create queue %s: %w", name, explain(err))
	}
	// A new queue may not be visible yet.
	purged := false
	err = kit.Poll(ctx, pollInterval, func() (bool, error) {
		d, err := depth(ctx, client, made.QueueUrl)
		switch {
		case missing(err):
			return false, nil
		case err != nil || d.all() == 0:
			return true, err
		case purged:
			return false, nil
		}
		purged = true
		_, err = client.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: made.QueueUrl})
		return err != nil, err
	})
	if err != nil {
		return fmt.Errorf("empty queue %s: %w", name, explain(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.urls[name] = *made.QueueUrl
	return nil
}

// Verify requests the URLs of existing queues, and compares their settings with the options.
func (s *session) Verify(ctx context.Context, t drivers.Topology) error {
	err := kit.Each(t.Queues, func(queue int) error {
		at, err := s.find(ctx, t, queue)
		switch {
		case err != nil:
			return err
		case strings.HasSuffix(at, ".fifo") != s.options.FIFO:
			return fmt.Errorf("queue %s does not fit the option fifo: %v", s.queueName(t, queue), s.options.FIFO)
		case s.options.WaitTime == 0 && t.Consumers > 0:
			return s.verifyWait(ctx, s.queueName(t, queue), at)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("verify existing queues: %w", err)
	}
	return nil
}

// verifyWait returns an error if a queue has a wait time of its own. The SDK omits one of 0 s from requests, so the
// queue's would be used.
func (s *session) verifyWait(ctx context.Context, name, at string) error {
	const wait = types.QueueAttributeNameReceiveMessageWaitTimeSeconds
	answer, err := s.client(s.admin, aws.NopRetryer{}).GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &at,
		AttributeNames: []types.QueueAttributeName{wait}})
	if err != nil {
		return fmt.Errorf("read the wait time of queue %s: %w", name, explain(err))
	}
	if seconds := answer.Attributes[string(wait)]; seconds != "" && seconds != "0" {
		return fmt.Errorf("queue %s waits %s s for messages itself: set waitTime to 1s or more", name, seconds)
	}
	return nil
}

// Teardown deletes the queues.
func (s *session) Teardown(ctx context.Context, t drivers.Topology) error {
	if err := s.eachQueue(t, func(name string) error { return s.remove(ctx, name) }); err != nil {
		return fmt.Errorf("tear down %s: %w", t.Name, err)
	}
	return nil
}

func (s *session) remove(ctx context.Context, name string) error {
	s.mu.Lock()
	delete(s.urls, name)
	s.mu.Unlock()
	client := s.client(s.admin, aws.NopRetryer{})
	at, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name})
	if err == nil {
		_, err = client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: at.QueueUrl})
	}
	if err != nil && !missing(err) {
		return fmt.Errorf("delete queue %s: %w", name, explain(err))
	}
	return nil
}

// find returns the URL of a queue. It requests each URL once per session.
func (s *session) find(ctx context.Context, t drivers.Topology, queue int) (string, error) {
	name := s.queueName(t, queue)
	s.mu.Lock()
	at, known := s.urls[name]
	s.mu.Unlock()
	if known {
		return at, nil
	}
	found, err := s.client(s.admin, aws.NopRetryer{}).GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name})
	if err != nil {
		return "", fmt.Errorf("find queue %s at %s: %w", name, s.options.address(), explain(err))
	}
	s.note(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.urls[name] = *found.QueueUrl
	return *found.QueueUrl, nil
}

// note stores the names of the task's queues for Probe.
func (s *session) note(t drivers.Topology) {
	var names []string
	for queue := range t.Queues {
		names = append(names, s.queueName(t, queue))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.depths = names
}

const kindQueue = "queue"

// Leftovers lists the queues whose names begin with prefix.
func (s *session) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	var names []string
	pages := sqs.NewListQueuesPaginator(s.client(s.admin, aws.NopRetryer{}),
		&sqs.ListQueuesInput{QueueNamePrefix: &prefix, MaxResults: aws.Int32(1000)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list leftovers: %w", explain(err))
		}
		for _, at := range page.QueueUrls {
			names = append(names, at[strings.LastIndex(at, "/")+1:])
		}
	}
	return kit.Leftovers(kindQueue, prefix, names), nil
}

// Cleanup deletes queues.
func (s *session) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	return kit.Cleanup(these, map[string]func([]string) error{kindQueue: func(names []string) error {
		return kit.Each(len(names), func(i int) error { return s.remove(ctx, names[i]) })
	}})
}

// amounts are the approximate message counts of a queue.
type amounts struct{ visible, hidden, delayed float64 }

func (a amounts) all() float64 { return a.visible + a.hidden + a.delayed }

func depth(ctx context.Context, client *sqs.Client, at *string) (amounts, error) {
	answer, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: at,
		AttributeNames: []types.QueueAttributeName{
			types.QueueAttributeNameApproximateNumberOfMessages,
			types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
			types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
		}})
	if err != nil {
		return amounts{}, err
	}
	var a amounts
	for name, into := range map[types.QueueAttributeName]*float64{
		types.QueueAttributeNameApproximateNumberOfMessages:           &a.visible,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible: &a.hidden,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed:    &a.delayed,
	} {
		if *into, err = strconv.ParseFloat(answer.Attributes[string(name)], 64); err != nil {
			return a, fmt.Errorf("read %s: %w", name, err)
		}
	}
	return a, nil
}
