package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrFull is wrapped by the error of what the control plane has no room for. It may have some later.
var ErrFull = errors.New("the control plane has no room for it")

// LimitRecord says how many bytes the record of all runs may take on the control plane: of a stream that Prepare makes, and of the one that is there. It is called
// before Prepare; without it a record has 1 GiB, and one that is there keeps its limit.
func (c *Conn) LimitRecord(bytes int64) { c.recordLimit = bytes }

// LeastRecord is the least that a record needs: a few of the greatest messages.
const LeastRecord = 64 << 20

// mostReserve bounds the part of the record, an eighth, that is kept for what controllers say of runs.
const mostReserve = 128 << 20

// metaLimit is where the stream of the record says its limit: its MaxBytes is less by the reserve, so that its server refuses what agents measure before it
// refuses outcomes.
const metaLimit = "lockstep.limit"

// ordinary is what of a limit agents may use, too.
func ordinary(limit int64) int64 { return limit - min(limit/8, mostReserve) }

// limited sets the limit of the record's stream. Nothing is deleted by that: a stream that holds more takes nothing.
func limited(cfg jetstream.StreamConfig, limit int64) jetstream.StreamConfig {
	cfg.MaxBytes = ordinary(limit)
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	cfg.Metadata[metaLimit] = strconv.FormatInt(limit, 10)
	return cfg
}

// limitOf is the limit of the record's stream; of one that an earlier release made, all of it. 0: it has none.
func limitOf(cfg jetstream.StreamConfig) int64 {
	if limit, err := strconv.ParseInt(cfg.Metadata[metaLimit], 10, 64); err == nil {
		return limit
	}
	return max(cfg.MaxBytes, 0)
}

// roomless tells whether the server refused something for want of room: its own, the stream's, or the account's.
func roomless(err error) bool {
	var refused *jetstream.APIError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.ErrorCode {
	case 10077: // any failure to store
		return strings.HasPrefix(refused.Description, "maximum ")
	case 10002, 10023, 10028, 10047: // resources of the account, the cluster, the memory, the disk
		return true
	}
	return false
}

// draw lets a message of a controller's into the record's reserve: just that much more is allowed, so that little else gets in with it.
func (c *Conn) draw(m *nats.Msg) func(context.Context) error {
	const around = 2048 // headers, and what the stream adds
	return func(ctx context.Context) error {
		c.drawing.Lock()
		defer c.drawing.Unlock()
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		s, err := c.js.Stream(ctx, streamRecord)
		if err != nil {
			return fmt.Errorf("draw on the reserve of %s: %w", streamRecord, err)
		}
		cfg, need := s.CachedInfo().Config, int64(s.CachedInfo().State.Bytes)+int64(len(m.Data))+around
		if limit := limitOf(cfg); need > limit {
			return fmt.Errorf("the reserve is used up, too: %d bytes of %d", s.CachedInfo().State.Bytes, limit)
		}
		if need <= cfg.MaxBytes { // there is room again
			return nil
		}
		cfg.MaxBytes = need
		if _, err = c.js.UpdateStream(ctx, cfg); err != nil {
			return fmt.Errorf("draw on the reserve of %s: %w", streamRecord, err)
		}
		return nil
	}
}

// Room is how full the record of the control plane is.
type Room struct {
	Used, Limit int64 // bytes, without the reserve; no Limit: it has none
	// Uncopied tells that there is the record of a run that has ended and was not copied, so that there may be more room soon. It is looked for
	// only where the record is full.
	Uncopied bool
}

// Full tells whether a task has to wait: what it measures would not be taken.
func (r Room) Full() bool { return r.part() >= 0.9 }

func (r Room) part() float64 {
	if r.Limit <= 0 {
		return 0
	}
	return float64(r.Used) / float64(r.Limit)
}

// String is in words how much is used.
func (r Room) String() string {
	return fmt.Sprintf("%.1f of %.1f MiB", float64(r.Used)/(1<<20), float64(r.Limit)/(1<<20))
}

// The part of the record's room from which on more is made, and how long the record of one run is not looked at again for that.
const (
	crowded     = 0.5
	purgedAgain = 10 * time.Minute
)

// MakeRoom deletes what nobody needs when more than half of the record's room is used: the records of runs that
// have ended and were copied, oldest first and whole ones; not of those that are needed. On a control plane of this process (local) its one follower is
// the copy. It returns how much room there is then.
func (l *Lease) MakeRoom(ctx context.Context, local bool, needed func(run string) bool) (Room, error) {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	l.clearing.Lock()
	defer l.clearing.Unlock()
	room, err := l.room(ctx)
	if err != nil || room.part() < crowded {
		return room, err
	}
	runs, err := l.conn.Runs(ctx)
	if err != nil {
		return room, err
	}
	for _, r := range runs {
		if !r.Over() || !r.Copied && !local || needed(r.Run) || time.Since(l.purged[r.Run]) < purgedAgain {
			continue
		}
		if room, err = l.room(ctx); err != nil || room.part() < crowded {
			return room, err
		}
		if err := l.purge(ctx, streamRecord, 0, recordAll(r.Run)); err != nil {
			return room, err
		}
		l.purged[r.Run] = time.Now()
	}
	if room, err = l.room(ctx); err == nil && room.Full() && !local {
		room.Uncopied, err = l.uncopied(ctx, runs)
	}
	return room, err
}

// uncopied tells whether the record holds a run that has ended and was not copied.
func (l *Lease) uncopied(ctx context.Context, runs []RunState) (bool, error) {
	for _, r := range runs {
		if !r.Over() || r.Copied {
			continue
		}
		if last, err := l.conn.lastMessage(ctx, streamRecord, recordAll(r.Run)); err != nil || last.Seq > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// room is how much of the record is used. What was drawn on the reserve is given back where that is possible.
func (l *Lease) room(ctx context.Context) (Room, error) {
	c := l.conn
	c.drawing.Lock()
	defer c.drawing.Unlock()
	s, err := c.js.Stream(ctx, streamRecord)
	if err != nil {
		return Room{}, fmt.Errorf("look at %s: %w", streamRecord, err)
	}
	info := s.CachedInfo()
	limit := limitOf(info.Config)
	if limit <= 0 {
		return Room{Used: int64(info.State.Bytes)}, nil
	}
	if info.Config.MaxBytes != ordinary(limit) {
		if _, err := c.js.UpdateStream(ctx, limited(info.Config, limit)); err != nil {
			return Room{}, fmt.Errorf("limit %s: %w", streamRecord, err)
		}
	}
	return Room{Used: int64(info.State.Bytes), Limit: ordinary(limit)}, nil
}
