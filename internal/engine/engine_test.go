package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/loopback"
)

// subject is one task on loopback, played by one engine that has all its publishers and consumers.
type subject struct {
	t       *testing.T
	work    plan.Workload
	options string
	// during, if set, is called when the measurement has begun.
	during func(loopback string)
}

func newSubject(t *testing.T, change func(*plan.Workload)) subject {
	w := plan.Default()
	w.Warmup, w.Measure = plan.Duration(200*time.Millisecond), plan.Duration(time.Second)
	w.Drain = plan.Drain{Silence: plan.Duration(time.Second), Most: plan.Duration(5 * time.Second)}
	change(&w)
	return subject{t: t, work: w}
}

func (s subject) task() plan.Assignment {
	return plan.Assignment{
		Task: plan.Task{Run: "test", ID: plan.CellID(s.t.Name(), s.work), Cell: plan.Cell{Workload: s.work}},
		Publishers: plan.Share{Count: s.work.Publishers.Nodes * s.work.Publishers.Threads,
			Total: s.work.Publishers.Nodes * s.work.Publishers.Threads},
		Consumers: plan.Share{Count: s.work.Consumers.Nodes * s.work.Consumers.Threads,
			Total: s.work.Consumers.Nodes * s.work.Consumers.Threads},
	}
}

// play runs the task and returns its merged record.
func (s subject) play(ctx context.Context) *record.Merge {
	t := s.t
	t.Helper()
	d, err := drivers.Lookup("loopback")
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%s-%d", t.Name(), time.Now().UnixNano())
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
	session, err := d.Open(ctx, raw, drivers.Env{Log: slog.New(slog.DiscardHandler),
		Event: func(k drivers.EventKind, detail string) { e.Event(k, detail) }})
	if err != nil {
		t.Fatalf("open loopback: %v", err)
	}
	defer session.Close()
	a := s.task()
	if e, err = New(Config{Assignment: a, Session: session, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatalf("new engine: %v", err)
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
	m := record.NewMerge()
	seq := uint64(0)
	take := func(final bool) {
		p := e.Take(final)
		m.Add(record.Snapshot{Agent: "a", Seq: seq, Windows: p.Windows, Sets: p.Sets, Events: p.Events, LastSend: p.LastSend,
			LastConfirm: p.LastConfirm, LastReceipt: p.LastReceipt, Skew: p.Skew, Final: final})
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
	for end := clock.Now() + int64(s.work.Drain.Silence.D()); clock.Now() < end && !m.AllIn(s.work.Topology.Subscriptions); {
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

// Every mode sends, is confirmed as it should be, and every message arrives once.
func TestModes(t *testing.T) {
	for _, mode := range drivers.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			s := newSubject(t, func(w *plan.Workload) {
				w.Publishers.Mode, w.Publishers.Threads, w.Consumers.Threads = string(mode), 2, 2
				w.Publishers.Batch = plan.Batch{Least: 1, Most: 10}
				w.Publishers.Count, w.Publishers.Window = 500, 50
			})
			m := s.play(t.Context())
			tally := m.Tally(1)
			if tally.Sent < 1000 || tally.Missing != 0 || tally.Duplicated != 0 || tally.Reordered != 0 || tally.Corrupt != 0 {
				t.Errorf("tally %+v, want at least 1000 sent, all received once and in order", tally)
			}
			if want := map[bool]uint64{true: tally.Sent, false: 0}[mode.Confirmed()]; tally.Confirmed != want {
				t.Errorf("%d confirmed of %d, want %d", tally.Confirmed, tally.Sent, want)
			}
			if got := m.Hist(record.Send).Count(); mode.Confirmed() != (got > 0) {
				t.Errorf("%d send latencies in mode %s", got, mode)
			}
		})
	}
}

// A count is exact: so many messages a publisher after warm-up, no more, no fewer.
func TestCountEndsTheMeasurement(t *testing.T) {
	s := newSubject(t, func(w *plan.Workload) {
		w.Publishers.Threads, w.Publishers.Count, w.Measure = 3, 1234, plan.Duration(time.Minute)
	})
	m := s.play(t.Context())
	if got := m.Hist(record.Send).Count(); got != 3*1234 {
		t.Errorf("%d messages measured, want %d", got, 3*1234)
	}
}

// Open loop under the bubble's clock: every message of the schedule is sent, and never late.
func TestOpenLoopSendsTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Publishers.Threads, w.Publishers.Mode = 1000, 4, "confirm-each"
			w.Warmup, w.Measure = plan.Duration(time.Second), plan.Duration(10*time.Second)
		})
		m := s.play(t.Context())
		if got := m.Tally(1); got.Sent != 11_000 || got.Missing != 0 {
			t.Errorf("sent %d, missing %d; want 11000 and 0", got.Sent, got.Missing)
		}
		if got := m.Sum(record.Sent, 0, 10); got != 10_000 {
			t.Errorf("%d sent inside the measurement, want 10000", got)
		}
		if late := m.Hist(record.Lateness); late.Count() != 10_000 || late.Max() != 0 {
			t.Errorf("lateness: %d samples, at most %d ns; want 10000 of 0", late.Count(), late.Max())
		}
	})
}

