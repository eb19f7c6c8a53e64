package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// subject is one task on loopback, executed by one engine with all roles.
type subject struct {
	t       *testing.T
	work    plan.Workload
	options string
	copies  bool // Config.CopiesBody
	// of the cell; "" exposes broken links
	resilience drivers.Resilience
	// wrap wraps the driver's session; may be nil.
	wrap func(drivers.Session) drivers.Session
	// connected is called when everything is connected; may be nil.
	connected func(drivers.Session, drivers.Topology)
	// made is called with the engine; may be nil.
	made func(*Engine)
	// during is called when the measurement has begun; may be nil.
	during func(loopback string)
}

// bubbled returns a test in a bubble, with virtual time.
func bubbled(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// played counts tasks, for unique names of brokers.
var played atomic.Int64

func newSubject(t *testing.T, change func(*plan.Workload)) subject {
	w := plan.Default()
	w.Warmup, w.Measure = plan.Duration(200*time.Millisecond), plan.Duration(time.Second)
	w.Drain = plan.Drain{Idle: plan.Duration(time.Second), Timeout: plan.Duration(5 * time.Second)}
	change(&w)
	if w.Publishers.Count > 0 { // the limits only end a test that hangs
		w.Measure = plan.Duration(10 * time.Minute)
		w.Drain = plan.Drain{Idle: plan.Duration(2 * time.Minute), Timeout: plan.Duration(2 * time.Minute)}
	}
	return subject{t: t, work: w}
}

func (s subject) task() plan.Assignment {
	return plan.Assignment{
		Task: plan.Task{Run: "test", ID: plan.CellID(s.t.Name(), s.work), Cell: plan.Cell{Workload: s.work,
			Resilience: string(s.resilience)}},
		Publishers: plan.Share{Count: s.work.Publishers.Nodes * s.work.Publishers.Threads,
			Total: s.work.Publishers.Nodes * s.work.Publishers.Threads},
		Consumers: plan.Share{Count: s.work.Consumers.Nodes * s.work.Consumers.Threads,
			Total: s.work.Consumers.Nodes * s.work.Consumers.Threads},
	}
}

// play executes the task and returns its merged record.
func (s subject) play(ctx context.Context) *record.Merged {
	t := s.t
	t.Helper()
	d, err := drivers.Lookup("loopback")
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%s-%d", t.Name(), played.Add(1)) // the clock of a bubble always starts at the same time
	options := map[string]any{}
	if s.options != "" {
		if err := json.Unmarshal([]byte(s.options), &options); err != nil {
			t.Fatal(err)
		}
	}
	options["name"] = name
	raw, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	var e *Engine
	session, err := d.Open(ctx, schematest.Fill(t, d, raw), drivers.Env{Log: slog.New(slog.DiscardHandler),
		Event: func(k drivers.EventKind, detail string) { e.Event(k, detail) }})
	if err != nil {
		t.Fatalf("open loopback: %v", err)
	}
	defer session.Close()
	if s.wrap != nil {
		session = s.wrap(session)
	}
	a := s.task()
	if e, err = New(Config{Assignment: a, Session: session, Log: slog.New(slog.DiscardHandler),
		CopiesBody: s.copies}); err != nil {
		t.Fatalf("new engine: %v", err)
	}
	if s.made != nil {
		s.made(e)
	}
	if err := session.Setup(ctx, Topology(a.Task)); err != nil {
		t.Fatalf("setup: %v", err)
	}
	if err := e.ConnectConsumers(ctx); err != nil {
		t.Fatal(err)
	}
	if err := e.ConnectPublishers(ctx); err != nil {
		t.Fatal(err)
	}
	if s.connected != nil {
		s.connected(session, Topology(a.Task))
	}
	m := record.NewMerged()
	seq := uint64(0)
	take := func(final bool) {
		s := e.Take(final)
		s.Agent, s.Seq, s.Final = "a", seq, final
		m.Add(s)
		seq++
	}
	start := clock.Now() + int64(20*time.Millisecond)
	if s.during != nil {
		go func() {
			_ = clock.Until(ctx, start+int64(s.work.Warmup.D()))
			s.during(name)
		}()
	}
	if err := e.Run(ctx, start); err != nil && ctx.Err() == nil {
		t.Fatalf("run: %v", err)
	}
	take(false)
	for end := clock.Now() + int64(s.work.Drain.Idle.D()); clock.Now() < end &&
		!m.AllIn(s.work.Topology.Subscriptions); {
		_ = clock.Until(ctx, clock.Now()+int64(20*time.Millisecond))
		take(false)
		if ctx.Err() != nil {
			break
		}
	}
	if err := e.Close(context.WithoutCancel(ctx)); err != nil {
		t.Fatal(err)
	}
	take(true)
	return m
}

// In every mode, messages are sent and confirmed as the mode requires, and each arrives once and intact, also if all
// have the same body.
func TestModes(t *testing.T) {
	for i, mode := range append(drivers.Modes(), drivers.Modes()...) {
		copies := i >= len(drivers.Modes())
		t.Run(fmt.Sprintf("%s copies %t", mode, copies), func(t *testing.T) {
			s := newSubject(t, func(w *plan.Workload) {
				w.Publishers.Mode, w.Publishers.Threads, w.Consumers.Threads = string(mode), 2, 2
				w.Publishers.Batch = plan.Batch{Min: 1, Max: 10}
				w.Publishers.Count, w.Publishers.MaxInFlight = 500, 50
			})
			s.copies = copies
			m := s.play(t.Context())
			accounting := m.Accounting(1)
			if accounting.Sent < 1000 || accounting.Missing != 0 || accounting.Duplicated != 0 ||
				accounting.Reordered != 0 || accounting.Corrupt != 0 {
				t.Errorf("accounting %+v, want at least 1000 sent, all received once and in order", accounting)
			}
			if want := map[bool]uint64{true: accounting.Sent,
				false: 0}[mode.Confirmed()]; accounting.Confirmed != want {
				t.Errorf("%d confirmed of %d, want %d", accounting.Confirmed, accounting.Sent, want)
			}
			if got := m.Hist(record.Publish).Count(); mode.Confirmed() != (got > 0) {
				t.Errorf("%d publish latencies in mode %s", got, mode)
			}
		})
	}
}

// A count is exact: this number of messages per publisher after warm-up.
func TestCountEndsTheMeasurement(t *testing.T) {
	s := newSubject(t, func(w *plan.Workload) {
		w.Publishers.Threads, w.Publishers.Count, w.Measure = 3, 1234, plan.Duration(time.Minute)
	})
	m := s.play(t.Context())
	if got := m.Hist(record.Publish).Count(); got != 3*1234 {
		t.Errorf("%d messages measured, want %d", got, 3*1234)
	}
}

// With a count and a rate, only the count is due. Messages that are due after the maximum measurement are sent until
// the end of the drain. Others are unsent.
func TestCountAtARate(t *testing.T) {
	for name, test := range map[string]struct {
		count, confirmed, unsent uint64
		// duration of a confirm: at 100 per second instead of 1,000, ten messages are due for each that is sent
		confirm string
		drain   time.Duration
	}{
		"reached":            {count: 500, confirmed: 500, drain: time.Second},
		"reached after end":  {count: 300, confirmed: 300, confirm: "10ms", drain: 5 * time.Second},
		"not reached":        {count: 300, confirmed: 201, unsent: 99, confirm: "10ms", drain: 5 * time.Millisecond},
		"more than ever due": {count: 5000, confirmed: 201, unsent: 1799, confirm: "10ms", drain: 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSubject(t, func(w *plan.Workload) {
					w.Publishers.Rate, w.Publishers.Count, w.Publishers.Mode, w.Warmup = 1000, test.count,
						"confirm-each", 0
				})
				s.work.Measure, s.work.Drain.Timeout = plan.Duration(2*time.Second), plan.Duration(test.drain)
				if test.confirm != "" {
					s.options = fmt.Sprintf(`{"confirmDelay": %q}`, test.confirm)
				}
				m := s.play(t.Context())
				confirmed, ages, unsent := m.Hist(record.PublishIntended).Count(), m.Hist(record.UnsentAge).Count(),
					uint64(m.Total(record.Unsent))
				if confirmed != test.confirmed || ages != test.unsent || unsent != test.unsent {
					t.Errorf("%d confirmed, %d unsent with %d ages; want %d and %d", confirmed, unsent, ages,
						test.confirmed, test.unsent)
				}
				if late := m.Hist(record.SendDelay).Max(); test.confirm == "" && late != 0 {
					t.Errorf("%v late, want never", time.Duration(late))
				}
			})
		})
	}
}

