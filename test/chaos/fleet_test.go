package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/test/process"
)

// Durations of every cell. Most faults are injected in the warm-up or the measurement.
const (
	warmup  = 600 * time.Millisecond
	measure = 1500 * time.Millisecond
)

// fleet is a control plane, controllers, agents and a broker under test, each a separate process, with one run.
type fleet struct {
	*row
	*watch
	t               *testing.T
	plane           []*nats // empty: embedded in the controller
	url             string  // of the control plane
	controllers     map[string]*process.Process
	commands        map[string]process.Command // of controllers and agents, by name
	agents          map[string]*process.Process
	broker          *nats
	ctl             *process.Process
	run             *runs.Run
	copies          []string      // folders of the controllers
	mayLoseMessages bool          // the broker was killed and may lose confirmed messages
	faultPeriods    []faultPeriod // faults that may affect tasks
}

// fleetSpec describes a fleet.
type fleetSpec struct {
	plane       int      // nodes of the control plane; 0: embedded in the controller
	controllers []string // the first one is started before the others; empty: one
	agents      []string
	env         map[string][]string // environment of agents and controllers, by name
	// URL of the control plane for a process, by name, if it is not the usual one; before may set it
	serverURLs map[string]string
	flags      []string          // additional flags of all controllers
	dirs       map[string]string // --dir of a process, by name; default: in the row's folder
	before     func(*fleet)      // called when the control plane runs, before other processes start
}

func (r *row) startFleet(s fleetSpec) *fleet {
	r.t.Helper()
	f := &fleet{row: r, t: r.t, controllers: map[string]*process.Process{}, commands: map[string]process.Command{},
		agents: map[string]*process.Process{}}
	if len(s.controllers) == 0 {
		s.controllers = []string{"controller"}
	}
	if s.serverURLs == nil {
		s.serverURLs = map[string]string{}
	}
	port := process.Ports(r.t, 1)[0]
	f.url = fmt.Sprintf("nats://127.0.0.1:%d", port)
	switch {
	case s.plane == 1:
		f.plane = []*nats{r.startNATS(node{Name: "plane", Port: port})}
	case s.plane > 1:
		f.plane = r.startNATSCluster("plane", s.plane)
		f.url = urls(f.plane)
	}
	f.broker = r.startNATS(node{Name: "broker", Port: process.Ports(r.t, 1)[0]})
	if s.before != nil {
		s.before(f)
	}
	for _, name := range s.controllers {
		f.copies = append(f.copies, r.processDir(s, name))
		f.setCommand(s, name, "controller", f.controllerFlags(s, name, port)...)
		f.startController(name)
	}
	for _, name := range s.agents {
		f.setCommand(s, name, "agent", "--server", f.serverURL(s, name), "--name", name, "--dir", r.processDir(s, name))
		f.agents[name] = r.start(f.commands[name])
	}
	process.Eventually(r.t, "all agents listed", func() bool { return f.listedAgents() == len(s.agents) })
	f.watch = newWatch(r.t, f.url)
	return f
}

func (r *row) processDir(s fleetSpec, name string) string {
	if dir := s.dirs[name]; dir != "" {
		return dir
	}
	return filepath.Join(r.dir, name+".d")
}

func (f *fleet) serverURL(s fleetSpec, name string) string {
	if url := s.serverURLs[name]; url != "" {
		return url
	}
	return f.url
}

func (f *fleet) controllerFlags(s fleetSpec, name string, port int) []string {
	flags := append([]string{"--dir", f.row.processDir(s, name)}, s.flags...)
	if s.plane == 0 {
		return append(flags, "--open", "--listen", fmt.Sprintf("127.0.0.1:%d", port))
	}
	flags = append(flags, "--server", f.serverURL(s, name))
	if s.plane > 1 {
		flags = append(flags, "--replicas", strconv.Itoa(s.plane))
	}
	return flags
}

func (f *fleet) setCommand(s fleetSpec, name, program string, args ...string) {
	f.commands[name] = process.Command{Name: name, Env: s.env[name],
		Argv: append([]string{filepath.Join(programs, program)}, args...)}
}

// startController starts a controller, or starts it again after it was killed.
func (f *fleet) startController(name string) {
	f.controllers[name] = f.start(f.commands[name])
	process.Eventually(f.t, "a response of a controller", func() bool { return f.listedAgents() >= 0 })
}

// listedAgents returns the number of agents that the controller lists, or -1 without a response.
func (f *fleet) listedAgents() int {
	out, err := f.ctlOutput("fleet", "agents", "--server", f.url)
	if err != nil {
		return -1
	}
	n := 0
	for name := range f.agents {
		if strings.Contains("\n"+out, "\n"+name+" ") {
			n++
		}
	}
	return n
}

func (f *fleet) ctlOutput(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*stepLimit) // pull reads up to 64 MiB with the race detector
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(programs, "ctl"), args...)
	c.Dir = f.dir
	out, err := c.Output()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		err = fmt.Errorf("%w: %s", err, ended.Stderr)
	}
	return string(out), err
}

