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
	name         string
	holds        string // its contents, in words
	config       jetstream.StreamConfig
	fenceSubject string
	fence        uint64        // sequence number of this leadership's fence
	last         atomic.Uint64 // sequence number of the last message of this leadership
	turn         chan struct{} // one write at a time: a cluster refuses a second one while it decides on the first
}

// newRunStreams returns the streams of a run. On a local control plane, which has one run, snapshots may use the whole
// limit.
func newRunStreams(store *Store, run string) (events, snapshots *runStream) {
	limit := store.recordLimit / 2
	if store.conn.local {
		limit = store.recordLimit
	}
	return newRunStream(store, "events", subject.EventsStream, subject.Events, run, store.recordLimit/4),
		newRunStream(store, "snapshots", subject.SnapshotsStream, subject.Snapshots, run, limit)
}

func newRunStream(store *Store, holds, stream, first, run string, limit int64) *runStream {
	name := subject.RunStream(stream, run)
	return &runStream{store: store, name: name, holds: holds, fenceSubject: subject.Fence(first, run),
		turn: make(chan struct{}, 1),
		config: store.complete(jetstream.StreamConfig{Name: name,
			Subjects: []string{first + subject.EncodeToken(run) + ".>"}, MaxBytes: limit})}
}

// prepare creates the stream, or restores its limit: that of an ended run was reduced to the size of its contents.
func (s *runStream) prepare(ctx context.Context, epoch uint64) (jetstream.Stream, error) {
	made, err := s.store.js.Stream(ctx, s.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		cfg := s.config
		// Sequence numbers stay ascending after a stream was deleted, as readers may have a Cursor. Epochs grow at
		// least with the milliseconds since 1970.
		cfg.FirstSeq = max(uint64(time.Now().UnixMilli()), epoch)
		made, err = s.store.js.CreateStream(ctx, cfg)
	} else if err == nil {
		cfg := made.CachedInfo().Config
		cfg.MaxBytes = max(s.config.MaxBytes, int64(made.CachedInfo().State.Bytes)+fenceBytes)
		if s.store.replicas > 0 {
			cfg.Replicas = s.store.replicas
		}
		made, err = s.store.js.UpdateStream(ctx, cfg)
	}
	if lacksResources(err) {
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	if err != nil {
		return nil, fmt.Errorf("create %s with %d bytes: %w", s.name, s.config.MaxBytes, err)
	}
	return made, nil
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

// remove deletes the streams of a run. The stream of events is deleted first, as it defines whether there is a record:
// see Recorder.open.
func (s streamsOfRun) remove(ctx context.Context, js jetstream.JetStream) error {
	slices.SortFunc(s, func(a, b *jetstream.StreamInfo) int { return cmp.Compare(a.Config.Name, b.Config.Name) })
	for _, info := range s {
		if err := js.DeleteStream(ctx, info.Config.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
	}
	return nil
}
