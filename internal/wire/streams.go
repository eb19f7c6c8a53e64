package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Limits of the streams. Beyond them publishing fails, and says so: nothing is dropped silently.
const (
	queueBytes    = 512 << 20
	stateBytes    = 64 << 20
	scheduleBytes = 64 << 20
	baselineBytes = 64 << 20
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

// Prepare makes the streams that the control plane needs besides those of runs. Limits of those that are there stay as
// they are. The error wraps ErrNotAllowed if the credentials are not those of a controller.
func (c *Conn) Prepare(ctx context.Context) error {
	if _, err := c.ask(ctx, nats.NewMsg(api+"INFO")); errors.Is(err, ErrNotAllowed) {
		return fmt.Errorf("prepare the control plane: %w: they are those of %s; give --creds controller.nk, which \"ctl fleet init\" made",
			ErrNotAllowed, cmp.Or(c.holder, "another role"))
	}
	for _, cfg := range []jetstream.StreamConfig{
		// Numbers go on where a server has lost the queue with its memory.
		{Name: streamQueue, Subjects: []string{root + "queue.>"}, MaxBytes: queueBytes, FirstSeq: uint64(time.Now().UnixMilli())},
		bucket(bucketState, stateBytes),
		bucket(bucketSchedules, scheduleBytes),
		bucket(bucketBaselines, baselineBytes),
	} {
		cfg = c.stored(cfg)
		err := c.adapt(ctx, cfg)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			_, err = c.js.CreateStream(ctx, cfg)
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another controller has just made it
			err = nil
		}
		if err != nil {
			return c.unprepared(cfg.Name, cfg.Replicas, err)
		}
	}
	return nil
}

// stored completes the configuration of a stream: where and how often its messages are stored.
func (c *Conn) stored(cfg jetstream.StreamConfig) jetstream.StreamConfig {
	cfg.Storage = jetstream.MemoryStorage
	if c.files {
		cfg.Storage = jetstream.FileStorage
	}
	cfg.Replicas = max(1, c.replicas)
	if c.replicas == 0 && c.nc.ConnectedClusterName() != "" {
		cfg.Replicas = clusterReplicas
	}
	cfg.Discard, cfg.Duplicates, cfg.AllowDirect = jetstream.DiscardNew, dedupe, cfg.Name != streamQueue // whose readers need its newest messages
	return cfg
}

// bucket is the stream of a bucket of keys and values, of which each keeps its last. It is as the client library makes it,
// but for rollups, which nothing uses.
func bucket(name string, bytes int64) jetstream.StreamConfig {
	return jetstream.StreamConfig{Name: "KV_" + name, Subjects: []string{"$KV." + name + ".>"}, MaxMsgsPerSubject: 1, MaxBytes: bytes, DenyDelete: true}
}

// adapt gives a stream that is there the subjects and the replicas that it needs.
func (c *Conn) adapt(ctx context.Context, want jetstream.StreamConfig) error {
	s, err := c.js.Stream(ctx, want.Name)
	if err != nil {
		return err
	}
	cfg := s.CachedInfo().Config
	before := cfg
	cfg.Subjects = want.Subjects
	if c.replicas > 0 {
		cfg.Replicas = c.replicas
	}
	if slices.Equal(cfg.Subjects, before.Subjects) && cfg.Replicas == before.Replicas {
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
	return fmt.Errorf("prepare the control plane (does its NATS server have JetStream on?): make %s: %w", name, err)
}
