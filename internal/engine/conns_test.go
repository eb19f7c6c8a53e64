package engine

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// countingSession is a session that counts its connections. Connecting takes a second.
type countingSession struct {
	drivers.Session
	broken   bool         // connections have ended when Connect returns
	failures atomic.Int64 // number of attempts that fail
	dials    atomic.Int64
	closed   atomic.Int64
}

type countingConn struct {
	drivertest.Conn
	of *countingSession
}

func (d *countingSession) Connect(ctx context.Context, _ drivers.ConnSpec) (drivers.Conn, error) {
	d.dials.Add(1)
	if err := clock.Until(ctx, clock.Now()+int64(time.Second)); err != nil {
		return nil, err
	}
	if d.failures.Add(-1) >= 0 {
		return nil, errors.New("refused")
	}
	c := &countingConn{of: d}
	if d.broken {
		c.Cut()
	}
	return c, nil
}

func (c *countingConn) Close() error {
	c.of.closed.Add(1)
	return c.Conn.Close()
}

// acquireAll concurrently acquires a connection for each key.
func acquireAll(t *testing.T, c *conns, onEnd func(error), keys ...connKey) (leases []*lease, failed int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, key := range keys {
		wg.Go(func() {
			l, err := c.acquire(t.Context(), key, onEnd)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed++
				return
			}
			leases = append(leases, l)
		})
	}
	wg.Wait()
	return leases, failed
}

func release(l *lease) { _ = l.close(func() error { return nil }) }

// Concurrent users of one key dial once, and the last one closes the connection. Other keys, and exclusive connections,
// are separate. If dialling fails for one user, the next user dials.
func TestConnectionsAreShared(t *testing.T) {
	publisher, consumer := drivers.ConnSpec{Role: drivers.PublisherRole}, drivers.ConnSpec{Role: drivers.ConsumerRole}
	for name, c := range map[string]struct {
		keys         []connKey
		fails, dials int64
		conns        int64
	}{
		"one key":   {keys: []connKey{{0, publisher}, {0, publisher}, {0, publisher}}, dials: 1, conns: 1},
		"roles":     {keys: []connKey{{0, publisher}, {0, consumer}}, dials: 2, conns: 2},
		"numbers":   {keys: []connKey{{0, publisher}, {1, publisher}, {1, publisher}}, dials: 2, conns: 2},
		"exclusive": {keys: []connKey{{exclusive, publisher}, {exclusive, publisher}}, dials: 2, conns: 2},
		"one fails": {keys: []connKey{{0, publisher}, {0, publisher}, {0, publisher}}, fails: 1, dials: 2, conns: 1},
		"all fail":  {keys: []connKey{{0, publisher}, {0, publisher}}, fails: 9, dials: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &countingSession{}
				d.failures.Store(c.fails)
				all := &conns{session: d, shared: map[connKey]*sharedConn{}}
				leases, failed := acquireAll(t, all, func(err error) { t.Errorf("onEnd was called with %v", err) },
					c.keys...)
				if d.dials.Load() != c.dials || int64(failed) != min(c.fails, int64(len(c.keys))) {
					t.Errorf("got %d dials, %d failed users, want %d, %d", d.dials.Load(), failed, c.dials, c.fails)
				}
				for i, l := range leases {
					if n := d.closed.Load(); i == 0 && n > 0 {
						t.Errorf("closed connections before the first release: got %d, want 0", n)
					}
					release(l)
					release(l)
				}
				synctest.Wait()
				if d.closed.Load() != c.conns || len(all.shared) != 0 {
					t.Errorf("after all releases: got %d closed, %d shared connections, want %d, 0", d.closed.Load(),
						len(all.shared), c.conns)
				}
			})
		})
	}
}

// The end of a connection is reported once to each user that has not released it. The next user dials again.
func TestABrokenConnectionIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &countingSession{}
		all := &conns{session: d, shared: map[connKey]*sharedConn{}}
		var reports atomic.Int64
		key := connKey{spec: drivers.ConnSpec{Role: drivers.PublisherRole}}
		leases, _ := acquireAll(t, all, func(err error) {
			if !errors.Is(err, drivers.ErrClosed) {
				t.Errorf("reported error: got %v, want drivers.ErrClosed", err)
			}
			reports.Add(1)
		}, key, key, key)
		release(leases[0])
		leases[1].Cut()
		next, err := all.acquire(t.Context(), key, func(error) { t.Error("onEnd was called for the next connection") })
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if reports.Load() != 2 || d.dials.Load() != 2 {
			t.Errorf("got %d reports, %d dials, want 2, 2", reports.Load(), d.dials.Load())
		}
		for _, l := range []*lease{leases[1], leases[2], next} {
			release(l)
		}
		synctest.Wait()
		if d.closed.Load() != 2 {
			t.Errorf("got %d closed connections, want 2", d.closed.Load())
		}
	})
}

