package wire

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire/lease"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// Limits of the streams. Beyond them the server refuses messages with an error: it never drops stored ones.
const (
	queueBytes    = 512 << 20
	leaseBytes    = 1 << 20
	stateBytes    = 64 << 20
	scheduleBytes = 64 << 20
	baselineBytes = 64 << 20
	dedupe        = 2 * time.Minute
)

// Limits of the streams of runs. recordBytes is the default of StoreConfig.RecordLimit. fenceBytes is the space that an
// acquired stream always has, for the fence and the end of its run.
const (
	recordBytes = 1 << 30
	maxRuns     = 50 // with streams
	fenceBytes  = 64 << 10
)

// MinRecord is the minimum of StoreConfig.RecordLimit outside tests, with space for four of the largest events.
const MinRecord = 128 << 20

// ErrServers is wrapped by the error of a control plane with fewer servers than the replicas that were requested.
var ErrServers = errors.New("the control plane has too few servers")

// ErrFull is wrapped by the error of a message that would exceed a limit of a stream, the queue or the schedules.
var ErrFull = errors.New("the control plane is full")

// clusterReplicas is the default of StoreConfig.Replicas on a cluster: one of three servers may fail.
const clusterReplicas = 3

// StoreConfig has the limits of what a control plane stores. All its controllers need the same values.
type StoreConfig struct {
	// RecordLimit is the maximum size of the streams of all runs in bytes; 0: 1 GiB. The snapshots of a run may use
	// half of it, and its events a quarter.
	RecordLimit int64
	// Replicas is the number of servers of a cluster that store each message, in new and existing streams. 0: existing
	// streams stay as they are, and new ones have three on a cluster, else one.
	Replicas int
}

// Store gives controllers that lead or stand by access to the streams and buckets. Safe for concurrent use.
type Store struct {
	conn        *Conn
	js          jetstream.JetStream
	recordLimit int64 // maximum size of the streams of all runs in bytes
	replicas    int   // of streams that this controller creates; 0: the default
}

// NewStore returns the store of a connection's control plane. The caller keeps the ownership of conn.
func NewStore(conn *Conn, cfg StoreConfig) *Store {
	js, _ := jetstream.New(conn.nc) // fails only for invalid options
	return &Store{conn: conn, js: js, recordLimit: cmp.Or(cfg.RecordLimit, recordBytes), replicas: cfg.Replicas}
}

// Campaign waits until this controller leads, and returns the leadership. It lasts until Leader.Resign is called or it
// is lost. Campaign retries while servers are away, and prepares those that come back empty. An error means that ctx
// ended, the connection was closed or lacks permission, or the control plane has too few servers. log may be nil.
func (s *Store) Campaign(ctx context.Context, who lease.Holder, log *slog.Logger) (*Leader, error) {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	who.Record = s.recordLimit
	held, err := lease.Campaign(ctx, lease.Config{Who: who, Log: log, Closed: s.conn.Closed,
		Open: func(ctx context.Context) (lease.Bucket, error) {
			kv, err := s.js.KeyValue(ctx, subject.LeaseBucket)
			if errors.Is(err, jetstream.ErrBucketNotFound) {
				if err = s.Prepare(ctx); err == nil {
					kv, err = s.js.KeyValue(ctx, subject.LeaseBucket)
				}
			}
			return kv, err
		},
		Final: func(err error) bool {
			return s.conn.Closed() || errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, ErrServers)
		}})
	if err != nil {
		return nil, err
	}
	return &Leader{Lease: held, store: s, conn: s.conn, who: held.Holder(), ctx: held.Context(),
		queued: make(chan struct{}, 1), edited: make(chan struct{}, 1)}, nil
}

// Local reports whether the control plane ends with this process.
func (s *Store) Local() bool { return s.conn.Local() }

