package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/test/process"
)

// natsProcess is the variable that makes this program run a NATS server, with a port and a folder ("4222 /folder").
const natsProcess = "LOCKSTEP_TEST_NATS"

// serveNATS runs a NATS server until it is killed.
func serveNATS(where string) int {
	text, dir, _ := strings.Cut(where, " ")
	port, err := strconv.Atoi(text)
	if err == nil {
		var s *server.Server
		if s, err = server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir,
			NoLog: true, NoSigs: true}); err == nil {
			s.Start()
			s.WaitForShutdown()
			return 0
		}
	}
	fmt.Fprintf(os.Stderr, "serve NATS: %v\n", err)
	return 1
}

// startNATS starts a NATS server as a separate process and returns its port.
func startNATS(t *testing.T) (port string) {
	t.Helper()
	port = freePort(t)
	startNATSAt(t, port, t.TempDir())
	return port
}

// startNATSAt starts a NATS server with a port and a folder.
func startNATSAt(t *testing.T, port, files string) {
	t.Helper()
	process.Start(t, process.Command{Dir: t.TempDir(), Env: []string{natsProcess + "=" + port + " " + files},
		Argv: []string{os.Args[0]}})
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	process.Listening(t, n)
}

// An observer measures the resource use of the broker's process, although the matrix names no process. If it is killed
// during a task, the task is still valid.
func TestObserver(t *testing.T) {
	t.Parallel()
	port := startNATS(t)
	f := newFleet(t, "a1", "a2")
	observer := startWith(t, []string{"LOCKSTEP_OBSERVE=nats=port:" + port}, f.dir, "agent", "--server", f.url,
		"--name", "obs")
	process.Eventually(t, "a listed observer", func() bool {
		out, _ := exec.Command(filepath.Join(programs, "ctl"), "fleet", "agents", "--server", f.url).Output()
		return strings.Contains(string(out), "observes")
	})
	file := writeMatrix(t, f.dir, fmt.Sprintf(`package matrix
name: "observed"
brokers: js: {driver: "nats", options: {urls: ["nats://127.0.0.1:%s"], storage: "file"}}
axes: {broker: ["js"], mode: ["confirm-window", "confirm-each"]}
cell: {axis: _, connect: "2m", publishers: {mode: axis.mode, rate: 500}, warmup: "200ms", measure: "10s"}
tables: [{rows: ["mode"], values: ["publish.rate", "broker.cpu.mean", "broker.disk.write.mean", "broker.net.in.mean"]}]
`, port))
	ctl := start(t, f.dir, "ctl", "run", "--server", f.url, file)
	process.Eventually(t, "the outcome of the first cell", func() bool { return len(f.outcomes()) == 1 })
	seen := f.outcomes()[0]
	process.Eventually(t, "metrics of the observer in the second cell", func() bool {
		files, _ := filepath.Glob(filepath.Join(f.dir, "runs", "latest", "tasks", "*", "snapshots.jsonl"))
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err == nil && !strings.Contains(file, seen.Task) && strings.Count(string(data), `"agent":"obs"`) >= 2 {
				return true
			}
		}
		return false
	})
	observer.Kill()
	ctl.Exits(0)
	checkObserved(t, seen)
	for _, o := range f.outcomes() {
		if o.Task == seen.Task {
			continue
		}
		if o.Verdict != plan.Valid || !slices.ContainsFunc(o.Warnings,
			func(w string) bool { return strings.HasPrefix(w, "not observed: broker js by agent obs: ") }) {
			t.Errorf("got verdict %s, reasons %v and warnings %q, want valid and a warning about the observer",
				o.Verdict, o.Reasons, o.Warnings)
		}
		if v := o.Values["broker.rss.max"]; v.NA != "" {
			t.Errorf("broker.rss.max: got %+v, want a number from before the kill of the observer", v)
		}
	}
}

// checkObserved checks the metrics of a task at 500 messages of 100 bytes per second.
func checkObserved(t *testing.T, o plan.Outcome) {
	t.Helper()
	if o.Verdict != plan.Valid || len(o.Agents) != 2 {
		t.Errorf("got verdict %s, reasons %v and agents %+v, want valid and 2 agents", o.Verdict, o.Reasons, o.Agents)
	}
	for name, minimum := range map[string]float64{
		"broker.cpu.mean": 1e-6, "broker.cpu.max": 1e-6, "broker.rss.mean": 1 << 20, "broker.rss.p50": 1 << 20,
		"broker.net.in.mean": 20_000, "broker.net.out.mean": 20_000, "broker.net.in.max": 20_000,
		"broker.disk.read.mean": 0, "broker.disk.write.mean": 0, // on tmpfs there is no disk I/O
	} {
		v := o.Values[name]
		if !long() {
			minimum = min(minimum, 1) // the rate depends on the machine
		}
		if v.NA != "" || v.Number < minimum {
			t.Errorf("%s: got %+v, want at least %v", name, v, minimum)
		}
		t.Logf("%s %.4g", name, v.Number)
	}
}
