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

// failingPublishers creates publishers whose link breaks. A publisher passes the first messages to the broker, as many
// as stored. It accepts later messages without passing them on. Its link breaks after lostPerLink of those, or when it
// is flushed after at least one.
type failingPublishers struct {
	stored, lostPerLink int
	publishFails        bool // the link breaks with an error of Publish
	withoutDone         bool // Done does not report the end
	failsConfirms       bool // its messages fail when the link breaks, not when it is closed
	lost                atomic.Int64
	unreachableFrom     atomic.Int64 // clock time from which connecting fails; 0: never
}

func (b *failingPublishers) publish(ctx context.Context, conn drivers.Conn,
	spec drivers.PublisherSpec) (drivers.Publisher, error) {
	if at := b.unreachableFrom.Load(); at != 0 && clock.Now() >= at {
		return nil, errors.New("connection refused")
	}
	_ = clock.Until(ctx, clock.Now()+int64(20*time.Millisecond)) // time of connecting
	inner, err := conn.Publisher(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &failingPublisher{Publisher: inner, of: b, spec: spec}, nil
}

type failingPublisher struct {
	drivers.Publisher
	kit.State
	once   sync.Once
	of     *failingPublishers
	spec   drivers.PublisherSpec
	calls  int
	tokens []uint64
	ended  bool
}

func (p *failingPublisher) Done() <-chan struct{} { return p.State.Done() }
func (p *failingPublisher) Err() error            { return p.State.Err() }

func (p *failingPublisher) Publish(ctx context.Context, m drivers.Message) error {
	if p.ended {
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	if p.calls++; p.calls <= p.of.stored {
		return p.Publisher.Publish(ctx, m)
	}
	p.of.lost.Add(1)
	if p.of.publishFails {
		p.breakLink()
		return fmt.Errorf("publish: %w", drivers.ErrClosed)
	}
	p.tokens = append(p.tokens, m.Token)
	if len(p.tokens) == p.of.lostPerLink {
		p.breakLink()
	}
	return nil
}

func (p *failingPublisher) breakLink() {
	p.ended = true
	if !p.of.withoutDone {
		p.Broke(drivers.ErrClosed)
	}
	if p.of.failsConfirms {
		p.failConfirms()
	}
}

func (p *failingPublisher) failConfirms() {
	if len(p.tokens) > 0 {
		p.spec.OnConfirms(p.tokens, drivers.ErrClosed)
	}
	p.tokens = nil
}

func (p *failingPublisher) Flush(ctx context.Context) error {
	if len(p.tokens) > 0 && !p.ended {
		p.breakLink()
	}
	return p.Publisher.Flush(ctx)
}

func (p *failingPublisher) Close() error {
	p.once.Do(func() {
		p.End()
		_ = p.Publisher.Close()
		p.failConfirms()
	})
	return nil
}

// newFailingTask returns a workload with paced publishers, whose links break after every 40 messages.
func newFailingTask(t *testing.T, mode string, resilience drivers.Resilience) (testTask, *failingPublishers) {
	s := newTestTask(t, func(w *plan.Workload) {
		w.Publishers.Mode, w.Publishers.Threads, w.Consumers.Threads = mode, 2, 2
		w.Publishers.Rate, w.Publishers.MaxInFlight, w.Publishers.Batch = 2000, 50, plan.Batch{Min: 7, Max: 7}
		w.Warmup = 0
	})
	s.resilience = resilience
	b := &failingPublishers{stored: 40, lostPerLink: 5}
	if s.workload.Publishers.Mode == string(drivers.ConnectionPerMessageConfirm) {
		b.stored, b.lostPerLink = 0, 1
	}
	s.wrapSession = func(session drivers.Session) drivers.Session { return withPublishers(session, b.publish) }
	return s, b
}

// A message whose link broke before the confirm is published again with its own body, until it is confirmed. Without
// resilience it stays unconfirmed, and is lost.
func TestRepublish(t *testing.T) {
	sizes := []plan.SizeShare{{Min: 100, Max: 300, Weight: 1}}
	for _, mode := range []string{"confirm-window", "confirm-batch", "confirm-each"} {
		for _, how := range []string{"same bodies", "different sizes", "own bodies", "Publish fails", "none"} {
			t.Run(mode+" "+how, inVirtualTime(func(t *testing.T) {
				s, b := newFailingTask(t, mode, drivers.ByGuide)
				s.copiesBody = how != "own bodies"
				b.publishFails = how == "Publish fails"
				if how == "different sizes" {
					s.workload.Message.Size, s.workload.Message.Sizes = 300, sizes
				}
				if how == "none" {
					s.resilience = drivers.NoResilience
				}
				m := s.run(t.Context())
				a, lost := m.Accounting(1), b.lost.Load()
				if a.Sent < 1900 || lost < 40 || a.Corrupt != 0 || a.Duplicated != 0 {
					t.Errorf("accounting: got %+v, %d lost by links, want about 2000 sent, at least 40 lost by links",
						a, lost)
				}
				if how == "none" {
					if int64(a.Missing) != lost || m.Total(record.Unconfirmed) != lost ||
						m.Total(record.Republished) != 0 {
						t.Errorf("got %d missing, %d unconfirmed, %d republished, want %d, %[4]d, 0", a.Missing,
							m.Total(record.Unconfirmed), m.Total(record.Republished), lost)
					}
					return
				}
				if a.Missing != 0 || a.Confirmed != a.Sent || m.Total(record.Unconfirmed) != 0 ||
					m.Total(record.PublishErrors) != 0 || m.Total(record.Republished) != lost {
					t.Errorf("got %+v, %d unconfirmed, %d publish errors, %d republished, want none missing, all confirmed, "+
						"no errors, %d republished", a, m.Total(record.Unconfirmed), m.Total(record.PublishErrors),
						m.Total(record.Republished), lost)
				}
				if got := m.Hist(record.Publish); got.Count() != a.Sent || got.Max() < 20e6 {
					t.Errorf("publish latencies: got %d, maximum %d ns, want %d, maximum at least 20 ms (from the first call)",
						got.Count(), got.Max(), a.Sent)
				}
			}))
		}
	}
}

// With a connection per message, the message is sent again over another connection.
func TestRepublishOverOwnConnection(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		s, b := newFailingTask(t, "connection-per-message-confirm", drivers.ByGuide)
		s.workload.Publishers.Rate = 10
		var connections atomic.Int64
		s.wrapSession = func(session drivers.Session) drivers.Session {
			return withPublishers(session, func(ctx context.Context, conn drivers.Conn,
				spec drivers.PublisherSpec) (drivers.Publisher, error) {
				if connections.Add(1)%3 != 0 { // two of three connections break
					return b.publish(ctx, conn, spec)
				}
				return conn.Publisher(ctx, spec)
			})
		}
		m := s.run(t.Context())
		a := m.Accounting(1)
		if a.Sent < 9 || a.Missing != 0 || a.Confirmed != a.Sent || b.lost.Load() == 0 ||
			m.Total(record.Republished) != b.lost.Load() {
			t.Errorf("got %+v, %d republished, want all confirmed, %d republished", a, m.Total(record.Republished),
				b.lost.Load())
		}
	})(t)
}

