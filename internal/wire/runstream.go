package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/internal/wire/subject"
)

// runStream is one of the two streams of a run, as used by the leader.
type runStream struct {
	store        *Store
	holds        string // its contents, in words
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
		err = fmt.Errorf("%w: %w", ErrFull, err)
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