// With a count, a load that is behind at the beginning of the measurement counts what it sends from then on. 100 of
// 1000 were sent in warm-up, and at 100 per second the count takes 5 s.
func TestCountOfALoadThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Publishers.Count, w.Publishers.Mode, w.Warmup = 1000, 500, "confirm-each",
				plan.Duration(time.Second)
		})
		s.options = `{"confirmDelay": "10ms"}`
		m := s.play(t.Context())
		for _, c := range []record.Counter{record.Sent, record.Confirmed, record.Unique} {
			measured := int64(0)
			for _, w := range m.Windows() {
				if w.Measured {
					measured += w.Counts[c]
				}
			}
			if measured != 500 {
				t.Errorf("%v: %d counted, want 500", c, measured)
			}
		}
		if sent, last := m.Sum(record.Sent, 0, 60), time.Duration(m.Last().Confirm); sent != 500 ||
			last != 5*time.Second {
			t.Errorf("%d sent in the measurement, the last confirmed after %v; want 500 and 5 s", sent, last)
		}
	})
}

// A link that breaks is replaced at once, not when the next message is due: no message fails, with or without
// resilience.
func TestBrokenLinksAreReplacedBeforeTheNextMessage(t *testing.T) {
	for _, mode := range []string{"fire-and-forget", "confirm-window", "confirm-batch", "confirm-each"} {
		for _, resilience := range []drivers.Resilience{drivers.NoResilience, drivers.ByGuide} {
			t.Run(mode+" "+string(resilience), bubbled(func(t *testing.T) {
				s := newSubject(t, func(w *plan.Workload) {
					w.Publishers.Mode, w.Publishers.Threads, w.Publishers.Rate = mode, 2, 2
					w.Warmup, w.Measure = 0, plan.Duration(5*time.Second)
				})
				s.resilience = resilience
				s.wrap = func(session drivers.Session) drivers.Session { return opening{session} }
				s.during = func(name string) {
					_ = clock.Until(t.Context(), clock.Now()+int64(2700*time.Millisecond))
					loopback.Cut(name)
				}
				m := s.play(t.Context())
				gaps := 0
				for _, e := range m.Events() {
					if e.Kind == record.EventGap {
						if gaps++; e.Nanos > int64(100*time.Millisecond) {
							t.Errorf("%s: %v without a link", e.Detail, time.Duration(e.Nanos))
						}
					}
				}
				if sent, failed := m.Total(record.Sent), m.Total(record.PublishErrors); sent != 10 || failed != 0 || gaps != 3 {
					t.Errorf("%d sent, %d failed, %d gaps; want 10, 0, 3", sent, failed, gaps)
				}
			}))
		}
	}
}