// A broker that confirms after 10 ms is asked for four times what confirm-each can do: the publisher is blocked, and not late.
func TestSlowBrokerIsBlockedNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Publishers.Mode = 400, "confirm-each"
			w.Warmup, w.Measure = 0, plan.Duration(2*time.Second)
		})
		s.options = `{"confirmDelay": "10ms"}`
		m := s.play(t.Context())
		if got := m.Sum(record.Sent, 0, 2); got != 200 {
			t.Errorf("%d sent in 2 s at one confirm each 10 ms, want 200", got)
		}
		if late := m.Hist(record.Lateness).Max(); late != 0 {
			t.Errorf("lateness %d ns, want 0: the generator was never the cause", late)
		}
		// Message n is due at 2.5n ms and goes out at 10n ms.
		if got, want := m.Hist(record.Blocked).Max(), int64(199*7.5*1e6); got != want {
			t.Errorf("blocked at most %d ns, want %d", got, want)
		}
		if got, want := m.Hist(record.SendDue).Max(), int64(199*7.5*1e6+10e6); got != want {
			t.Errorf("send latency from due at most %d ns, want %d", got, want)
		}
		if got := m.Hist(record.Send); got.Min() != 10e6 || got.Max() != 10e6 {
			t.Errorf("send latency %d … %d ns, want 10 ms", got.Min(), got.Max())
		}
	})
}

// Processing latency is what loopback delays by, exactly, under the bubble's clock.
func TestProcessingLatencyIsTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSubject(t, func(w *plan.Workload) {
			w.Publishers.Rate, w.Measure = 100, plan.Duration(5*time.Second)
		})
		s.options = `{"delay": "123ms"}`
		m := s.play(t.Context())
		h := m.Hist(record.Processing)
		if h.Count() != 500 || h.Min() != 123e6 || h.Max() != 123e6 {
			t.Errorf("%d samples of %d … %d ns, want 500 of 123 ms", h.Count(), h.Min(), h.Max())
		}
	})
}

// The ledger gives the injected faults to the message.
func TestLedgerIsExact(t *testing.T) {
	for name, test := range map[string]struct {
		options                     string
		lost, duplicated, reordered uint64
	}{
		"lose":      {`{"lose": 1000}`, 20, 0, 0},
		"duplicate": {`{"duplicate": 500}`, 0, 40, 0},
		"swap":      {`{"swap": [10, 700, 4094]}`, 0, 0, 6},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSubject(t, func(w *plan.Workload) {
				w.Publishers.Threads, w.Publishers.Count, w.Warmup = 2, 10_000, 0
			})
			s.options = test.options
			got := s.play(t.Context()).Tally(1)
			if got.Sent != 20_000 || got.Missing != test.lost || got.Duplicated != test.duplicated || got.Reordered != test.reordered {
				t.Errorf("%+v; want 20000 sent, %d lost, %d duplicated, %d reordered", got, test.lost, test.duplicated, test.reordered)
			}
			if got.MissingConfirmed != test.lost {
				t.Errorf("%d lost although confirmed, want %d", got.MissingConfirmed, test.lost)
			}
		})
	}
}

// Every subscription gets everything.
func TestFanOut(t *testing.T) {
	s := newSubject(t, func(w *plan.Workload) {
		w.Topology.Subscriptions, w.Topology.Queues, w.Publishers.Threads, w.Consumers.Threads = 3, 2, 2, 2
		w.Publishers.Count = 2000
	})
	got := s.play(t.Context()).Tally(3)
	if got.Received != 3*got.Sent || got.Missing != 0 {
		t.Errorf("%+v; want everything three times", got)
	}
}

// Cancelling ends the run at once and keeps what was measured.
func TestCancelKeepsWhatIsMeasured(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newSubject(t, func(w *plan.Workload) { w.Measure = plan.Duration(time.Minute) })
	s.during = func(string) { time.AfterFunc(300*time.Millisecond, cancel) }
	began := time.Now()
	m := s.play(ctx)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v to stop", took)
	}
	if m.Hist(record.Send).Count() == 0 {
		t.Error("nothing was kept of what was measured")
	}
}

// The broker cuts every link in the middle: the engine opens them again, counts it, and loses no account of a message.
func TestReconnects(t *testing.T) {
	for _, mode := range []string{"fire-and-forget", "confirm-window", "confirm-batch", "confirm-each"} {
		t.Run(mode, func(t *testing.T) {
			s := newSubject(t, func(w *plan.Workload) {
				w.Publishers.Mode, w.Publishers.Threads, w.Consumers.Threads = mode, 2, 2
				w.Publishers.Rate = 2000
			})
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
			tally := m.Tally(1)
			if tally.Missing != 0 || tally.Sent < 1500 {
				t.Errorf("%+v; want nothing missing: loopback keeps what it accepted", tally)
			}
			if mode != "fire-and-forget" {
				if got := tally.Confirmed + uint64(m.Total(record.Unconfirmed)); got != tally.Sent {
					t.Errorf("%d confirmed or given up of %d sent", got, tally.Sent)
				}
			}
		})
	}
}

// A message that no queue takes comes back and is counted, with and without confirms, and is not called lost.
func TestUnroutable(t *testing.T) {
	for _, mode := range []string{"fire-and-forget", "confirm-window"} {
		t.Run(mode, func(t *testing.T) {
			w := plan.Default()
			w.Publishers.Mode, w.Publishers.Mandatory = mode, true
			p := &publisher{e: &Engine{task: 1, work: w}}
			c := record.NewCollector(time.Second)
			p.record(c)
			p.e.end = int64(time.Second)
			body := make([]byte, 100)
			put(body, stamp(body, 1, 0, 0), 7, 5, 5)
			p.sent.Add(7)
			p.sent.Add(8)
			p.onReturn(body)
			p.onReturn(body) // a second return of the same message is not another one
			p.sends.Flush()
			p.returns.Flush()
			m := record.NewMerge()
			windows, sets := c.Take()
			m.Add(record.Snapshot{Agent: "a", Windows: windows, Sets: sets})
			if got := m.Tally(1); got.Returned != 1 || got.Missing != 1 || m.Total(record.Returned) != 1 {
				t.Errorf("%+v; want 1 returned and only the other missing", got)
			}
		})
	}
}
