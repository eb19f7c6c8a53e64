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

// testTask is one task on loopback, executed by one engine with all roles.
type testTask struct {
	t          *testing.T
	workload   plan.Workload
	options    string
	copiesBody bool // Config.CopiesBody
	// of the cell; "" exposes broken links
	resilience drivers.Resilience
	// wrap wraps the driver's session; may be nil.
	wrapSession func(drivers.Session) drivers.Session
	// connected is called when everything is connected; may be nil.
	onConnected func(drivers.Session, drivers.Topology)
	// made is called with the engine; may be nil.
	onNew func(*Engine)
	// during is called when the measurement has begun; may be nil.
	duringMeasurement func(loopback string)
}

// inVirtualTime returns a test in a bubble, with virtual time.
func inVirtualTime(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// tasksRun counts tasks, for unique names of brokers.
var tasksRun atomic.Int64

func newTestTask(t *testing.T, change func(*plan.Workload)) testTask {
	w := plan.Default()
	w.Warmup, w.Measure = plan.Duration(200*time.Millisecond), plan.Duration(time.Second)
	w.Drain = plan.Drain{Idle: plan.Duration(time.Second), Timeout: plan.Duration(5 * time.Second)}
	change(&w)
	if w.Publishers.Count > 0 { // the limits only end a test that hangs
		w.Measure = plan.Duration(10 * time.Minute)
		w.Drain = plan.Drain{Idle: plan.Duration(2 * time.Minute), Timeout: plan.Duration(2 * time.Minute)}
	}
	return testTask{t: t, workload: w}
}

func (s testTask) assignment() plan.Assignment {
	return plan.Assignment{
		Task: plan.Task{Run: "test", ID: plan.CellID(s.t.Name(), s.workload), Cell: plan.Cell{Workload: s.workload,
			Resilience: string(s.resilience)}},
		Publishers: plan.Share{Count: s.workload.Publishers.Nodes * s.workload.Publishers.Threads,
			Total: s.workload.Publishers.Nodes * s.workload.Publishers.Threads},
		Consumers: plan.Share{Count: s.workload.Consumers.Nodes * s.workload.Consumers.Threads,
			Total: s.workload.Consumers.Nodes * s.workload.Consumers.Threads},
	}
}

// run executes the task and returns its merged record.
func (s testTask) run(ctx context.Context) *record.Merged {
	t := s.t
	t.Helper()
	d, err := drivers.Lookup("loopback")
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%s-%d", t.Name(), tasksRun.Add(1)) // the clock of a bubble always starts at the same time
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
	if s.wrapSession != nil {
		session = s.wrapSession(session)
	}
	a := s.assignment()
	if e, err = New(Config{Assignment: a, Session: session, Log: slog.New(slog.DiscardHandler),
		CopiesBody: s.copiesBody}); err != nil {
		t.Fatalf("new engine: %v", err)
	}
	if s.onNew != nil {
		s.onNew(e)
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
	if s.onConnected != nil {
		s.onConnected(session, Topology(a.Task))
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
	if s.duringMeasurement != nil {
		go func() {
			_ = clock.Until(ctx, start+int64(s.workload.Warmup.D()))
			s.duringMeasurement(name)
		}()
	}
	if err := e.Run(ctx, start); err != nil && ctx.Err() == nil {
		t.Fatalf("run: %v", err)
	}
	take(false)
	for end := clock.Now() + int64(s.workload.Drain.Idle.D()); clock.Now() < end &&
		!m.AllIn(s.workload.Topology.Subscriptions); {
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
			s := newTestTask(t, func(w *plan.Workload) {
				w.Publishers.Mode, w.Publishers.Threads, w.Consumers.Threads = string(mode), 2, 2
				w.Publishers.Batch = plan.Batch{Min: 1, Max: 10}
				w.Publishers.Count, w.Publishers.MaxInFlight = 500, 50
			})
			s.copiesBody = copies
			m := s.run(t.Context())
			accounting := m.Accounting(1)
			if accounting.Sent < 1000 || accounting.Missing != 0 || accounting.Duplicated != 0 ||
				accounting.Reordered != 0 || accounting.Corrupt != 0 {
				t.Errorf("accounting: got %+v, want at least 1000 sent, all received once and in order", accounting)
			}
			if want := map[bool]uint64{true: accounting.Sent,
				false: 0}[mode.Confirmed()]; accounting.Confirmed != want {
				t.Errorf("got %d of %d messages confirmed, want %d", accounting.Confirmed, accounting.Sent, want)
			}
			if got := m.Hist(record.Publish).Count(); mode.Confirmed() != (got > 0) {
				t.Errorf("mode %s: got %d publish latencies, want some only with confirms", mode, got)
			}
		})
	}
}

// A count is exact: this number of messages per publisher after warm-up.
func TestCountEndsTheMeasurement(t *testing.T) {
	s := newTestTask(t, func(w *plan.Workload) {
		w.Publishers.Threads, w.Publishers.Count, w.Measure = 3, 1234, plan.Duration(time.Minute)
	})
	m := s.run(t.Context())
	if got := m.Hist(record.Publish).Count(); got != 3*1234 {
		t.Errorf("got %d measured messages, want %d", got, 3*1234)
	}
}

// With a count and a rate, as many messages are due as counted. Messages that are still due after the maximum
// measurement are sent until the end of the drain. The remaining messages are unsent.
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
				s := newTestTask(t, func(w *plan.Workload) {
					w.Publishers.Rate, w.Publishers.Count, w.Publishers.Mode, w.Warmup = 1000, test.count,
						"confirm-each", 0
				})
				s.workload.Measure, s.workload.Drain.Timeout = plan.Duration(2*time.Second), plan.Duration(test.drain)
				if test.confirm != "" {
					s.options = fmt.Sprintf(`{"confirmDelay": %q}`, test.confirm)
				}
				m := s.run(t.Context())
				confirmed, ages, unsent := m.Hist(record.PublishIntended).Count(), m.Hist(record.UnsentAge).Count(),
					uint64(m.Total(record.Unsent))
				if confirmed != test.confirmed || ages != test.unsent || unsent != test.unsent {
					t.Errorf("got %d confirmed, %d unsent, %d ages of unsent, want %d, %d, %[5]d", confirmed, unsent,
						ages, test.confirmed, test.unsent)
				}
				if late := m.Hist(record.SendDelay).Max(); test.confirm == "" && late != 0 {
					t.Errorf("maximum send delay: got %v, want 0", time.Duration(late))
				}
			})
		})
	}
}