// A broker that ends each connection at once is not contacted in a busy loop.
func TestLinksThatBreakAtOnceArePaused(t *testing.T) {
	for _, mode := range []string{"fire-and-forget", "confirm-window"} {
		t.Run(mode, bubbled(func(t *testing.T) {
			s := newSubject(t, func(w *plan.Workload) {
				w.Publishers.Mode, w.Publishers.Rate, w.Warmup = mode, 1, 0
				w.Measure = plan.Duration(10 * time.Second)
			})
			s.wrap = func(session drivers.Session) drivers.Session {
				return publishers(session, func(ctx context.Context, conn drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher,
					error) {
					p, err := conn.Publisher(ctx, spec)
					if err != nil {
						return nil, err
					}
					b := &breakingPublisher{Publisher: p, of: &breaking{whole: 1000}, spec: spec}
					time.AfterFunc(time.Millisecond, func() { b.Broke(drivers.ErrClosed) })
					return b, nil
				})
			}
			if n := s.play(t.Context()).Total(record.Reconnects); n < 10 || n > 200 {
				t.Errorf("%d reconnects in 10 s, want between 10 and 200", n)
			}
		}))
	}
}

// In unconfirmed modes, a driver that buffers is flushed once, after the last message and before the drain.
func TestBuffersAreFlushedAtTheEnd(t *testing.T) {
	for _, how := range []string{"open loop", "closed loop", "disconnected"} {
		t.Run(how, bubbled(func(t *testing.T) {
			s := newSubject(t, func(w *plan.Workload) { w.Publishers.Mode, w.Warmup = "fire-and-forget", 0 })
			switch how {
			case "open loop":
				s.work.Publishers.Rate = 10
			case "closed loop":
				s.work.Publishers.Count = 10
			case "disconnected":
				s.work.Publishers.Rate = 10
				s.work.Publishers.Lifetime = plan.Lifetime{DisconnectAt: plan.Duration(500 * time.Millisecond)}
			}
			var b *buffering
			s.wrap = func(session drivers.Session) drivers.Session {
				return publishers(session, func(ctx context.Context, conn drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher,
					error) {
					inner, err := conn.Publisher(ctx, spec)
					b = &buffering{Publisher: inner}
					return b, err
				})
			}
			m := s.play(t.Context())
			want := 1
			if how == "disconnected" {
				want = 0
			}
			if a := m.Accounting(1); a.Sent < 5 || want == 1 && a.Missing != 0 || b.flushes != want {
				t.Errorf("%+v, %d flushes; want nothing missing after %d flushes", a, b.flushes, want)
			}
			for _, e := range m.Events() {
				if e.Kind == eventError || e.Kind == eventClosed {
					t.Errorf("event %+v", e)
				}
			}
		}))
	}
}

