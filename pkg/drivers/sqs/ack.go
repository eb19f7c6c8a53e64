package sqs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"lockstep/pkg/drivers"
)

// accept stores messages that the handler accepted, and acknowledges them if it is time.
func (c *consumer) accept(handles []string) {
	c.mu.Lock()
	c.unacked = append(c.unacked, handles...)
	n := len(c.unacked)
	c.mu.Unlock()
	full := c.spec.Prefetch > 0 && n >= c.spec.Prefetch
	if c.spec.Ack == drivers.AckEach || (c.spec.Ack == drivers.AckEvery && (n >= c.spec.AckEvery || full)) {
		c.acknowledge()
	}
}

func (c *consumer) acknowledgeAtIntervals() {
	ticker := time.NewTicker(c.spec.AckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.acknowledge()
		case <-c.stop:
			return
		case <-c.broken:
			return
		}
	}
}

// acknowledge deletes the messages accepted so far: one per request with "each", otherwise up to ten per request.
func (c *consumer) acknowledge() {
	c.acking.Lock()
	defer c.acking.Unlock()
	c.mu.Lock()
	handles := slices.Clone(c.unacked)
	c.mu.Unlock()
	if len(handles) == 0 || c.on.Err() != nil {
		return
	}
	most := maxPerRequest
	if c.spec.Ack == drivers.AckEach {
		most = 1
	}
	for some := range slices.Chunk(handles, most) {
		if err := c.remove(some); err != nil {
			c.failed("acknowledge", err)
		}
		if c.on.Err() != nil {
			return
		}
	}
	c.mu.Lock()
	c.unacked = slices.Delete(c.unacked, 0, len(handles))
	c.mu.Unlock()
	select {
	case c.room <- struct{}{}:
	default:
	}
}

// context returns the context of a request that must also complete during Close.
func (c *consumer) context() (context.Context, context.CancelFunc) {
	patience := c.patience
	if c.over() {
		patience = grace
	}
	return context.WithTimeout(context.WithoutCancel(c.ctx), patience)
}

func (c *consumer) remove(handles []string) error {
	ctx, cancel := c.context()
	defer cancel()
	if len(handles) == 1 {
		_, err := c.on.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &c.on.queue,
			ReceiptHandle: &handles[0]})
		return err
	}
	entries := make([]types.DeleteMessageBatchRequestEntry, len(handles))
	for i := range handles {
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: &entryIDs[i], ReceiptHandle: &handles[i]}
	}
	answer, err := c.on.client.DeleteMessageBatch(ctx,
		&sqs.DeleteMessageBatchInput{QueueUrl: &c.on.queue, Entries: entries})
	if err == nil && len(answer.Failed) > 0 {
		c.partly("acknowledge", answer.Failed, len(handles))
	}
	return err
}

// giveBack makes messages visible again immediately.
func (c *consumer) giveBack(handles []string) {
	if c.on.Err() != nil {
		return
	}
	for some := range slices.Chunk(handles, maxPerRequest) {
		entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, len(some))
		for i := range some {
			entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{Id: &entryIDs[i], ReceiptHandle: &some[i],
				VisibilityTimeout: 0}
		}
		ctx, cancel := c.context()
		answer, err := c.on.client.ChangeMessageVisibilityBatch(ctx,
			&sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &c.on.queue, Entries: entries})
		cancel()
		if err != nil {
			c.failed("give back", err)
		} else if len(answer.Failed) > 0 {
			c.partly("give back", answer.Failed, len(some))
		}
	}
}

// partly reports that some messages of a request were rejected. They are delivered again after the visibility time.
func (c *consumer) partly(doing string, failed []types.BatchResultErrorEntry, of int) {
	c.notify(fmt.Sprintf("%s: %d of %d messages rejected, they will be delivered again: %s: %s", doing, len(failed), of,
		aws.ToString(failed[0].Code), aws.ToString(failed[0].Message)))
}

// failed handles the error of a request. An answer of the service is reported; any other error breaks the link.
func (c *consumer) failed(doing string, err error) {
	if answered(err) {
		c.notify(doing + ": rejected, messages will be delivered again: " + err.Error())
		return
	}
	c.on.Broke(fmt.Errorf("%s messages of SQS at %s: %w", doing, c.where, err))
}