// With a count, a load that is behind its schedule at the start of the measurement counts the messages that it sends
// from then on. In the warm-up, 100 of 1000 messages were sent. At 100 per second, the count takes 5 s.
func TestCountOfALoadThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Publishers.Count, w.Publishers.Mode, w.Warmup = 1000, 500, "confirm-each",
				plan.Duration(time.Second)
		})
		s.options = `{"confirmDelay": "10ms"}`
		m := s.run(t.Context())
		for _, c := range []record.Counter{record.Sent, record.Confirmed, record.Unique} {
			measured := int64(0)
			for _, w := range m.Windows() {
				if w.Measured {
					measured += w.Counts[c]
				}
			}
			if measured != 500 {
				t.Errorf("measured %v: got %d, want 500", c, measured)
			}
		}
		if sent, last := m.Sum(record.Sent, 0, 60), time.Duration(m.Last().Confirm); sent != 500 ||
			last != 5*time.Second {
			t.Errorf("got %d sent in the measurement, the last confirm after %v, want 500, 5 s", sent, last)
		}
	})
}

// A link that breaks is replaced at once, not when the next message is due: no message fails, with or without
// resilience.
func TestBrokenLinksAreReplacedBeforeTheNextMessage(t *testing.T) {
	for _, mode := range []string{"fire-and-forget", "confirm-window", "confirm-batch", "confirm-each"} {
		for _, resilience := range []drivers.Resilience{drivers.NoResilience, drivers.ByGuide} {
			t.Run(mode+" "+string(resilience), inVirtualTime(func(t *testing.T) {
				s := newTestTask(t, func(w *plan.Workload) {
					w.Publishers.Mode, w.Publishers.Threads, w.Publishers.Rate = mode, 2, 2
					w.Warmup, w.Measure = 0, plan.Duration(5*time.Second)
				})
				s.resilience = resilience
				s.wrapSession = func(session drivers.Session) drivers.Session { return slowConnectSession{session} }
				s.duringMeasurement = func(name string) {
					_ = clock.Until(t.Context(), clock.Now()+int64(2700*time.Millisecond))
					loopback.Cut(name)
				}
				m := s.run(t.Context())
				gaps := 0
				for _, e := range m.Events() {
					if e.Kind == record.EventGap {
						if gaps++; e.Nanos > int64(100*time.Millisecond) {
							t.Errorf("%s: got a gap of %v, want at most 100 ms", e.Detail, time.Duration(e.Nanos))
						}
					}
				}
				if sent, failed := m.Total(record.Sent), m.Total(record.PublishErrors); sent != 10 || failed != 0 || gaps != 3 {
					t.Errorf("got %d sent, %d publish errors, %d gaps, want 10, 0, 3", sent, failed, gaps)
				}
			}))
		}
	}
}