// Prepare creates the streams and buckets of the control plane, except those of runs. Existing streams keep their
// limits. It takes at most prepareTimeout, as a server that has just ended never answers. The error wraps errNotAllowed
// if the credentials are not those of a controller.
func (s *Store) Prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	if _, err := s.conn.ask(ctx, nats.NewMsg(subject.API+"INFO")); errors.Is(err, errNotAllowed) {
		return fmt.Errorf("prepare the control plane: %w: they are those of %s; pass --creds with the controller.nk of \"ctl fleet init\"",
			errNotAllowed, cmp.Or(s.conn.holder, "another role"))
	}
	for _, cfg := range []jetstream.StreamConfig{
		// Sequence numbers stay ascending after a server has lost the queue with its memory.
		{Name: subject.QueueStream, Subjects: []string{subject.Queue + ">"}, MaxBytes: queueBytes,
			FirstSeq: uint64(time.Now().UnixMilli())},
		bucketConfig(subject.LeaseBucket, leaseBytes),
		bucketConfig(subject.StateBucket, stateBytes),
		bucketConfig(subject.SchedulesBucket, scheduleBytes),
		bucketConfig(subject.BaselinesBucket, baselineBytes),
	} {
		cfg = s.complete(cfg)
		_, err := s.provide(ctx, cfg, func(has *jetstream.StreamConfig, _ jetstream.StreamState) { has.Subjects = cfg.Subjects })
		switch {
		case err == nil, errors.Is(err, jetstream.ErrStreamNameAlreadyInUse): // another controller has just created it
		case lacksResources(err):
			return fmt.Errorf("prepare the control plane: create %s with %d MiB: %w; free space on the disk of the server", cfg.Name,
				cfg.MaxBytes>>20, err)
		case cfg.Replicas > 1 && codeOf(err) != 0:
			return fmt.Errorf("prepare the control plane: store %s on %d servers: not enough reachable servers with JetStream in the cluster; start them, or pass lockstep-controller --replicas 1: %w",
				cfg.Name, cfg.Replicas, errors.Join(ErrServers, err))
		default:
			return fmt.Errorf("prepare the control plane: create %s; check that JetStream is enabled on the NATS server: %w",
				cfg.Name, err)
		}
	}
	return nil
}

// complete sets where a stream's messages are stored, and with how many replicas.
func (s *Store) complete(cfg jetstream.StreamConfig) jetstream.StreamConfig {
	cfg.Storage = jetstream.MemoryStorage
	if s.conn.files {
		cfg.Storage = jetstream.FileStorage
	}
	cfg.Replicas = max(1, s.replicas)
	if s.replicas == 0 && s.conn.nc.ConnectedClusterName() != "" {
		cfg.Replicas = clusterReplicas
	}
	// only readers of the queue always need its newest messages
	cfg.Discard, cfg.Duplicates, cfg.AllowDirect = jetstream.DiscardNew, dedupe, cfg.Name != subject.QueueStream
	return cfg
}

// bucketConfig returns the stream of a key-value bucket that keeps one value per key. It equals that of the client
// library, but without rollups, which nothing uses.
func bucketConfig(name string, bytes int64) jetstream.StreamConfig {
	return jetstream.StreamConfig{Name: "KV_" + name, Subjects: []string{"$KV." + name + ".>"}, MaxMsgsPerSubject: 1,
		MaxBytes: bytes, DenyDelete: true}
}

// provide creates a stream. An existing one gets the replicas of this controller and the changes of adapt.
func (s *Store) provide(ctx context.Context, cfg jetstream.StreamConfig,
	adapt func(*jetstream.StreamConfig, jetstream.StreamState)) (jetstream.Stream, error) {
	made, err := s.js.Stream(ctx, cfg.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return s.js.CreateStream(ctx, cfg)
	}
	if err != nil {
		return nil, err
	}
	has := made.CachedInfo().Config
	adapt(&has, made.CachedInfo().State)
	if s.replicas > 0 {
		has.Replicas = s.replicas
	}
	if reflect.DeepEqual(has, made.CachedInfo().Config) {
		return made, nil
	}
	return s.js.UpdateStream(ctx, has)
}

// stream returns a stream. It waits for a missing stream until ctx ends: a server stores messages of a new stream
// before it finds the stream by name. A controller that starts creates its streams one by one.
func (s *Store) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	for {
		found, err := s.js.Stream(ctx, name)
		if !errors.Is(err, jetstream.ErrStreamNotFound) || Wait(ctx, retryWait) != nil {
			return found, err
		}
	}
}

// onceID returns the id of a message that is stored once, although the call that sends it may retry. For two minutes
// the server drops further messages with that id, and answers as if stored. So it must not be predictable.
func onceID() string { return rand.Text() }

