package wire

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

// Times of the lease. A leader renews it every LeaseRenew. The lease lapses if that fails for LeaseKeep: what the leader
// waits for is not late meanwhile. A standby takes the lease when it saw no renewal for LeaseFor, by its own monotonic
// clock, while the control plane answered it. A leader whose lease lapsed continues if it can renew the lease before a standby takes it.
const (
	LeaseRenew = 2 * time.Second
	LeaseKeep  = 4 * time.Second
	LeaseFor   = 6 * time.Second
)

// leaseTimes are those of one connection: shorter in tests.
type leaseTimes struct{ renew, keep, take, look time.Duration }

var usualTimes = leaseTimes{renew: LeaseRenew, keep: LeaseKeep, take: LeaseFor, look: LeaseRenew / 4}

// ErrLeaseLost is the cause of a lease's context that ended because this controller does not lead any more.
var ErrLeaseLost = errors.New("leadership was lost: another controller took the lease, the control plane lost it, or this controller was stuck")

// ErrFenced is wrapped by the error of what a former leader wanted to write or to have done.
var ErrFenced = errors.New("a later controller leads")

// LeaderInfo is who leads: the value of the lease.
type LeaderInfo struct {
	Epoch    uint64 `json:"epoch"` // grows with each leadership
	Name     string `json:"name"`
	Host     string `json:"host,omitempty"`
	Instance string `json:"instance"` // of the process
	Version  string `json:"version,omitempty"`
	Record   int64  `json:"record,omitempty"`   // bytes that the streams of all runs may hold: Campaign sets it
	Released bool   `json:"released,omitempty"` // given back: the next may have it at once
}

const keyLeader = "leader"

// headerEpoch names the leadership under which a message was sent.
const headerEpoch = "Lockstep-Epoch"

// Lease is one leadership. Safe for concurrent use.
type Lease struct {
	conn     *Conn
	who      LeaderInfo
	log      *slog.Logger
	ctx      context.Context
	cancel   context.CancelCauseFunc
	done     chan struct{} // closed when nothing renews it any more
	asked    chan chan error
	healthy  atomic.Pointer[func() error] // nil: it always is
	revision uint64                       // of the last renewal; the renewing goroutine's until done is closed

	mu      sync.Mutex
	renewed time.Time     // when the last successful renewal began
	lapsed  time.Duration // total time before that in which the lease had lapsed
}

// Campaign waits until this controller leads, and returns its lease, which is renewed until Resign is called or it is lost. It outlives NATS servers
// that are away or come back empty; an error means that ctx ended or the connection was closed or may not do this. log tells when the standing
// changes; nil: nothing does.
func (c *Conn) Campaign(ctx context.Context, who LeaderInfo, log *slog.Logger) (*Lease, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	who.Record = c.recordLimit
	s := stand{conn: c, who: who, log: log}
	for {
		l, err := s.try(ctx)
		if l != nil {
			log.Info("leading", "epoch", l.who.Epoch)
			return l, nil
		}
		if err != nil && (c.nc.IsClosed() || errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, ErrServers)) {
			return nil, fmt.Errorf("campaign for leadership: %w", err)
		}
		if err != nil && err.Error() != s.said && ctx.Err() == nil {
			s.said = err.Error()
			log.Warn("the control plane does not answer: waiting for it", "err", err)
		}
		if err := wait(ctx, c.times.look); err != nil {
			return nil, err
		}
	}
}

// stand is one candidate's view of the lease.
type stand struct {
	conn     *Conn
	who      LeaderInfo
	log      *slog.Logger
	revision uint64    // the last seen, and
	since    time.Time // since when
	said     string    // the last that was logged
}

