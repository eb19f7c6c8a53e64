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

// oneConnection is a session whose connections of one role break when a publisher or consumer of that role closes.
type oneConnection struct {
	drivers.Session
	mu    sync.Mutex
	conns map[drivers.Role][]drivers.Conn
}

func (s *oneConnection) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
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

func (s *oneConnection) end(role drivers.Role) {
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
	of *oneConnection
}

func (p sharedPublisher) Close() error {
	p.of.end(drivers.PublisherRole)
	return p.Publisher.Close()
}

type sharedConsumer struct {
	drivers.Consumer
	of *oneConnection
}

func (c sharedConsumer) Close() error {
	c.of.end(drivers.ConsumerRole)
	return c.Consumer.Close()
}

// Links that the engine closes at its end are neither faults nor events, for any reason of the end.
func TestTheEndOfTheEngineProducesNoEvent(t *testing.T) {
	for _, how := range []string{"complete", "cancelled", "closed while it runs"} {
		t.Run(how, bubbled(func(t *testing.T) {
			s := newSubject(t, func(w *plan.Workload) {
				w.Publishers.Threads, w.Consumers.Threads, w.Publishers.Mode, w.Publishers.Rate = 3, 3,
					"confirm-window", 1000
			})
			s.wrap = func(session drivers.Session) drivers.Session {
				return &oneConnection{Session: session, conns: map[drivers.Role][]drivers.Conn{}}
			}
			var e *Engine
			s.made = func(made *Engine) { e = made }
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s.during = func(string) {
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
			for _, event := range s.play(ctx).Events() {
				t.Errorf("event %+v, want none", event)
			}
		}))
	}
}

// The notification of a broken link may arrive after the link was replaced. A publisher that waits on the new link must
// continue to wait.
func TestLateNewsOfABrokenLinkDoesNotEndAWait(t *testing.T) {
	s := newSubject(t, func(w *plan.Workload) { w.Publishers.Mode = "confirm-each" })
	e, err := New(Config{Assignment: s.task(), Session: instant{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ConnectPublishers(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := e.publishers[0]
	e.journal.mu.Lock() // delays the event of the broken link
	told := make(chan struct{})
	go func() {
		p.link.onClosed(1, drivers.ErrClosed)
		close(told)
	}()
	for !p.link.down.Load() {
		runtime.Gosched()
	}
	p.link.disconnect()
	e.journal.mu.Unlock()
	<-told
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
		t.Error("the link counts as broken, although it was opened again")
	}
}

// A link that cannot be opened again stays down, and further notifications have no effect.
func TestALinkThatCannotBeOpenedAgainStaysDown(t *testing.T) {
	s := newSubject(t, func(w *plan.Workload) { w.Publishers.Mode = "confirm-each" })
	e, err := New(Config{Assignment: s.task(), Session: instant{}, Log: slog.New(slog.DiscardHandler)})
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
		t.Fatalf("reopened: %v, broke at %d", ok, brokeAt)
	}
	if !l.down.Load() {
		t.Error("the link counts as open, and has no connection")
	}
	l.fail(drivers.ErrClosed)
	if err := l.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.finish()
	l.fail(drivers.ErrClosed)
	if brokeAt, ok := l.reopen(t.Context()); ok || brokeAt != 0 {
		t.Errorf("reopened: %v, broke at %d; want no break of a link that the engine ended", ok, brokeAt)
	}
}
