package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// confirm renews the lease now: when that succeeds nobody else has led until then, whatever a replica of the cluster that lags behind would say.
func (l *Lease) confirm(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case l.asked <- answer:
	case <-l.done:
		return ErrFenced
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-answer:
		if l.ctx.Err() != nil || errors.Is(err, ErrLeaseLost) {
			return ErrFenced
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// purge deletes messages up to a sequence number; 0: all that are there.
func (c *Conn) purge(ctx context.Context, stream string, upTo uint64, subjects ...string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	s, err := c.js.Stream(ctx, stream)
	for _, subject := range subjects {
		if err != nil {
			break
		}
		opts := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(subject)}
		if upTo > 0 {
			opts = append(opts, jetstream.WithPurgeSequence(upTo+1))
		}
		err = s.Purge(ctx, opts...)
	}
	if err != nil {
		return fmt.Errorf("clear %s: %w", stream, err)
	}
	return nil
}

// Unqueue deletes a run's submission and cancellations up to a message of the queue, with the secrets they may hold, if this
// controller still leads.
func (l *Lease) Unqueue(ctx context.Context, run string, upTo uint64) error {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	if err := l.confirm(ctx); err != nil {
		return fmt.Errorf("clear %s: %w", streamQueue, err)
	}
	return l.conn.purge(ctx, streamQueue, upTo, subjectSubmit(run), subjectCancel(run))
}