// The broker stored the messages, and the link broke before their confirms. Their second delivery is a duplicate. One
// more message may be published while the link breaks: it was not stored.
func TestRepublishedAreDuplicates(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Warmup, w.Publishers.Mode = 1000, 0, "confirm-window"
		})
		s.options = `{"confirmDelay": "50ms"}`
		s.resilience = drivers.ByGuide
		s.duringMeasurement = func(name string) {
			_ = clock.Until(t.Context(), clock.Now()+int64(500*time.Millisecond+time.Microsecond))
			loopback.Cut(name)
		}
		m := s.run(t.Context())
		a, again := m.Accounting(1), m.Total(record.Republished)
		if again < 45 || again > 55 || int64(a.Duplicated) > again || int64(a.Duplicated) < again-1 || a.Missing != 0 || a.Confirmed != a.Sent {
			t.Errorf("got %+v, %d republished, want about 50 republished, which are duplicates", a, again)
		}
	})(t)
}

// Messages are sent again until the drain timeout. Then they are unconfirmed.
func TestRepublishEndsWithTheDrain(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		s, b := newFailingTask(t, "confirm-window", drivers.ByGuide)
		b.unreachableFrom.Store(clock.Now() + int64(500*time.Millisecond))
		begin := clock.Now()
		m := s.run(t.Context())
		elapsed := time.Duration(clock.Now() - begin)
		a := m.Accounting(1)
		if a.Missing == 0 || int64(a.Missing) != m.Total(record.Unconfirmed) ||
			uint64(m.Total(record.Unconfirmed))+a.Confirmed != a.Sent {
			t.Errorf("got %+v, %d unconfirmed, want as many missing as unconfirmed, and the others confirmed", a,
				m.Total(record.Unconfirmed))
		}
		want := s.workload.Measure.D() + s.workload.Drain.Timeout.D()
		if elapsed < want || elapsed > want+5*time.Second {
			t.Errorf("duration of the run: got %v, want %v (until the drain timeout) to 5 s more", elapsed, want)
		}
		if n := m.Hist(record.PublishFailed).Max(); n < int64(s.workload.Drain.Timeout.D()) {
			t.Errorf("maximum latency of failed messages: got %v, want at least %v", time.Duration(n),
				s.workload.Drain.Timeout.D())
		}
	})(t)
}

