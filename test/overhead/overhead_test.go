// Package overhead measures the cost of the engine and its drivers. It sends the same messages through a bare loop over
// a broker's client library and through the engine, in pairs within one run. It prints the results, and fails if the
// engine does not reach the wanted share of the bare loop's rate, except in known rows.
package overhead

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/internal/stats"
	"example.org/lockstep/lockstep/pkg/drivers"
)

const (
	pairs      = 24
	sampleTime = 250 * time.Millisecond // of the bare loop
	window     = 1000
	prefetch   = 100
	patience   = 30 * time.Second // of one sample
)

// work is the work of one sample: one publisher sends n messages to one queue, and one consumer receives and
// acknowledges each of them.
type work struct {
	mode drivers.Mode
	size int
	n    int
}

func (w work) String() string { return fmt.Sprintf("%s %d B", w.mode, w.size) }

// maxMessages is the maximum of n: JetStream keeps at most 100,000 unconfirmed messages and drops the others.
const maxMessages = 90_000

// sample is the cost of one side from the first message to the last confirm and delivery, without connecting.
type sample struct {
	elapsed time.Duration
	cpu     time.Duration // of this process, without the broker
}

// subject is a broker with both ways to use it.
type subject struct {
	name    string
	options json.RawMessage // of the driver
	bare    func(b *testing.B, w work) sample
	// For slow brokers; 0: the default.
	pairs       int
	minMessages int // minimum number of messages in a sample
}

// wanted is the minimum ratio of the engine's rate to that of the bare loop.
const wanted = 0.95

// The tables of all benchmarks, which TestMain prints.
var (
	rows     []string
	excluded []string // stand-ins
	profiles []string // commands that show the CPU profiles of rows below the wanted ratio
)

// known are the benchmarks, without the size, whose ratio may be below the wanted one, with the reasons.
var known = map[string]string{
	"Kafka/franz-go/confirm-each":   "20 to 43 µs of 270 to 300 µs of CPU per message are the engine's, of unknown cause",
	"Kafka/kafka-go/confirm-each":   "58 µs of CPU per message are the engine's, of unknown cause",
	"Kafka/kafka-go/confirm-window": "0.7 to 1.7 µs of CPU per message are the engine's, on the cores of the broker",
	"RabbitMQ/confirm-each":         "7 of 100 µs of CPU per message are the engine's, of unknown cause",
}

// isKnown reports whether a benchmark is a known row.
func isKnown(name string, w work) bool {
	_, is := known[strings.TrimSuffix(name, fmt.Sprintf("-%d-B", w.size))]
	return is
}

// compare measures all modes and sizes. Stand-ins are excluded: their rates say nothing about the broker.
func compare(b *testing.B, s subject) {
	d, err := drivers.Lookup(s.name)
	must(b, err)
	s.options = schematest.Fill(b, d, s.options)
	if product := standIn(b, d, s.options); product != "" {
		excluded = append(excluded, fmt.Sprintf("%s: the broker is a stand-in for %s", s.name, product))
		b.SkipNow()
	}
	for _, mode := range []drivers.Mode{drivers.ConfirmWindow, drivers.ConfirmEach, drivers.FireAndForget} {
		if !slices.Contains(d.Info().Declare(s.options, drivers.Use{Mode: mode}).Capabilities.Modes, mode) {
			continue
		}
		for _, size := range []int{100, 1024} {
			w := work{mode: mode, size: size}
			b.Run(strings.ReplaceAll(w.String(), " ", "-"), func(b *testing.B) { measure(b, s, w) })
		}
	}
}

// standIn returns the product that the broker stands in for; "" if none.
func standIn(b *testing.B, d drivers.Driver, options json.RawMessage) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	session, err := drivers.Checked(ctx, d, options, drivers.Env{Dial: new(net.Dialer).DialContext, Forward: direct,
		Log: slog.New(slog.DiscardHandler), Event: func(drivers.EventKind, string) {}, Retried: func(int64) {},
		Access: drivers.FullAccess()})
	must(b, err)
	defer func() { must(b, session.Close()) }()
	describer, ok := drivers.As[drivers.Describer](session)
	if !ok {
		return ""
	}
	description, err := describer.Describe(ctx)
	must(b, err)
	return description.StandIn
}

// printTables prints the results of all benchmarks in Markdown.
func printTables() {
	if len(rows) > 0 {
		fmt.Printf("\nOverhead, GOMAXPROCS %d: medians of the pairs, with 95 %% intervals; the ratio is engine by bare loop, wanted ≥ %v:\n\n",
			runtime.GOMAXPROCS(0), wanted)
		fmt.Println("| benchmark | bare msg/s | engine msg/s | ratio | verdict | additional CPU ns/msg | bare CPU ns/msg | pairs × messages |")
		fmt.Println("|---|---|---|---|---|---|---|---|")
	}
	for _, r := range rows {
		fmt.Println(r)
	}
	for _, e := range excluded {
		fmt.Println("Excluded:", e)
	}
	if len(rows) > 0 {
		fmt.Println("\nRows that may be below the wanted ratio:")
		for _, name := range slices.Sorted(maps.Keys(known)) {
			fmt.Printf("- %s: %s\n", name, known[name])
		}
	}
	if len(profiles) > 0 {
		fmt.Println("\nThe causes of the rows that are not met, in the same lab:")
	}
	for _, p := range profiles {
		fmt.Println(p)
	}
}

