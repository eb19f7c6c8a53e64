package wire

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire/lease"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// Recorder writes the record of one run under one leadership. The server refuses writes of a former leader; their error
// wraps lease.ErrFenced. Safe for concurrent use.
type Recorder struct {
	leader    *Leader
	run       string
	previous  uint64
	events    *runStream
	snapshots *runStream
}

// open creates the streams and stores a fence in each, after the fence of the previous leadership. A run has a record
// as soon as it has a stream of events, so that stream is created last.
func (r *Recorder) open(ctx context.Context) error {
	snapshots, err := r.snapshots.prepare(ctx, r.leader.who.Epoch)
	if err != nil {
		return err
	}
	events, err := r.events.prepare(ctx, r.leader.who.Epoch)
	if err != nil {
		return err
	}
	// snapshots of a record that was just deleted
	if events.CachedInfo().State.Msgs == 0 && snapshots.CachedInfo().State.Msgs > 0 {
		if err := snapshots.Purge(ctx); err != nil {
			return err
		}
	}
	if r.previous, err = r.fence(ctx, r.events, events); err == nil {
		_, err = r.fence(ctx, r.snapshots, snapshots)
	}
	return err
}

// fence stores the fence of this leadership in a stream, and returns the epoch of the previous fence.
func (r *Recorder) fence(ctx context.Context, s *runStream, made jetstream.Stream) (before uint64, err error) {
	last, err := lastOf(ctx, made, s.fenceSubject)
	if err != nil {
		return 0, err
	}
	if before = lease.Epoch(last.Header); before > r.leader.who.Epoch {
		return before, lease.ErrFenced
	}
	m, _ := r.leader.conn.codec.encode(s.fenceSubject, []byte(nil)) // an empty message always fits
	lease.Stamp(m.Header, r.leader.who.Epoch)
	s.fence, err = r.leader.store.put(ctx, m, onceID(), jetstream.WithExpectLastSequencePerSubject(last.Seq))
	s.last.Store(s.fence)
	return before, err
}

// PreviousEpoch returns the epoch of the previous leadership of the run; 0: none.
func (r *Recorder) PreviousEpoch() uint64 { return r.previous }

// Review passes the messages that the record had when it was acquired to handle in order: plan, events and outcomes.
func (r *Recorder) Review(ctx context.Context, handle func(Entry)) error {
	ctx, cancel := Either(ctx, r.leader.ctx)
	defer cancel()
	reader := recordReader{store: r.leader.store}
	s, err := reader.store.js.Stream(ctx, r.events.config.Name)
	for m := (stored{}); err == nil; {
		if m, err = reader.next(ctx, s, m.Seq); err == nil {
			if m.Seq == 0 || m.Seq >= r.events.fence {
				return nil
			}
			handle(entriesOf(reader.store.conn, m)[0])
		}
	}
	return fmt.Errorf("read the record of run %s: %w", r.run, err)
}

// store writes v after the fence. Readers get it after the messages of the other stream that are stored now.
func (r *Recorder) store(ctx context.Context, s *runStream, to string, v any) error {
	m, err := r.leader.conn.codec.encode(to, v)
	if err != nil {
		return err
	}
	ctx, cancel := Either(ctx, r.leader.ctx)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	lease.Stamp(m.Header, r.leader.who.Epoch)
	m.Header.Set(headerAfter, strconv.FormatUint(s.other.last.Load(), 10))
	seq, err := r.leader.store.put(ctx, m, onceID(),
		jetstream.WithExpectLastSequenceForSubject(s.fence, s.fenceSubject))
	if err == nil {
		s.last.Store(seq)
	}
	switch {
	case lease.IsFenced(err):
		return errors.Join(lease.ErrFenced, err)
	case errors.Is(err, ErrFull):
		return fmt.Errorf("%w: the %s of a run may use %.1f MiB; start the controller with a larger --record-limit, and continue the run "+
			"with ctl run --resume", ErrFull, s.holds, float64(s.config.MaxBytes)/(1<<20))
	}
	return err
}

