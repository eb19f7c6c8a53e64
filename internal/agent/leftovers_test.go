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

// careless is a driver that leaves everything open: a connection, a forwarded connection, and a file. Both connections
// lead to a server of the test, which observes when they end.
type careless struct{ drivers.Driver }

func init() { drivers.Register(careless{probeDriver{}}) }

func (careless) Info() drivers.Info { return drivers.Info{Name: "careless", Declare: declareAll} }

func (c careless) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
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
	forwards.Store(o.Address, forward{near, client}) // or the garbage collector closes it
	return s, errors.Join(err, os.WriteFile(filepath.Join(env.Dir, "file"), nil, 0o600))
}

// forward is a forwarded connection of careless, with its near end.
type forward struct {
	near   string
	client net.Conn
}

// forwards are those of careless, by the address of the server.
var forwards sync.Map

// TestNothingIsLeftOfATaskHoweverItEnds proves that the agent closes and reverts everything of a task, whatever the
// driver does and whichever process is gone. TestMain checks for leaked goroutines after all tests.
func TestNothingIsLeftOfATaskHoweverItEnds(t *testing.T) {
	finish, done := wire.Release{Step: wire.StepFinish, Reason: "cancelled"}, wire.Release{Step: wire.StepDone}
	teardown := wire.Release{Step: wire.StepTeardown, Agent: "a1"}
	for _, x := range []struct {
		name     string
		deadline time.Duration
		stuck    bool
		leaves   bool // the agent leaves
		end      func(*bench, wire.Ref)
	}{
		{"cancelled", time.Minute, false, false, func(b *bench, ref wire.Ref) {
			b.release(ref, finish)
			b.arrival(ref, wire.StepFinish)
			b.release(ref, teardown)
			b.release(ref, done)
		}},
		{"cancelled, in a call of the driver that does not return", time.Minute, true, false,
			func(b *bench, ref wire.Ref) {
				b.release(ref, finish)
				b.release(ref, teardown)
				b.release(ref, done)
			}},
		{"no word until the deadline, in the middle of a fault", 10 * time.Second, false, false,
			func(*bench, wire.Ref) {}},
		{"the agent is stopped, in the middle of a fault", time.Minute, false, true,
			func(b *bench, _ wire.Ref) { b.stop() }},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			server, ended := counting(t)
			target := sleeper(t)
			b := newBench(t, func(c *Config) {
				c.obey, c.leave = 20*time.Millisecond, 300*time.Millisecond
				c.Targets = []plan.Target{{Name: "broker", Process: plan.Process{PID: target.Process.Pid}}}
			})
			d := &probe{}
			if x.stuck {
				d.stuck = make(chan struct{})
				d.inside.Add(1)
			}
			ref := b.assign("t1", d, func(a *plan.Assignment) {
				brief(0, 50*time.Second)(a)
				a.Deadline, a.Targets = plan.Duration(x.deadline), []string{"broker"}
				w, cell := &a.Task.Cell.Workload, &a.Task.Cell
				// forwarded connections use a listener of netsim
				w.Network.Latency = plan.Duration(time.Millisecond)
				if !x.stuck {
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
			b.begin(ref)
			if x.stuck {
				d.inside.Wait()
			} else {
				until(t, target.Process.Pid, "T", true)
			}
			x.end(b, ref)
			if x.leaves { // it reports its end to the controller instead
				err := <-b.done
				b.done <- err
			} else {
				b.arrival(ref, wire.StepDone)
			}
			select {
			case <-ended:
			case <-time.After(hang):
				t.Error("the driver's connection is still open")
			}
			opened, _ := forwards.LoadAndDelete(server)
			f, is := opened.(forward)
			if !is {
				t.Fatal("nothing was forwarded")
			}
			defer f.client.Close()
			if c, err := net.Dial("tcp", f.near); err == nil {
				c.Close()
				t.Errorf("netsim still listens on %s", f.near)
			}
			until(t, target.Process.Pid, "T", false)
			waitFor(t, func() bool { return guards() == 0 }, "a guard is left") // nor one of the other tests
			if d.teardowns.Load() != 1 || d.open.Load() != 0 {
				t.Errorf("%d teardowns and %d open sessions, want 1 and 0", d.teardowns.Load(), d.open.Load())
			}
			if left, err := os.ReadDir(b.dir); err != nil || len(left) > 0 {
				t.Errorf("%v is left in the agent's folder, %v", left, err)
			}
			if x.stuck {
				close(d.stuck)
			}
		})
	}
}

// counting starts a server that accepts one connection. ended is closed when that connection ends.
func counting(t *testing.T) (address string, ended <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	over := make(chan struct{})
	go func() {
		defer close(over)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 1))
	}()
	return l.Addr().String(), over
}

// guards returns the number of running guards of this process.
func guards() (n int) {
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

func waitFor(t *testing.T, is func() bool, otherwise string) {
	t.Helper()
	for deadline := time.Now().Add(hang); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}