// buffering buffers messages until a flush. Those that it has when it is closed are lost.
type buffering struct {
	drivers.Publisher
	buffered []drivers.Message
	flushes  int
}

func (b *buffering) Publish(_ context.Context, m drivers.Message) error {
	m.Body = bytes.Clone(m.Body)
	b.buffered = append(b.buffered, m)
	return nil
}

func (b *buffering) Flush(ctx context.Context) error {
	b.flushes++
	for _, m := range b.buffered {
		if err := b.Publisher.Publish(ctx, m); err != nil {
			return err
		}
	}
	b.buffered = nil
	return b.Publisher.Flush(ctx)
}

// In open loop with virtual time, every message of the schedule is sent, and none is late.
func TestOpenLoopSendsTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Publishers.Threads, w.Publishers.Mode = 1000, 4, "confirm-each"
			w.Warmup, w.Measure = plan.Duration(time.Second), plan.Duration(10*time.Second)
		})
		m := s.play(t.Context())
		if got := m.Accounting(1); got.Sent != 11_000 || got.Missing != 0 {
			t.Errorf("sent %d, missing %d; want 11000 and 0", got.Sent, got.Missing)
		}
		if got := m.Sum(record.Sent, 0, 10); got != 10_000 {
			t.Errorf("%d sent inside the measurement, want 10000", got)
		}
		if late := m.Hist(record.SendDelay); late.Count() != 10_000 || late.Max() != 0 {
			t.Errorf("send delay: %d samples, at most %d ns; want 10000 of 0", late.Count(), late.Max())
		}
		if pacing := m.Hist(record.Pacing); pacing.Count() < 9990 || pacing.Max() != 0 {
			t.Errorf("pacing: %d samples, at most %d ns; want some 10000 of 0", pacing.Count(), pacing.Max())
		}
	})
}

// The publish rate is four times the maximum of confirm-each with confirms after 10 ms. The waits count as
// back-pressure, not as send delay. The publisher sends until the end of the drain, and every due message is in the
// latencies or unsent.
func TestSlowBrokerIsBlockedNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Publishers.Mode = 400, "confirm-each"
			w.Warmup, w.Measure, w.Drain.Timeout = 0, plan.Duration(2*time.Second), plan.Duration(1005*time.Millisecond)
		})
		s.options = `{"confirmDelay": "10ms"}`
		m := s.play(t.Context())
		if got := m.Sum(record.Sent, 0, 2); got != 200 {
			t.Errorf("%d sent in 2 s at one confirm each 10 ms, want 200", got)
		}
		if late := m.Hist(record.SendDelay).Max(); late != 0 {
			t.Errorf("send delay %d ns, want 0: the generator was never the cause", late)
		}
		if n := m.Hist(record.Pacing).Count(); n != 0 {
			t.Errorf("%d errors between sends that the broker held", n)
		}
		// Message n is due at 2.5n ms and sent at 10n ms. At the end of the drain, at 3,005 ms, message 300 is in
		// flight. It is confirmed at 3,010 ms when the link is closed. Of the others, message 301 has waited longest.
		if got, want := m.Hist(record.Backpressure).Max(), int64(3005e6-301*2.5e6); got != want {
			t.Errorf("blocked at most %d ns, want %d", got, want)
		}
		if got := m.Total(record.Unsent); got != 499 {
			t.Errorf("%d of 800 due messages counted as never sent, want 499", got)
		}
		if got, want := m.Hist(record.PublishIntended).Max(), int64(300*7.5*1e6+10e6); got != want {
			t.Errorf("publish latency from the intended send time at most %d ns, want %d", got, want)
		}
		if got, want := m.Hist(record.UnsentAge), int64(3005e6-301*2.5e6); got.Count() != 499 || got.Max() != want {
			t.Errorf("%d unsent of at most %d ns, want 499 of %d", got.Count(), got.Max(), want)
		}
		if got := m.Hist(record.Publish); got.Min() != 10e6 || got.Max() != 10e6 {
			t.Errorf("publish latency %d … %d ns, want 10 ms", got.Min(), got.Max())
		}
	})
}

