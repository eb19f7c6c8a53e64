package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// breaking makes publishers that end. The messages of a publisher from number whole on are accepted, and never stored.
// It ends after kept such messages, or when it is flushed with at least one.
type breaking struct {
	whole, kept int
	refuses     bool // it ends with an error of Publish
	silent      bool // it does not report its end
	confirms    bool // the confirms of the messages come when it ends, not when it is closed
	lost        atomic.Int64
	unreachable atomic.Int64 // reading of the clock from which no publisher can connect; 0: never
}

func (b *breaking) publish(ctx context.Context, conn drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	if at := b.unreachable.Load(); at != 0 && clock.Now() >= at {
		return nil, errors.New("connection refused")
	}
	_ = clock.Until(ctx, clock.Now()+int64(20*time.Millisecond)) // time of connecting
	inner, err := conn.Publisher(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &breakingPublisher{Publisher: inner, of: b, spec: spec}, nil
}

type breakingPublisher struct {
	drivers.Publisher
	kit.State
	once   sync.Once
	of     *breaking
	spec   drivers.PublisherSpec
	passed int
	tokens []uint64
	over   bool
}

func (p *breakingPublisher) Done() <-chan struct{} { return p.State.Done() }
func (p *breakingPublisher) Err() error            { return p.State.Err() }

func (p *breakingPublisher) Publish(ctx context.Context, m drivers.Message) error {
	if p.over {
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	if p.passed++; p.passed <= p.of.whole {
		return p.Publisher.Publish(ctx, m)
	}
	p.of.lost.Add(1)
	if p.of.refuses {
		p.breaks()
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	p.tokens = append(p.tokens, m.Token)
	if len(p.tokens) == p.of.kept {
		p.breaks()
	}
	return nil
}

func (p *breakingPublisher) breaks() {
	p.over = true
	if !p.of.silent {
		p.Broke(drivers.ErrClosed)
	}
	if p.of.confirms {
		p.fail()
	}
}

func (p *breakingPublisher) fail() {
	if len(p.tokens) > 0 {
		p.spec.OnConfirms(p.tokens, drivers.ErrClosed)
	}
	p.tokens = nil
}

func (p *breakingPublisher) Flush(ctx context.Context) error {
	if len(p.tokens) > 0 && !p.over {
		p.breaks()
	}
	return p.Publisher.Flush(ctx)
}

func (p *breakingPublisher) Close() error {
	p.once.Do(func() {
		p.End()
		_ = p.Publisher.Close()
		p.fail()
	})
	return nil
}

// resilient returns a workload with paced publishers, whose links break after every 40 messages.
func resilient(t *testing.T, mode string, resilience drivers.Resilience) (subject, *breaking) {
	s := newSubject(t, func(w *plan.Workload) {
		w.Publishers.Mode, w.Publishers.Threads, w.Consumers.Threads = mode, 2, 2
		w.Publishers.Rate, w.Publishers.MaxInFlight, w.Publishers.Batch = 2000, 50, plan.Batch{Min: 7, Max: 7}
		w.Warmup = 0
	})
	s.resilience = resilience
	b := &breaking{whole: 40, kept: 5}
	if s.work.Publishers.Mode == string(drivers.ConnectionPerMessageConfirm) {
		b.whole, b.kept = 0, 1
	}
	s.wrap = func(session drivers.Session) drivers.Session { return publishers(session, b.publish) }
	return s, b
}

// A message whose link broke before the confirm is published again with its own body, until it is confirmed. Without
// resilience it stays unconfirmed, and is lost.
func TestRepublish(t *testing.T) {
	sizes := []plan.SizeShare{{Min: 100, Max: 300, Weight: 1}}
	for _, mode := range []string{"confirm-window", "confirm-batch", "confirm-each"} {
		for _, how := range []string{"same bodies", "different sizes", "own bodies", "Publish fails", "none"} {
			t.Run(mode+" "+how, bubbled(func(t *testing.T) {
				s, b := resilient(t, mode, drivers.ByGuide)
				s.copies = how != "own bodies"
				b.refuses = how == "Publish fails"
				if how == "different sizes" {
					s.work.Message.Size, s.work.Message.Sizes = 300, sizes
				}
				if how == "none" {
					s.resilience = drivers.NoResilience
				}
				m := s.play(t.Context())
				a, lost := m.Accounting(1), b.lost.Load()
				if a.Sent < 1900 || lost < 40 || a.Corrupt != 0 || a.Duplicated != 0 {
					t.Errorf("%+v, %d lost; want about 2000 sent, and 40 or more lost by the links", a, lost)
				}
				if how == "none" {
					if int64(a.Missing) != lost || m.Total(record.Unconfirmed) != lost ||
						m.Total(record.Republished) != 0 {
						t.Errorf("%d missing, %d unconfirmed, %d republished; the links lost %d", a.Missing,
							m.Total(record.Unconfirmed), m.Total(record.Republished), lost)
					}
					return
				}
				if a.Missing != 0 || a.Confirmed != a.Sent || m.Total(record.Unconfirmed) != 0 ||
					m.Total(record.PublishErrors) != 0 || m.Total(record.Republished) != lost {
					t.Errorf("%+v, %d unconfirmed, %d publish errors, %d republished; the links lost %d, and all must be sent again",
						a, m.Total(record.Unconfirmed), m.Total(record.PublishErrors), m.Total(record.Republished), lost)
				}
				if got := m.Hist(record.Publish); got.Count() != a.Sent || got.Max() < 20e6 {
					t.Errorf("%d publish latencies of at most %d ns; want %d, from the first publish call", got.Count(),
						got.Max(), a.Sent)
				}
			}))
		}
	}
}

// With a connection per message, the message is sent again over another connection.
func TestRepublishOverOwnConnection(t *testing.T) {
	bubbled(func(t *testing.T) {
		s, b := resilient(t, "connection-per-message-confirm", drivers.ByGuide)
		s.work.Publishers.Rate = 10
		var connections atomic.Int64
		s.wrap = func(session drivers.Session) drivers.Session {
			return publishers(session, func(ctx context.Context, conn drivers.Conn,
				spec drivers.PublisherSpec) (drivers.Publisher, error) {
				if connections.Add(1)%3 != 0 { // two of three connections break
					return b.publish(ctx, conn, spec)
				}
				return conn.Publisher(ctx, spec)
			})
		}
		m := s.play(t.Context())
		a := m.Accounting(1)
		if a.Sent < 9 || a.Missing != 0 || a.Confirmed != a.Sent || b.lost.Load() == 0 ||
			m.Total(record.Republished) != b.lost.Load() {
			t.Errorf("%+v, %d republished, %d lost by their connections", a, m.Total(record.Republished), b.lost.Load())
		}
	})(t)
}

// The broker stored the messages, and the link broke before their confirms. Their second delivery is a duplicate. One
// more message may be published while the link breaks: it was not stored.
func TestRepublishedAreDuplicates(t *testing.T) {
	bubbled(func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Warmup, w.Publishers.Mode = 1000, 0, "confirm-window"
		})
		s.options = `{"confirmDelay": "50ms"}`
		s.resilience = drivers.ByGuide
		s.during = func(name string) {
			_ = clock.Until(t.Context(), clock.Now()+int64(500*time.Millisecond+time.Microsecond))
			loopback.Cut(name)
		}
		m := s.play(t.Context())
		a, again := m.Accounting(1), m.Total(record.Republished)
		if again < 45 || again > 55 || int64(a.Duplicated) > again || int64(a.Duplicated) < again-1 || a.Missing != 0 || a.Confirmed != a.Sent {
			t.Errorf("%+v, %d republished; want about 50, which are delivered twice", a, again)
		}
	})(t)
}