// A broker that ends each connection at once is not contacted in a busy loop.
func TestLinksThatBreakAtOnceArePaused(t *testing.T) {
	for _, mode := range []string{"fire-and-forget", "confirm-window"} {
		t.Run(mode, inVirtualTime(func(t *testing.T) {
			s := newTestTask(t, func(w *plan.Workload) {
				w.Publishers.Mode, w.Publishers.Rate, w.Warmup = mode, 1, 0
				w.Measure = plan.Duration(10 * time.Second)
			})
			s.wrapSession = func(session drivers.Session) drivers.Session {
				return withPublishers(session, func(ctx context.Context, conn drivers.Conn,
					spec drivers.PublisherSpec) (drivers.Publisher, error) {
					p, err := conn.Publisher(ctx, spec)
					if err != nil {
						return nil, err
					}
					b := &failingPublisher{Publisher: p, of: &failingPublishers{stored: 1000}, spec: spec}
					time.AfterFunc(time.Millisecond, func() { b.Broke(drivers.ErrClosed) })
					return b, nil
				})
			}
			if n := s.run(t.Context()).Total(record.Reconnects); n < 10 || n > 200 {
				t.Errorf("reconnects in 10 s: got %d, want 10 to 200", n)
			}
		}))
	}
}

// In unconfirmed modes, a driver that buffers is flushed once, after the last message and before the drain.
func TestBuffersAreFlushedAtTheEnd(t *testing.T) {
	for _, how := range []string{"open loop", "closed loop", "disconnected"} {
		t.Run(how, inVirtualTime(func(t *testing.T) {
			s := newTestTask(t, func(w *plan.Workload) { w.Publishers.Mode, w.Warmup = "fire-and-forget", 0 })
			switch how {
			case "open loop":
				s.workload.Publishers.Rate = 10
			case "closed loop":
				s.workload.Publishers.Count = 10
			case "disconnected":
				s.workload.Publishers.Rate = 10
				s.workload.Publishers.Lifetime = plan.Lifetime{DisconnectAt: plan.Duration(500 * time.Millisecond)}
			}
			var b *bufferingPublisher
			s.wrapSession = func(session drivers.Session) drivers.Session {
				return withPublishers(session, func(ctx context.Context, conn drivers.Conn,
					spec drivers.PublisherSpec) (drivers.Publisher, error) {
					inner, err := conn.Publisher(ctx, spec)
					b = &bufferingPublisher{Publisher: inner}
					return b, err
				})
			}
			m := s.run(t.Context())
			want := 1
			if how == "disconnected" {
				want = 0
			}
			if a := m.Accounting(1); a.Sent < 5 || want == 1 && a.Missing != 0 || b.flushes != want {
				t.Errorf("got %+v, %d flushes, want %d flushes, and none missing after a flush", a, b.flushes, want)
			}
			for _, e := range m.Events() {
				if e.Kind == eventError || e.Kind == eventClosed {
					t.Errorf("got event %+v, want no error and no closed link", e)
				}
			}
		}))
	}
}

