package lease

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// bucket is an in-memory bucket.
type bucket struct {
	mu       sync.Mutex
	value    []byte // nil: no value
	revision uint64
}

type entry struct {
	jetstream.KeyValueEntry
	value    []byte
	revision uint64
}

func (e entry) Value() []byte    { return e.value }
func (e entry) Revision() uint64 { return e.revision }

// link is one peer's link to a bucket. While it is blocked, requests wait. They are executed in order later, also if
// their peer no longer waits.
type link struct {
	bucket   *bucket
	requests chan func()

	mu   sync.Mutex
	open chan struct{} // closed while the link is open
}

func connect(t *testing.T, b *bucket) *link {
	l := &link{bucket: b, requests: make(chan func(), 1000), open: make(chan struct{})}
	l.release()
	go func() {
		for do := range l.requests {
			l.mu.Lock()
			open := l.open
			l.mu.Unlock()
			<-open
			b.mu.Lock()
			do()
			b.mu.Unlock()
		}
	}()
	t.Cleanup(func() { l.release(); close(l.requests) })
	return l
}

func (l *link) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = make(chan struct{})
}

func (l *link) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
	default:
		close(l.open)
	}
}

func request[T any](ctx context.Context, l *link, do func() (T, error)) (answer T, err error) {
	done := make(chan func() (T, error), 1)
	l.requests <- func() {
		answer, err := do()
		done <- func() (T, error) { return answer, err }
	}
	select {
	case answered := <-done:
		return answered()
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

func (l *link) Get(ctx context.Context, _ string) (jetstream.KeyValueEntry, error) {
	return request(ctx, l, func() (jetstream.KeyValueEntry, error) {
		if l.bucket.value == nil {
			return nil, jetstream.ErrKeyNotFound
		}
		return entry{value: l.bucket.value, revision: l.bucket.revision}, nil
	})
}

func (l *link) Create(ctx context.Context, _ string, value []byte, _ ...jetstream.KVCreateOpt) (uint64, error) {
	return request(ctx, l, func() (uint64, error) {
		if l.bucket.value != nil {
			return 0, jetstream.ErrKeyExists
		}
		l.bucket.value, l.bucket.revision = value, l.bucket.revision+1
		return l.bucket.revision, nil
	})
}

func (l *link) Update(ctx context.Context, _ string, value []byte, revision uint64) (uint64, error) {
	return request(ctx, l, func() (uint64, error) {
		if l.bucket.value == nil || l.bucket.revision != revision {
			return 0, &jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence}
		}
		l.bucket.value, l.bucket.revision = value, revision+1
		return l.bucket.revision, nil
	})
}

func config(l *link, name string) Config {
	return Config{Who: Holder{Name: name, Instance: name}, Log: slog.New(slog.DiscardHandler),
		Open: func(context.Context) (Bucket, error) { return l, nil }, Closed: func() bool { return false },
		Final: func(error) bool { return false }}
}

// campaign makes a candidate lead.
func campaign(t *testing.T, l *link, name string) *Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lease, err := Campaign(ctx, config(l, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lease.Resign(context.Background()) })
	return lease
}

// Leaders that follow each other at once have different epochs, also if the bucket is lost between them. Otherwise
// agents could not distinguish them.
func TestEpochsGrowWithinOneInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bucket{}
		l, last := connect(t, b), uint64(0)
		for i := range 20 {
			lease := campaign(t, l, "one")
			if epoch := lease.Holder().Epoch; epoch <= last {
				t.Errorf("epoch %d follows %d", epoch, last)
			}
			last = lease.Holder().Epoch
			lease.Resign(t.Context())
			if i%3 == 0 {
				b.mu.Lock()
				b.value = nil
				b.mu.Unlock()
			}
		}
		if ahead := time.Until(time.UnixMilli(int64(last))); ahead > 0 {
			t.Errorf("the last epoch is %v ahead of the clock", ahead)
		}
	})
}

// A candidate does not wait for an epoch of a host whose clock is ahead.
func TestAnEpochOfTheFutureCausesNoDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := Holder{Epoch: uint64(time.Now().Add(time.Hour).UnixMilli()), Released: true}
		value, err := json.Marshal(ahead)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		lease := campaign(t, connect(t, &bucket{value: value, revision: 7}), "one")
		if took := time.Since(began); lease.Holder().Epoch != ahead.Epoch+1 || took > 100*time.Millisecond {
			t.Errorf("epoch %d follows %d, after %v", lease.Holder().Epoch, ahead.Epoch, took)
		}
	})
}