// Messages are sent again until the drain timeout. Then they are unconfirmed.
func TestRepublishEndsWithTheDrain(t *testing.T) {
	bubbled(func(t *testing.T) {
		s, b := resilient(t, "confirm-window", drivers.ByGuide)
		b.unreachable.Store(clock.Now() + int64(500*time.Millisecond))
		began := clock.Now()
		m := s.play(t.Context())
		took := time.Duration(clock.Now() - began)
		a := m.Accounting(1)
		if a.Missing == 0 || int64(a.Missing) != m.Total(record.Unconfirmed) ||
			uint64(m.Total(record.Unconfirmed))+a.Confirmed != a.Sent {
			t.Errorf("%+v, %d unconfirmed; want the messages of the last links missing", a, m.Total(record.Unconfirmed))
		}
		want := s.work.Measure.D() + s.work.Drain.Timeout.D()
		if took < want || took > want+5*time.Second {
			t.Errorf("the run took %v, want %v until the drain timeout", took, want)
		}
		if n := m.Hist(record.PublishFailed).Max(); n < int64(s.work.Drain.Timeout.D()) {
			t.Errorf("an unconfirmed message failed after %v, want at least the drain timeout", time.Duration(n))
		}
	})(t)
}

// Messages are sent again at once, also if the next scheduled send is far away.
func TestRepublishDoesNotWaitForTheSchedule(t *testing.T) {
	for _, mode := range []string{"confirm-window", "confirm-each"} {
		bubbled(func(t *testing.T) {
			s := newSubject(t, func(w *plan.Workload) {
				w.Publishers.Rate, w.Warmup, w.Publishers.Mode, w.Measure = 1, 0, mode, plan.Duration(8*time.Second)
			})
			s.options, s.resilience = `{"confirmDelay": "50ms"}`, drivers.ByGuide
			s.during = func(name string) { // 10 ms after a send
				_ = clock.Until(t.Context(), clock.Now()+int64(3010*time.Millisecond))
				loopback.Cut(name)
			}
			m := s.play(t.Context())
			if n := m.Total(record.Republished); n == 0 || m.Accounting(1).Confirmed != 8 {
				t.Errorf("%s: %d republished, %+v", mode, n, m.Accounting(1))
			}
			if most := time.Duration(m.Hist(record.Publish).Max()); most < 55*time.Millisecond || most > 100*time.Millisecond {
				t.Errorf("%s: a latency of %v, want that until the cut and that of the second publish call", mode, most)
			}
		})(t)
	}
}