// In virtual time, the end-to-end latency is exactly the delay of loopback.
func TestProcessingLatencyIsTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Measure = 100, plan.Duration(5*time.Second)
		})
		s.options = `{"delay": "123ms"}`
		m := s.play(t.Context())
		h := m.Hist(record.EndToEnd)
		if h.Count() != 500 || h.Min() != 123e6 || h.Max() != 123e6 {
			t.Errorf("%d samples of %d … %d ns, want 500 of 123 ms", h.Count(), h.Min(), h.Max())
		}
	})
}

// The ledger counts exactly the injected faults.
func TestLedgerIsExact(t *testing.T) {
	for name, test := range map[string]struct {
		options                     string
		lost, duplicated, reordered uint64
	}{
		"lose":      {`{"lose": 1000}`, 20, 0, 0},
		"duplicate": {`{"duplicate": 500}`, 0, 40, 0},
		"swap":      {`{"swap": [10, 700, 4094]}`, 0, 0, 6},
	} {
		t.Run(name, bubbled(func(t *testing.T) {
			s := newSubject(t, func(w *plan.Workload) {
				w.Publishers.Threads, w.Publishers.Count, w.Warmup = 2, 10_000, 0
			})
			s.options = test.options
			got := s.play(t.Context()).Accounting(1)
			if got.Sent != 20_000 || got.Missing != test.lost || got.Duplicated != test.duplicated ||
				got.Reordered != test.reordered {
				t.Errorf("%+v; want 20000 sent, %d lost, %d duplicated, %d reordered", got, test.lost, test.duplicated,
					test.reordered)
			}
			if got.MissingConfirmed != test.lost {
				t.Errorf("%d lost although confirmed, want %d", got.MissingConfirmed, test.lost)
			}
		}))
	}
}

// Every subscription receives every message.
func TestFanOut(t *testing.T) {
	s := newSubject(t, func(w *plan.Workload) {
		w.Topology.Subscriptions, w.Topology.Queues, w.Publishers.Threads, w.Consumers.Threads = 3, 2, 2, 2
		w.Publishers.Count = 2000
	})
	got := s.play(t.Context()).Accounting(3)
	if got.Received != 3*got.Sent || got.Missing != 0 {
		t.Errorf("%+v; want everything three times", got)
	}
}

// Cancelling ends the run at once and keeps the measurements.
func TestCancelKeepsWhatIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Mode, w.Measure = "confirm-each", plan.Duration(time.Minute)
		})
		s.options = `{"confirmDelay": "1ms"}`
		s.during = func(string) { time.AfterFunc(300*time.Millisecond, cancel) }
		began := time.Now()
		m := s.play(ctx)
		if took, want := time.Since(began), 520*time.Millisecond; took < want || took > want+time.Millisecond {
			t.Errorf("took %v, want %v (20 ms to the start, 200 ms of warm-up and 300 ms) and a confirm", took, want)
		}
		if m.Hist(record.Publish).Count() == 0 {
			t.Error("nothing was kept of what was measured")
		}
	})
}

// The broker breaks every link. The engine reconnects, counts it, and accounts for every message.
func TestReconnects(t *testing.T) {
	for _, mode := range []string{"fire-and-forget", "confirm-window", "confirm-batch", "confirm-each"} {
		t.Run(mode, bubbled(func(t *testing.T) {
			s := newSubject(t, func(w *plan.Workload) {
				w.Publishers.Mode, w.Publishers.Threads, w.Consumers.Threads = mode, 2, 2
				w.Publishers.Rate = 2000
			})
			s.wrap = func(session drivers.Session) drivers.Session { return opening{session} }
			s.during = func(name string) {
				_ = clock.Until(t.Context(), clock.Now()+int64(300*time.Millisecond))
				loopback.Cut(name)
			}
			m := s.play(t.Context())
			if got := m.Total(record.Reconnects); got != 4 {
				t.Errorf("%d reconnects, want one of each of 2 publishers and 2 consumers", got)
			}
			gaps := 0
			for _, e := range m.Events() {
				if e.Kind == record.EventGap && e.Nanos > 0 {
					gaps++
				}
			}
			if gaps != 4 {
				t.Errorf("%d gaps recorded, want 4", gaps)
			}
			accounting := m.Accounting(1)
			if accounting.Missing != 0 || accounting.Sent < 800 {
				t.Errorf("%+v; want nothing missing: loopback keeps what it accepted", accounting)
			}
			if mode != "fire-and-forget" {
				if got := accounting.Confirmed + uint64(m.Total(record.Unconfirmed)); got != accounting.Sent {
					t.Errorf("%d confirmed or given up of %d sent", got, accounting.Sent)
				}
			}
		}))
	}
}

