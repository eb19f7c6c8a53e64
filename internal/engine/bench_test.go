package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
)

var sink int64

// BenchmarkWholePath sends b.N messages over loopback on one core. Each is published, confirmed, delivered, recorded in
// both latencies, and in the ledger. Each message needs three clock readings. Their cost is measured in the same run,
// and own-ns/op is the rest. The target is at most 100 ns and 0 allocations.
func BenchmarkWholePath(b *testing.B) {
	for name, change := range map[string]func(*plan.Workload){
		"window":          func(w *plan.Workload) { w.Publishers.Mode = "confirm-window" },
		"fire-and-forget": func(w *plan.Workload) { w.Publishers.Mode = "fire-and-forget" },
		"1KiB":            func(w *plan.Workload) { w.Message.Size = 1024 },
		"singly":          func(w *plan.Workload) { w.Consumers.Batch = 1 },
	} {
		b.Run(name, func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			w := plan.Default()
			w.Warmup, w.Measure, w.Consumers.Batch, w.Consumers.Prefetch = 0, plan.Duration(10*time.Minute), 256, 0
			w.Publishers.Count = uint64(b.N)
			change(&w)
			e, session := connected(b, w)
			defer session.Close()
			read := clockRead()
			b.ReportAllocs()
			b.ResetTimer()
			if err := e.Run(b.Context(), clock.Now()); err != nil {
				b.Fatal(err)
			}
			m, n := record.NewMerged(), uint64(0)
			for ; n == 0 || !m.AllIn(1); n++ {
				p := e.Take(false)
				m.Add(record.Snapshot{Agent: "a", Seq: n, Windows: p.Windows, Sets: p.Sets})
				runtime.Gosched()
			}
			b.StopTimer()
			reads := 3.0
			if w.Publishers.Mode == "fire-and-forget" {
				reads = 2
			}
			perOp := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			b.ReportMetric(read, "ns/clock-read")
			b.ReportMetric(perOp-reads*read, "own-ns/op")
			if got := m.Accounting(1); got.Sent != uint64(b.N) || got.Received != uint64(b.N) {
				b.Fatalf("%+v; want %d of everything", got, b.N)
			}
			if err := e.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkConfirms records confirms that come in calls of 1 and 1,000 messages.
func BenchmarkConfirms(b *testing.B) {
	for _, size := range []int{1, 1000} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			w := plan.Default()
			w.Publishers.Mode, w.Publishers.MaxInFlight = "confirm-window", size
			a := plan.Assignment{Task: plan.Task{Run: "bench", ID: "t", Cell: plan.Cell{Workload: w}},
				Publishers: plan.Share{Count: 1, Total: 1}}
			e, err := New(Config{Assignment: a, Session: instant{}, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			p, tokens := e.publishers[0], make([]uint64, size)
			p.begin(record.NewCollector(0))
			b.ReportAllocs()
			for n := 0; n < b.N; n += size {
				for i := range tokens {
					token, _ := p.window.take()
					s := &p.window.slots[token]
					s.sequence, s.out, tokens[i] = p.sequence, true, uint64(token)
					p.sequence++
				}
				p.spec.OnConfirms(tokens, nil)
			}
		})
	}
}

// connected returns a connected engine with one publisher, one consumer and its own loopback.
func connected(b *testing.B, w plan.Workload) (*Engine, drivers.Session) {
	b.Helper()
	d, err := drivers.Lookup("loopback")
	if err != nil {
		b.Fatal(err)
	}
	raw, _ := json.Marshal(map[string]any{"name": b.Name()})
	session, err := d.Open(b.Context(), schematest.Fill(b, d, raw), drivers.Env{Log: slog.New(slog.DiscardHandler),
		Event: func(drivers.EventKind, string) {}})
	if err != nil {
		b.Fatal(err)
	}
	a := plan.Assignment{Task: plan.Task{Run: "bench", ID: "t", Cell: plan.Cell{Workload: w}},
		Publishers: plan.Share{Count: 1, Total: 1}, Consumers: plan.Share{Count: 1, Total: 1}}
	e, err := New(Config{CopiesBody: d.Info().Declare(raw, drivers.Use{}).Capabilities.CopiesBody, Assignment: a,
		Session: session, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	if err := session.Setup(b.Context(), Topology(a.Task)); err != nil {
		b.Fatal(err)
	}
	if err := e.ConnectConsumers(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := e.ConnectPublishers(b.Context()); err != nil {
		b.Fatal(err)
	}
	return e, session
}

// clockRead returns the cost of one clock reading in nanoseconds: the minimum of several measurements.
func clockRead() float64 {
	const reads = 200_000
	best := time.Hour
	for range 10 {
		began := time.Now()
		for range reads {
			sink += clock.Now()
		}
		best = min(best, time.Since(began))
	}
	return float64(best.Nanoseconds()) / reads
}