// Messages are sent again at once, also if the next scheduled send is far away.
func TestRepublishDoesNotWaitForTheSchedule(t *testing.T) {
	for _, mode := range []string{"confirm-window", "confirm-each"} {
		inVirtualTime(func(t *testing.T) {
			s := newTestTask(t, func(w *plan.Workload) {
				w.Publishers.Rate, w.Warmup, w.Publishers.Mode, w.Measure = 1, 0, mode, plan.Duration(8*time.Second)
			})
			s.options, s.resilience = `{"confirmDelay": "50ms"}`, drivers.ByGuide
			s.duringMeasurement = func(name string) { // 10 ms after a send
				_ = clock.Until(t.Context(), clock.Now()+int64(3010*time.Millisecond))
				loopback.Cut(name)
			}
			m := s.run(t.Context())
			if n := m.Total(record.Republished); n == 0 || m.Accounting(1).Confirmed != 8 {
				t.Errorf("%s: got %d republished, %+v, want at least 1 republished, 8 confirmed", mode, n,
					m.Accounting(1))
			}
			if longest := time.Duration(m.Hist(record.Publish).Max()); longest < 55*time.Millisecond ||
				longest > 100*time.Millisecond {
				t.Errorf("%s: maximum publish latency: got %v, want 55 to 100 ms", mode, longest)
			}
		})(t)
	}
}

// A message that breaks every link is sent again with growing pauses, up to a second.
func TestRepublishBacksOff(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		s, b := newFailingTask(t, "confirm-window", drivers.ByGuide)
		s.workload.Publishers.Threads, b.stored, b.lostPerLink = 1, 0, 1
		m := s.run(t.Context())
		if n := b.lost.Load(); n < 8 || n > 20 {
			t.Errorf("attempts in 6 s: got %d, want about 12: after 0, 10, 20, 40 … 640 ms, and then one per second", n)
		}
		if n := len(m.Events()); n > 60 {
			t.Errorf("got %d events, want at most 60", n)
		}
	})(t)
}

// rejectingPublishers creates publishers. The link of the first breaks after it accepted a message. Publish of later
// ones returns an error that does not end them.
type rejectingPublishers struct{ connected, calls atomic.Int64 }

func (r *rejectingPublishers) publish(ctx context.Context, conn drivers.Conn,
	spec drivers.PublisherSpec) (drivers.Publisher, error) {
	inner, err := conn.Publisher(ctx, spec)
	if err != nil || r.connected.Add(1) == 1 {
		return &failingPublisher{Publisher: inner, of: &failingPublishers{lostPerLink: 1}, spec: spec}, err
	}
	return rejectingPublisher{inner, r}, nil
}