// bufferingPublisher buffers messages until a flush. Those that it has when it is closed are lost.
type bufferingPublisher struct {
	drivers.Publisher
	buffered []drivers.Message
	flushes  int
}

func (b *bufferingPublisher) Publish(_ context.Context, m drivers.Message) error {
	m.Body = bytes.Clone(m.Body)
	b.buffered = append(b.buffered, m)
	return nil
}

func (b *bufferingPublisher) Flush(ctx context.Context) error {
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
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Publishers.Threads, w.Publishers.Mode = 1000, 4, "confirm-each"
			w.Warmup, w.Measure = plan.Duration(time.Second), plan.Duration(10*time.Second)
		})
		m := s.run(t.Context())
		if got := m.Accounting(1); got.Sent != 11_000 || got.Missing != 0 {
			t.Errorf("got %d sent, %d missing, want 11000, 0", got.Sent, got.Missing)
		}
		if got := m.Sum(record.Sent, 0, 10); got != 10_000 {
			t.Errorf("sent in the measurement: got %d, want 10000", got)
		}
		if late := m.Hist(record.SendDelay); late.Count() != 10_000 || late.Max() != 0 {
			t.Errorf("send delays: got %d samples, maximum %d ns, want 10000, 0", late.Count(), late.Max())
		}
		if pacing := m.Hist(record.Pacing); pacing.Count() < 9990 || pacing.Max() != 0 {
			t.Errorf("pacing errors: got %d samples, maximum %d ns, want about 10000, 0", pacing.Count(), pacing.Max())
		}
	})
}

// The publish rate is four times the maximum of confirm-each with confirms after 10 ms. The waits count as
// back-pressure, not as send delay. The publisher sends until the end of the drain. Every due message has a latency or
// is unsent.
func TestSlowBrokerCausesBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Publishers.Mode = 400, "confirm-each"
			w.Warmup, w.Measure, w.Drain.Timeout = 0, plan.Duration(2*time.Second), plan.Duration(1005*time.Millisecond)
		})
		s.options = `{"confirmDelay": "10ms"}`
		m := s.run(t.Context())
		if got := m.Sum(record.Sent, 0, 2); got != 200 {
			t.Errorf("sent in 2 s with one confirm per 10 ms: got %d, want 200", got)
		}
		if late := m.Hist(record.SendDelay).Max(); late != 0 {
			t.Errorf("maximum send delay: got %d ns, want 0", late)
		}
		if n := m.Hist(record.Pacing).Count(); n != 0 {
			t.Errorf("pacing errors: got %d, want none between sends that waited for the broker", n)
		}
		// Message n is due at 2.5n ms and sent at 10n ms. At the end of the drain, at 3,005 ms, message 300 is in
		// flight. It is confirmed at 3,010 ms when the link is closed. Of the others, message 301 has waited longest.
		if got, want := m.Hist(record.Backpressure).Max(), int64(3005e6-301*2.5e6); got != want {
			t.Errorf("maximum back-pressure: got %d ns, want %d", got, want)
		}
		if got := m.Total(record.Unsent); got != 499 {
			t.Errorf("unsent of 800 due messages: got %d, want 499", got)
		}
		if got, want := m.Hist(record.PublishIntended).Max(), int64(300*7.5*1e6+10e6); got != want {
			t.Errorf("maximum publish latency from the intended send time: got %d ns, want %d", got, want)
		}
		if got, want := m.Hist(record.UnsentAge), int64(3005e6-301*2.5e6); got.Count() != 499 || got.Max() != want {
			t.Errorf("ages of unsent messages: got %d, maximum %d ns, want 499, %d", got.Count(), got.Max(), want)
		}
		if got := m.Hist(record.Publish); got.Min() != 10e6 || got.Max() != 10e6 {
			t.Errorf("publish latency: got %d to %d ns, want 10 ms", got.Min(), got.Max())
		}
	})
}