// try takes the lease if it is free. It returns neither a lease nor an error while another holds it.
func (s *stand) try(ctx context.Context) (_ *Lease, err error) {
	at := time.Now()
	defer func() {
		if err != nil || time.Since(at) > s.conn.times.renew { // the leader could renew it no better: it is to have the time again
			s.since = time.Now()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	kv, err := s.conn.state(ctx)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		if err = s.conn.Prepare(ctx); err == nil {
			kv, err = s.conn.state(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	e, err := kv.Get(ctx, keyLeader)
	var held LeaderInfo
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return s.take(ctx, kv, held, 0, at)
	case err != nil:
		return nil, fmt.Errorf("read the lease: %w", err)
	}
	_ = json.Unmarshal(e.Value(), &held) // what cannot be read is held by nobody that renews it for long
	if e.Revision() != s.revision {
		if s.revision == 0 && !held.Released && held.Instance != s.who.Instance {
			s.log.Info("standing by", "leader", held.Name, "host", held.Host, "epoch", held.Epoch)
			if held.Record != s.who.Record {
				s.log.Warn("the leader has another --record-limit, which counts while it leads: give all controllers the same",
					"leader", held.Record, "here", s.who.Record)
			}
		}
		s.revision, s.since = e.Revision(), at
	}
	if held.Released || held.Instance == s.who.Instance || at.Sub(s.since) >= s.conn.times.take {
		return s.take(ctx, kv, held, e.Revision(), at)
	}
	return nil, nil
}

// take writes the lease, unless another was faster.
func (s *stand) take(ctx context.Context, kv jetstream.KeyValue, held LeaderInfo, revision uint64, at time.Time) (*Lease, error) {
	who := s.who
	// The epoch grows even when the bucket was lost with a server's memory: no epoch is ahead of the milliseconds since 1970.
	who.Epoch = max(held.Epoch+1, uint64(time.Now().UnixMilli()))
	value, err := json.Marshal(who)
	if err != nil {
		return nil, err
	}
	now, err := replaceValue(ctx, kv, keyLeader, value, revision)
	if conflict(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take the lease: %w", err)
	}
	l := &Lease{conn: s.conn, who: who, log: s.log, revision: now, done: make(chan struct{}), asked: make(chan chan error),
		renewed: at}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go l.renew(kv)
	return l, nil
}

// Epoch numbers the leadership: a later one has a greater number.
func (l *Lease) Epoch() uint64 { return l.who.Epoch }

// Name is that of the controller which leads.
func (l *Lease) Name() string { return l.who.Name }

// Context ends when the lease is lost, with the cause ErrLeaseLost, or was given back. It does not end with the context of Campaign: what is under way is
// led to its end first. It does not end when the lease lapses either: the server refuses what a leader writes after
// another one, and agents refuse what it commands.
func (l *Lease) Context() context.Context { return l.ctx }

// Lapsed returns for how long in total the lease had lapsed up to now.
func (l *Lease) Lapsed() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lapsed + max(0, time.Since(l.renewed)-l.conn.times.keep)
}

// RenewWhile has the lease renewed only while healthy returns nil. The lease is lost when it returns an error at two
// renewals in a row: at one, the whole process may have stood still.
func (l *Lease) RenewWhile(healthy func() error) { l.healthy.Store(&healthy) }

// Resign gives the lease back, so that the next controller has it at once. One that was lost is let be.
func (l *Lease) Resign(ctx context.Context) {
	lost := l.ctx.Err() != nil
	l.cancel(context.Canceled)
	<-l.done
	if lost {
		return
	}
	l.who.Released = true
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	kv, err := l.conn.state(ctx)
	if err == nil {
		err = l.write(ctx, kv)
	}
	if err != nil {
		l.log.Warn("give the lease back: the next leader waits for it to run out", "err", err)
	}
}

// renew keeps the lease until its context ends, or ends that.
func (l *Lease) renew(kv jetstream.KeyValue) {
	defer close(l.done)
	tick := time.NewTicker(l.conn.times.renew)
	defer tick.Stop()
	for stuck := false; ; {
		var answer chan error
		select {
		case <-tick.C:
			var err error
			if healthy := l.healthy.Load(); healthy != nil {
				err = (*healthy)()
			}
			if err != nil && stuck {
				l.log.Error("the lease is not renewed: another controller takes it", "epoch", l.who.Epoch, "err", err)
				l.cancel(ErrLeaseLost)
				return
			}
			if stuck = err != nil; stuck {
				continue
			}
		case answer = <-l.asked:
		case <-l.ctx.Done():
			return
		}
		at := time.Now()
		ctx, cancel := context.WithTimeout(l.ctx, l.conn.times.renew)
		err := l.write(ctx, kv)
		cancel()
		if answer != nil {
			answer <- err
		}
		switch {
		case err == nil:
			lapsed := l.Lapsed()
			l.mu.Lock()
			if lapsed > l.lapsed {
				l.log.Info("the lease had lapsed and is renewed: leading on", "epoch", l.who.Epoch, "lapsed", lapsed-l.lapsed)
			}
			l.renewed, l.lapsed = at, lapsed
			l.mu.Unlock()
		case errors.Is(err, ErrLeaseLost), l.conn.Closed():
			l.log.Warn("another controller took the lease, or the connection was closed", "epoch", l.who.Epoch, "err", err)
			l.cancel(ErrLeaseLost)
			return
		case l.ctx.Err() == nil:
			l.log.Warn("renew the lease", "err", err)
		}
	}
}

// write renews the lease. A renewal whose answer was lost has changed the revision all the same.
func (l *Lease) write(ctx context.Context, kv jetstream.KeyValue) error {
	value, err := json.Marshal(l.who)
	if err != nil {
		return err
	}
	for range 3 {
		var now uint64
		if now, err = kv.Update(ctx, keyLeader, value, l.revision); err == nil {
			l.revision = now
		}
		if !conflict(err) {
			return err
		}
		e, got := kv.Get(ctx, keyLeader)
		var held LeaderInfo
		switch {
		case errors.Is(got, jetstream.ErrKeyNotFound): // with the memory of its server
			return ErrLeaseLost
		case got != nil:
			return got
		case json.Unmarshal(e.Value(), &held) != nil || held.Epoch != l.who.Epoch || held.Instance != l.who.Instance:
			return ErrLeaseLost
		}
		l.revision = e.Revision()
	}
	return err
}

// bound is a context that ends with ctx and with the lease, with the cause of either.
func (l *Lease) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// conflict tells whether a write was refused because another came before it.
func conflict(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) &&
		(refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) ||
		errors.Is(err, jetstream.ErrKeyExists)
}

// fenced tells whether a write was refused because a later leadership's fence is there: not because a cluster was still deciding when the time was up.
func fenced(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

// stamp names the leadership in a message.
func stamp(m *nats.Msg, epoch uint64) { m.Header.Set(headerEpoch, strconv.FormatUint(epoch, 10)) }

// epochOf is the leadership under which a message was sent; 0: none is named.
func epochOf(h nats.Header) uint64 {
	n, err := strconv.ParseUint(h.Get(headerEpoch), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