// put publishes a message and returns its sequence number after it was stored. It retries until ctx ends while the
// control plane is away, lacks resources, or decides on another message with the same expectation. id makes the retries
// safe. The error wraps ErrFull if the stream has reached its limit.
func (s *Store) put(ctx context.Context, m *nats.Msg, id string, opts ...jetstream.PublishOpt) (uint64, error) {
	opts = append(opts, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
	for {
		Progress(ctx, storeTimeout)
		attempt, cancel := context.WithTimeout(ctx, storeTimeout)
		ack, err := s.js.PublishMsg(attempt, m, opts...)
		cancel()
		switch {
		case err == nil:
			return ack.Sequence, nil
		case codeOf(err) == 10077 && strings.Contains(err.Error(), "maximum "): // the stream has reached its limit
			return 0, fmt.Errorf("store %s on the control plane: %w: %w", m.Subject, ErrFull, err)
		case final(err), errors.Is(err, nats.ErrMaxPayload), s.conn.nc.IsClosed():
			return 0, fmt.Errorf("store %s on the control plane: %w", m.Subject, err)
		}
		if Wait(ctx, retryWait) != nil {
			return 0, fmt.Errorf("store %s on the control plane: %w", m.Subject, errors.Join(context.Cause(ctx), err))
		}
	}
}

// purge deletes the messages of subjects up to a sequence number; 0: all.
func (s *Store) purge(ctx context.Context, stream string, upTo uint64, subjects ...string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	found, err := s.js.Stream(ctx, stream)
	for _, subject := range subjects {
		if err != nil {
			break
		}
		opts := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(subject)}
		if upTo > 0 {
			opts = append(opts, jetstream.WithPurgeSequence(upTo+1))
		}
		err = found.Purge(ctx, opts...)
	}
	return wrap(err, "clear %s", stream)
}

// lastMessage returns the last message of a subject without its body. Its sequence number is 0 if there is none.
func (s *Store) lastMessage(ctx context.Context, stream, subject string) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	found, err := s.stream(ctx, stream)
	if err != nil {
		return stored{}, fmt.Errorf("read %s; check the NATS server: %w", stream, err)
	}
	return lastOf(ctx, found, subject)
}

func (s *Store) runStreams(ctx context.Context) (map[string]streamsOfRun, error) {
	all := map[string]streamsOfRun{}
	list := s.js.ListStreams(ctx)
	for info := range list.Info() { // the sender blocks until all are read
		name := info.Config.Name
		if !strings.HasPrefix(name, subject.EventsStream) && !strings.HasPrefix(name, subject.SnapshotsStream) {
			continue
		}
		tokens := strings.Split(strings.Join(info.Config.Subjects, "."), ".")
		if run, err := subject.DecodeToken(tokens[min(2, len(tokens)-1)]); err == nil {
			all[run] = append(all[run], info)
		}
	}
	return all, wrap(list.Err(), "list the streams of runs")
}

// Runs returns the runs in the order of submission: queued, executed, and at least the newest 1,000 that have ended.
func (s *Store) Runs(ctx context.Context) (runs []RunState, err error) {
	err = s.bucket(subject.StateBucket).each(ctx, "run.*", func(e jetstream.KeyValueEntry) {
		var r RunState
		if json.Unmarshal(e.Value(), &r) == nil && keyRun(r.Run) == e.Key() {
			r.revision = e.Revision()
			runs = append(runs, r)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	slices.SortFunc(runs, func(a, b RunState) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Run, b.Run)) })
	return runs, nil
}

