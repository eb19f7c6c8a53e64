package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// leakyDriver is a driver that does not close a connection, a forwarded connection and a file. Both connections lead to
// a server of the test, which observes when they end.
type leakyDriver struct{ drivers.Driver }

func init() { drivers.Register(leakyDriver{probeDriver{}}) }

func (leakyDriver) Info() drivers.Info { return drivers.Info{Name: "careless", Declare: declareAll} }

func (c leakyDriver) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	var o struct{ Address string }
	if err := json.Unmarshal(options, &o); err != nil {
		return nil, err
	}
	near, err := env.Forward(ctx, o.Address)
	if err != nil {
		return nil, err
	}
	client, err := net.Dial("tcp", near)
	if err != nil {
		return nil, err
	}
	s, err := c.Driver.Open(ctx, options, env)
	forwards.Store(o.Address, leakedForward{near, client}) // or the garbage collector closes it
	return s, errors.Join(err, os.WriteFile(filepath.Join(env.Dir, "file"), nil, 0o600))
}

// leakedForward is a forwarded connection of leakyDriver, with its near end.
type leakedForward struct {
	near   string
	client net.Conn
}

// forwards are those of leakyDriver, by the address of the server.
var forwards sync.Map

// TestTasksLeaveNothingBehind proves that the agent closes all connections, listeners, sessions and files of a task,
// and reverts its faults, for each way in which a task ends. TestMain checks for leaked goroutines after all tests.
func TestTasksLeaveNothingBehind(t *testing.T) {
	finish, done := wire.Release{Step: wire.StepFinish, Reason: "cancelled"}, wire.Release{Step: wire.StepDone}
	teardown := wire.Release{Step: wire.StepTeardown, Agent: "a1"}
	for _, test := range []struct {
		name         string
		deadline     time.Duration
		driverBlocks bool
		stopsAgent   bool
		end          func(*harness, wire.Ref)
	}{
		{"cancelled", time.Minute, false, false, func(b *harness, ref wire.Ref) {
			b.release(ref, finish)
			b.awaitArrival(ref, wire.StepFinish)
			b.release(ref, teardown)
			b.release(ref, done)
		}},
		{"cancelled during a driver call that does not return", time.Minute, true, false,
			func(b *harness, ref wire.Ref) {
				b.release(ref, finish)
				b.release(ref, teardown)
				b.release(ref, done)
			}},
		{"deadline during a fault", 10 * time.Second, false, false,
			func(*harness, wire.Ref) {}},
		{"agent stopped during a fault", time.Minute, false, true,
			func(b *harness, _ wire.Ref) { b.stopAgent() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			server, ended := startServer(t)
			target := startSleep(t)
			b := newHarness(t, func(c *Config) {
				c.obey, c.leave = 20*time.Millisecond, 300*time.Millisecond
				c.Targets = []plan.Target{{Name: "broker", Process: plan.Process{PID: target.Process.Pid}}}
			})
			d := &probe{}
			if test.driverBlocks {
				d.publishGate = make(chan struct{})
				d.blocked.Add(1)
			}
			ref := b.assign("t1", d, func(a *plan.Assignment) {
				loadFor(0, 50*time.Second)(a)
				a.Deadline, a.Targets = plan.Duration(test.deadline), []string{"broker"}
				w, cell := &a.Task.Cell.Workload, &a.Task.Cell
				// forwarded connections use a listener of netsim
				w.Network.Latency = plan.Duration(time.Millisecond)
				if !test.driverBlocks {
					w.Faults = []plan.Fault{{Kind: plan.FaultPause, Target: "broker", For: plan.Duration(time.Minute)}}
				}
				var options map[string]string
				if err := json.Unmarshal(cell.Broker.Options, &options); err != nil {
					t.Fatal(err)
				}
				options["address"] = server
				cell.Broker.Driver = "careless"
				cell.Broker.Options, _ = json.Marshal(options)
			})
			b.startTask(ref)
			if test.driverBlocks {
				d.blocked.Wait()
			} else {
				awaitProcessState(t, target.Process.Pid, "T", true)
			}
			test.end(b, ref)
			if test.stopsAgent { // a stopped agent reports no arrival
				err := <-b.served
				b.served <- err
			} else {
				b.awaitArrival(ref, wire.StepDone)
			}
			select {
			case <-ended:
			case <-time.After(waitLimit):
				t.Error("the forwarded connection is still open")
			}
			opened, _ := forwards.LoadAndDelete(server)
			f, ok := opened.(leakedForward)
			if !ok {
				t.Fatal("the driver forwarded no connection")
			}
			defer f.client.Close()
			if c, err := net.Dial("tcp", f.near); err == nil {
				c.Close()
				t.Errorf("netsim still listens on %s", f.near)
			}
			awaitProcessState(t, target.Process.Pid, "T", false)
			waitFor(t, func() bool { return countGuards() == 0 }, "a guard process is still running") // of any test
			if d.teardowns.Load() != 1 || d.open.Load() != 0 {
				t.Errorf("got %d teardowns, %d open sessions, want 1, 0", d.teardowns.Load(), d.open.Load())
			}
			if left, err := os.ReadDir(b.dir); err != nil || len(left) > 0 {
				t.Errorf("files in the agent's folder: got %v, error %v, want none", left, err)
			}
			if test.driverBlocks {
				close(d.publishGate)
			}
		})
	}
}

// startServer starts a server that accepts one connection. ended is closed when that connection ends.
func startServer(t *testing.T) (address string, ended <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	unled := make(chan struct{})
	go func() {
		defer close(unled)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 1))
	}()
	return l.Addr().String(), unled
}

// countGuards returns the number of running guards of this process.
func countGuards() (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		command, _ := os.ReadFile(path)
		if !bytes.Contains(command, []byte("\x00lockstep-guard\x00")) {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		_, rest, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[0] != "Z" && f[1] == strconv.Itoa(os.Getpid()) {
			n++
		}
	}
	return n
}

func waitFor(t *testing.T, reached func() bool, failure string) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !reached(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(failure)
		}
	}
}