// measure measures pairs in the order bare, engine, engine, bare, so that a drift of the machine affects both.
func measure(b *testing.B, s subject, w work) {
	minMessages := cmp.Or(s.minMessages, 1000)
	w.n = minMessages
	fastest := 0.0
	for range 4 { // determines the size of the sample, and warms up
		first := s.bare(b, w)
		fastest = max(fastest, float64(w.n)/first.elapsed.Seconds())
		w.n = min(maxMessages, max(minMessages, int(fastest*sampleTime.Seconds())))
	}
	engine(b, s, w)
	var bare, full, ratio, extra, floor []float64
	b.ResetTimer()
	for i := range cmp.Or(s.pairs, pairs) {
		var x, y sample
		if i%2 == 0 {
			x = taken("bare", func() sample { return s.bare(b, w) })
			y = taken("engine", func() sample { return engine(b, s, w) })
		} else {
			y = taken("engine", func() sample { return engine(b, s, w) })
			x = taken("bare", func() sample { return s.bare(b, w) })
		}
		n := float64(w.n)
		bare, full = append(bare, n/x.elapsed.Seconds()), append(full, n/y.elapsed.Seconds())
		ratio = append(ratio, float64(x.elapsed)/float64(y.elapsed))
		extra = append(extra, float64(y.cpu-x.cpu)/n)
		floor = append(floor, float64(x.cpu)/n)
	}
	b.ReportMetric(0, "ns/op") // the benchmark's own time has no meaning here
	b.ReportMetric(stats.Median(bare), "bare-msg/s")
	b.ReportMetric(stats.Median(full), "engine-msg/s")
	b.ReportMetric(stats.Median(ratio), "ratio")
	b.ReportMetric(stats.Median(extra), "extra-cpu-ns/msg")
	name, judged := strings.TrimPrefix(b.Name(), "Benchmark"), verdict(ratio)
	rows = append(rows, fmt.Sprintf("| %s | %.0f | %.0f | %s | %s | %s | %.0f | %d × %d |", name, stats.Median(bare),
		stats.Median(full), withInterval("%.2f", ratio), judged, withInterval("%.0f", extra), stats.Median(floor),
		len(ratio), w.n))
	if judged != met {
		profiles = append(profiles, profileCommand(b.Name()))
		if !isKnown(name, w) {
			b.Errorf("the ratio %s is below %v: find the cause, and add it to the known rows",
				withInterval("%.2f", ratio), wanted)
		}
	}
}

const met = "met"

// verdict reports whether the median reaches the wanted ratio, or its 95 % interval contains that.
func verdict(ratios []float64) string {
	if i := stats.MedianInterval(ratios, 0.95); stats.Median(ratios) >= wanted || i.Contains(wanted) {
		return met
	}
	return "not met"
}

// withInterval prints the median with its 95 % interval.
func withInterval(format string, xs []float64) string {
	i := stats.MedianInterval(xs, 0.95)
	return fmt.Sprintf(format+" ("+format+" to "+format+")", stats.Median(xs), i.Low, i.High)
}

// profileCommand returns the command that shows the functions in which the engine's side of a benchmark uses the CPU.
func profileCommand(benchmark string) string {
	return fmt.Sprintf("go test -run '^$' -bench '^%s$' -benchtime 1x -cpuprofile cpu.out ./test/overhead && go tool pprof -top -nodecount 5 -tagfocus side=engine cpu.out",
		strings.ReplaceAll(benchmark, "/", "$/^"))
}

// taken runs the garbage collector before the sample. A CPU profile shows both sides: go tool pprof -tagfocus
// side=engine.
func taken(side string, take func() sample) (s sample) {
	runtime.GC()
	pprof.Do(context.Background(), pprof.Labels("side", side), func(context.Context) { s = take() })
	return s
}

// timed measures a bare loop: receive runs in its own goroutine while publish sends.
func timed(b *testing.B, w work, receive, publish func() error) sample {
	received := make(chan error, 1)
	before, start := cpuTime(b), time.Now()
	go func() { received <- receive() }()
	must(b, publish())
	if err := <-received; err != nil {
		b.Fatalf("%s: %v", w, err)
	}
	return sample{elapsed: time.Since(start), cpu: cpuTime(b) - before}
}

// labAddress returns the address of a broker of the lab, and skips the benchmark if there is none.
func labAddress(b *testing.B, variable, part string) string {
	at := os.Getenv(variable)
	if at == "" {
		b.Skipf("%s is not set: run the benchmark with go run ./test/lab run %s -- …", variable, part)
	}
	return at
}

// quantile interpolates linearly between the two nearest values.
func quantile(of []float64, q float64) float64 {
	sorted := stats.Sorted(of)
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// cpuTime returns the CPU time of this process, user and system.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func must(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}