// RunState returns the stored state of a run; the zero value if the run is not known.
func (s *Store) RunState(ctx context.Context, run string) (r RunState, err error) {
	value, revision, err := s.bucket(subject.StateBucket).get(ctx, keyRun(run))
	if err == nil && revision > 0 {
		if err = json.Unmarshal(value, &r); err != nil {
			err = fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		r.revision = revision
	}
	return r, wrap(err, "read the state of run %s", run)
}

// MarkCopied notes in the state of an ended run that a controller's folder has a complete copy. If the state has
// changed since r was read, nothing happens: the caller retries with the new state.
func (s *Store) MarkCopied(ctx context.Context, r RunState) error {
	r.Copied = true
	value, _ := json.Marshal(r) // plain data always marshals
	if _, err := s.bucket(subject.StateBucket).put(ctx, keyRun(r.Run), value, r.revision); !lease.IsConflict(err) {
		return err
	}
	return nil
}

// Read passes the record of a run to handle in order: plan, events, snapshots, outcomes. It returns the run's end after
// it was handled, or the error of handle or ctx. Without q.Wait it stops at the last entry, and returns nil if
// the run has not ended since its last submission. The error wraps ErrNoRun if the run is not known, and ErrNoRecord if
// its record was deleted. One goroutine calls handle.
func (s *Store) Read(ctx context.Context, q RecordQuery, handle func(Entry) error) (*End, error) {
	return readRecord(ctx, func() *Conn { return s.conn }, recordReader{store: s}.read, q, handle)
}

// PutSchedule stores a changed schedule and returns its new revision. The error wraps ErrChanged if the revision is no
// longer the current one, or the schedule was removed.
func (s *Store) PutSchedule(ctx context.Context, v schedule.Schedule, revision uint64) (uint64, error) {
	value, err := pack(v)
	if err == nil {
		revision, err = s.putSchedule(ctx, v.Name, value, revision)
	}
	return revision, wrap(err, "store schedule %s", v.Name)
}

// putSchedule stores a schedule and returns its new revision. It replaces a revision; 0: the schedule is new.
func (s *Store) putSchedule(ctx context.Context, name string, value []byte, revision uint64) (now uint64, err error) {
	if limit := s.conn.codec.limit() / 4 * 3; len(value) > limit { // in an answer it is base64
		return 0, fmt.Errorf("%d bytes exceed the limit of %d (max_payload of its NATS server): %w", len(value), limit,
			ErrTooLarge)
	}
	now, err = s.bucket(subject.SchedulesBucket).put(ctx, subject.EncodeToken(name), value, revision)
	if lease.IsConflict(err) {
		err = ErrChanged
	}
	return now, err
}

// Schedule reads a schedule. The error wraps ErrNoSchedule if there is none of that name.
func (s *Store) Schedule(ctx context.Context, name string) (KeptSchedule, error) {
	value, revision, err := s.schedule(ctx, name)
	if err != nil {
		return KeptSchedule{}, fmt.Errorf("read schedule %s: %w", name, err)
	}
	kept := readSchedule(subject.EncodeToken(name), value, revision)
	return kept, kept.Err
}

func (s *Store) schedule(ctx context.Context, name string) (value []byte, revision uint64, err error) {
	value, revision, err = s.bucket(subject.SchedulesBucket).get(ctx, subject.EncodeToken(name))
	if err == nil && revision == 0 {
		err = ErrNoSchedule
	}
	return value, revision, err
}

func (s *Store) scheduleNames(ctx context.Context) (names []string, err error) {
	err = s.bucket(subject.SchedulesBucket).each(ctx, ">", func(e jetstream.KeyValueEntry) {
		if name, err := subject.DecodeToken(e.Key()); err == nil {
			names = append(names, name)
		}
	}, jetstream.MetaOnly())
	return names, err
}

// Schedules returns all schedules, including those that cannot be used. Those that equal one of known are not decoded.
func (s *Store) Schedules(ctx context.Context, known []KeptSchedule) (all []KeptSchedule, err error) {
	err = s.bucket(subject.SchedulesBucket).each(ctx, ">", func(e jetstream.KeyValueEntry) {
		same := func(k KeptSchedule) bool { return k.Revision == e.Revision() && k.stored.Equal(e.Created()) }
		if i := slices.IndexFunc(known, same); i >= 0 {
			all = append(all, known[i])
			return
		}
		kept := KeptSchedule{Name: e.Key(), Revision: e.Revision()}
		if err := Guard(s.conn.log, e.Key(), func() error {
			kept = readSchedule(e.Key(), e.Value(), e.Revision())
			return nil
		}); err != nil {
			kept.Err = err
		}
		kept.stored = e.Created()
		all = append(all, kept)
	})
	return all, err
}

// Baseline reads a baseline. The error wraps ErrNoBaseline if there is none, and ErrUnreadable if it cannot be read.
func (s *Store) Baseline(ctx context.Context, name string) (b plan.BaselineRecord, err error) {
	value, revision, err := s.bucket(subject.BaselinesBucket).get(ctx, subject.EncodeToken(name))
	switch {
	case err != nil:
	case revision == 0:
		err = ErrNoBaseline
	default:
		if err = unzip(value, "the controller", &b); err == nil {
			err = plan.CheckFormat(b.Plan.Version)
		}
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
	}
	return b, wrap(err, "read baseline %s", name)
}

// baselines returns all baselines, sorted by name. An unreadable baseline has only its name.
func (s *Store) baselines(ctx context.Context) (all []plan.Baseline, err error) {
	err = s.bucket(subject.BaselinesBucket).each(ctx, ">", func(e jetstream.KeyValueEntry) {
		var b struct{ Baseline plan.Baseline }
		if unzip(e.Value(), "the controller", &b) != nil {
			b.Baseline.Name, _ = subject.DecodeToken(e.Key())
		}
		all = append(all, b.Baseline)
	})
	slices.SortFunc(all, func(a, b plan.Baseline) int { return cmp.Compare(a.Name, b.Name) })
	return all, err
}

// removeBaseline deletes a baseline. Its run stays.
func (s *Store) removeBaseline(ctx context.Context, name string) error {
	b, key := s.bucket(subject.BaselinesBucket), subject.EncodeToken(name)
	_, revision, err := b.get(ctx, key)
	if err != nil {
		return err
	}
	if revision == 0 {
		return ErrNoBaseline
	}
	return b.remove(ctx, key, 0)
}

// codeOf returns the error code of the server; 0: the error is not from its API.
func codeOf(err error) jetstream.ErrorCode {
	var refused *jetstream.APIError
	if errors.As(err, &refused) {
		return refused.ErrorCode
	}
	return 0
}

// final reports whether the server would refuse a message again.
func final(err error) bool {
	const leaderless = 10008 // a cluster, at present
	passing := []jetstream.ErrorCode{0, jetstream.JSErrCodeStreamWrongLastSequenceConstant, leaderless}
	return !slices.Contains(passing, codeOf(err)) && !lacksResources(err)
}

// lacksResources reports whether the server or the account lacks memory or disk space.
func lacksResources(err error) bool {
	return slices.Contains([]jetstream.ErrorCode{10002, 10023, 10028, 10047}, codeOf(err))
}

func lastOf(ctx context.Context, s jetstream.Stream, subject string) (stored, error) {
	m, err := s.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return stored{}, nil
	}
	if err != nil {
		return stored{}, fmt.Errorf("read %s: %w", s.CachedInfo().Config.Name, err)
	}
	return stored{Seq: m.Sequence, Header: m.Header}, nil
}

