package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Limits for the waiting messages of a publisher without confirms, beyond which Publish blocks: the defaults of
// franz-go (MaxBufferedRecords) and of Kafka's Java client (buffer.memory). With confirms, the engine limits the
// messages in flight.
const (
	maxWaiting      = 10_000
	maxBytesWaiting = 32 << 20
)

// room counts a publisher's waiting messages. One goroutine calls enter, others call exit.
type room struct {
	messages, bytes atomic.Int64
	bounded         bool
	limit           int64 // of messages
	waiting         *drivers.Waiting
	flush           func()        // called before enter waits, so that linger does not limit the rate
	wanted          atomic.Bool   // enter is waiting
	freed           chan struct{} // signals enter to check again
	conn            *conn
}

func newRoom(c *conn, spec drivers.PublisherSpec, flush func()) *room {
	return &room{conn: c, bounded: !spec.Mode.Confirmed(), limit: maxWaiting, waiting: spec.Waiting, flush: flush,
		freed: make(chan struct{}, 1)}
}

// enter counts a message of n bytes. It waits while the limits are exceeded. It fails if ctx or the Conn ends.
func (r *room) enter(ctx context.Context, n int) error {
	for r.bounded && r.full(n) {
		r.wanted.Store(true)
		if !r.full(n) {
			break
		}
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
	r.messages.Add(1)
	r.bytes.Add(int64(n))
	return nil
}

func (r *room) wait(ctx context.Context) error {
	r.flush()
	r.waiting.Begin()
	defer r.waiting.End()
	select {
	case <-r.freed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.conn.ctx.Done():
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
}

func (r *room) full(n int) bool {
	waiting := r.messages.Load()
	return waiting >= r.limit || (waiting > 0 && r.bytes.Load()+int64(n) > maxBytesWaiting)
}

// exit subtracts settled messages.
func (r *room) exit(messages, bytes int) {
	r.messages.Add(-int64(messages))
	r.bytes.Add(-int64(bytes))
	if r.wanted.Load() && r.wanted.Swap(false) {
		r.wake()
	}
}

func (r *room) wake() {
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// empties waits for done. It breaks the Conn first if the count of messages did not decrease within grace, and after
// three times grace at the latest.
func (r *room) empties(done <-chan struct{}) {
	ticker := time.NewTicker(grace)
	defer ticker.Stop()
	for left, rounds := r.messages.Load(), 1; ; rounds++ {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		now := r.messages.Load()
		if now >= left || rounds == 3 {
			r.conn.broke(errors.New("the broker does not answer while a publisher ends"))
			<-done
			return
		}
		left = now
	}
}