// A message that breaks every link is sent again with growing pauses, up to a second.
func TestRepublishBacksOff(t *testing.T) {
	bubbled(func(t *testing.T) {
		s, b := resilient(t, "confirm-window", drivers.ByGuide)
		s.work.Publishers.Threads, b.whole, b.kept = 1, 0, 1
		m := s.play(t.Context())
		if n := b.lost.Load(); n < 8 || n > 20 {
			t.Errorf("%d attempts in 6 s, want about 12: after 0, 10, 20, 40 … 640 ms, and then one per second", n)
		}
		if n := len(m.Events()); n > 60 {
			t.Errorf("%d events", n)
		}
	})(t)
}

// rejecting makes publishers of which the first ends with a message that it accepted. Later ones accept nothing, with
// an error that does not end them.
type rejecting struct{ connected, calls atomic.Int64 }

func (r *rejecting) publish(ctx context.Context, conn drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	inner, err := conn.Publisher(ctx, spec)
	if err != nil || r.connected.Add(1) == 1 {
		return &breakingPublisher{Publisher: inner, of: &breaking{kept: 1}, spec: spec}, err
	}
	return rejecter{inner, r}, nil
}

type rejecter struct {
	drivers.Publisher
	of *rejecting
}

func (r rejecter) Publish(context.Context, drivers.Message) error {
	r.of.calls.Add(1)
	return errors.New("message too large")
}

// A message that cannot be sent again is tried with pauses, and then stays unconfirmed. The publish calls for new
// messages fail with the same pauses, until the end of the measurement.
func TestRepublishPausesAfterErrors(t *testing.T) {
	bubbled(func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) { w.Publishers.Mode, w.Warmup = "confirm-each", 0 })
		r := &rejecting{}
		s.resilience = drivers.ByGuide
		s.wrap = func(session drivers.Session) drivers.Session { return publishers(session, r.publish) }
		m := s.play(t.Context())
		if n := r.calls.Load(); n < 10 || n > 200 {
			t.Errorf("%d calls of Publish in 6 s, want a pause of up to 128 ms after each", n)
		}
		if m.Total(record.Unconfirmed) != 1 || m.Accounting(1).Sent != 1 {
			t.Errorf("%+v, %d unconfirmed", m.Accounting(1), m.Total(record.Unconfirmed))
		}
	})(t)
}