// A connection that ends before its user is registered is an error.
func TestAConnectionThatEndsAtOnceIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &countingSession{broken: true}
		c := &conns{session: d, shared: map[connKey]*sharedConn{}}
		leases, failed := acquireAll(t, c, func(error) {}, connKey{}, connKey{})
		if len(leases) > 0 || failed != 2 || d.closed.Load() != d.dials.Load() {
			t.Errorf("got %d leases, %d failed users, %d dials, %d closed connections, want 0, 2, and all closed",
				len(leases), failed, d.dials.Load(), d.closed.Load())
		}
	})
}

// A user that waits while another user dials returns when its own context ends.
func TestWaitForASharedConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &countingSession{}
		all := &conns{session: d, shared: map[connKey]*sharedConn{}}
		go func() {
			l, err := all.acquire(t.Context(), connKey{}, func(error) {})
			if err != nil {
				t.Error(err)
				return
			}
			release(l)
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := all.acquire(ctx, connKey{}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want context.DeadlineExceeded", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if d.closed.Load() != 1 || len(all.shared) != 0 {
			t.Errorf("got %d closed, %d shared connections, want 1, 0", d.closed.Load(), len(all.shared))
		}
	})
}

// Followers and leaders depend on the queue, so that only publishers of one queue share such a connection.
func TestConnectionsOfLeadersAreNotSharedByQueues(t *testing.T) {
	for node, want := range map[plan.Node]int{"any": 1, "spread": 1, "leader": 3, "follower": 3} {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Threads, w.Consumers.Threads, w.Topology.Queues, w.Topology.Connections = 6, 6, 3, "shared"
			w.Publishers.Node, w.Consumers.Node = node, node
		})
		e, err := New(Config{Assignment: s.assignment()})
		if err != nil {
			t.Fatal(err)
		}
		publishers, consumers := map[connKey]bool{}, map[connKey]bool{}
		for _, p := range e.publishers {
			publishers[p.conn] = true
		}
		for _, c := range e.consumers {
			consumers[c.conn] = true
		}
		if len(publishers) != want || len(consumers) != want {
			t.Errorf("node %s: got %d connections of publishers, %d of consumers, want %d of each", node,
				len(publishers), len(consumers), want)
		}
	}
}

// endingClient is a publisher or consumer that can end while its connection stays open.
type endingClient struct {
	drivers.Publisher
	drivers.Consumer
	kit.State
	close func() error
}

func (e *endingClient) Done() <-chan struct{} { return e.State.Done() }
func (e *endingClient) Err() error            { return e.State.Err() }
func (e *endingClient) Close() error {
	e.End()
	return e.close()
}

// A publisher or consumer that ends while it is idle is replaced. Others on its connection are not.
func TestTheEndOfOnePublisherOrConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Threads, w.Consumers.Threads, w.Publishers.Rate, w.Topology.Connections = 2, 2, 20, "shared"
		})
		var mu sync.Mutex
		var made []*endingClient
		add := func(e *endingClient) *endingClient {
			mu.Lock()
			defer mu.Unlock()
			made = append(made, e)
			return e
		}
		s.wrapSession = func(session drivers.Session) drivers.Session {
			return drivertest.Hooks{Session: session,
				Publishing: func(ctx context.Context, conn drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher, error) {
					p, err := conn.Publisher(ctx, spec)
					return add(&endingClient{Publisher: p, close: p.Close}), err
				},
				Consuming: func(ctx context.Context, conn drivers.Conn, spec drivers.ConsumerSpec,
					handle drivers.Handler) (drivers.Consumer, error) {
					c, err := conn.Consumer(ctx, spec, handle)
					return add(&endingClient{Consumer: c, close: c.Close}), err
				}}
		}
		s.duringMeasurement = func(string) {
			_ = clock.Until(t.Context(), clock.Now()+int64(525*time.Millisecond)) // between two messages
			mu.Lock()
			defer mu.Unlock()
			made[0].Broke(errors.New("a channel was closed"))
			made[len(made)-1].Broke(errors.New("a queue was deleted"))
		}
		m := s.run(t.Context())
		if n := m.Total(record.Reconnects); n != 2 || len(made) != 6 {
			t.Errorf("got %d reconnects, %d publishers and consumers, want 2, 6", n, len(made))
		}
		var reasons []string
		for _, e := range m.Events() {
			if e.Kind == eventClosed {
				reasons = append(reasons, e.Detail)
			}
		}
		if all := strings.Join(reasons, "\n"); len(reasons) != 2 || !strings.Contains(all, "a channel was closed") ||
			!strings.Contains(all, "a queue was deleted") {
			t.Errorf("details of closed events: got %q, want two with the injected reasons", reasons)
		}
		if a := m.Accounting(1); a.Missing != 0 || a.Sent < 18 {
			t.Errorf("accounting: got %+v, want at least 18 sent, none missing", a)
		}
	})
}