// restart starts an agent again.
func (f *fleet) restart(agent string) {
	f.t.Helper()
	f.agents[agent] = f.start(f.commands[agent])
}

// matrix returns a matrix of two cells, each with the given number of repetitions. The consumer is slower than the
// publisher, so that the drain takes some time.
func (f *fleet) matrix(repeat int, storage string) string {
	if storage == "" {
		storage = "memory"
	}
	return fmt.Sprintf(`package matrix

name: "chaos"
grace: "60s"
repeat: %d
brokers: nats: {driver: "nats", options: {urls: [%q], storage: %q}}
axes: mode: ["confirm-window", "confirm-each"]
cell: {
	axis: _
	connect: "2m"
	publishers: {mode: axis.mode, rate: 300, persistent: %v}
	consumers: process: "5ms"
	warmup:  %q
	measure: %q
	drain: {idle: "1m", timeout: "3m"}
}
tables: [{rows: ["mode"], values: ["publish.rate", "lost", "unknown"]}]
`, repeat, f.broker.url(), storage, storage == "file", warmup, measure)
}

// replaced returns a matrix with another text for a part of it, which it must contain.
func (f *fleet) replaced(matrix, part, with string) string {
	f.t.Helper()
	if !strings.Contains(matrix, part) {
		f.t.Fatalf("got no %q in the matrix, want it:\n%s", part, matrix)
	}
	return strings.ReplaceAll(matrix, part, with)
}

// submit starts ctl run with a matrix and waits for its run directory.
func (f *fleet) submit(text string) {
	f.t.Helper()
	f.startCtlRun(text)
	f.awaitRunDir()
}

// startCtlRun starts ctl run with a matrix.
func (f *fleet) startCtlRun(text string) {
	f.t.Helper()
	file := filepath.Join(f.dir, "matrix.cue")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
	f.ctl = f.start(process.Command{Name: "ctl", Argv: []string{filepath.Join(programs, "ctl"), "run", "--server",
		f.url, "--runs", f.runsDir(), file}})
}

// awaitRunDir waits for the run directory.
func (f *fleet) awaitRunDir() {
	f.t.Helper()
	process.Eventually(f.t, "the run directory of ctl run", func() bool {
		select {
		case <-f.ctl.Ended():
			f.t.Fatalf("ctl run has ended:\n%s", f.ctl.Tail(3000))
		default:
		}
		var err error
		f.run, err = runs.Open(f.runsDir(), "latest")
		return err == nil
	})
}

func (f *fleet) runsDir() string { return filepath.Join(f.dir, "runs") }

// pullRun creates the run directory from the control plane with ctl runs pull.
func (f *fleet) pullRun() string {
	f.t.Helper()
	root := filepath.Join(f.dir, "pulled")
	if out, err := f.ctlOutput("runs", "pull", f.run.Plan().ID, root, "--server", f.url); err != nil ||
		!strings.Contains(out, "complete: all") {
		f.t.Errorf("ctl runs pull: got error %v and no \"complete: all\" in the output: %s", err, out)
	}
	return filepath.Join(root, f.run.Plan().ID)
}

// awaitControllerCopy waits for a controller's complete copy of the run and returns its directory.
func (f *fleet) awaitControllerCopy() (dir string) {
	f.t.Helper()
	want := len(files(f.t, f.run.Dir()))
	process.Eventually(f.t, "a controller's copy of the run", func() bool {
		for _, c := range f.copies {
			dir = filepath.Join(c, "runs", f.run.Plan().ID)
			if _, err := os.Stat(dir); err == nil && len(files(f.t, dir)) >= want {
				return true
			}
		}
		return false
	})
	return dir
}

// resumeRun resumes the ended run with ctl.
func (f *fleet) resumeRun() {
	f.t.Helper()
	f.ctl = f.start(process.Command{Name: "resume",
		Argv: []string{filepath.Join(programs, "ctl"), "run", "--resume", f.run.Plan().ID,
			"--server", f.url, "--runs", f.runsDir()}})
}

// checkOutput checks that ctl has printed a text.
func (f *fleet) checkOutput(text string) {
	f.t.Helper()
	if !strings.Contains(f.ctl.Output(), text) {
		f.t.Errorf("ctl did not print %q; last output:\n%s", text, f.ctl.Tail(3000))
	}
}

// awaitEnd waits for the end of ctl run and checks the record.
func (f *fleet) awaitEnd(codes ...int) *recordCheck {
	f.t.Helper()
	code := f.ctl.ExitCode()
	for _, c := range codes {
		if c == code {
			return f.checkRecord()
		}
	}
	f.t.Errorf("ctl: got exit code %d, want one of %v; last output:\n%s", code, codes, f.ctl.Tail(3000))
	return f.checkRecord()
}