// Plan stores a run's plan without secrets, as the first message of its record.
func (r *Recorder) Plan(ctx context.Context, run plan.Run) error {
	packed, err := pack(run.Redacted())
	if err == nil {
		err = r.store(ctx, r.events, subject.Plan(r.run), packed)
	}
	return wrap(err, "record plan of run %s", r.run)
}

// Event stores an event of the run. The detail of an end has at most maxText bytes.
func (r *Recorder) Event(ctx context.Context, e RunEvent) error {
	if e.End != nil {
		end := *e.End
		end.Detail, e.End = cut(end.Detail, maxText), &end
	}
	err := r.store(ctx, r.events, subject.Event(r.run), e)
	if errors.Is(err, ErrFull) && e.Kind == RunEnded {
		if _, err = r.events.prepare(ctx, r.leader.who.Epoch); err == nil { // with space for the end
			err = r.store(ctx, r.events, subject.Event(r.run), e)
		}
	}
	return wrap(err, "record event of run %s", r.run)
}

// Outcome stores the outcome of a task.
func (r *Recorder) Outcome(ctx context.Context, o plan.Outcome) error {
	return wrap(r.store(ctx, r.events, subject.Outcome(r.run, o.Task), o), "record outcome of task %s", o.Task)
}

// Snapshots returns a store for the snapshots of an attempt. limit returns the maximum number of bytes of an agent.
// stored is called once for each stored snapshot, from one goroutine at a time, before Store returns. After it has
// returned an error, Store returns that for further snapshots. ctx bounds the writes.
func (r *Recorder) Snapshots(ctx context.Context, ref Ref, limit func(agent string) int,
	stored func(record.Snapshot) error) *SnapshotStore {
	return &SnapshotStore{ctx: ctx, record: r, ref: ref, limit: limit, stored: stored,
		turn: make(chan struct{}, 1), agents: map[string]*agentSnapshots{}}
}

// runStream is one of the two streams of a run, as used by the leader.
type runStream struct {
	store        *Store
	holds        string // "events" or "snapshots"
	config       jetstream.StreamConfig
	other        *runStream // of the run
	fenceSubject string
	fence        uint64        // sequence number of this leadership's fence
	last         atomic.Uint64 // sequence number of the last message of this leadership
	turn         chan struct{} // one write at a time: a cluster refuses a second one while it decides on the first
}

// newRunStreams returns the streams of a run. On a local control plane, with one run, snapshots may use all space.
func newRunStreams(store *Store, run string) (events, snapshots *runStream) {
	stream := func(holds, name, first string, limit int64) *runStream {
		return &runStream{store: store, holds: holds, fenceSubject: subject.Fence(first, run), turn: make(chan struct{}, 1),
			config: store.complete(jetstream.StreamConfig{Name: subject.RunStream(name, run),
				Subjects: []string{first + subject.EncodeToken(run) + ".>"}, MaxBytes: limit})}
	}
	limit := store.recordLimit / 2
	if store.conn.local {
		limit = store.recordLimit
	}
	events = stream("events", subject.EventsStream, subject.Events, store.recordLimit/4)
	snapshots = stream("snapshots", subject.SnapshotsStream, subject.Snapshots, limit)
	events.other, snapshots.other = snapshots, events
	return events, snapshots
}

// prepare creates the stream, or restores its limit: that of an ended run was reduced to the size of its contents.
func (s *runStream) prepare(ctx context.Context, epoch uint64) (jetstream.Stream, error) {
	cfg := s.config
	// Sequence numbers stay ascending after a stream was deleted, as readers may have a Cursor.
	cfg.FirstSeq = max(uint64(time.Now().UnixMilli()), epoch)
	made, err := s.store.provide(ctx, cfg, func(has *jetstream.StreamConfig, state jetstream.StreamState) {
		has.MaxBytes = max(cfg.MaxBytes, int64(state.Bytes)+fenceBytes)
	})
	if lacksResources(err) {
		err = fmt.Errorf("%w: %w; free space on the disk of the server, or pass a smaller --record-limit", ErrFull, err)
	}
	return made, wrap(err, "create %s with %d bytes", cfg.Name, cfg.MaxBytes)
}