// In virtual time, the end-to-end latency is exactly the delay of loopback.
func TestEndToEndLatencyIsTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Measure = 100, plan.Duration(5*time.Second)
		})
		s.options = `{"delay": "123ms"}`
		m := s.run(t.Context())
		h := m.Hist(record.EndToEnd)
		if h.Count() != 500 || h.Min() != 123e6 || h.Max() != 123e6 {
			t.Errorf("got %d samples from %d to %d ns, want 500 of 123 ms", h.Count(), h.Min(), h.Max())
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
		t.Run(name, inVirtualTime(func(t *testing.T) {
			s := newTestTask(t, func(w *plan.Workload) {
				w.Publishers.Threads, w.Publishers.Count, w.Warmup = 2, 10_000, 0
			})
			s.options = test.options
			got := s.run(t.Context()).Accounting(1)
			if got.Sent != 20_000 || got.Missing != test.lost || got.Duplicated != test.duplicated ||
				got.Reordered != test.reordered {
				t.Errorf("got %+v, want 20000 sent, %d lost, %d duplicated, %d reordered", got, test.lost,
					test.duplicated, test.reordered)
			}
			if got.MissingConfirmed != test.lost {
				t.Errorf("confirmed messages that were lost: got %d, want %d", got.MissingConfirmed, test.lost)
			}
		}))
	}
}

// Every subscription receives every message.
func TestFanOut(t *testing.T) {
	s := newTestTask(t, func(w *plan.Workload) {
		w.Topology.Subscriptions, w.Topology.Queues, w.Publishers.Threads, w.Consumers.Threads = 3, 2, 2, 2
		w.Publishers.Count = 2000
	})
	got := s.run(t.Context()).Accounting(3)
	if got.Received != 3*got.Sent || got.Missing != 0 {
		t.Errorf("accounting: got %+v, want each message received three times, none missing", got)
	}
}

// Cancelling ends the run at once and keeps the measurements.
func TestCancelKeepsWhatIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Mode, w.Measure = "confirm-each", plan.Duration(time.Minute)
		})
		s.options = `{"confirmDelay": "1ms"}`
		s.duringMeasurement = func(string) { time.AfterFunc(300*time.Millisecond, cancel) }
		begin := time.Now()
		m := s.run(ctx)
		if elapsed, want := time.Since(begin), 520*time.Millisecond; elapsed < want || elapsed > want+time.Millisecond {
			t.Errorf("duration: got %v, want %v (20 ms to the start, 200 ms of warm-up, 300 ms) and at most 1 ms more",
				elapsed, want)
		}
		if m.Hist(record.Publish).Count() == 0 {
			t.Error("got no publish latencies after the cancellation")
		}
	})
}

// The broker breaks every link. The engine reconnects, counts it, and accounts for every message.
func TestReconnects(t *testing.T) {
	for _, mode := range []string{"fire-and-forget", "confirm-window", "confirm-batch", "confirm-each"} {
		t.Run(mode, inVirtualTime(func(t *testing.T) {
			s := newTestTask(t, func(w *plan.Workload) {
				w.Publishers.Mode, w.Publishers.Threads, w.Consumers.Threads = mode, 2, 2
				w.Publishers.Rate = 2000
			})
			s.wrapSession = func(session drivers.Session) drivers.Session { return slowConnectSession{session} }
			s.duringMeasurement = func(name string) {
				_ = clock.Until(t.Context(), clock.Now()+int64(300*time.Millisecond))
				loopback.Cut(name)
			}
			m := s.run(t.Context())
			if got := m.Total(record.Reconnects); got != 4 {
				t.Errorf("got %d reconnects, want 4: one for each of 2 publishers and 2 consumers", got)
			}
			gaps := 0
			for _, e := range m.Events() {
				if e.Kind == record.EventGap && e.Nanos > 0 {
					gaps++
				}
			}
			if gaps != 4 {
				t.Errorf("got %d gaps, want 4", gaps)
			}
			accounting := m.Accounting(1)
			if accounting.Missing != 0 || accounting.Sent < 800 {
				t.Errorf("accounting: got %+v, want at least 800 sent, none missing (loopback keeps accepted messages)",
					accounting)
			}
			if mode != "fire-and-forget" {
				if got := accounting.Confirmed + uint64(m.Total(record.Unconfirmed)); got != accounting.Sent {
					t.Errorf("got %d confirmed or unconfirmed messages, want %d, as many as sent", got, accounting.Sent)
				}
			}
		}))
	}
}