// bucket is a key-value bucket of the control plane. limit bounds each operation.
type bucket struct {
	js    jetstream.JetStream
	name  string
	limit time.Duration
}

func (s *Store) bucket(name string) bucket {
	if name == subject.BaselinesBucket { // its values may be large
		return bucket{s.js, name, slowTimeout}
	}
	return bucket{s.js, name, storeTimeout}
}

func (b bucket) use(ctx context.Context, do func(context.Context, jetstream.KeyValue) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	kv, err := b.js.KeyValue(ctx, b.name)
	if err != nil {
		return fmt.Errorf("read %s; check the NATS server: %w", b.name, err)
	}
	return do(ctx, kv)
}

// get returns the value of a key and its revision, which is 0 if there is none.
func (b bucket) get(ctx context.Context, key string) (value []byte, revision uint64, err error) {
	err = b.use(ctx, func(ctx context.Context, kv jetstream.KeyValue) error {
		e, err := kv.Get(ctx, key)
		if err == nil {
			value, revision = e.Value(), e.Revision()
		}
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil
		}
		return err
	})
	return value, revision, err
}

// put stores the value of a key and returns its new revision. revision is the one that it replaces; 0: the key is new.
func (b bucket) put(ctx context.Context, key string, value []byte, revision uint64) (now uint64, err error) {
	err = b.use(ctx, func(ctx context.Context, kv jetstream.KeyValue) (err error) {
		if revision == 0 {
			now, err = kv.Create(ctx, key, value)
		} else {
			now, err = kv.Update(ctx, key, value, revision)
		}
		return err
	})
	return now, err
}

// remove deletes a value, if it has the revision; 0: any.
func (b bucket) remove(ctx context.Context, key string, revision uint64) error {
	return b.use(ctx, func(ctx context.Context, kv jetstream.KeyValue) error {
		return kv.Delete(ctx, key, jetstream.LastRevision(revision))
	})
}

// each calls take with every value whose key matches. A watch misses a key whose value is replaced while it begins, so
// it is repeated for other keys if the bucket has changed.
func (b bucket) each(ctx context.Context, keys string, take func(jetstream.KeyValueEntry),
	opts ...jetstream.WatchOpt) error {
	b.limit = slowTimeout
	taken := map[string]bool{}
	watch := func(ctx context.Context, kv jetstream.KeyValue) error {
		w, err := kv.Watch(ctx, keys, append(opts, jetstream.IgnoreDeletes())...)
		if err != nil {
			return err
		}
		defer w.Stop() //nolint:errcheck // fails only when the connection is closed
		for {
			select {
			case e, open := <-w.Updates():
				if e == nil || !open { // all existing values have come
					return nil
				}
				if !taken[e.Key()] {
					taken[e.Key()] = true
					take(e)
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return b.use(ctx, func(ctx context.Context, kv jetstream.KeyValue) error {
		for before, n := uint64(0), 0; ; n++ {
			status, err := kv.Status(ctx)
			if err != nil {
				return err
			}
			last := status.(*jetstream.KeyValueBucketStatus).StreamInfo().State.LastSeq
			if n == 5 || n > 0 && last == before { // one of the watches finds a key that changes all the time
				return nil
			}
			before = last
			if err := watch(ctx, kv); err != nil {
				return err
			}
		}
	})
}
