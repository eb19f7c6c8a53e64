package matrix

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
)

// large returns a matrix of n combinations, with the structure of a real study.
func large(n int) []byte {
	var sizes strings.Builder
	for i := range n / 500 {
		fmt.Fprintf(&sizes, "%d,", 100+i)
	}
	return fmt.Appendf(nil, `
name: "large"
brokers: {a: {driver: "fake"}, b: {driver: "fake"}}
axes: {
	broker:  ["a", "b"]
	mode:    ["fire-and-forget", "confirm-window", "confirm-batch", "confirm-each", "connection-per-message"]
	threads: [for n in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] {n}]
	latency: ["0ms", "1ms", "5ms", "10ms", "50ms"]
	size:    [%s]
}
skip: [{mode: "connection-per-message", latency: "50ms", threads: >20}]
cell: {
	axis: _
	publishers: {nodes: 1, threads: axis.threads, mode: axis.mode, maxInFlight: 10_000}
	message: size: axis.size
	measure: "30s"
}
tables: [{rows: ["broker", "mode", "threads"], columns: ["latency", "size"], values: ["publish.rate"]}]
`, sizes.String())
}

// BenchmarkExpand loads whole matrices and expands them into runs. It reports cells/s, and the maximum heap. Targets on
// an idle machine: 10,000 cells in 1 s, 100,000 in 10 s and less than 600 MB.
func BenchmarkExpand(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			source := large(n)
			for b.Loop() {
				expandOnce(b, source, n)
			}
		})
	}
}

func expandOnce(b *testing.B, source []byte, n int) {
	began := time.Now()
	stop, peak := make(chan struct{}), make(chan uint64)
	go watchHeap(stop, peak)
	m, err := Load("large.cue", source, Narrow{})
	if err != nil {
		b.Fatal(err)
	}
	run, err := m.Run(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	took := time.Since(began)
	close(stop)
	if got := len(run.Cells) + len(run.Excluded); got != n {
		b.Fatalf("%d combinations, want %d", got, n)
	}
	b.ReportMetric(float64(n)/took.Seconds(), "cells/s")
	b.ReportMetric(float64(<-peak)/1e6, "peak-heap-MB")
	runtime.KeepAlive(run)
}

// watchHeap reports the maximum heap in use.
func watchHeap(stop <-chan struct{}, peak chan<- uint64) {
	var highest uint64
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		highest = max(highest, s.HeapAlloc)
		select {
		case <-tick.C:
		case <-stop:
			peak <- highest
			return
		}
	}
}

// BenchmarkValidate measures CUE's evaluation and validation of one filled cell against the schema.
func BenchmarkValidate(b *testing.B) {
	ctx := cuecontext.New()
	cellSchema := lookupDefinition(schemaIn(ctx), "#Cell")
	cell := ctx.CompileBytes(large(500)).LookupPath(cue.ParsePath("cell"))
	if err := cell.Validate(); err != nil {
		b.Fatal(err)
	}
	for n := 0; b.Loop(); n++ {
		axis := ctx.CompileString(fmt.Sprintf(`{threads: %d, mode: "confirm-each", size: %d}`, 1+n%10, 100+n))
		if err := cellSchema.Unify(cell.FillPath(axisPath, axis)).Validate(cue.Concrete(true)); err != nil {
			b.Fatal(err)
		}
	}
}