// slowConnectSession is a session whose connections take a millisecond to open.
type slowConnectSession struct{ drivers.Session }

func (o slowConnectSession) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	time.Sleep(time.Millisecond)
	return o.Session.Connect(ctx, spec)
}

// Unroutable messages are returned and counted, with and without confirms, and do not count as lost.
func TestUnroutable(t *testing.T) {
	for _, mode := range []string{"fire-and-forget", "confirm-window"} {
		t.Run(mode, func(t *testing.T) {
			s := newTestTask(t, func(w *plan.Workload) {
				w.Publishers.Mode, w.Publishers.Mandatory, w.Publishers.Count, w.Warmup = mode, true, 500, 0
				w.Consumers.Nodes = 0
			})
			s.onConnected = func(session drivers.Session, topology drivers.Topology) {
				if err := session.Teardown(t.Context(), topology); err != nil { // from now on no queue accepts messages
					t.Fatal(err)
				}
			}
			m := s.run(t.Context())
			got := m.Accounting(1)
			if got.Sent != 500 || got.Returned != 500 || got.Missing != 0 {
				t.Errorf("accounting: got %+v, want 500 sent, 500 returned, none missing", got)
			}
			if want := map[bool]uint64{true: 500, false: 0}[mode != "fire-and-forget"]; got.Confirmed != want {
				t.Errorf("got %d confirmed, want %d", got.Confirmed, want)
			}
		})
	}
}

// instantSession is a broker that takes no time and stores nothing. Every delay is caused by the load generator.
type instantSession struct{ drivers.Session }

func (instantSession) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	s := fakeSession{publisher: func(drivers.PublisherSpec) drivers.Publisher { return instantPublisher{} }}
	return s.Connect(ctx, spec)
}

type instantPublisher struct{ drivertest.Endless }

func (instantPublisher) Publish(context.Context, drivers.Message) error { return nil }
func (instantPublisher) Flush(context.Context) error                    { return nil }
func (instantPublisher) Close() error                                   { return nil }

// If the load generator starts late, its delay counts as send delay, not as back-pressure.
func TestLateGeneratorCausesSendDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := runInstant(t, 1000, -100*time.Millisecond, 200*time.Millisecond)
		late, blocked := m.Hist(record.SendDelay), m.Hist(record.Backpressure)
		if late.Count() != 200 || late.Max() != 100e6 || samplesFrom(late, 1e6) != 100 || blocked.Max() != 0 {
			t.Errorf("got %d messages, %d with a send delay, maximum %d ns, maximum back-pressure %d ns, want 200, 100, 100 ms, 0",
				late.Count(), samplesFrom(late, 1e6), late.Max(), blocked.Max())
		}
		if n := m.Total(record.Unsent); n != 0 {
			t.Errorf("got %d unsent messages, want 0", n)
		}
	})
}

// At an unreachable rate, some messages are unsent and the others have a send delay. Nothing counts as back-pressure.
func TestSlowGeneratorCausesSendDelay(t *testing.T) {
	m := runInstant(t, 100e6, 0, 50*time.Millisecond)
	if m.Total(record.Unsent) == 0 {
		t.Error("got no unsent messages at an unreachable rate")
	}
	if late, blocked := m.Hist(record.SendDelay), m.Hist(record.Backpressure); late.Max() == 0 || blocked.Max() != 0 {
		t.Errorf("got maximum send delay %d ns, maximum back-pressure %d ns, want more than 0, and 0", late.Max(),
			blocked.Max())
	}
}

