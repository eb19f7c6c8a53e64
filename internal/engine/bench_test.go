package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
)

var sink int64

// wholePaths are the loads of BenchmarkWholePath and TestTheWholePathDoesNotAllocate.
var wholePaths = map[string]func(*plan.Workload){
	"window":          func(w *plan.Workload) { w.Publishers.Mode = "confirm-window" },
	"fire-and-forget": func(w *plan.Workload) { w.Publishers.Mode = "fire-and-forget" },
	"1KiB":            func(w *plan.Workload) { w.Message.Size = 1024 },
	"singly":          func(w *plan.Workload) { w.Consumers.Batch = 1 },
}

// runWholePath sends n messages over loopback. Each is published, confirmed, delivered, recorded in both latencies, and
// in the ledger. begin is called when all links are open, end when all messages are recorded, and pause after each
// snapshot. Unless calls is nil, it counts the calls of the engine.
func runWholePath(tb testing.TB, n uint64, change func(*plan.Workload), calls *callCounts, begin, pause, end func()) {
	tb.Helper()
	w := plan.Default()
	w.Warmup, w.Measure, w.Consumers.Batch, w.Consumers.Prefetch = 0, plan.Duration(10*time.Minute), 256, 0
	w.Publishers.Count = n
	change(&w)
	e, session := newConnectedEngine(tb, w, calls)
	defer session.Close()
	begin()
	if err := e.Run(tb.Context(), clock.Now()); err != nil {
		tb.Fatal(err)
	}
	m, seq := record.NewMerged(), uint64(0)
	for ; seq == 0 || !m.AllIn(1); seq++ {
		p := e.Take(false)
		m.Add(record.Snapshot{Agent: "a", Seq: seq, Windows: p.Windows, Sets: p.Sets})
		pause()
	}
	end()
	if got := m.Accounting(1); got.Sent != n || got.Received != n {
		tb.Fatalf("accounting: got %+v, want %d sent and received", got, n)
	}
	if err := e.Close(context.Background()); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkWholePath sends b.N messages on one core. The clock is read before each message is sent, and once in each
// call with confirms or deliveries. A run before counts these calls. The cost of a reading is measured in the same run.
// own-ns/op is ns/op without the readings. Readings by a publisher that waits for a free slot are not subtracted. The
// target is at most 100 ns and 0 allocations.
func BenchmarkWholePath(b *testing.B) {
	for name, change := range wholePaths {
		b.Run(name, func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			var read float64
			n, calls := min(uint64(b.N), 100_000), callCounts{}
			runWholePath(b, n, change, &calls, func() {}, runtime.Gosched, func() {})
			runtime.GC()
			runWholePath(b, uint64(b.N), change, nil, func() {
				read = clockReadCost()
				b.ReportAllocs()
				b.ResetTimer()
			}, runtime.Gosched, b.StopTimer)
			reads := 1 + float64(calls.confirms+calls.deliveries)/float64(n)
			perOp := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			b.ReportMetric(read, "ns/clock-read")
			b.ReportMetric(reads, "clock-reads/op")
			b.ReportMetric(perOp-reads*read, "own-ns/op")
		})
	}
}

// The path of a message does not allocate. Snapshots and windows allocate a few hundred times in total. On one core,
// loopback delivers messages before its queue needs more memory.
func TestTheWholePathDoesNotAllocate(t *testing.T) {
	const messages = 200_000
	for name, change := range wholePaths {
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			var before, after runtime.MemStats
			synctest.Test(t, func(t *testing.T) { // few snapshots: Wait returns when all messages are recorded
				runWholePath(t, messages, change, nil, func() { runtime.ReadMemStats(&before) }, synctest.Wait,
					func() { runtime.ReadMemStats(&after) })
			})
			if n := after.Mallocs - before.Mallocs; n > messages/100 {
				t.Errorf("got %d allocations for %d messages, want at most %d", n, messages, messages/100)
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
			e, err := New(Config{Assignment: a, Session: instantSession{}, Log: slog.New(slog.DiscardHandler)})
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

// callCounts counts the calls with confirms and those with deliveries. They may be read when the engine is closed.
type callCounts struct{ confirms, deliveries uint64 }

func (c *callCounts) count(inner drivers.Session) drivers.Session {
	return drivertest.Hooks{Session: inner,
		Publishing: func(ctx context.Context, conn drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher, error) {
			confirmed := spec.OnConfirms
			spec.OnConfirms = func(tokens []uint64, err error) {
				c.confirms++
				confirmed(tokens, err)
			}
			return conn.Publisher(ctx, spec)
		},
		Consuming: func(ctx context.Context, conn drivers.Conn, spec drivers.ConsumerSpec,
			handle drivers.Handler) (drivers.Consumer, error) {
			return conn.Consumer(ctx, spec, func(batch []drivers.Delivery) {
				c.deliveries++
				handle(batch)
			})
		}}
}

// newConnectedEngine returns a connected engine with one publisher, one consumer and its own loopback. The times for
// which the consumer holds deliveries are measured.
func newConnectedEngine(b testing.TB, w plan.Workload, calls *callCounts) (*Engine, drivers.Session) {
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
	if calls != nil {
		session = calls.count(session)
	}
	a := plan.Assignment{Task: plan.Task{Run: "bench", ID: "t", Cell: plan.Cell{Workload: w,
		RedeliverAfter: plan.Duration(30 * time.Second)}},
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

// clockReadCost returns the cost of one clock reading in nanoseconds: the minimum of several measurements.
func clockReadCost() float64 {
	const reads = 200_000
	best := time.Hour
	for range 10 {
		begin := time.Now()
		for range reads {
			sink += clock.Now()
		}
		best = min(best, time.Since(begin))
	}
	return float64(best.Nanoseconds()) / reads
}