// opening is a session whose connections take a millisecond to open.
type opening struct{ drivers.Session }

func (o opening) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	time.Sleep(time.Millisecond)
	return o.Session.Connect(ctx, spec)
}

// Unroutable messages are returned and counted, with and without confirms, and do not count as lost.
func TestUnroutable(t *testing.T) {
	for _, mode := range []string{"fire-and-forget", "confirm-window"} {
		t.Run(mode, func(t *testing.T) {
			s := newSubject(t, func(w *plan.Workload) {
				w.Publishers.Mode, w.Publishers.Mandatory, w.Publishers.Count, w.Warmup = mode, true, 500, 0
				w.Consumers.Nodes = 0
			})
			s.connected = func(session drivers.Session, topology drivers.Topology) {
				if err := session.Teardown(t.Context(), topology); err != nil { // from now on no queue accepts messages
					t.Fatal(err)
				}
			}
			m := s.play(t.Context())
			got := m.Accounting(1)
			if got.Sent != 500 || got.Returned != 500 || got.Missing != 0 {
				t.Errorf("%+v; want 500 sent, all returned, none missing", got)
			}
			if want := map[bool]uint64{true: 500, false: 0}[mode != "fire-and-forget"]; got.Confirmed != want {
				t.Errorf("%d confirmed, want %d", got.Confirmed, want)
			}
		})
	}
}

// instant is a broker that takes no time and stores nothing. Every delay is caused by the load generator.
type instant struct{ drivers.Session }

func (instant) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	s := sessionOf{publisher: func(drivers.PublisherSpec) drivers.Publisher { return instantPublisher{} }}
	return s.Connect(ctx, spec)
}

type instantPublisher struct{ drivertest.Endless }

func (instantPublisher) Publish(context.Context, drivers.Message) error { return nil }
func (instantPublisher) Flush(context.Context) error                    { return nil }
func (instantPublisher) Close() error                                   { return nil }

// If the load generator starts late, the delay counts as send delay until it has caught up, not as back-pressure.
func TestLateGeneratorIsLateNotBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := generated(t, 1000, -100*time.Millisecond, 200*time.Millisecond)
		late, blocked := m.Hist(record.SendDelay), m.Hist(record.Backpressure)
		if late.Count() != 200 || late.Max() != 100e6 || samplesFrom(late, 1e6) != 100 || blocked.Max() != 0 {
			t.Errorf("%d messages, %d of them late by %d ns at most, blocked by %d ns; want 200, 100, 100 ms and none",
				late.Count(),
				samplesFrom(late, 1e6), late.Max(), blocked.Max())
		}
		if n := m.Total(record.Unsent); n != 0 {
			t.Errorf("%d messages counted as never sent", n)
		}
	})
}

// At an unreachable rate, some messages are unsent and the others have a send delay. Nothing counts as back-pressure.
func TestSlowGeneratorIsLateNotBlocked(t *testing.T) {
	m := generated(t, 100e6, 0, 50*time.Millisecond)
	if m.Total(record.Unsent) == 0 {
		t.Error("no message counted as never sent, although the rate was out of reach")
	}
	if late, blocked := m.Hist(record.SendDelay), m.Hist(record.Backpressure); late.Max() == 0 || blocked.Max() != 0 {
		t.Errorf("late by %d ns and blocked by %d ns at most: want all of the delay to be the generator's", late.Max(),
			blocked.Max())
	}
}

// slow returns the session of a client library whose Publish takes a millisecond: for its own work or, with waits, for
// the broker.
func slow(waits bool) drivers.Session {
	return sessionOf{publisher: func(spec drivers.PublisherSpec) drivers.Publisher {
		if !waits {
			spec.Waiting = nil
		}
		return slowPublisher{waiting: spec.Waiting}
	}}
}

type slowPublisher struct {
	instantPublisher
	waiting *drivers.Waiting
}

func (p slowPublisher) Publish(context.Context, drivers.Message) error {
	p.waiting.Begin()
	time.Sleep(time.Millisecond)
	p.waiting.End()
	return nil
}

