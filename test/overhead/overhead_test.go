// Package overhead measures the cost of the engine and its drivers. It sends the same messages through a bare loop over
// a broker's client library and through the engine, in pairs within one run. It prints the results and has no limits.
package overhead

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
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

// most is the maximum of n: JetStream keeps at most 100,000 unconfirmed messages and drops the others.
const most = 90_000

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
	pairs int
	least int // minimum number of messages in a sample
}

// compare prints the overhead for all modes and sizes.
func compare(b *testing.B, s subject) {
	d, err := drivers.Lookup(s.name)
	must(b, err)
	s.options = schematest.Fill(b, d, s.options)
	table := []string{"\tbare msg/s\tengine msg/s\tratio (quartiles)\textra CPU ns/msg (quartiles)\tbare CPU ns/msg\tmessages"}
	for _, mode := range []drivers.Mode{drivers.ConfirmWindow, drivers.ConfirmEach, drivers.FireAndForget} {
		if !slices.Contains(d.Info().Declare(s.options, drivers.Use{Mode: mode}).Capabilities.Modes, mode) {
			continue
		}
		for _, size := range []int{100, 1024} {
			w := work{mode: mode, size: size}
			b.Run(strings.ReplaceAll(w.String(), " ", "-"), func(b *testing.B) {
				table = append(table, measure(b, s, w))
			})
		}
	}
	n := cmp.Or(s.pairs, pairs)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out,
		"\nharness tax, %s, GOMAXPROCS %d: medians of %d pairs; ratio is engine by bare, wanted ≥ 0.95 where bare does ≤ 200,000/s; extra CPU wanted ≤ 300 ns\n",
		s.name, runtime.GOMAXPROCS(0), n)
	for _, line := range table {
		fmt.Fprintln(out, line)
	}
	_ = out.Flush()
}

// measure measures pairs in the order bare, engine, engine, bare, so that a drift of the machine affects both.
func measure(b *testing.B, s subject, w work) string {
	least := cmp.Or(s.least, 1000)
	w.n = least
	fastest := 0.0
	for range 4 { // determines the size of the sample, and warms up
		first := s.bare(b, w)
		fastest = max(fastest, float64(w.n)/first.elapsed.Seconds())
		w.n = min(most, max(least, int(fastest*sampleTime.Seconds())))
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
	b.ReportMetric(quantile(bare, 0.5), "bare-msg/s")
	b.ReportMetric(quantile(full, 0.5), "engine-msg/s")
	b.ReportMetric(quantile(ratio, 0.5), "ratio")
	b.ReportMetric(quantile(extra, 0.5), "extra-cpu-ns/msg")
	return fmt.Sprintf("%s\t%.0f\t%.0f\t%.3f (%.3f–%.3f)\t%.0f (%.0f–%.0f)\t%.0f\t%d", w,
		quantile(bare, 0.5), quantile(full, 0.5), quantile(ratio, 0.5), quantile(ratio, 0.25), quantile(ratio, 0.75),
		quantile(extra, 0.5), quantile(extra, 0.25), quantile(extra, 0.75), quantile(floor, 0.5), w.n)
}

// taken runs the garbage collector before the sample. A CPU profile shows both sides: go tool pprof -tagfocus
// side=engine.
func taken(side string, take func() sample) (s sample) {
	runtime.GC()
	pprof.Do(context.Background(), pprof.Labels("side", side), func(context.Context) { s = take() })
	return s
}

// quantile interpolates linearly between the two nearest values.
func quantile(of []float64, q float64) float64 {
	sorted := slices.SortedFunc(slices.Values(of), cmp.Compare[float64])
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

func must(b *testing.B, err error) {
	if err != nil {
		b.Helper()
		b.Fatal(err)
	}
}
