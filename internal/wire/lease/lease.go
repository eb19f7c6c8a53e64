// Package lease elects one leader among the controllers of a control plane, and fences former leaders.
//
// The lease is one value of a bucket, which its holder renews. Each leadership has an epoch that is greater than all
// earlier ones. Writes and commands of a leader carry its epoch, so that those of former leaders are refused.
package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Times of the lease. The holder renews it every RenewEvery. It lapses after LapsesAfter without a renewal: that time
// does not count against timeouts of the leader. A candidate takes it after TakenAfter without a renewal. It measures
// this by its monotonic clock, while the control plane answers. Until then, a holder can renew a lapsed lease.
const (
	RenewEvery  = 2 * time.Second
	LapsesAfter = 4 * time.Second
	TakenAfter  = 6 * time.Second

	lookEvery = RenewEvery / 4 // by candidates

	maxEpochWait = 10 * time.Millisecond // 1 ms is enough unless the wall clocks of hosts differ
)

// Timeouts of one attempt to take the lease, and of giving it back.
const (
	takeTimeout   = 5 * time.Second
	resignTimeout = 5 * time.Second
)

// ErrLost is the cause of the end of a lease's context when this controller no longer leads.
var ErrLost = errors.New("leadership lost: another controller acquired the lease, the control plane lost it, or this controller did not run in time")

// ErrFenced is wrapped by the error of a write or command of a former leader.
var ErrFenced = errors.New("a later controller leads")

// maxAhead is how far an epoch, in milliseconds since 1970, may be ahead of this host's wall clock.
const maxAhead = 24 * time.Hour

// ErrAhead is wrapped by the error of an epoch that no leader can have.
var ErrAhead = errors.New("ahead of this host's clock")

// CheckEpoch returns an error for an epoch that no leader can have. After it, every later leader would be refused.
func CheckEpoch(epoch uint64) error {
	if epoch <= uint64(time.Now().Add(maxAhead).UnixMilli()) {
		return nil
	}
	return fmt.Errorf("epoch %d is more than %v %w; correct the clocks of the hosts, and delete the key %s of bucket "+
		"LOCKSTEP_LEASE while no controller runs", epoch, maxAhead, ErrAhead, Key)
}

// Holder is the value of the lease: the controller that leads.
type Holder struct {
	Epoch    uint64 `json:"epoch"` // grows with each leadership
	Name     string `json:"name"`
	Host     string `json:"host,omitempty"`
	Instance string `json:"instance"` // id of the process
	Version  string `json:"version,omitempty"`
	Record   int64  `json:"record,omitempty"`   // maximum size of the streams of all runs in bytes
	Released bool   `json:"released,omitempty"` // given back: a candidate may take it at once
}

// Bucket stores the lease. It is a part of jetstream.KeyValue.
type Bucket interface {
	Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error)
	Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (uint64, error)
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
}

// Config configures a candidate. All fields are required.
type Config struct {
	Who    Holder // without Epoch and Released
	Open   func(context.Context) (Bucket, error)
	Closed func() bool      // reports whether the connection was closed, so that no renewal can succeed
	Final  func(error) bool // reports whether an error of Open or the bucket ends the campaign
	Log    *slog.Logger     // for changes of the leadership
}

// Key is the key of the lease in its bucket.
const Key = "leader"

// headerEpoch has the epoch of the leadership that sent a message.
const headerEpoch = "Lockstep-Epoch"

// Lease is one leadership. Safe for concurrent use.
type Lease struct {
	cfg     Config
	who     Holder
	ctx     context.Context
	cancel  context.CancelCauseFunc
	healthy atomic.Pointer[func() error] // nil: always healthy

	turn     chan struct{} // one write at a time
	bucket   Bucket
	revision uint64 // of the last write

	mu      sync.Mutex
	renewed time.Time     // start of the last successful renewal
	lapsed  time.Duration // total lapsed time before renewed
}