// TestOwnWorkIsNotBlocked proves that a library's own work counts as the load generator's, and its waits as the
// broker's, in open loop at an unreachable rate and in closed loop.
func TestOwnWorkIsNotBlocked(t *testing.T) {
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			late, blocked, busy := record.SendDelay, record.Backpressure, 1.0
			if waits {
				late, blocked, busy = blocked, late, 0
			}
			m, times := driven(t, slow(waits), 2000, 0, 5*time.Second)
			if most, other := m.Hist(late).Quantile(0.99), m.Hist(blocked).Max(); most < int64(2*time.Second) ||
				other != 0 {
				t.Errorf("waits %v: %v, and %v of the other; want seconds and none", waits, time.Duration(most),
					time.Duration(other))
			}
			if got := times.Busy(); got < busy-0.01 || got > busy+0.01 {
				t.Errorf("waits %v: busy for %.3f of the time, want %v", waits, got, busy)
			}
			if _, times = driven(t, slow(waits), 0, 0, 5*time.Second); times.Busy() < busy-0.01 ||
				times.Busy() > busy+0.01 {
				t.Errorf("closed loop, waits %v: %+v, want busy for %v of the time", waits, times, busy)
			}
			if _, times = driven(t, slow(waits), 200, 0, 5*time.Second); times.Busy() < 0.2*busy-0.01 ||
				times.Busy() > 0.2*busy+0.01 {
				t.Errorf("200/s, waits %v: %+v, want busy for %v of the time", waits, times, 0.2*busy)
			}
		})
	}
}

// working is a publisher in which only Publish takes time.
type working struct {
	instantPublisher
	publish func(context.Context)
}

func (w working) Publish(ctx context.Context, _ drivers.Message) error { w.publish(ctx); return nil }

// busiestOf publishes in closed loop for five seconds over one connection, with one queue per publisher. It returns the
// times of the publisher with the most work.
func busiestOf(t *testing.T, publishers int,
	publisher func(drivers.PublisherSpec) drivers.Publisher) record.PublisherTimes {
	t.Helper()
	_, times := driven(t, sessionOf{publisher: publisher}, 0, 0, 5*time.Second, func(a *plan.Assignment) {
		a.Publishers.Count, a.Publishers.Total = publishers, publishers
		a.Task.Cell.Workload.Topology.Connections, a.Task.Cell.Workload.Topology.Queues = "shared", publishers
	})
	return times
}

// generated returns the record of a load at a rate, with a broker that takes no time. begins is the start time relative
// to now.
func generated(t *testing.T, rate float64, begins, measure time.Duration) *record.Merged {
	t.Helper()
	m, _ := driven(t, instant{}, rate, begins, measure)
	return m
}

// driven is generated with a session. It also returns the times of its publisher. Rate 0 is closed loop.
func driven(t *testing.T, session drivers.Session, rate float64, begins, measure time.Duration,
	edit ...func(*plan.Assignment)) (
	*record.Merged, record.PublisherTimes) {
	t.Helper()
	w := plan.Default()
	w.Publishers.Mode, w.Publishers.Rate, w.Warmup, w.Measure = "fire-and-forget", rate, 0, plan.Duration(measure)
	w.Drain.Timeout = plan.Duration(20 * time.Millisecond)
	a := plan.Assignment{Task: plan.Task{Run: "test", ID: "late", Cell: plan.Cell{Workload: w}},
		Publishers: plan.Share{Count: 1, Total: 1}}
	for _, edit := range edit {
		edit(&a)
	}
	e, err := New(Config{Assignment: a, Session: session, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ConnectPublishers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.Run(t.Context(), clock.Now()+int64(begins)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := record.NewMerged()
	p := e.Take(true)
	m.Add(record.Snapshot{Agent: "a", Windows: p.Windows, Sets: p.Sets})
	return m, p.Busiest
}

// The pacing error of two consecutive sends is the difference of their delays, unless the broker caused most of these.
func TestPacingError(t *testing.T) {
	p := &pacer{}
	w := new(record.Window)
	for _, x := range []struct {
		delay, held int64
		want        int64 // -1: none
	}{
		{100, 0, -1}, // the first message
		{60_000, 0, 59_900},
		{50_300, 300, 9_700}, // in a burst: the previous call took some time
		{50_300, 300, 0},
		{40_000, 30_000, -1}, // mostly waiting for the broker
		{100, 0, -1},         // after a message that waited for the broker
		{100, 0, 0},
	} {
		p.held = x.held
		var before uint64
		if h := w.Hists[record.Pacing]; h != nil {
			before = h.Count()
		}
		p.recordPacing(w, x.delay)
		h := w.Hists[record.Pacing]
		switch {
		case x.want < 0 && h != nil && h.Count() != before:
			t.Errorf("%+v: recorded", x)
		case x.want >= 0 && (h == nil || h.Count() != before+1 || samplesFrom(h, x.want) == 0):
			t.Errorf("%+v: not recorded", x)
		}
	}
	if h := w.Hists[record.Pacing]; h.Max() != 59_900 || h.Min() != 0 || h.Count() != 4 || samplesFrom(h, 9_700) != 2 {
		t.Errorf("%d samples from %d to %d, %d of 9,700 and more", h.Count(), h.Min(), h.Max(), samplesFrom(h, 9_700))
	}
}

// If a broker rejects connections for some time, that counts as back-pressure, whatever the engine does meanwhile.
func TestRefusedConnectionsAreBlockedNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := plan.Default()
		w.Publishers.Mode, w.Publishers.Rate, w.Warmup, w.Measure = "connection-per-message", 100, 0,
			plan.Duration(2*time.Second)
		a := plan.Assignment{Task: plan.Task{Run: "test", ID: "refused", Cell: plan.Cell{Workload: w}},
			Publishers: plan.Share{Count: 1, Total: 1}}
		e, err := New(Config{Assignment: a, Session: refusing{}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Run(t.Context(), clock.Now()); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		m := record.NewMerged()
		p := e.Take(true)
		m.Add(record.Snapshot{Agent: "a", Windows: p.Windows})
		if late, blocked := m.Hist(record.SendDelay).Max(), m.Hist(record.Backpressure).Max(); late != 0 ||
			blocked < int64(time.Second) {
			t.Errorf("send delay at most %d ns, blocked at most %d ns; want 0 and more than a second", late, blocked)
		}
		if m.Total(record.PublishErrors) == 0 {
			t.Error("no publish error counted")
		}
	})
}

// refusing is a broker that rejects connections after 100 ms.
type refusing struct{ drivers.Session }

func (refusing) Connect(context.Context, drivers.ConnSpec) (drivers.Conn, error) {
	time.Sleep(100 * time.Millisecond) // virtual time
	return nil, errors.New("refused")
}

// TestOnePublishersWaitIsNotAnothers covers two publishers that share a connection: one waits for the broker in each
// Publish, and the other one works.
func TestOnePublishersWaitIsNotAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busiest := busiestOf(t, 2, func(spec drivers.PublisherSpec) drivers.Publisher {
			if spec.Queue == 1 {
				spec.Waiting = nil
			}
			return slowPublisher{waiting: spec.Waiting}
		})
		if busiest.Publisher != 1 || busiest.Busy() < 0.99 {
			t.Errorf("%+v is the busiest and works %.2f of the time; want publisher 1 and 1.00", busiest,
				busiest.Busy())
		}
	})
}

