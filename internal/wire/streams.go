package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Limits of the streams. Beyond them publishing fails, and says so: nothing is dropped silently.
const (
	queueBytes    = 512 << 20
	recordBytes   = 1 << 30 // unless LimitRecord says otherwise
	stateBytes    = 64 << 20
	scheduleBytes = 64 << 20
	dedupe        = 2 * time.Minute
)

// ErrServers is wrapped by the error of a control plane with too few servers for the replicas asked for.
var ErrServers = errors.New("the control plane has too few servers")

// clusterReplicas is how many servers of a cluster keep each message, unless Replicate says otherwise: one of them may fail.
const clusterReplicas = 3

// Replicate sets the number of servers of the control plane's cluster that keep each message, of streams that Prepare
// makes and of those that exist. It is called before Prepare. The default is three on a cluster and else one, and
// streams that exist stay as they are.
func (c *Conn) Replicate(n int) { c.replicas = n }

// Prepare makes the streams that the control plane needs. Limits of those that are there stay as they are, but for what LimitRecord says.
func (c *Conn) Prepare(ctx context.Context) error {
	storage := jetstream.MemoryStorage
	if c.files {
		storage = jetstream.FileStorage
	}
	replicas := max(1, c.replicas)
	if c.replicas == 0 && c.nc.ConnectedClusterName() != "" {
		replicas = clusterReplicas
	}
	for _, cfg := range []jetstream.StreamConfig{
		{Name: streamQueue, Subjects: []string{root + "queue.>"}, MaxBytes: queueBytes, Storage: storage},
		// Without an age: what nobody has copied yet is never deleted.
		limited(jetstream.StreamConfig{Name: streamRecord, Subjects: []string{root + "record.>"}, Storage: storage}, cmp.Or(c.recordLimit, recordBytes)),
		bucket(bucketState, stateBytes, storage),
		bucket(bucketSchedules, scheduleBytes, storage),
	} {
		cfg.Discard, cfg.Duplicates, cfg.AllowDirect, cfg.Replicas = jetstream.DiscardNew, dedupe, true, replicas
		_, err := c.js.CreateStream(ctx, cfg)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // made by another release, or with other limits
			err = c.adapt(ctx, cfg)
		}
		if err != nil {
			return c.unprepared(cfg.Name, replicas, err)
		}
	}
	return nil
}

// bucket is the stream of a bucket of keys and values, of which each keeps its last. It is as the client library makes it,
// but for rollups, which nothing uses.
func bucket(name string, bytes int64, storage jetstream.StorageType) jetstream.StreamConfig {
	return jetstream.StreamConfig{Name: "KV_" + name, Subjects: []string{"$KV." + name + ".>"}, MaxMsgsPerSubject: 1, MaxBytes: bytes, Storage: storage, DenyDelete: true}
}

// adapt gives a stream that is there the subjects, the age, the limit and the replicas that it needs.
func (c *Conn) adapt(ctx context.Context, want jetstream.StreamConfig) error {
	s, err := c.js.Stream(ctx, want.Name)
	if err != nil {
		return err
	}
	cfg := s.CachedInfo().Config
	before := cfg
	cfg.Subjects, cfg.MaxAge = want.Subjects, want.MaxAge
	if c.replicas > 0 {
		cfg.Replicas = c.replicas
	}
	if limit := cmp.Or(c.recordLimit, limitOf(cfg)); cfg.Name == streamRecord && limit > 0 {
		cfg = limited(cfg, limit)
	}
	if slices.Equal(cfg.Subjects, before.Subjects) && cfg.MaxAge == before.MaxAge && cfg.Replicas == before.Replicas &&
		cfg.MaxBytes == before.MaxBytes && cfg.Metadata[metaLimit] == before.Metadata[metaLimit] {
		return nil
	}
	_, err = c.js.UpdateStream(ctx, cfg)
	return err
}

func (c *Conn) unprepared(name string, replicas int, err error) error {
	var refused *jetstream.APIError
	if replicas > 1 && errors.As(err, &refused) {
		return fmt.Errorf("prepare the control plane: keep %s on %d servers (its cluster needs that many with JetStream, reachable now; controller --replicas 1 does without): %w",
			name, replicas, errors.Join(ErrServers, err))
	}
	if roomless(err) && name == streamRecord {
		return fmt.Errorf("prepare the control plane: it has no room for a record of %d bytes; give less with controller --record-limit, or its server more: %w", cmp.Or(c.recordLimit, recordBytes), err)
	}
	return fmt.Errorf("prepare the control plane (does its NATS server have JetStream on?): make %s: %w", name, err)
}

// Stored counts the messages that the control plane keeps, by subject.
func (c *Conn) Stored(ctx context.Context) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	all := map[string]uint64{}
	for _, stream := range []string{streamQueue, streamRecord} {
		s, err := c.js.Stream(ctx, stream)
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", stream, err)
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", stream, err)
		}
		for subject, n := range info.State.Subjects {
			all[subject] += n
		}
	}
	return all, nil
}