// Campaign waits until this controller leads, and returns its lease. The lease is renewed until Resign is called or it
// is lost. Campaign retries while servers are away or come back empty. An error is that of ctx, or Final.
func Campaign(ctx context.Context, cfg Config) (*Lease, error) {
	c := candidate{cfg: cfg}
	for {
		l, err := c.acquire(ctx)
		if l != nil {
			cfg.Log.Info("leading", "epoch", l.who.Epoch)
			return l, nil
		}
		if err != nil && cfg.Final(err) {
			return nil, fmt.Errorf("campaign for leadership: %w", err)
		}
		if err != nil && err.Error() != c.logged && ctx.Err() == nil {
			c.logged = err.Error()
			cfg.Log.Warn("cannot campaign for leadership; retrying", "err", err)
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// candidate is the view that a candidate has of the lease.
type candidate struct {
	cfg      Config
	revision uint64    // the last revision seen
	since    time.Time // when revision was first seen
	logged   string    // the last logged error
}

// acquire takes the lease if it is free. It returns nil and no error while another controller holds it, or was faster.
func (c *candidate) acquire(ctx context.Context) (_ *Lease, err error) {
	at := time.Now()
	defer func() {
		// the holder could not renew the lease either, so it gets the full time again
		if err != nil || time.Since(at) > RenewEvery {
			c.since = time.Now()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	bucket, err := c.cfg.Open(ctx)
	if err != nil {
		return nil, err
	}
	var held Holder
	revision := uint64(0)
	e, err := bucket.Get(ctx, Key)
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, fmt.Errorf("read the lease: %w", err)
	}
	if err == nil {
		revision = e.Revision()
		_ = json.Unmarshal(e.Value(), &held) // an unreadable lease is not renewed and so becomes free
		if err := CheckEpoch(held.Epoch); err != nil {
			return nil, fmt.Errorf("read the lease: %w", err)
		}
		own := held.Instance == c.cfg.Who.Instance
		if revision != c.revision {
			if c.revision == 0 && !held.Released && !own {
				c.cfg.Log.Info("standing by", "leader", held.Name, "host", held.Host, "epoch", held.Epoch)
				if held.Record != c.cfg.Who.Record {
					c.cfg.Log.Warn("the leader has a different --record-limit, which applies while it leads; use the same on all controllers",
						"leader", held.Record, "here", c.cfg.Who.Record)
				}
			}
			c.revision, c.since = revision, at
		}
		if !held.Released && !own && at.Sub(c.since) < TakenAfter {
			return nil, nil
		}
	}
	who := c.cfg.Who
	// The epoch must grow even if the bucket was lost. So it is at least the milliseconds since 1970, and hardly ahead.
	who.Epoch = max(held.Epoch+1, uint64(time.Now().UnixMilli()))
	value, _ := json.Marshal(who) // plain data always marshals
	if revision == 0 {
		revision, err = bucket.Create(ctx, Key, value)
	} else {
		revision, err = bucket.Update(ctx, Key, value, revision)
	}
	if IsConflict(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("acquire the lease: %w", err)
	}
	select { // until the wall clock is past the epoch: the next epoch is greater even if the bucket is lost now
	case <-time.After(min(time.Until(time.UnixMilli(int64(who.Epoch)+1)), maxEpochWait)):
	case <-ctx.Done():
	}
	l := &Lease{cfg: c.cfg, who: who, turn: make(chan struct{}, 1), bucket: bucket, revision: revision, renewed: at}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go l.renew()
	return l, nil
}

// Holder returns the holder of this lease.
func (l *Lease) Holder() Holder { return l.who }

// Context ends with the cause ErrLost when the lease is lost, or when it is given back. It does not end with the
// context of Campaign, as work in progress is completed first. It does not end when the lease lapses either.
func (l *Lease) Context() context.Context { return l.ctx }

// Lapsed returns the total time in which the lease had lapsed so far.
func (l *Lease) Lapsed() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lapsed + max(0, time.Since(l.renewed)-LapsesAfter)
}

// RenewWhile makes the renewal depend on healthy. The lease is lost if healthy returns an error at two consecutive
// renewals. A single error may only mean that the whole process was suspended.
func (l *Lease) RenewWhile(healthy func() error) { l.healthy.Store(&healthy) }

// Resign gives the lease back, so that the next controller can take it at once. A lost lease is not changed.
func (l *Lease) Resign(ctx context.Context) {
	lost := l.ctx.Err() != nil
	l.cancel(context.Canceled)
	if lost {
		return
	}
	l.turn <- struct{}{} // no renewal is in progress, and none follows
	defer func() { <-l.turn }()
	l.who.Released = true
	ctx, cancel := context.WithTimeout(ctx, resignTimeout)
	defer cancel()
	var err error
	if l.bucket, err = l.cfg.Open(ctx); err == nil {
		err = l.write(ctx)
	}
	if err != nil {
		l.cfg.Log.Warn("cannot release the lease; the next leader waits until it expires", "err", err)
	}
}

// renew renews the lease until its context ends. It ends the context if healthy fails twice.
func (l *Lease) renew() {
	tick := time.NewTicker(RenewEvery)
	defer tick.Stop()
	for stuck := false; ; {
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			return
		}
		var err error
		if healthy := l.healthy.Load(); healthy != nil {
			err = (*healthy)()
		}
		switch {
		case err == nil:
			_ = l.Confirm(l.ctx) // it logs its error
		case stuck:
			l.cfg.Log.Error("lease not renewed; another controller acquires it", "epoch", l.who.Epoch, "err", err)
			l.cancel(ErrLost)
		}
		stuck = err != nil
	}
}

// Confirm renews the lease now. Success proves that no other controller has led so far, even if a replica of the
// cluster lags behind. The error wraps ErrFenced if the lease was lost, which also ends the lease's context.
func (l *Lease) Confirm(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	at := time.Now()
	writing, cancel := context.WithTimeout(l.ctx, RenewEvery) // the end of ctx does not leave its result unknown
	defer cancel()
	err := l.ctx.Err()
	if err == nil {
		err = l.write(writing)
	}
	switch {
	case l.ctx.Err() != nil:
		return ErrFenced
	case err == nil:
		lapsed := l.Lapsed()
		l.mu.Lock()
		defer l.mu.Unlock()
		if lapsed > l.lapsed {
			l.cfg.Log.Info("lease renewed after it had lapsed; this controller still leads", "epoch", l.who.Epoch, "lapsed",
				lapsed-l.lapsed)
		}
		l.renewed, l.lapsed = at, lapsed
	case errors.Is(err, ErrLost), l.cfg.Closed():
		l.cfg.Log.Warn("another controller acquired the lease, or the connection was closed", "epoch", l.who.Epoch, "err", err)
		l.cancel(ErrLost)
		return ErrFenced
	default:
		l.cfg.Log.Warn("cannot renew the lease", "err", err)
	}
	return err
}

// write stores the lease, also if the answer to an earlier write was lost. The caller has the turn.
func (l *Lease) write(ctx context.Context) (err error) {
	value, _ := json.Marshal(l.who) // plain data always marshals
	for range 3 {
		var now uint64
		if now, err = l.bucket.Update(ctx, Key, value, l.revision); err == nil {
			l.revision = now
		}
		if !IsConflict(err) {
			return err
		}
		e, got := l.bucket.Get(ctx, Key)
		var held Holder
		switch {
		case errors.Is(got, jetstream.ErrKeyNotFound): // lost with its server's memory
			return ErrLost
		case got != nil:
			return got
		case json.Unmarshal(e.Value(), &held) != nil || held.Epoch != l.who.Epoch || held.Instance != l.who.Instance:
			return ErrLost
		}
		l.revision = e.Revision()
	}
	return err
}

// IsConflict reports whether a write was refused because another write came first.
func IsConflict(err error) bool {
	var refused *jetstream.APIError
	return errors.Is(err, jetstream.ErrKeyExists) || IsFenced(err) || errors.As(err, &refused) &&
		refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// IsFenced reports whether a later leadership's fence excludes a write. It is false while a cluster decides on another.
func IsFenced(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

// Stamp sets the epoch in the header of a message.
func Stamp(h nats.Header, epoch uint64) { h.Set(headerEpoch, strconv.FormatUint(epoch, 10)) }

// Epoch returns the epoch from the header of a message; 0: none.
func Epoch(h nats.Header) uint64 {
	n, _ := strconv.ParseUint(h.Get(headerEpoch), 10, 64)
	return n
}