// TestBlockedWritesOfAConnectionCountOnce proves that a wait for a confirm and a blocked write at the same time count
// once. Work before that counts as own work.
func TestBlockedWritesOfAConnectionCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busiest := busiestOf(t, 1, func(spec drivers.PublisherSpec) drivers.Publisher {
			return working{publish: func(ctx context.Context) {
				time.Sleep(time.Millisecond) // its own work
				spec.Waiting.Begin()
				spec.Waiting.Writes.Begin()
				time.Sleep(time.Millisecond)
				spec.Waiting.Writes.End()
				time.Sleep(time.Millisecond)
				spec.Waiting.End()
			}}
		})
		if busy := busiest.Busy(); busy < 0.32 || busy > 0.34 {
			t.Errorf("%+v works %.2f of the time, want a third", busiest, busy)
		}
	})
}

// samplesFrom returns the number of samples of ns or more, at the resolution of the histogram.
func samplesFrom(h *record.Hist, ns int64) (n uint64) {
	one, bucket := record.NewHist(), int64(0)
	one.Record(ns)
	one.Each(func(begin int64, _ uint64) { bucket = begin })
	h.Each(func(begin int64, samples uint64) {
		if begin >= bucket {
			n += samples
		}
	})
	return n
}

// TestConsumeOnlyWaitsForFaults proves that an engine without publishers ends after the idle time, and not during a
// fault that keeps messages away.
func TestConsumeOnlyWaitsForFaults(t *testing.T) {
	for fault, want := range map[time.Duration]time.Duration{0: time.Second, 4 * time.Second: 5 * time.Second} {
		t.Run(fault.String(), bubbled(func(t *testing.T) {
			s := newSubject(t, func(w *plan.Workload) {
				w.Publishers.Nodes, w.Measure = 0, plan.Duration(time.Minute)
				w.Faults = []plan.Fault{{At: plan.Duration(fault / 2), For: plan.Duration(fault / 2)}}
			})
			s.work.Warmup, s.work.Measure = 0, plan.Duration(time.Minute)
			began := time.Now()
			s.play(t.Context())
			if took := time.Since(began); took < want || took > want+time.Second/2 {
				t.Errorf("took %v, want %v", took, want)
			}
		}))
	}
}