// TestALeaseOfTheFarFutureIsNotContinued proves that a candidate rejects an epoch that no agent would accept, and leads
// when the lease was deleted.
func TestALeaseOfTheFarFutureIsNotContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, epoch := range []uint64{uint64(time.Now().Add(25 * time.Hour).UnixMilli()), math.MaxUint64} {
			value, err := json.Marshal(Holder{Epoch: epoch, Released: true})
			if err != nil {
				t.Fatal(err)
			}
			b := &bucket{value: value, revision: 7}
			cfg := config(connect(t, b), "one")
			var log bytes.Buffer
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := Campaign(ctx, cfg); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("epoch %d was continued: %v", epoch, err)
			}
			if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "delete the key leader") {
				t.Errorf("the log has %q, want one line with the remedy", text)
			}
			b.mu.Lock()
			b.value = nil
			b.mu.Unlock()
			campaign(t, connect(t, b), "one").Resign(t.Context())
		}
	})
}

// A lease that is not renewed is taken over after TakenAfter, and its former holder ends.
func TestALeaseThatIsNotRenewedIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bucket{}
		way := connect(t, b)
		one := campaign(t, way, "one")
		way.hold()
		began := time.Now()
		two := campaign(t, connect(t, b), "two")
		if took := time.Since(began); took < TakenAfter || took > TakenAfter+lookEvery {
			t.Errorf("the lease was taken after %v, want %v", took, TakenAfter)
		}
		if late := one.Lapsed() - (time.Since(began) - LapsesAfter); late < 0 || late > maxEpochWait {
			t.Errorf("the first lease has lapsed for %v", one.Lapsed())
		}
		way.release()
		<-one.Context().Done()
		if cause := context.Cause(one.Context()); !errors.Is(cause, ErrLost) || two.Context().Err() != nil {
			t.Errorf("two controllers lead: the first one's lease ended with %v", cause)
		}
		if err := one.Confirm(t.Context()); !errors.Is(err, ErrFenced) {
			t.Errorf("a former leader is confirmed: %v", err)
		}
	})
}

// If no other controller led meanwhile, the leader continues with the same epoch.
func TestALapsedLeaseIsRegained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := connect(t, &bucket{})
		lease := campaign(t, way, "one")
		way.hold()
		time.Sleep(LapsesAfter + time.Second)
		if lapsed := lease.Lapsed(); lapsed < time.Second || lapsed > time.Second+maxEpochWait {
			t.Errorf("it has lapsed for %v, want 1s", lapsed)
		}
		way.release()
		if err := lease.Confirm(t.Context()); err != nil || lease.Context().Err() != nil {
			t.Errorf("it cannot renew a lease that no other controller took: %v", err)
		}
		time.Sleep(time.Hour)
		if lapsed := lease.Lapsed(); lapsed < time.Second || lapsed > time.Second+RenewEvery {
			t.Errorf("an hour later it has lapsed for %v", lapsed)
		}
	})
}

// After an outage of the control plane, during which the lease could not be renewed, a standby leaves the leader time.
func TestAStandbyLeavesTheLeaderTimeAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bucket{}
		leads, looks := connect(t, b), connect(t, b)
		campaign(t, leads, "one")
		two := candidate{cfg: config(looks, "two")}
		wait := func(when string) {
			t.Helper()
			if l, err := two.acquire(t.Context()); l != nil || err != nil {
				t.Errorf("%s: %v, %v: want that it waits for the leader", when, l, err)
			}
		}
		wait("the lease of another leader")
		leads.hold()
		looks.hold()
		ctx, cancel := context.WithTimeout(t.Context(), 2*TakenAfter)
		defer cancel()
		if _, err := two.acquire(ctx); err == nil {
			t.Fatal("the control plane answers through a closed link")
		}
		time.AfterFunc(takeTimeout-time.Second, looks.release) // within the timeout of a request
		wait("an answer that came late")
		time.Sleep(TakenAfter - time.Second)
		wait("after the outage")
		time.Sleep(time.Second)
		if l, err := two.acquire(t.Context()); l == nil || err != nil {
			t.Errorf("the leader did not come back: %v", err)
		} else {
			l.Resign(t.Context())
		}
		leads.release()
	})
}

// A released lease is taken over at once.
func TestALeaseThatIsGivenBackIsTakenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bucket{}
		one := campaign(t, connect(t, b), "one")
		time.AfterFunc(time.Hour, func() { one.Resign(context.Background()) })
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		two, err := Campaign(ctx, config(connect(t, b), "two"))
		if err != nil {
			t.Fatal(err)
		}
		defer two.Resign(context.Background())
		if took := time.Since(began); took < time.Hour || took > time.Hour+lookEvery+maxEpochWait {
			t.Errorf("a lease that was given back after 1h was taken after %v", took)
		}
		if one.Context().Err() == nil || two.Holder().Epoch <= one.Holder().Epoch {
			t.Errorf("epoch %d follows %d, which ended: %v", two.Holder().Epoch, one.Holder().Epoch,
				one.Context().Err())
		}
	})
}
