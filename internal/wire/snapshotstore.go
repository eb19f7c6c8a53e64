package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"example.org/lockstep/lockstep/internal/record"
)

// ErrSnapshots is wrapped by the error of an agent that has exceeded the limit of snapshots of an attempt.
var ErrSnapshots = errors.New("snapshots too large")

// SnapshotStore stores the snapshots of one attempt in the record of its run. Snapshots that arrive during a write are
// stored together by the next write, as one message. So 1,000 agents need few syncs. Safe for concurrent use.
type SnapshotStore struct {
	ctx    context.Context
	record *Recorder
	ref    Ref
	limit  int // maximum bytes per agent
	stored func(record.Snapshot)

	turn chan struct{} // one write at a time

	mu      sync.Mutex
	agents  map[string]*agentSnapshots
	pending []*pendingSnapshot
	full    error // the run has no space for further snapshots
}

type agentSnapshots struct {
	last    uint64 // number of the last stored snapshot
	bytes   int
	pending *pendingSnapshot // nil: none
}

type pendingSnapshot struct {
	snapshot record.Snapshot
	text     []byte
	agent    *agentSnapshots
	done     chan struct{} // closed when it is stored or err is set
	err      error
}

// Store returns when a snapshot is stored, or was stored by an earlier call. An error that wraps ErrNotStored means
// that a later attempt may succeed. One that wraps ErrFull means that the run has no more space.
func (s *SnapshotStore) Store(ctx context.Context, snapshot record.Snapshot) error {
	text, err := json.Marshal(snapshot)
	if err != nil {
		return fmt.Errorf("store snapshot: %w", err)
	}
	p, err := s.add(snapshot, text)
	if p == nil {
		return err
	}
	for {
		select {
		case <-p.done:
			return p.err
		case s.turn <- struct{}{}:
			s.store()
			<-s.turn
		case <-ctx.Done():
			return fmt.Errorf("store snapshot: %w: %w", ErrNotStored, context.Cause(ctx))
		}
	}
}

// add makes a snapshot pending. It returns nil if the snapshot is already stored or cannot be stored.
func (s *SnapshotStore) add(snapshot record.Snapshot, text []byte) (*pendingSnapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agents[snapshot.Agent]
	if a == nil {
		a = &agentSnapshots{}
		s.agents[snapshot.Agent] = a
	}
	switch {
	case snapshot.Seq <= a.last:
		return nil, nil
	case a.pending != nil && a.pending.snapshot.Seq == snapshot.Seq:
		return a.pending, nil
	case a.pending != nil:
		return nil, fmt.Errorf("store snapshot %d: %w: number %d is being stored", snapshot.Seq, ErrNotStored,
			a.pending.snapshot.Seq)
	case len(text)+2 > s.record.leader.conn.codec.entryLimit():
		return nil, fmt.Errorf("store snapshot: %d bytes: %w", len(text), ErrTooLarge)
	case a.bytes+len(text) > s.limit:
		return nil, fmt.Errorf("store snapshot: %w: agent %s has stored %d bytes in this attempt, and the limit is %d",
			ErrSnapshots, snapshot.Agent, a.bytes, s.limit)
	case s.ctx.Err() != nil:
		return nil, ErrNoAttempt
	}
	a.pending = &pendingSnapshot{snapshot: snapshot, text: text, agent: a, done: make(chan struct{})}
	s.pending = append(s.pending, a.pending)
	return a.pending, nil
}

// store stores pending snapshots. One message has at most as much as one batch of a reader. The caller has the turn.
func (s *SnapshotStore) store() {
	s.mu.Lock()
	n, size := 0, 1
	list := []byte{'['}
	for limit := min(batchBytes, s.record.leader.conn.codec.entryLimit()); n < len(s.pending) &&
		(n == 0 || size+len(s.pending[n].text)+1 <= limit); n++ {
		size += len(s.pending[n].text) + 1
		list = append(append(list, s.pending[n].text...), ',')
	}
	batch := s.pending[:n]
	s.pending = s.pending[n:]
	s.mu.Unlock()
	if n == 0 {
		return
	}
	list[len(list)-1] = ']'
	err := s.record.storeSnapshots(s.ctx, s.ref, list)
	s.mu.Lock()
	if errors.Is(err, ErrFull) {
		s.full = err
	}
	for _, p := range batch {
		p.agent.pending, p.err = nil, err
		if err == nil {
			p.agent.last = p.snapshot.Seq
			p.agent.bytes += len(p.text)
		}
	}
	s.mu.Unlock()
	for _, p := range batch {
		if err == nil {
			s.stored(p.snapshot)
		}
		close(p.done)
	}
}

// Full returns the error of a snapshot for which the run had no space; nil: none. It wraps ErrFull.
func (s *SnapshotStore) Full() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}

// Wait returns when no write is in progress. It is called after the end of the store's context.
func (s *SnapshotStore) Wait() {
	s.turn <- struct{}{}
	<-s.turn
}
