package engine

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
)

// sharedConnSession is a session whose connections of one role break when a publisher or consumer of that role closes.
type sharedConnSession struct {
	drivers.Session
	mu    sync.Mutex
	conns map[drivers.Role][]drivers.Conn
}

func (s *sharedConnSession) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	h := drivertest.Hooks{Session: s.Session,
		Publishing: func(ctx context.Context, conn drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher, error) {
			p, err := conn.Publisher(ctx, spec)
			return sharedPublisher{p, s}, err
		},
		Consuming: func(ctx context.Context, conn drivers.Conn, spec drivers.ConsumerSpec,
			handle drivers.Handler) (drivers.Consumer, error) {
			c, err := conn.Consumer(ctx, spec, handle)
			return sharedConsumer{c, s}, err
		}}
	conn, err := h.Connect(ctx, spec)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[spec.Role] = append(s.conns[spec.Role], conn)
	return conn, err
}

func (s *sharedConnSession) cut(role drivers.Role) {
	s.mu.Lock()
	all := s.conns[role]
	s.conns[role] = nil
	s.mu.Unlock()
	for _, c := range all {
		c.Cut()
	}
}

type sharedPublisher struct {
	drivers.Publisher
	of *sharedConnSession
}

func (p sharedPublisher) Close() error {
	p.of.cut(drivers.PublisherRole)
	return p.Publisher.Close()
}

type sharedConsumer struct {
	drivers.Consumer
	of *sharedConnSession
}

func (c sharedConsumer) Close() error {
	c.of.cut(drivers.ConsumerRole)
	return c.Consumer.Close()
}

// When the engine ends for any reason, it records no event for the links that it closes.
func TestTheEndOfTheEngineProducesNoEvent(t *testing.T) {
	for _, how := range []string{"complete", "cancelled", "closed while it runs"} {
		t.Run(how, inVirtualTime(func(t *testing.T) {
			s := newTestTask(t, func(w *plan.Workload) {
				w.Publishers.Threads, w.Consumers.Threads, w.Publishers.Mode, w.Publishers.Rate = 3, 3,
					"confirm-window", 1000
			})
			s.wrapSession = func(session drivers.Session) drivers.Session {
				return &sharedConnSession{Session: session, conns: map[drivers.Role][]drivers.Conn{}}
			}
			var e *Engine
			s.onNew = func(made *Engine) { e = made }
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s.duringMeasurement = func(string) {
				switch how {
				case "cancelled":
					time.AfterFunc(300*time.Millisecond, cancel)
				case "closed while it runs":
					time.AfterFunc(300*time.Millisecond, func() {
						cancel()
						_ = e.Close(context.Background())
					})
				}
			}
			for _, event := range s.run(ctx).Events() {
				t.Errorf("got event %+v, want none", event)
			}
		}))
	}
}

// The notification of a broken link may arrive after the link was replaced. A publisher that waits on the new link must
// continue to wait.
func TestLateNotificationOfABrokenLink(t *testing.T) {
	s := newTestTask(t, func(w *plan.Workload) { w.Publishers.Mode = "confirm-each" })
	e, err := New(Config{Assignment: s.assignment(), Session: instantSession{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ConnectPublishers(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := e.publishers[0]
	e.journal.mu.Lock() // delays the event of the broken link
	reported := make(chan struct{})
	go func() {
		p.link.onClosed(1, drivers.ErrClosed)
		close(reported)
	}()
	for !p.link.down.Load() {
		runtime.Gosched()
	}
	p.link.disconnect()
	e.journal.mu.Unlock()
	<-reported
	if err := p.link.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	token, _ := p.window.take()
	p.window.slots[token].out = true
	time.AfterFunc(50*time.Millisecond, func() {
		p.window.free(uint64(token), 1)
		p.window.release()
	})
	if !p.await(t.Context(), 1) {
		t.Error("await: got false, want true: the link was opened again")
	}
}

// A link that cannot be opened again stays down, and further notifications have no effect.
func TestALinkThatCannotBeOpenedAgainStaysDown(t *testing.T) {
	s := newTestTask(t, func(w *plan.Workload) { w.Publishers.Mode = "confirm-each" })
	e, err := New(Config{Assignment: s.assignment(), Session: instantSession{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ConnectPublishers(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := &e.publishers[0].link
	l.fail(drivers.ErrClosed)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if brokeAt, ok := l.reopen(over); ok || brokeAt == 0 {
		t.Fatalf("reopen with an ended context: got %v, broken at %d, want false and a time", ok, brokeAt)
	}
	if !l.down.Load() {
		t.Error("down: got false, want true: the link was not reopened")
	}
	l.fail(drivers.ErrClosed)
	if err := l.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.finish()
	l.fail(drivers.ErrClosed)
	if brokeAt, ok := l.reopen(t.Context()); ok || brokeAt != 0 {
		t.Errorf("reopen after finish: got %v, broken at %d, want false and 0", ok, brokeAt)
	}
}
