package wire

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrFull is wrapped by the error of a message whose stream has reached its limit.
var ErrFull = errors.New("the stream is full")

// Limits of the streams of runs. recordBytes is that of all unless LimitRecord says otherwise; fenceBytes is what a
// stream always has space for: a fence, or the end of its run.
const (
	recordBytes = 1 << 30
	maxRuns     = 50 // with streams
	fenceBytes  = 64 << 10
)

// LeastRecord is the minimum of LimitRecord, but for tests: the events of a run may then take four of the largest messages.
const LeastRecord = 128 << 20

// LimitRecord sets how many bytes the streams of all runs may hold in total; 0: 1 GiB, the default. The snapshots of a run
// may take half of it, and its events a quarter. It is called before Campaign.
func (c *Conn) LimitRecord(bytes int64) { c.recordLimit = cmp.Or(bytes, recordBytes) }

// runStream is one of the two streams of a run, as its leader writes it.
type runStream struct {
	conn         *Conn
	name         string
	holds        string // in words
	config       jetstream.StreamConfig
	fenceSubject string
	fence        uint64        // number of the message that opened it to this leadership
	last         atomic.Uint64 // number of the last message that this leadership stored
	turn         chan struct{} // one write at a time: a cluster refuses a second one while it decides on the first
}

func (c *Conn) eventsOf(run string) *runStream {
	return c.runStream("events", streamEvents, rootEvents, run, c.recordLimit/4)
}

// snapshotsOf is the stream of a run's snapshots. The only run of a local control plane may use all of its limit.
func (c *Conn) snapshotsOf(run string) *runStream {
	limit := c.recordLimit / 2
	if c.local {
		limit = c.recordLimit
	}
	return c.runStream("snapshots", streamSnapshots, rootSnapshots, run, limit)
}

func (c *Conn) runStream(holds, stream, root, run string, limit int64) *runStream {
	name := nameOf(stream, run)
	return &runStream{conn: c, name: name, holds: holds, fenceSubject: subjectFence(root, run), turn: make(chan struct{}, 1),
		config: c.stored(jetstream.StreamConfig{Name: name, Subjects: []string{root + token(run) + ".>"}, MaxBytes: limit})}
}

// nameOf is the name of a run's stream. A server takes 255 bytes.
func nameOf(stream, run string) string {
	name := token(run)
	if len(name) > 200 {
		name = fmt.Sprintf("==%x", sha256.Sum256([]byte(run)))
	}
	return stream + name
}

// prepare makes the stream, or gives it its limit again: of a run that ended, it was reduced to what it held.
func (s *runStream) prepare(ctx context.Context, epoch uint64) (jetstream.Stream, error) {
	made, err := s.conn.js.Stream(ctx, s.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		cfg := s.config
		// Numbers go on where a stream was deleted, as a reader has a Cursor. Epochs grow with the milliseconds since 1970.
		cfg.FirstSeq = max(uint64(time.Now().UnixMilli()), epoch)
		made, err = s.conn.js.CreateStream(ctx, cfg)
	} else if err == nil {
		cfg := made.CachedInfo().Config
		cfg.MaxBytes = max(s.config.MaxBytes, int64(made.CachedInfo().State.Bytes)+fenceBytes)
		if s.conn.replicas > 0 {
			cfg.Replicas = s.conn.replicas
		}
		made, err = s.conn.js.UpdateStream(ctx, cfg)
	}
	if lacksResources(err) {
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	if err != nil {
		return nil, fmt.Errorf("make %s with %d bytes: %w", s.name, s.config.MaxBytes, err)
	}
	return made, nil
}

// streamsOfRun are the streams that a run has on the control plane: two, unless they are just made or deleted.
type streamsOfRun []*jetstream.StreamInfo

func (s streamsOfRun) bytes() (n uint64) {
	for _, info := range s {
		n += info.State.Bytes
	}
	return n
}

// runStreams lists the streams of runs, by run.
func (c *Conn) runStreams(ctx context.Context) (map[string]streamsOfRun, error) {
	all := map[string]streamsOfRun{}
	list := c.js.ListStreams(ctx)
	for info := range list.Info() { // whose sender waits until all are read
		name := info.Config.Name
		if !strings.HasPrefix(name, streamEvents) && !strings.HasPrefix(name, streamSnapshots) {
			continue
		}
		words := strings.Split(strings.Join(info.Config.Subjects, "."), ".")
		if run, err := untoken(words[min(2, len(words)-1)]); err == nil {
			all[run] = append(all[run], info)
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list the streams of runs: %w", err)
	}
	return all, nil
}

// MakeRoom deletes the streams of the oldest runs that have ended and were copied, until all together hold less than the
// limit, and there are fewer than 50 with those of run, which is to begin; "" if none is. It keeps those of runs that are
// needed. It returns why run has to wait; "" if it need not, or has streams. The follower of a local control plane is the copy.
// Streams of other runs that have ended reserve no more bytes than they hold.
func (l *Lease) MakeRoom(ctx context.Context, run string, needed func(run string) bool) (waiting string, err error) {
	ctx, cancel := l.bound(ctx)
	defer cancel()
	ctx, late := context.WithTimeout(ctx, storeTimeout) // before another controller could take the lease
	defer late()
	streams, err := l.conn.runStreams(ctx)
	if err != nil {
		return "", err
	}
	runs, err := l.conn.Runs(ctx)
	if err != nil {
		return "", err
	}
	count, used, limit := len(streams), uint64(0), uint64(l.conn.recordLimit)
	for _, s := range streams {
		used += s.bytes()
	}
	if run != "" && streams[run] == nil {
		count++
	}
	if err := l.confirm(ctx); err != nil {
		return "", fmt.Errorf("make room for newer runs: %w", err)
	}
	for _, r := range runs {
		held := streams[r.Run]
		if held == nil || !r.Over() || needed(r.Run) {
			continue
		}
		if remove := (count > maxRuns || used >= limit) && (r.Copied || l.conn.local); !remove {
			err = l.conn.release(ctx, held)
		} else if err = l.conn.remove(ctx, held); err == nil {
			count, used = count-1, used-held.bytes()
		}
		if err != nil {
			return "", fmt.Errorf("make room for newer runs: %w", err)
		}
	}
	const help = "none that has ended was copied: give a controller --dir"
	switch {
	case run == "" || streams[run] != nil:
		return "", nil
	case count > maxRuns:
		return fmt.Sprintf("room on the control plane: %d runs have their streams there, its maximum, and %s", count-1, help), nil
	case used >= limit:
		return fmt.Sprintf("room on the control plane: the streams of %d runs hold %.1f MiB, of %.1f MiB that they may (controller --record-limit), and %s",
			count-1, float64(used)/(1<<20), float64(limit)/(1<<20), help), nil
	}
	return "", nil
}

// release has the server keep no more bytes free for the streams of a run than they hold.
func (c *Conn) release(ctx context.Context, streams streamsOfRun) error {
	for _, info := range streams {
		cfg := info.Config
		if cfg.MaxBytes = max(1, int64(info.State.Bytes)); cfg.MaxBytes >= info.Config.MaxBytes {
			continue
		}
		if _, err := c.js.UpdateStream(ctx, cfg); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes the streams of a run. Its record is gone with its events, which are deleted first: see Recorder.open.
func (c *Conn) remove(ctx context.Context, streams streamsOfRun) error {
	slices.SortFunc(streams, func(a, b *jetstream.StreamInfo) int { return cmp.Compare(a.Config.Name, b.Config.Name) })
	for _, info := range streams {
		if err := c.js.DeleteStream(ctx, info.Config.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
	}
	return nil
}
