package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"lockstep/pkg/drivers"
)

// What a publisher without confirms may have waiting to be sent, before Publish blocks: little enough to stay in the
// processor's cache. Of one with confirms the engine bounds it.
const (
	maxWaiting      = 1000
	maxBytesWaiting = 8 << 20
)

// room counts what a publisher has waiting. One goroutine enters, others leave.
type room struct {
	messages, bytes atomic.Int64
	bounded         bool
	waiting         *drivers.Waiting
	wanted          atomic.Bool   // the one that enters waits
	freed           chan struct{} // it is to look again
	shut            chan struct{} // nothing enters any more
}

func newRoom(bounded bool, waiting *drivers.Waiting) *room {
	return &room{bounded: bounded, waiting: waiting, freed: make(chan struct{}, 1), shut: make(chan struct{})}
}

// enter waits for room for a message of n bytes, until ctx, the room or the link ends.
func (r *room) enter(ctx context.Context, l *link, n int) error {
	for r.bounded && r.full(n) {
		r.wanted.Store(true)
		if !r.full(n) {
			break
		}
		if err := r.wait(ctx, l); err != nil {
			return err
		}
	}
	r.messages.Add(1)
	r.bytes.Add(int64(n))
	return nil
}

func (r *room) wait(ctx context.Context, l *link) error {
	r.waiting.Begin()
	defer r.waiting.End()
	select {
	case <-r.freed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.shut:
	case <-l.ctx.Done():
	}
	return fmt.Errorf("publish: %w", drivers.ErrClosed)
}

func (r *room) full(n int) bool {
	waiting := r.messages.Load()
	return waiting >= maxWaiting || (waiting > 0 && r.bytes.Load()+int64(n) > maxBytesWaiting)
}

// exit makes room.
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

var errNoAnswer = errors.New("the broker does not answer while a publisher ends")

// empties waits for done, as long as messages go; when none has gone for the grace, and at the latest after three times
// that, it gives up first.
func (r *room) empties(done <-chan struct{}, giveUp func()) {
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
			giveUp()
			<-done
			return
		}
		left = now
	}
}
