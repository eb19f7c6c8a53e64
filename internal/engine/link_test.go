package engine

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/pkg/drivers"
)

// oneConnection is a session with one connection for all publishers and one for all consumers. Closing one of them
// breaks the links of all.
type oneConnection struct {
	drivers.Session
	publishers, consumers sharedLinks
}

// sharedLinks are the callbacks for the open links of one role.
type sharedLinks struct {
	mu   sync.Mutex
	open map[int]func(error)
	next int
}

func (s *sharedLinks) add(onClosed func(error)) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[int]func(error){}
	}
	s.next++
	s.open[s.next] = onClosed
	return s.next
}

func (s *sharedLinks) end(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, number)
	for other, onClosed := range s.open {
		delete(s.open, other)
		onClosed(drivers.ErrClosed)
	}
}

func (s *oneConnection) Publisher(ctx context.Context, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	p, err := s.Session.Publisher(ctx, spec)
	return sharedPublisher{p, &s.publishers, s.publishers.add(spec.OnClosed)}, err
}

func (s *oneConnection) Consumer(ctx context.Context, spec drivers.ConsumerSpec,
	handle drivers.Handler) (drivers.Consumer, error) {
	c, err := s.Session.Consumer(ctx, spec, handle)
	return sharedConsumer{c, &s.consumers, s.consumers.add(spec.OnClosed)}, err
}

type sharedPublisher struct {
	drivers.Publisher
	links  *sharedLinks
	number int
}

func (p sharedPublisher) Close() error {
	p.links.end(p.number)
	return p.Publisher.Close()
}

type sharedConsumer struct {
	drivers.Consumer
	links  *sharedLinks
	number int
}

func (c sharedConsumer) Close() error {
	c.links.end(c.number)
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
			s.wrap = func(session drivers.Session) drivers.Session { return &oneConnection{Session: session} }
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