// blockingPublisher is a client library whose Publish returns only when its connection is cut.
type blockingPublisher struct {
	instantPublisher
	conn *drivertest.Conn
}

func (d blockingPublisher) Publish(context.Context, drivers.Message) error {
	<-d.conn.Done()
	return drivers.ErrClosed
}

func (d blockingPublisher) Flush(context.Context) error { return nil }

type blockingSession struct {
	drivers.Session
	cuts atomic.Int64
	cut  atomic.Int64 // reading of the clock
}

type blockingConn struct {
	drivertest.Conn
	of *blockingSession
}

func (s *blockingSession) Connect(context.Context, drivers.ConnSpec) (drivers.Conn, error) {
	c := &blockingConn{of: s}
	c.Publishing = func(drivers.PublisherSpec) (drivers.Publisher, error) {
		return blockingPublisher{conn: &c.Conn},
			nil
	}
	return c, nil
}

func (c *blockingConn) Cut() {
	c.of.cuts.Add(1)
	c.of.cut.Store(clock.Now())
	c.Conn.Cut()
}

// A call that blocks beyond the drain timeout is ended by a cut of its connection. The cut is not recorded as a broken
// link.
func TestBlockedCallsAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &blockingSession{}
		start := clock.Now()
		m, _ := runWithSession(t, s, 10, 0, time.Second)
		want := start + int64(time.Second+20*time.Millisecond) // measurement and drain timeout
		if after := time.Duration(s.cut.Load() - want); s.cuts.Load() != 1 || after < 0 || after > time.Second {
			t.Errorf("got %d cuts, the last one %v after the drain timeout, want 1 within a second", s.cuts.Load(),
				after)
		}
		for _, e := range m.Events() {
			t.Errorf("got event %+v, want none", e)
		}
	})
}

// A publisher that closes its connection when the drain ends is not cut: closing sends messages.
func TestClosingIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cuts atomic.Int64
		s := fakeSession{publisher: func(drivers.PublisherSpec) drivers.Publisher { return slowClosePublisher{} }}
		hooks := drivertest.Hooks{Session: s, Connecting: func(ctx context.Context, inner drivers.Session,
			spec drivers.ConnSpec) (drivers.Conn, error) {
			c, err := inner.Connect(ctx, spec)
			return cutCounter{c, &cuts}, err
		}}
		runWithSession(t, hooks, 0, 0, 99*time.Millisecond, func(a *plan.Assignment) {
			a.Task.Cell.Workload.Publishers.Mode = "connection-per-message"
		})
		if cuts.Load() > 0 {
			t.Errorf("got %d cuts, want 0", cuts.Load())
		}
	})
}

type cutCounter struct {
	drivers.Conn
	cuts *atomic.Int64
}

func (c cutCounter) Cut() {
	c.cuts.Add(1)
	c.Conn.Cut()
}

// Consumers that fail for the same reason are reported once.
func TestEqualErrorsOccurOnce(t *testing.T) {
	err := each([]string{"refused", "", "reset", "refused"}, func(text string) error {
		if text == "" {
			return nil
		}
		return errors.New(text)
	})
	if want := "refused\nreset"; err == nil || err.Error() != want {
		t.Errorf("got error %q, want %q", err, want)
	}
	if err := each([]string{"", ""}, func(string) error { return nil }); err != nil {
		t.Errorf("without a failure: got error %q, want nil", err)
	}
}
