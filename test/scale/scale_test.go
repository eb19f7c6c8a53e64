// Package scale proves that one controller can serve a fleet of a thousand agents in bounded memory and time. The
// agents are simulated (see light): they use the real protocol, but send no messages to a broker.
package scale

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/process"
)

// size is the size of the fleet and of its runs. make test-long uses a thousand agents.
type size struct{ agents, tasks, rounds, starts int }

func sizes() size {
	if os.Getenv("LOCKSTEP_LONG") != "" {
		return size{agents: 1000, tasks: 1000, rounds: 2, starts: 20}
	}
	return size{agents: 100, tasks: 20, rounds: 1, starts: 3}
}

const (
	maxRSS   = 512 << 20 // bytes, of the controller with its embedded control plane
	maxRatio = 2.0       // of the overhead of a task, in the large fleet compared with a fleet of four
)

// The overhead of a task of four agents in a fleet of a thousand is at most twice that in a fleet of four. All thousand
// agents can start together, and the controller's memory is bounded.
func TestManyAgents(t *testing.T) {
	n := sizes()
	dir := t.TempDir()
	programs := build(t, dir)
	url, controller := startController(t, programs, dir)
	var late skews
	few := startFleet(t, url, 0, 4, &late)
	defer few()
	registered(t, url, 4)

	var small, large []float64
	perRound := n.tasks / n.rounds
	for round := range n.rounds {
		small = append(small, overhead(t, programs, url, dir, fmt.Sprintf("small%d", round), perRound, 4))
		began := time.Now()
		many := startFleet(t, url, 4, n.agents, &late)
		registered(t, url, n.agents)
		t.Logf("%d agents registered %v after the first of them dialled", n.agents,
			time.Since(began).Round(time.Millisecond))
		large = append(large, overhead(t, programs, url, dir, fmt.Sprintf("large%d", round), perRound, 4))
		t.Logf("controller: %d MiB with %d agents after %d tasks", controller.RSS()>>20, n.agents, 2*perRound*(round+1))
		if round == n.rounds-1 {
			late.take()
			each := overhead(t, programs, url, dir, "all", n.starts, n.agents)
			report(t, late.take(), n, each)
		}
		many()
	}
	size := controller.RSS()
	t.Logf("controller: %d MiB after %d starts of all agents, wanted at most %d", size>>20, n.starts, maxRSS>>20)
	if size > maxRSS {
		t.Errorf("the controller takes %d MiB, want at most %d", size>>20, maxRSS>>20)
	}
	a, b := slices.Min(small), slices.Min(large)
	t.Logf("a task of 4 agents costs %.0f ms beyond its measurement in a fleet of 4, %.0f ms in a fleet of %d: ratio %.2f", a*1e3, b*1e3, n.agents, b/a)
	if b > maxRatio*a {
		t.Errorf("ratio %.2f, want at most %v", b/a, maxRatio)
	}
}

// report logs the differences of the agents from the agreed start.
func report(t *testing.T, late []float64, n size, each float64) {
	t.Helper()
	if len(late) != n.agents*n.starts {
		t.Errorf("%d starts, want %d", len(late), n.agents*n.starts)
	}
	slices.Sort(late)
	at := func(q float64) float64 { return late[int(q*float64(len(late)-1))] / 1e6 }
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("%d agents, %d lockstep starts: off the agreed start p50 %.2f ms, p99 %.2f, maximum %.2f; such a task costs %.0f ms beyond its measurement (load %s)",
		n.agents, n.starts, at(0.5), at(0.99), at(1), each*1e3, strings.TrimSpace(string(load)))
}

func build(t *testing.T, dir string) string {
	t.Helper()
	programs := filepath.Join(dir, "bin")
	if err := process.Build(programs, "../../cmd/..."); err != nil {
		t.Fatal(err)
	}
	return programs
}

func startController(t *testing.T, programs, dir string) (url string, controller *process.Process) {
	t.Helper()
	port := process.Ports(t, 1)[0]
	address := fmt.Sprintf("127.0.0.1:%d", port)
	c := process.Start(t, process.Command{Dir: dir,
		Argv: []string{filepath.Join(programs, "controller"), "--open", "--listen", address, "--dir",
			filepath.Join(dir, "controller")}})
	process.Listening(t, port)
	return "nats://" + address, c
}

// startFleet starts the agents with the numbers from … to-1.
func startFleet(t *testing.T, url string, from, to int, late *skews) (stop func()) {
	t.Helper()
	var stops []func()
	for i := from; i < to; i++ {
		stops = append(stops, startLight(t, url, fmt.Sprintf("a%04d", i), late))
	}
	return func() {
		done := make(chan struct{})
		for _, stop := range stops {
			go func() { stop(); done <- struct{}{} }()
		}
		for range stops {
			<-done
		}
	}
}

// registered waits until the controller lists this number of agents.
func registered(t *testing.T, url string, n int) {
	t.Helper()
	conn, err := wire.DialClient(t.Context(), url, wire.Auth{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	have, last := 0, error(nil)
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		agents, err := conn.Agents(t.Context())
		if have, last = len(agents), err; have >= n {
			return
		}
	}
	t.Fatalf("%d agents of %d registered (%v)", have, n, last)
}

const measure = 100 * time.Millisecond

// overhead runs tasks of this number of agents each. It returns the seconds per task without its measurement, including
// the time between tasks.
func overhead(t *testing.T, programs, url, dir, name string, tasks, agents int) float64 {
	t.Helper()
	file := filepath.Join(dir, name+".cue")
	matrix := fmt.Sprintf(`package matrix
name: %q
brokers: nats: {driver: "nats", options: {urls: ["nats://127.0.0.1:1"], storage: "memory"}}
repeat: %d
cell: {
	publishers: {nodes: %d, rate: %d, mode: "fire-and-forget", persistent: false}
	consumers: nodes: 0
	warmup: "0s", measure: "%v", connect: "30s"
}
`, name, tasks, agents, 10*agents, measure)
	if err := os.WriteFile(file, []byte(matrix), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "runs-"+name)
	out, err := exec.Command(filepath.Join(programs, "ctl"), "run", "--server", url, "--runs", folder,
		file).CombinedOutput()
	found, _ := filepath.Glob(filepath.Join(folder, "*", "run.json"))
	if err != nil || len(found) == 0 {
		t.Fatalf("ctl run: %v\n%s", err, out)
	}
	run, err := runs.Open(folder, filepath.Base(filepath.Dir(found[0])))
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := run.Outcomes()
	if err != nil {
		t.Fatal(err)
	}
	valid := 0
	for _, o := range outcomes {
		if o.Verdict == plan.Valid {
			valid++
		}
	}
	if valid != tasks {
		t.Fatalf("%d of %d tasks are valid\n%s", valid, tasks, out)
	}
	first, last := outcomes[0].Started, outcomes[0].Ended
	for _, o := range outcomes {
		if o.Started.Before(first) {
			first = o.Started
		}
		if o.Ended.After(last) {
			last = o.Ended
		}
	}
	return (last.Sub(first).Seconds() - float64(tasks)*measure.Seconds()) / float64(tasks)
}
