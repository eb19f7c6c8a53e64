package test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/internal/agent"
	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	_ "example.org/lockstep/lockstep/pkg/drivers/all"
	"example.org/lockstep/lockstep/test/process"
	"example.org/lockstep/lockstep/test/wiretest"
)

// soak is the number of runs and tasks. The state after the first settle runs is compared with that at the end, each
// sampled over band runs.
type soak struct{ runs, tasks, settle, band int }

func soakSize() soak {
	if os.Getenv("LOCKSTEP_LONG") != "" {
		return soak{runs: 20, tasks: 100, settle: 2, band: 2}
	}
	return soak{runs: 4, tasks: 10, settle: 2, band: 1}
}

// record is the limit of the control plane's record in bytes, for four runs. A task uses about 15 kB. Above half of the
// limit, the oldest run is deleted.
func (s soak) record() int64 { return int64(s.tasks) * 60 << 10 }

// block is the size of a JetStream file in bytes. A file is deleted when none of its messages is needed.
const block = 8 << 20

// resources is the current resource use of a fleet in one process.
type resources struct {
	rss, heap, goroutines, files, connections, messages int
	stored                                              int64 // bytes on the control plane's disk
}

// A controller with its control plane on disk and two agents execute runs of short tasks over loopback and NATS. After
// the first runs, memory, goroutines, files, connections to the broker and stored data do not grow. With
// LOCKSTEP_LONG=1 there are two thousand tasks.
func TestSoakKeepsItsSize(t *testing.T) {
	n := soakSize()
	tasks, settled, band := n.runs*n.tasks, n.settle*n.tasks, n.band*n.tasks
	dir := t.TempDir()
	broker, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true,
		StoreDir: filepath.Join(dir, "broker"), NoSigs: true, NoLog: true,
		MaxClosedClients: 100}) // the server stores ten thousand closed clients by default
	if err != nil {
		t.Fatal(err)
	}
	broker.Start()
	defer broker.Shutdown()
	if !broker.ReadyForConnections(10 * time.Second) {
		t.Fatal("timed out after 10 s waiting for the broker")
	}
	streams := filepath.Join(dir, "streams")
	control, err := wire.Embedded(t.Context(), wire.ServerConfig{Dir: streams})
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	connect := func() *wire.Conn {
		conn, err := control.Connect(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	nc, err := nats.Connect("", nats.InProcessServer(control))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	conn := connect()
	wg.Go(func() {
		if err := controller.Serve(ctx, conn, controller.Config{Copies: filepath.Join(dir, "copies"),
			Store: wire.StoreConfig{RecordLimit: n.record()}}); err != nil {
			t.Errorf("controller: %v", err)
		}
	})
	for i := range 2 {
		conn, name := connect(), fmt.Sprintf("a%d", i)
		wg.Go(func() {
			if err := agent.Serve(ctx, wire.NewAgent(conn),
				agent.Config{Name: name, Dir: filepath.Join(dir, name)}); err != nil {
				t.Errorf("agent %s: %v", name, err)
			}
		})
	}
	measure := func() resources {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Error(err)
		}
		h := resources{rss: process.RSS(t, os.Getpid()), heap: int(m.HeapInuse), goroutines: runtime.NumGoroutine(),
			files: len(files), connections: broker.NumClients(), stored: sizeOf(streams)}
		stored, err := wiretest.Stored(ctx, js)
		if err != nil {
			t.Error(err)
		}
		for _, n := range stored {
			h.messages += int(n)
		}
		return h
	}
	var early, late []resources
	done, failed := 0, 0
	watch := func(p controller.Progress) {
		switch p.Kind {
		case wire.TaskStarted:
			isEarly, isLate := done >= settled && done < settled+band, done >= tasks-band
			if !isEarly && !isLate && done%max(1, tasks/20) != 0 {
				return
			}
			now := measure()
			if done%max(1, tasks/20) == 0 {
				t.Logf("after %4d tasks: %v", done, now)
			}
			if isEarly {
				early = append(early, now)
			}
			if isLate {
				late = append(late, now)
			}
		case controller.TaskEnded:
			done++
			if p.Outcome.Failed() {
				failed++
				t.Logf("%s: %s %v", p.Task.ID, p.Outcome.Verdict, p.Outcome.Reasons)
			}
		}
	}
	client, err := control.Client(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n.runs {
		run := soakRun(t, i, n.tasks, broker.ClientURL())
		if err := client.Submit(ctx, wire.Submission{Run: run}); err != nil {
			t.Fatal(err)
		}
		end, err := controller.Record(ctx, client, run.ID, filepath.Join(dir, "runs"), watch, nil)
		if err != nil || end.Reason != wire.EndDone || done != (i+1)*n.tasks || failed > tasks/10 {
			t.Fatalf("run %d: got end %+v, %v, %d tasks, %d failed, want done, %d tasks, at most %d failed", i+1,
				end, err, done, failed, (i+1)*n.tasks, tasks/10)
		}
	}
	first, last := medians(early), medians(late)
	t.Logf("after %d to %d tasks: %v", settled, settled+band, first)
	t.Logf("last %d tasks: %v", band, last)
	for _, x := range []struct {
		what        string
		first, last int
		growth      int // allowed growth in addition to a tenth
	}{
		{"resident bytes", first.rss, last.rss, 24 << 20}, {"heap bytes", first.heap, last.heap, 8 << 20},
		{"goroutines", first.goroutines, last.goroutines, 45},
		{"files", first.files, last.files, 10}, {"connections to the broker", first.connections, last.connections, 4},
		// A current task has some dozens, more on a slow machine.
		{"messages on the control plane", first.messages, last.messages, 120},
		{"bytes on the control plane's disk", int(first.stored), int(last.stored), block},
	} {
		if x.last > x.first+x.first/10+x.growth {
			t.Errorf("%s at the end: got %d, want at most %d (%d after %d tasks)", x.what, x.last,
				x.first+x.first/10+x.growth, x.first, settled)
		}
	}
}

// medians returns the median of each sampled value, because single samples depend on the phase of a task. Of stored
// messages and bytes it returns the maximum, because they vary with deletions.
func medians(all []resources) resources {
	sorted := func(metric func(resources) int) []int {
		values := make([]int, len(all))
		for i, h := range all {
			values[i] = metric(h)
		}
		slices.Sort(values)
		return values
	}
	median := func(metric func(resources) int) int { return sorted(metric)[len(all)/2] }
	maximum := func(metric func(resources) int) int { return sorted(metric)[len(all)-1] }
	return resources{rss: median(func(h resources) int { return h.rss }),
		heap:        median(func(h resources) int { return h.heap }),
		goroutines:  median(func(h resources) int { return h.goroutines }),
		files:       median(func(h resources) int { return h.files }),
		connections: median(func(h resources) int { return h.connections }),
		messages:    maximum(func(h resources) int { return h.messages }),
		stored:      int64(maximum(func(h resources) int { return int(h.stored) }))}
}

func (h resources) String() string {
	return fmt.Sprintf("%3d MiB resident, %3d MiB heap, %3d goroutines, %2d files, %d connections to the broker, %d messages and %d KiB on the control plane",
		h.rss>>20, h.heap>>20, h.goroutines, h.files, h.connections, h.messages, h.stored>>10)
}

func soakRun(t *testing.T, number, tasks int, url string) plan.Run {
	t.Helper()
	text := fmt.Sprintf(`package matrix
name: "soak"
brokers: {fake: {driver: "loopback", options: name: "soak"}, nats: {driver: "nats", options: {urls: [%q], storage: "memory"}}}
axes: broker: ["fake", "nats"]
repeat: %d
settle: "0s"
cell: {axis: _, publishers: {persistent: false, rate: 2000}, warmup: "0s", measure: "200ms", drain: {idle: "5s", timeout: "20s"}}
tables: [{rows: ["broker"], values: ["lost"]}]
`, url, tasks/2)
	m, err := matrix.Load("soak.cue", []byte(text), matrix.Narrow{})
	if err != nil {
		t.Fatal(err)
	}
	run, err := m.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run.ID, run.Version, run.Started = fmt.Sprintf("soak%02d", number), plan.RecordFormat, time.Now().UTC()
	return run
}

// sizeOf returns the size of all files in a folder.
func sizeOf(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes
}