type rejectingPublisher struct {
	drivers.Publisher
	of *rejectingPublishers
}

func (r rejectingPublisher) Publish(context.Context, drivers.Message) error {
	r.of.calls.Add(1)
	return errors.New("message too large")
}

// A message that cannot be sent again is retried with pauses, and then stays unconfirmed. The publish calls for new
// messages fail with the same pauses, until the end of the measurement.
func TestRepublishPausesAfterErrors(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) { w.Publishers.Mode, w.Warmup = "confirm-each", 0 })
		r := &rejectingPublishers{}
		s.resilience = drivers.ByGuide
		s.wrapSession = func(session drivers.Session) drivers.Session { return withPublishers(session, r.publish) }
		m := s.run(t.Context())
		if n := r.calls.Load(); n < 10 || n > 200 {
			t.Errorf("calls of Publish in 6 s: got %d, want 10 to 200 (pauses of up to 128 ms)", n)
		}
		if m.Total(record.Unconfirmed) != 1 || m.Accounting(1).Sent != 1 {
			t.Errorf("got %+v, %d unconfirmed, want 1 sent, 1 unconfirmed", m.Accounting(1),
				m.Total(record.Unconfirmed))
		}
	})(t)
}

// The messages with even tokens cannot be sent again. They stay unconfirmed, and all others are sent.
func TestRejectedMessagesDoNotDelayOthers(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Warmup, w.Publishers.Mode = 1000, 0, "confirm-window"
		})
		s.resilience = drivers.ByGuide
		var connected atomic.Int64
		var rejected sync.Map
		s.wrapSession = func(session drivers.Session) drivers.Session {
			return withPublishers(session, func(ctx context.Context, conn drivers.Conn,
				spec drivers.PublisherSpec) (drivers.Publisher, error) {
				inner, err := conn.Publisher(ctx, spec)
				if err != nil || connected.Add(1) > 1 {
					return evenTokenRejecter{inner, &rejected}, err
				}
				return &failingPublisher{Publisher: inner, of: &failingPublishers{stored: 100, lostPerLink: 20},
					spec: spec}, err
			})
		}
		m := s.run(t.Context())
		n := int64(0)
		rejected.Range(func(any, any) bool { n++; return true })
		a := m.Accounting(1)
		if n == 0 || m.Total(record.Unconfirmed) != n || a.Sent != 1000 || int64(a.Confirmed) != 1000-n ||
			int64(a.Missing) != n || m.Total(record.Unsent) != 0 {
			t.Errorf("got %+v, %d unconfirmed, %d unsent, want 1000 sent, %d unconfirmed, 0 unsent", a,
				m.Total(record.Unconfirmed), m.Total(record.Unsent), n)
		}
	})(t)
}

// evenTokenRejecter rejects messages that were published before, and whose tokens are even.
type evenTokenRejecter struct {
	drivers.Publisher
	rejected *sync.Map
}

func (p evenTokenRejecter) Publish(ctx context.Context, m drivers.Message) error {
	if sequence := binary.LittleEndian.Uint64(m.Body[16:]); sequence < 120 && m.Token%2 == 0 {
		p.rejected.Store(sequence, true)
		return errors.New("message too large")
	}
	return p.Publisher.Publish(ctx, m)
}

