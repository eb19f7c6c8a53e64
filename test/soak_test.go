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

	"lockstep/internal/agent"
	"lockstep/internal/controller"
	"lockstep/internal/matrix"
	"lockstep/internal/plan"
	"lockstep/internal/wire"
	_ "lockstep/pkg/drivers/all"
	"lockstep/test/rig"
)

// soakTasks is how many tasks a soak has, after how many what is held is compared with the end, and over how many tasks it is looked at for that: the
// whole, or enough to keep the test itself alive.
func soakTasks() (tasks, settled, band int) {
	if os.Getenv("LOCKSTEP_LONG") != "" {
		return 2000, 200, 50
	}
	return 30, 10, 10
}

// held is what a fleet of one process holds at a time.
type held struct {
	rss, heap, goroutines, files, connections, messages int
	stored                                              int64 // bytes on the control plane's disk
}

// A controller, its control plane on disk, and two agents run short tasks over loopback and NATS, one after another: after the first of them memory, goroutines, files,
// connections to the broker and what the control plane stores of tasks that are over do not grow. With LOCKSTEP_LONG=1 there are two thousand.
func TestSoakKeepsItsSize(t *testing.T) {
	tasks, settled, band := soakTasks()
	dir := t.TempDir()
	broker, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: filepath.Join(dir, "broker"), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	broker.Start()
	defer broker.Shutdown()
	if !broker.ReadyForConnections(10 * time.Second) {
		t.Fatal("the broker does not start")
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
	conn := connect()
	wg.Go(func() {
		if err := controller.Serve(ctx, conn, controller.Config{}); err != nil {
			t.Errorf("controller: %v", err)
		}
	})
	for i := range 2 {
		conn, name := connect(), fmt.Sprintf("a%d", i)
		wg.Go(func() {
			if err := agent.Serve(ctx, conn, agent.Config{Name: name, Dir: filepath.Join(dir, name)}); err != nil {
				t.Errorf("agent %s: %v", name, err)
			}
		})
	}
	look := func() held {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Error(err)
		}
		h := held{rss: rig.RSS(t, os.Getpid()), heap: int(m.HeapInuse), goroutines: runtime.NumGoroutine(), files: len(files), connections: broker.NumClients(), stored: sizeOf(streams)}
		stored, err := conn.Stored(ctx)
		if err != nil {
			t.Error(err)
		}
		for _, n := range stored {
			h.messages += int(n)
		}
		return h
	}
	var early, late []held
	done, failed := 0, 0
	watch := func(p controller.Progress) {
		switch p.Kind {
		case controller.TaskStarted:
			isEarly, isLate := done >= settled && done < settled+band, done >= tasks-band
			if !isEarly && !isLate && done%max(1, tasks/20) != 0 {
				return
			}
			now := look()
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
	run := soakRun(t, tasks, broker.ClientURL())
	if err := conn.Submit(ctx, wire.Submission{Run: run}); err != nil {
		t.Fatal(err)
	}
	end, err := controller.Record(ctx, connect(), run.ID, filepath.Join(dir, "runs"), watch, nil)
	if err != nil || end.Reason != wire.EndDone || done != tasks || failed > tasks/10 {
		t.Fatalf("%d of %d tasks done, %d failed; the run ended %+v, %v", done, tasks, failed, end, err)
	}
	grown := tasks - settled - band
	first, last := median(early), median(late)
	t.Logf("medians after %d to %d tasks: %v", settled, settled+band, first)
	t.Logf("medians of the last %d tasks: %v", band, last)
	t.Logf("each task left %d bytes on the control plane's disk", (last.stored-first.stored)/int64(grown))
	for _, x := range []struct {
		what        string
		first, last int
		room        int // beside a tenth
	}{
		{"resident bytes", first.rss, last.rss, 24 << 20}, {"heap bytes", first.heap, last.heap, 8 << 20}, {"goroutines", first.goroutines, last.goroutines, 45},
		{"files", first.files, last.files, 10}, {"connections to the broker", first.connections, last.connections, 4},
		// What tells of a task that is over: its beginning, its outcome. One that goes on has some dozens, more on a slow machine.
		{"messages on the control plane", first.messages + 2*grown, last.messages, 120},
	} {
		if x.last > x.first+x.first/10+x.room {
			t.Errorf("%s grew from %d after %d tasks to %d", x.what, x.first, settled, x.last)
		}
	}
}

// median is that of each figure: single looks differ by the moment in a task's life.
func median(all []held) held {
	of := func(figure func(held) int) int {
		sorted := make([]int, len(all))
		for i, h := range all {
			sorted[i] = figure(h)
		}
		slices.Sort(sorted)
		return sorted[len(sorted)/2]
	}
	return held{rss: of(func(h held) int { return h.rss }), heap: of(func(h held) int { return h.heap }), goroutines: of(func(h held) int { return h.goroutines }),
		files: of(func(h held) int { return h.files }), connections: of(func(h held) int { return h.connections }),
		messages: of(func(h held) int { return h.messages }), stored: int64(of(func(h held) int { return int(h.stored) }))}
}

func (h held) String() string {
	return fmt.Sprintf("%3d MiB resident, %3d MiB heap, %3d goroutines, %2d files, %d connections to the broker, %d messages and %d KiB on the control plane",
		h.rss>>20, h.heap>>20, h.goroutines, h.files, h.connections, h.messages, h.stored>>10)
}

func soakRun(t *testing.T, tasks int, url string) plan.Run {
	t.Helper()
	text := fmt.Sprintf(`package matrix
name: "soak"
brokers: {fake: {driver: "loopback", options: name: "soak"}, nats: {driver: "nats", options: {urls: [%q], storage: "memory"}}}
axes: broker: ["fake", "nats"]
repeat: %d
settle: "0s"
cell: {axis: _, publishers: {persistent: false, rate: 2000}, warmup: "0s", measure: "200ms", drain: {silence: "5s", most: "20s"}}
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
	run.ID, run.Version, run.Started = "soak", plan.Protocol, time.Now().UTC()
	return run
}

// sizeOf is what the files of a folder hold.
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