// The messages with even tokens cannot be sent again. They stay unconfirmed, and all others are sent.
func TestRefusedMessagesDoNotDelayOthers(t *testing.T) {
	bubbled(func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Warmup, w.Publishers.Mode = 1000, 0, "confirm-window"
		})
		s.resilience = drivers.ByGuide
		var connected atomic.Int64
		var refused sync.Map
		s.wrap = func(session drivers.Session) drivers.Session {
			return publishers(session, func(ctx context.Context, conn drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher,
				error) {
				inner, err := conn.Publisher(ctx, spec)
				if err != nil || connected.Add(1) > 1 {
					return evenRefused{inner, &refused}, err
				}
				return &breakingPublisher{Publisher: inner, of: &breaking{whole: 100, kept: 20}, spec: spec}, err
			})
		}
		m := s.play(t.Context())
		n := int64(0)
		refused.Range(func(any, any) bool { n++; return true })
		a := m.Accounting(1)
		if n == 0 || m.Total(record.Unconfirmed) != n || a.Sent != 1000 || int64(a.Confirmed) != 1000-n ||
			int64(a.Missing) != n || m.Total(record.Unsent) != 0 {
			t.Errorf("%+v, %d unconfirmed, %d unsent; want %d unconfirmed of 1000", a, m.Total(record.Unconfirmed),
				m.Total(record.Unsent), n)
		}
	})(t)
}

// evenRefused refuses messages that were published before, and whose tokens are even.
type evenRefused struct {
	drivers.Publisher
	refused *sync.Map
}

func (p evenRefused) Publish(ctx context.Context, m drivers.Message) error {
	if sequence := binary.LittleEndian.Uint64(m.Body[16:]); sequence < 120 && m.Token%2 == 0 {
		p.refused.Store(sequence, true)
		return errors.New("message too large")
	}
	return p.Publisher.Publish(ctx, m)
}

// The waits of a publisher are not longer than its active time, also with repeated messages on own connections.
func TestRepublishCountsWaitsOnce(t *testing.T) {
	for _, mode := range []string{"connection-per-message-confirm", "confirm-window"} {
		bubbled(func(t *testing.T) {
			s, b := resilient(t, mode, drivers.ByGuide)
			s.work.Publishers.Rate = 10
			var connections atomic.Int64
			s.wrap = func(session drivers.Session) drivers.Session {
				return publishers(session, func(ctx context.Context, conn drivers.Conn,
					spec drivers.PublisherSpec) (drivers.Publisher, error) {
					if connections.Add(1)%3 != 0 {
						return b.publish(ctx, conn, spec)
					}
					inner, err := conn.Publisher(ctx, spec)
					return hesitant{inner}, err
				})
			}
			var engine *Engine
			s.made = func(e *Engine) { engine = e }
			s.play(t.Context())
			for _, p := range engine.publishers {
				if times := p.pacer.times; times.Waited+times.Paused > times.Active {
					t.Errorf("%s: waited for %v and paused for %v of %v", mode, times.Waited, times.Paused, times.Active)
				}
			}
		})(t)
	}
}

// hesitant needs 100 ms per message.
type hesitant struct{ drivers.Publisher }

func (p hesitant) Publish(ctx context.Context, m drivers.Message) error {
	_ = clock.Until(ctx, clock.Now()+int64(100*time.Millisecond))
	return p.Publisher.Publish(ctx, m)
}

// If a run is cancelled before the measurement is known, unconfirmed messages are recorded at the time of the end.
func TestGiveUpBeforeTheMeasurement(t *testing.T) {
	bubbled(func(t *testing.T) {
		s, b := resilient(t, "confirm-window", drivers.ByGuide)
		s.work.Steady.Auto, s.work.Steady.Max = true, plan.Duration(30*time.Second)
		b.unreachable.Store(clock.Now() + int64(200*time.Millisecond))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_ = clock.Until(ctx, clock.Now()+int64(600*time.Millisecond))
			cancel()
		}()
		m := s.play(ctx)
		if m.Total(record.Unconfirmed) == 0 {
			t.Error("no message is unconfirmed: this test proves nothing")
		}
		for _, w := range m.Windows() {
			if w.Index < -60 || w.Index > 60 {
				t.Errorf("window %d has %d unconfirmed messages", w.Index, w.Counts[record.Unconfirmed])
			}
		}
	})(t)
}

// A confirm with ErrClosed is enough for another connection.
func TestRepublishWithoutDone(t *testing.T) {
	bubbled(func(t *testing.T) {
		s, b := resilient(t, "confirm-each", drivers.ByGuide)
		b.silent, b.confirms = true, true
		m := s.play(t.Context())
		a := m.Accounting(1)
		if a.Sent < 1900 || a.Confirmed != a.Sent || a.Missing != 0 || b.lost.Load() < 40 {
			t.Errorf("%+v, %d lost by the links", a, b.lost.Load())
		}
	})(t)
}
