package overhead

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/agent"
	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/internal/sink"
	"example.org/lockstep/lockstep/internal/stats"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/pkg/drivers"
	_ "example.org/lockstep/lockstep/pkg/drivers/loopback"
)

const (
	sinkRounds  = 60 // each has one run without a sink, one with InfluxDB, and one with an InfluxDB that hangs
	sinkMeasure = 2 * time.Second
)

// BenchmarkSink compares the rates of whole local runs: without a sink, with points written to InfluxDB, and with a
// server that accepts connections and never answers. Everything is in one process with a loopback broker at full speed,
// so CPU time of the sink lowers the rate at once. LOCKSTEP_INFLUX_URL and the other INFLUX variables name a real
// InfluxDB. Without them, a server in this process replaces it.
func BenchmarkSink(b *testing.B) {
	f := newSinkFleet(b)
	there, what := f.database()
	silent := f.silent()
	variants := []func() *sink.Sink{
		func() *sink.Sink { return nil },
		func() *sink.Sink { return sink.Open(there, sink.Tuning{}, "overhead", nil) },
		func() *sink.Sink {
			return sink.Open(silent, sink.Tuning{Flush: time.Millisecond, Patience: time.Millisecond}, "overhead", nil)
		}, // these waits happen after the run
	}
	for _, v := range variants { // warm up
		f.run(v())
	}
	rates, works := make([][]float64, len(variants)), make([][]float64, len(variants))
	b.ResetTimer()
	for round := range sinkRounds {
		for i := range variants { // in rotating order, so that a drift of the machine affects all variants
			at := (i + round) % len(variants)
			runtime.GC()
			before := cpuTime(b)
			rate, sent := f.run(variants[at]())
			rates[at] = append(rates[at], rate)
			works[at] = append(works[at], sent/(cpuTime(b)-before).Seconds())
		}
	}
	b.ReportMetric(0, "ns/op")
	fmt.Printf("\nOverhead of sinks, GOMAXPROCS %d: %d rounds of runs of %v each, without a sink %.0f msg/s (quartiles %.0f–%.0f); ratios are with by without, wanted ≥ 0.97\n",
		runtime.GOMAXPROCS(0), sinkRounds, sinkMeasure, quantile(rates[0], 0.5), quantile(rates[0], 0.25),
		quantile(rates[0], 0.75))
	for i, name := range []string{what, "InfluxDB hanging"} {
		for _, of := range []struct {
			what   string
			values [][]float64
		}{{"rate of sending", rates}, {"messages a second of this process's CPU", works}} {
			ratios := pairwise(of.values[i+1], of.values[0])
			low, mean, high := confidence(ratios)
			fmt.Printf("%-40s %-40s %.4f, 95 %% confidence %.4f–%.4f (median of pairs %.4f)\n", name, of.what, mean,
				low, high, quantile(ratios, 0.5))
		}
	}
}

func pairwise(a, b []float64) []float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return ratios
}

// confidence returns the geometric mean of ratios with its 95 % confidence interval.
func confidence(ratios []float64) (low, mean, high float64) {
	var logs []float64
	for _, r := range ratios {
		logs = append(logs, math.Log(r))
	}
	n, middle := float64(len(logs)), stats.Mean(logs)
	half := stats.StudentQuantile(0.975, n-1) * stats.Deviation(logs) / math.Sqrt(n)
	return math.Exp(middle - half), math.Exp(middle), math.Exp(middle + half)
}

// sinkFleet is the fleet of a local run: control plane, controller and two agents.
type sinkFleet struct {
	b    *testing.B
	conn *wire.Client
	root string
	runs int
}

func newSinkFleet(b *testing.B) *sinkFleet {
	log := slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(context.Background())
	server, err := wire.Embedded(ctx, wire.ServerConfig{Log: log})
	must(b, err)
	var wg sync.WaitGroup
	var conns []*wire.Conn
	b.Cleanup(func() {
		stop()
		wg.Wait()
		for _, c := range conns {
			c.Close()
		}
		server.Close()
	})
	connect := func() *wire.Conn {
		conn, err := server.Connect(ctx)
		must(b, err)
		conns = append(conns, conn)
		return conn
	}
	serve := func(run func(*wire.Conn) error) {
		conn := connect()
		wg.Go(func() {
			if err := run(conn); err != nil && ctx.Err() == nil {
				b.Error(err)
			}
		})
	}
	serve(func(c *wire.Conn) error { return controller.Serve(ctx, c, controller.Config{Log: log}) })
	for _, name := range []string{"a1", "a2"} {
		dir := b.TempDir()
		serve(func(c *wire.Conn) error {
			return agent.Serve(ctx, wire.NewAgent(c), agent.Config{Name: name, Dir: dir, Log: log})
		})
	}
	client, err := server.Client(ctx)
	must(b, err)
	return &sinkFleet{b: b, conn: client, root: b.TempDir()}
}

// run executes one run, and returns its publish rate and the number of messages that were sent.
func (f *sinkFleet) run(points *sink.Sink) (rate, sent float64) {
	f.runs++
	w := plan.Default()
	w.Warmup, w.Measure = plan.Duration(300*time.Millisecond), plan.Duration(sinkMeasure)
	options, err := json.Marshal(map[string]any{"name": fmt.Sprint("overhead-", f.runs), "capacity": 5000})
	must(f.b, err)
	cell := plan.Cell{Workload: w, Broker: plan.Broker{Name: "loop", Driver: "loopback",
		Options: schematest.FillNamed("loopback", options)}}
	cell.ID = plan.CellID("loop", w)
	run := plan.Run{Version: plan.RecordFormat, ID: fmt.Sprint("overhead-", f.runs), Name: "overhead", Repeat: 1,
		Started: time.Now(), Cells: []plan.Cell{cell}, Agents: 2}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(f.b, f.conn.Submit(ctx, wire.Submission{Run: run}))
	_, err = controller.Record(ctx, f.conn, run.ID, f.root, func(p controller.Progress) {
		if p.Kind == controller.TaskEnded {
			rate, sent = p.Outcome.Values["publish.rate"].Number, p.Outcome.Values["sent"].Number
		}
	}, points)
	must(f.b, err)
	if rate <= 0 {
		f.b.Fatal("nothing was measured")
	}
	return rate, sent
}

func (f *sinkFleet) target(i plan.Influx) sink.Target {
	to, err := sink.Resolve(i, drivers.FullAccess())
	must(f.b, err)
	return to
}

func (f *sinkFleet) database() (to sink.Target, what string) {
	if url := os.Getenv("LOCKSTEP_INFLUX_URL"); url != "" {
		return f.target(plan.Influx{URL: url, Org: os.Getenv("LOCKSTEP_INFLUX_ORG"),
				Bucket: os.Getenv("LOCKSTEP_INFLUX_BUCKET"), Token: "${env:LOCKSTEP_INFLUX_TOKEN}"}),
			"InfluxDB on this host"
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	f.b.Cleanup(server.Close)
	return f.target(plan.Influx{URL: server.URL, Bucket: "overhead"}), "a stand-in for InfluxDB in this process"
}

// silent returns a target that accepts connections and never answers.
func (f *sinkFleet) silent() sink.Target {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(f.b, err)
	f.b.Cleanup(func() { l.Close() })
	go func() {
		var held []net.Conn // prevents their finalisers from closing them
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			held = append(held, c)
		}
		for _, c := range held {
			c.Close()
		}
	}()
	return f.target(plan.Influx{URL: "http://" + l.Addr().String(), Bucket: "overhead"})
}