// slowSession returns the session of a client library whose Publish takes a millisecond. With waits, it waits for the
// broker. Otherwise it works.
func slowSession(waits bool) drivers.Session {
	return fakeSession{publisher: func(spec drivers.PublisherSpec) drivers.Publisher {
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

// recoveringPublisher waits 5 s for the broker in its first call, then publishes faster than the rate. Once it has made
// up for 3 s, its own work takes 2.5 s.
type recoveringPublisher struct {
	instantPublisher
	waiting   *drivers.Waiting
	published *int
}

func (p recoveringPublisher) Publish(context.Context, drivers.Message) error {
	*p.published++
	switch *p.published {
	case 1:
		p.waiting.Begin()
		time.Sleep(5 * time.Second)
		p.waiting.End()
	case 5001:
		time.Sleep(2500 * time.Millisecond)
	default:
		time.Sleep(400 * time.Microsecond)
	}
	return nil
}

// What the publisher has made up for after a stall of the broker excuses no later delay of the generator.
func TestDelayOfTheGeneratorAfterAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session := fakeSession{publisher: func(spec drivers.PublisherSpec) drivers.Publisher {
			return recoveringPublisher{waiting: spec.Waiting, published: new(int)}
		}}
		m, _ := runWithSession(t, session, 1000, 0, 10*time.Second)
		if late := m.Hist(record.SendDelay).Max(); late < int64(2400*time.Millisecond) || late > int64(2600*time.Millisecond) {
			t.Errorf("maximum send delay %v, want 2.5 s", time.Duration(late))
		}
		if held := m.Hist(record.Backpressure).Max(); held < int64(4900*time.Millisecond) || held > int64(5*time.Second) {
			t.Errorf("maximum back-pressure %v, want 5 s", time.Duration(held))
		}
	})
}

// TestOwnWorkIsNotBlocked proves that a client library's own work counts as work of the load generator, and its waits
// as waits for the broker: in open loop at an unreachable rate, and in closed loop.
func TestOwnWorkIsNotBlocked(t *testing.T) {
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			late, blocked, busy := record.SendDelay, record.Backpressure, 1.0
			if waits {
				late, blocked, busy = blocked, late, 0
			}
			m, times := runWithSession(t, slowSession(waits), 2000, 0, 5*time.Second)
			if longest, other := m.Hist(late).Quantile(0.99), m.Hist(blocked).Max(); longest < int64(2*time.Second) ||
				other != 0 {
				t.Errorf("waits %v: got p99 %v, other maximum %v, want at least 2 s, 0 (of send delay and back-pressure)", waits,
					time.Duration(longest), time.Duration(other))
			}
			if got := times.Busy(); got < busy-0.01 || got > busy+0.01 {
				t.Errorf("waits %v: got busy for %.3f of the time, want %v", waits, got, busy)
			}
			if _, times = runWithSession(t, slowSession(waits), 0, 0, 5*time.Second); times.Busy() < busy-0.01 ||
				times.Busy() > busy+0.01 {
				t.Errorf("closed loop, waits %v: got %+v, want busy for %v of the time", waits, times, busy)
			}
			if _, times = runWithSession(t, slowSession(waits), 200, 0, 5*time.Second); times.Busy() < 0.2*busy-0.01 ||
				times.Busy() > 0.2*busy+0.01 {
				t.Errorf("200/s, waits %v: got %+v, want busy for %v of the time", waits, times, 0.2*busy)
			}
		})
	}
}

// funcPublisher is a publisher in which only Publish takes time.
type funcPublisher struct {
	instantPublisher
	publish func(context.Context)
}

func (w funcPublisher) Publish(ctx context.Context, _ drivers.Message) error {
	w.publish(ctx)
	return nil
}

// busiestPublisher publishes in closed loop for five seconds over one connection, with one queue per publisher. It
// returns the times of the publisher with the most work.
func busiestPublisher(t *testing.T, publishers int,
	publisher func(drivers.PublisherSpec) drivers.Publisher) record.PublisherTimes {
	t.Helper()
	_, times := runWithSession(t, fakeSession{publisher: publisher}, 0, 0, 5*time.Second, func(a *plan.Assignment) {
		a.Publishers.Count, a.Publishers.Total = publishers, publishers
		a.Task.Cell.Workload.Topology.Connections, a.Task.Cell.Workload.Topology.Queues = "shared", publishers
	})
	return times
}

// runInstant returns the record of a load at a rate, with a broker that takes no time. begins is the start time
// relative to now.
func runInstant(t *testing.T, rate float64, begins, measure time.Duration) *record.Merged {
	t.Helper()
	m, _ := runWithSession(t, instantSession{}, rate, begins, measure)
	return m
}

