package agent

import (
	"context"
	"errors"
	"time"

	"lockstep/internal/record"
	"lockstep/internal/wire"
)

const (
	handOverEvery  = 2 * time.Second
	handOverWithin = 10 * time.Second // each message; then all wait for the next time
)

// splitFrom begins the numbers of parts of snapshots that have to be divided only when they are handed over.
const splitFrom = 1 << 32

// handOver gives the control plane what is in the spool, at once and then again and again, until ctx ends: what tasks could not hand over while it
// was away, and what an earlier process of this agent left. Message ids are those of the first attempt, so that nothing counts twice.
func (s *spool) handOver(ctx context.Context, conn wire.Agent) {
	if s == nil {
		return
	}
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		for _, name := range s.waiting() {
			if !s.give(ctx, conn, name) {
				break
			}
		}
		t.Reset(handOverEvery)
	}
}

// give hands over one file and deletes it; false: the control plane does not take it now. One that it never takes is put aside, and keeps no other waiting.
func (s *spool) give(ctx context.Context, conn wire.Agent, name string) bool {
	b, err := s.read(name)
	if err != nil {
		s.log.Error("hand over", "err", err)
		return true
	}
	for i, snapshot := range b.Snapshots {
		if err = s.snapshot(ctx, conn, b, snapshot, splitFrom*uint64(i+1)); err != nil {
			break
		}
	}
	if err == nil && b.Arrival != nil {
		within, cancel := context.WithTimeout(ctx, handOverWithin)
		err = conn.Arrive(within, b.Key, *b.Arrival)
		cancel()
	}
	if wire.Hopeless(err) {
		s.log.Error("hand over: the control plane refuses it for good; give it the old name to have it tried again when the agent starts", "task", b.Ref.Task,
			"file", s.aside(name, "refused"), "err", err)
		return true
	}
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("hand over, trying again", "task", b.Ref.Task, "err", err)
		}
		return false
	}
	s.log.Info("handed over what was kept", "task", b.Ref.Task, "snapshots", len(b.Snapshots))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(name)
	return true
}

func (s *spool) snapshot(ctx context.Context, conn wire.Agent, b batch, snapshot record.Snapshot, number uint64) error {
	within, cancel := context.WithTimeout(ctx, handOverWithin)
	defer cancel()
	err := conn.Snapshot(within, b.Key, b.Ref, snapshot)
	if !errors.Is(err, wire.ErrTooLarge) {
		return err
	}
	first, second, ok := snapshot.Split()
	if !ok {
		return err
	}
	second.Seq = snapshot.Seq + number
	if err := s.snapshot(ctx, conn, b, first, 2*number); err != nil {
		return err
	}
	return s.snapshot(ctx, conn, b, second, 2*number)
}
