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

// purge deletes messages up to a sequence number, 0: all that are there now, if this controller still leads. Nothing that a later leader has written is
// among them: where the stream ends is looked up first, and only then that nobody else has led until after that.
func (l *Lease) purge(ctx context.Context, stream string, upTo uint64, subjects ...string) error {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, storeTimeout)
	defer stop()
	if l.ctx.Err() != nil {
		return fmt.Errorf("clear %s: %w", stream, ErrFenced)
	}
	if upTo == 0 {
		s, err := l.conn.js.Stream(ctx, stream)
		if err != nil {
			return fmt.Errorf("clear %s: %w", stream, err)
		}
		if upTo = s.CachedInfo().State.LastSeq; upTo == 0 {
			return nil
		}
	}
	if err := l.confirm(ctx); err != nil {
		return fmt.Errorf("clear %s: %w", stream, err)
	}
	return l.conn.purge(ctx, stream, upTo, subjects...)
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

// Unqueue deletes a run's submission and cancellations up to a message of the queue, with the secrets they may hold.
func (l *Lease) Unqueue(ctx context.Context, run string, upTo uint64) error {
	return l.purge(ctx, streamQueue, upTo, subjectSubmit(run), subjectCancel(run))
}