// streamsOfRun are the existing streams of a run: two, except while they are created or deleted.
type streamsOfRun []*jetstream.StreamInfo

func (s streamsOfRun) bytes() (n uint64) {
	for _, info := range s {
		n += info.State.Bytes
	}
	return n
}

// release reduces the limits of the streams to the size of their contents, so that the server reserves no more space.
func (s streamsOfRun) release(ctx context.Context, js jetstream.JetStream) error {
	for _, info := range s {
		cfg := info.Config
		if cfg.MaxBytes = max(1, int64(info.State.Bytes)); cfg.MaxBytes >= info.Config.MaxBytes {
			continue
		}
		if _, err := js.UpdateStream(ctx, cfg); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes the streams of a run. That of events is deleted first, as it defines whether there is a record.
func (s streamsOfRun) remove(ctx context.Context, js jetstream.JetStream) error {
	slices.SortFunc(s, func(a, b *jetstream.StreamInfo) int { return cmp.Compare(a.Config.Name, b.Config.Name) })
	for _, info := range s {
		if err := js.DeleteStream(ctx, info.Config.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
	}
	return nil
}

// ErrSnapshots is wrapped by the error of an agent that has exceeded the limit of snapshots of an attempt.
var ErrSnapshots = errors.New("snapshots too large")

// SnapshotStore stores the snapshots of one attempt in the record of its run. Snapshots that arrive during a write are
// stored together by the next write, as one message. So 1,000 agents need few syncs. Safe for concurrent use.
type SnapshotStore struct {
	ctx    context.Context
	record *Recorder
	ref    Ref
	limit  func(agent string) int // maximum bytes
	stored func(record.Snapshot) error

	turn chan struct{} // one write at a time

	mu      sync.Mutex
	agents  map[string]*agentSnapshots
	pending []*pendingSnapshot
	full    error // the run has no space for further snapshots
	over    error // error of stored
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
	case a.bytes+len(text) > s.limit(snapshot.Agent):
		return nil, fmt.Errorf("store snapshot: %w: agent %s has used %d bytes in this attempt, and the limit is %d",
			ErrSnapshots, snapshot.Agent, a.bytes, s.limit(snapshot.Agent))
	case s.over != nil:
		return nil, s.over
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
	if s.over != nil {
		for _, p := range s.pending {
			p.agent.pending, p.err = nil, s.over
			close(p.done)
		}
		s.pending = nil
	}
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
	ctx, cancel := context.WithTimeout(s.ctx, storeTimeout)
	to := subject.AttemptSnapshots(s.ref.Run, s.ref.Task, s.ref.Attempt)
	err := s.record.store(ctx, s.record.snapshots, to, list)
	cancel()
	s.mu.Lock()
	switch {
	case errors.Is(err, ErrFull):
		err = fmt.Errorf("store snapshots of task %s: %w", s.ref.Task, err)
		s.full = err
	case err != nil:
		err = fmt.Errorf("%w: snapshots of task %s: %v", ErrNotStored, s.ref.Task, err)
	}
	for _, p := range batch {
		p.agent.pending, p.err = nil, err
		if err == nil {
			p.agent.last = p.snapshot.Seq
			p.agent.bytes += len(p.text)
		}
	}
	s.mu.Unlock()
	var over error
	for _, p := range batch {
		if err == nil && over == nil {
			over = s.stored(p.snapshot)
		}
		close(p.done)
	}
	if over != nil {
		s.mu.Lock()
		s.over = over
		s.mu.Unlock()
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