// runWithSession is like runInstant with another session. It also returns the times of its publisher. Rate 0 is closed
// loop.
func runWithSession(t *testing.T, session drivers.Session, rate float64, begins, measure time.Duration,
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
			t.Errorf("%+v: a pacing error was recorded, want none", x)
		case x.want >= 0 && (h == nil || h.Count() != before+1 || samplesFrom(h, x.want) == 0):
			t.Errorf("%+v: the pacing error was not recorded", x)
		}
	}
	if h := w.Hists[record.Pacing]; h.Max() != 59_900 || h.Min() != 0 || h.Count() != 4 || samplesFrom(h, 9_700) != 2 {
		t.Errorf("got %d samples from %d to %d, %d of at least 9,700, want 4 from 0 to 59,900, 2", h.Count(), h.Min(),
			h.Max(), samplesFrom(h, 9_700))
	}
}

// The time during which a broker rejects connections counts as back-pressure, not as send delay.
func TestRejectedConnectionsCauseBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := plan.Default()
		w.Publishers.Mode, w.Publishers.Rate, w.Warmup, w.Measure = "connection-per-message", 100, 0,
			plan.Duration(2*time.Second)
		a := plan.Assignment{Task: plan.Task{Run: "test", ID: "refused", Cell: plan.Cell{Workload: w}},
			Publishers: plan.Share{Count: 1, Total: 1}}
		e, err := New(Config{Assignment: a, Session: rejectingSession{}, Log: slog.New(slog.DiscardHandler)})
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
			t.Errorf("got maximum send delay %d ns, maximum back-pressure %d ns, want 0, at least 1 s", late, blocked)
		}
		if m.Total(record.PublishErrors) == 0 {
			t.Error("got no publish errors")
		}
	})
}

// rejectingSession is a broker that rejects connections after 100 ms.
type rejectingSession struct{ drivers.Session }

func (rejectingSession) Connect(context.Context, drivers.ConnSpec) (drivers.Conn, error) {
	time.Sleep(100 * time.Millisecond) // virtual time
	return nil, errors.New("refused")
}

// TestWaitsOfPublishersAreSeparate covers two publishers that share a connection: one waits for the broker in each
// Publish, and the other one works.
func TestWaitsOfPublishersAreSeparate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busiest := busiestPublisher(t, 2, func(spec drivers.PublisherSpec) drivers.Publisher {
			if spec.Queue == 1 {
				spec.Waiting = nil
			}
			return slowPublisher{waiting: spec.Waiting}
		})
		if busiest.Publisher != 1 || busiest.Busy() < 0.99 {
			t.Errorf("busiest publisher: got %+v, busy for %.2f of the time, want publisher 1, 1.00", busiest,
				busiest.Busy())
		}
	})
}

// TestBlockedWritesOfAConnectionCountOnce proves that the time of a wait for a confirm and of a simultaneous blocked
// write counts once. The work before counts as own work.
func TestBlockedWritesOfAConnectionCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busiest := busiestPublisher(t, 1, func(spec drivers.PublisherSpec) drivers.Publisher {
			return funcPublisher{publish: func(ctx context.Context) {
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
			t.Errorf("got %+v, busy for %.2f of the time, want a third", busiest, busy)
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
// fault that delays messages.
func TestConsumeOnlyWaitsForFaults(t *testing.T) {
	for fault, want := range map[time.Duration]time.Duration{0: time.Second, 4 * time.Second: 5 * time.Second} {
		t.Run(fault.String(), inVirtualTime(func(t *testing.T) {
			s := newTestTask(t, func(w *plan.Workload) {
				w.Publishers.Nodes, w.Measure = 0, plan.Duration(time.Minute)
				w.Faults = []plan.Fault{{At: plan.Duration(fault / 2), For: plan.Duration(fault / 2)}}
			})
			s.workload.Warmup, s.workload.Measure = 0, plan.Duration(time.Minute)
			begin := time.Now()
			s.run(t.Context())
			if elapsed := time.Since(begin); elapsed < want || elapsed > want+time.Second/2 {
				t.Errorf("duration of the run: got %v, want %v", elapsed, want)
			}
		}))
	}
}
