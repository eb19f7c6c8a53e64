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

// sendQuota counts a publisher's waiting messages. One goroutine calls enter, others call exit.
type sendQuota struct {
	messages, bytes atomic.Int64
	bounded         bool
	limit           int64 // of messages
	waiting         *drivers.Waiting
	flush           func()        // called before enter waits, so that linger does not limit the rate
	wanted          atomic.Bool   // enter is waiting
	freed           chan struct{} // signals enter to check again
	conn            *conn
}

func newSendQuota(c *conn, spec drivers.PublisherSpec, flush func()) *sendQuota {
	return &sendQuota{conn: c, bounded: !spec.Mode.Confirmed(), limit: maxWaiting, waiting: spec.Waiting, flush: flush,
		freed: make(chan struct{}, 1)}
}

// enter counts a message of n bytes. It waits while the limits are exceeded. It fails if ctx or the Conn ends.
func (q *sendQuota) enter(ctx context.Context, n int) error {
	for q.bounded && q.full(n) {
		q.wanted.Store(true)
		if !q.full(n) {
			break
		}
		if err := q.wait(ctx); err != nil {
			return err
		}
	}
	q.messages.Add(1)
	q.bytes.Add(int64(n))
	return nil
}

func (q *sendQuota) wait(ctx context.Context) error {
	q.flush()
	q.waiting.Begin()
	defer q.waiting.End()
	select {
	case <-q.freed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-q.conn.ctx.Done():
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
}

func (q *sendQuota) full(n int) bool {
	waiting := q.messages.Load()
	return waiting >= q.limit || (waiting > 0 && q.bytes.Load()+int64(n) > maxBytesWaiting)
}

func (q *sendQuota) exit(messages, bytes int) {
	q.messages.Add(-int64(messages))
	q.bytes.Add(-int64(bytes))
	if q.wanted.Load() && q.wanted.Swap(false) {
		select {
		case q.freed <- struct{}{}:
		default:
		}
	}
}

// empties waits for done. It breaks the Conn first if the count of messages did not decrease within grace, and after
// three times grace at the latest.
func (q *sendQuota) empties(done <-chan struct{}) {
	ticker := time.NewTicker(grace)
	defer ticker.Stop()
	for left, rounds := q.messages.Load(), 1; ; rounds++ {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		now := q.messages.Load()
		if now >= left || rounds == 3 {
			q.conn.broke(errors.New("the broker does not answer while a publisher ends"))
			<-done
			return
		}
		left = now
	}
}
