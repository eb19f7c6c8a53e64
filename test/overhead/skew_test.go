package overhead

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
)

const (
	skewAgents   = 50
	skewTasks    = 20
	sleeperEvery = 500 * time.Millisecond
)

// BenchmarkStartSkew starts 20 tasks on 50 agent processes, with one publisher of 10 messages per second each. At the
// same time, 50 bare processes sleep until common times with clock_nanosleep (absolute). It prints the difference from
// the agreed times: of agents from their records, of bare processes by the same clock.
func BenchmarkStartSkew(b *testing.B) {
	dir := b.TempDir()
	build := exec.Command("go", "build", "-o", dir, "../../cmd/...")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build programs: %v\n%s", err, out)
	}
	for range b.N {
		collect := startSleepers(b)
		agents := fleetSkews(b, dir)
		bare := collect()
		b.ReportMetric(0, "ns/op")
		for name, of := range map[string][]float64{"agents": agents, "bare": bare} {
			for _, q := range []float64{0.5, 0.99, 1} {
				b.ReportMetric(quantile(of, q), fmt.Sprintf("%s-p%v-ms", name, 100*q))
			}
			b.ReportMetric(float64(len(of)), name+"-starts")
		}
		b.ReportMetric(quantile(agents, 0.99)/quantile(bare, 0.99), "p99-ratio")
		load, _ := os.ReadFile("/proc/loadavg")
		fmt.Printf("start skew, %d agents, %d tasks: load %s", skewAgents, skewTasks, load)
	}
}

// fleetSkews runs the tasks on a fleet of processes. It returns the difference from the agreed start per agent and
// task, in milliseconds.
func fleetSkews(b *testing.B, programs string) (off []float64) {
	dir := b.TempDir()
	broker, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true,
		StoreDir: filepath.Join(dir, "nats"), NoSigs: true, NoLog: true})
	must(b, err)
	broker.Start()
	defer broker.Shutdown()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	address := listener.Addr().String()
	must(b, listener.Close())
	url := "nats://" + address
	program := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(programs, name), args...)
		cmd.Dir = dir
		return cmd
	}
	background(b, program("controller", "--open", "--listen", address))
	for i := range skewAgents {
		background(b, program("agent", "--server", url, "--name", fmt.Sprintf("a%02d", i)))
	}
	matrix := filepath.Join(dir, "skew.cue")
	must(b, os.WriteFile(matrix, fmt.Appendf(nil, `package matrix
name: "skew"
brokers: nats: {driver: "nats", options: {urls: [%q], storage: "memory"}}
repeat: %d
cell: {
	publishers: {nodes: %d, rate: %d, mode: "fire-and-forget", persistent: false}
	consumers: nodes: 0
	warmup: "0s", measure: "1s", connect: "30s"
}
`, broker.ClientURL(), skewTasks, skewAgents, 10*skewAgents), 0o600))
	var out []byte
	for range 20 { // until the controller listens
		if out, err = program("ctl", "run", "--server", url, matrix).CombinedOutput(); err == nil ||
			strings.Contains(string(out), "record:") {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	if err != nil {
		b.Fatalf("run: %v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "runs", "latest", "tasks", "*", "outcome.json"))
	must(b, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(b, err)
		var o plan.Outcome
		must(b, json.Unmarshal(text, &o))
		for _, a := range o.Agents {
			off = append(off, float64(a.Skew.D().Abs())/1e6)
		}
	}
	if len(off) != skewAgents*skewTasks {
		b.Fatalf("%d starts are recorded, want %d\n%s", len(off), skewAgents*skewTasks, out)
	}
	return off
}

// background runs a program until the end of the benchmark.
func background(b *testing.B, cmd *exec.Cmd) {
	must(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// startSleepers starts the bare processes. collect ends them and returns the delays of all wake-ups in milliseconds.
func startSleepers(b *testing.B) (collect func() []float64) {
	var sleepers []*exec.Cmd
	var late []chan []float64
	for range skewAgents {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestSleeper$")
		cmd.Env = append(os.Environ(), "LOCKSTEP_TEST_SLEEPER=1", "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1")
		pipe, err := cmd.StdoutPipe()
		must(b, err)
		background(b, cmd)
		of := make(chan []float64, 1)
		go func() {
			var all []float64
			for lines := bufio.NewScanner(pipe); lines.Scan(); {
				if ns, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
					all = append(all, float64(ns)/1e6)
				}
			}
			of <- all
		}()
		sleepers, late = append(sleepers, cmd), append(late, of)
	}
	return func() (all []float64) {
		for i, cmd := range sleepers {
			_ = cmd.Process.Signal(syscall.SIGKILL)
			all = append(all, <-late[i]...)
		}
		return all
	}
}

// TestSleeper is the bare process. No runtime code runs between the kernel's wake-up and the clock reading.
func TestSleeper(t *testing.T) {
	if os.Getenv("LOCKSTEP_TEST_SLEEPER") == "" {
		t.Skip("a part of BenchmarkStartSkew")
	}
	for at := clock.Now() / int64(sleeperEvery); ; {
		at++
		when := unix.NsecToTimespec(at * int64(sleeperEvery))
		for clock.Now() < when.Nano() { // repeated if a signal interrupted the sleep
			syscall.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME,
				uintptr(unsafe.Pointer(&when)), 0, 0, 0)
		}
		fmt.Println(clock.Now() - at*int64(sleeperEvery))
	}
}