// The waits of a publisher are not longer than its active time, also with repeated messages on own connections.
func TestRepublishCountsWaitsOnce(t *testing.T) {
	for _, mode := range []string{"connection-per-message-confirm", "confirm-window"} {
		inVirtualTime(func(t *testing.T) {
			s, b := newFailingTask(t, mode, drivers.ByGuide)
			s.workload.Publishers.Rate = 10
			var connections atomic.Int64
			s.wrapSession = func(session drivers.Session) drivers.Session {
				return withPublishers(session, func(ctx context.Context, conn drivers.Conn,
					spec drivers.PublisherSpec) (drivers.Publisher, error) {
					if connections.Add(1)%3 != 0 {
						return b.publish(ctx, conn, spec)
					}
					inner, err := conn.Publisher(ctx, spec)
					return delayedPublisher{inner}, err
				})
			}
			var engine *Engine
			s.onNew = func(e *Engine) { engine = e }
			s.run(t.Context())
			for _, p := range engine.publishers {
				if times := p.pacer.times; times.Waited+times.Paused > times.Active {
					t.Errorf("%s: got waits of %v and pauses of %v, want together at most the active time of %v", mode,
						times.Waited, times.Paused, times.Active)
				}
			}
		})(t)
	}
}

// delayedPublisher takes 100 ms per message.
type delayedPublisher struct{ drivers.Publisher }

func (p delayedPublisher) Publish(ctx context.Context, m drivers.Message) error {
	_ = clock.Until(ctx, clock.Now()+int64(100*time.Millisecond))
	return p.Publisher.Publish(ctx, m)
}

// If a run is cancelled before the measurement is known, unconfirmed messages are recorded at the time of the end.
func TestGiveUpBeforeTheMeasurement(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		s, b := newFailingTask(t, "confirm-window", drivers.ByGuide)
		s.workload.Steady.Auto, s.workload.Steady.Max = true, plan.Duration(30*time.Second)
		b.unreachableFrom.Store(clock.Now() + int64(200*time.Millisecond))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_ = clock.Until(ctx, clock.Now()+int64(600*time.Millisecond))
			cancel()
		}()
		m := s.run(ctx)
		if m.Total(record.Unconfirmed) == 0 {
			t.Error("got no unconfirmed message, want at least one")
		}
		for _, w := range m.Windows() {
			if w.Index < -60 || w.Index > 60 {
				t.Errorf("got a window with index %d (%d unconfirmed), want indexes from -60 to 60", w.Index,
					w.Counts[record.Unconfirmed])
			}
		}
	})(t)
}

// A confirm with ErrClosed is sufficient to connect again, without the end of the publisher's Done.
func TestRepublishWithoutDone(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		s, b := newFailingTask(t, "confirm-each", drivers.ByGuide)
		b.withoutDone, b.failsConfirms = true, true
		m := s.run(t.Context())
		a := m.Accounting(1)
		if a.Sent < 1900 || a.Confirmed != a.Sent || a.Missing != 0 || b.lost.Load() < 40 {
			t.Errorf("got %+v, %d lost by links, want about 2000 sent, all confirmed, at least 40 lost by links", a,
				b.lost.Load())
		}
	})(t)
}

// Messages that were received but not acknowledged go to another consumer when their link breaks. They are duplicates:
// they have one end-to-end latency, and rates count them once.
func TestRedeliveriesToAnotherConsumerAreDuplicates(t *testing.T) {
	inVirtualTime(func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Consumers.Threads, w.Measure = 1000, 2, plan.Duration(2*time.Second)
			w.Consumers.Ack, w.Consumers.AckEvery, w.Consumers.Prefetch = "every", 300, 1000
		})
		var first *consumer
		s.onNew = func(e *Engine) { first = e.consumers[0] }
		s.duringMeasurement = func(string) {
			_ = clock.Until(t.Context(), clock.Now()+int64(700*time.Millisecond))
			first.link.mu.Lock()
			defer first.link.mu.Unlock()
			first.link.conn.Cut()
		}
		m := s.run(t.Context())
		a, latency := m.Accounting(1), m.Hist(record.EndToEnd)
		if a.Duplicated < 10 || a.Missing > 0 || m.Total(record.Unique) != int64(a.Received) {
			t.Errorf("accounting: got %+v and %d counted in rates, want duplicates, none missing, and each message counted once", a,
				m.Total(record.Unique))
		}
		if longest := time.Duration(latency.Quantile(1)); longest > 100*time.Millisecond {
			t.Errorf("longest end-to-end latency: got %v, want at most 100 ms: that of the first delivery", longest)
		}
	})(t)
}
