package agent

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/internal/wire/lease"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/test/wiretest"
)

func TestMain(m *testing.M) {
	if err := os.Setenv("PW", "s3cr3t"); err != nil {
		panic(err)
	}
	// The timekeeper of package clock runs until the process ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("example.org/lockstep/lockstep/internal/clock.(*keeper).keep"),
		goleak.IgnoreAnyFunction(wiretest.Background))
}

// waitLimit is the time limit of waits: it ends a test that hangs.
const waitLimit = 2 * time.Minute

// harness runs an agent. The test is its controller.
type harness struct {
	t              *testing.T
	conn           *wire.Conn
	lease          *wire.Leader
	instance       string
	dir            string
	reports        chan report
	stopAgent      context.CancelFunc
	served         chan error
	agents         map[wire.Ref]string // agent processes, by attempt
	instances      map[wire.Ref]string
	stopController func()                               // ends the controller
	unledAttempt   atomic.Pointer[wire.Ref]             // an attempt without a leader
	onHeartbeat    atomic.Pointer[func(wire.Heartbeat)] // receives the heartbeats; nil: they are dropped
	heartbeatError atomic.Pointer[error]                // response to heartbeats; nil: the agent is accepted
	snapshotError  atomic.Pointer[error]                // response to snapshots; nil: they are accepted
}

// report is an arrival or a snapshot of the agent.
type report struct {
	Ref      wire.Ref
	Arrival  *wire.Arrival
	Snapshot *record.Snapshot
}

// answerReports sends every report of the agent to reports, until stop is called.
func (b *harness) answerReports() (stop func()) {
	b.t.Helper()
	ended := make(chan struct{})
	hand := func(r report) error {
		select {
		case b.reports <- r:
			return nil
		case <-ended:
			return wire.ErrNotStored
		}
	}
	unsubscribe, err := b.lease.AnswerReports(
		func(_ context.Context, a wire.Arrival) error { return hand(report{Ref: a.Ref, Arrival: &a}) },
		func(_ context.Context, ref wire.Ref, s record.Snapshot) error {
			if refuse := b.snapshotError.Load(); refuse != nil {
				return *refuse
			}
			return hand(report{Ref: ref, Snapshot: &s})
		})
	if err != nil {
		b.t.Fatal(err)
	}
	return func() { close(ended); unsubscribe() }
}

func newHarness(t *testing.T, changes ...func(*Config)) *harness {
	t.Helper()
	s, err := wire.Embedded(t.Context(), wire.ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	conn, agentConn := connect(t, s), connect(t, s)
	if err := wire.NewStore(conn, wire.StoreConfig{}).Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := &harness{t: t, conn: conn, lease: acquireLease(t, conn), dir: t.TempDir(), reports: make(chan report, 64),
		served: make(chan error, 1)}
	names := make(chan string, 16)
	stopHeartbeats, err := b.lease.AnswerHeartbeats(func(h wire.Heartbeat) (bool, error) {
		select {
		case names <- h.Instance:
		default:
		}
		if beats := b.onHeartbeat.Load(); beats != nil {
			(*beats)(h)
		}
		if refuse := b.heartbeatError.Load(); refuse != nil {
			return false, *refuse
		}
		unled := b.unledAttempt.Load()
		return unled != nil && *unled == h.Attempt, nil
	}, func(wire.Heartbeat, string) {})
	if err != nil {
		t.Fatal(err)
	}
	stopReports := b.answerReports()
	b.stopController = sync.OnceFunc(func() { stopReports(); stopHeartbeats() })
	ctx, stop := context.WithCancel(context.Background())
	b.stopAgent = stop
	cfg := Config{Name: "a1", Dir: b.dir, Access: drivers.FullAccess()}
	for _, change := range changes {
		change(&cfg)
	}
	go func() { b.served <- Serve(ctx, wire.NewAgent(agentConn), cfg) }()
	t.Cleanup(func() {
		stop()
		b.stopController()
		if err := <-b.served; err != nil && b.heartbeatError.Load() == nil {
			t.Errorf("Serve: got error %v, want nil", err)
		}
		if left, err := os.ReadDir(b.dir); err != nil || len(left) > 0 {
			t.Errorf("files in the agent's folder after its end: got %v, error %v, want none", left, err)
		}
	})
	b.instance = <-names
	return b
}

// instancesOf waits for heartbeats of slots and returns their instances.
func (b *harness) instancesOf(slots ...string) map[string]string {
	b.t.Helper()
	beats := make(chan wire.Heartbeat, 64)
	hand := func(h wire.Heartbeat) {
		select {
		case beats <- h:
		default:
		}
	}
	b.onHeartbeat.Store(&hand)
	defer b.onHeartbeat.Store(nil)
	all := map[string]string{}
	for timeout := time.After(waitLimit); len(all) < len(slots); {
		select {
		case h := <-beats:
			if slices.Contains(slots, h.Agent) {
				all[h.Agent] = h.Instance
			}
		case <-timeout:
			b.t.Fatalf("got heartbeats of the slots %v, want %v", all, slots)
		}
	}
	return all
}

// acquireLease acquires the lease, so that the test is the leading controller.
func acquireLease(t *testing.T, conn *wire.Conn) *wire.Leader {
	t.Helper()
	lease, err := wire.NewStore(conn, wire.StoreConfig{}).Campaign(t.Context(),
		lease.Holder{Name: "test", Instance: "test"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lease.Lease.Resign(context.Background()) })
	return lease
}

func connect(t *testing.T, s *wire.Server) *wire.Conn {
	t.Helper()
	c, err := s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// assign assigns a task with this test's driver.
func (b *harness) assign(id string, d *probe, change func(*plan.Assignment)) wire.Ref {
	b.t.Helper()
	return b.assignTo(d.register(), id, change)
}

// assignTo assigns a task with the probe that has this name.
func (b *harness) assignTo(probe, id string, change func(*plan.Assignment)) wire.Ref {
	b.t.Helper()
	w := plan.Default()
	w.Consumers.Nodes = 0
	w.Connect = plan.Duration(2 * time.Second)
	options, err := json.Marshal(map[string]string{"probe": probe, "url": "x://u:${env:PW}@h"})
	if err != nil {
		b.t.Fatal(err)
	}
	a := plan.Assignment{Protocol: plan.Protocol, Agent: "a1", Publishers: plan.Share{Count: 1, Total: 1},
		Deadline: plan.Duration(20 * time.Second),
		Task: plan.Task{Run: "r", ID: id, Attempt: "attempt",
			Cell: plan.Cell{Broker: plan.Broker{Driver: "probe", Options: options}, Workload: w}}}
	if change != nil {
		change(&a)
	}
	b.command(a.Agent, wire.Command{Ref: wire.RefOf(a.Task), Assignment: &a})
	return wire.RefOf(a.Task)
}

// awaitArrival waits until the agent has completed a step of a task.
func (b *harness) awaitArrival(ref wire.Ref, step wire.Step) wire.Arrival {
	b.t.Helper()
	timeout := time.After(waitLimit)
	for {
		select {
		case e := <-b.reports:
			if e.Ref == ref && e.Arrival != nil && e.Arrival.Step == step {
				return *e.Arrival
			}
		case <-timeout:
			b.t.Fatalf("got no arrival at step %s", step)
		}
	}
}

func (b *harness) release(ref wire.Ref, r wire.Release) {
	b.t.Helper()
	b.command(b.agents[ref], wire.Command{Ref: ref, Release: &r})
}

// command sends a command to an agent until it is received.
func (b *harness) command(agent string, c wire.Command) {
	b.t.Helper()
	if b.agents == nil {
		b.agents, b.instances = map[wire.Ref]string{}, map[wire.Ref]string{}
	}
	if c.Assignment != nil {
		b.agents[c.Ref], b.instances[c.Ref] = agent, b.instance
	}
	c.Instance = b.instances[c.Ref]
	ctx, cancel := context.WithTimeout(b.t.Context(), waitLimit)
	defer cancel()
	if err := b.lease.Command(ctx, agent, c); err != nil {
		b.t.Fatal(err)
	}
}

func TestAgentEndsATaskAtItsDeadline(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newHarness(t), &probe{}
		ref := b.assign("t1", d, func(a *plan.Assignment) { a.Deadline = plan.Duration(400 * time.Millisecond) })
		if a := b.awaitArrival(ref, wire.StepOpen); a.Error != "" {
			t.Fatal(a.Error)
		}
		if a := b.awaitArrival(ref, wire.StepFinish); !strings.Contains(a.Error, "deadline") {
			t.Errorf("error of the arrival at finish: got %q, want \"deadline\"", a.Error)
		}
		b.awaitArrival(ref, wire.StepDone)
		if d.setups.Load() != 1 || d.teardowns.Load() != 1 || d.open.Load() != 0 {
			t.Errorf("got %d setups, %d teardowns, %d open sessions, want 1, 1, 0", d.setups.Load(),
				d.teardowns.Load(), d.open.Load())
		}
	})
}

func TestFinishReachesAStuckDriver(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newHarness(t), &probe{connectGate: make(chan struct{})}
		ref := b.assign("t1", d, nil)
		b.awaitArrival(ref, wire.StepOpen)
		b.release(ref, wire.Release{Step: wire.StepConsumers})
		b.awaitArrival(ref, wire.StepConsumers)
		b.release(ref, wire.Release{Step: wire.StepPublishers})
		b.release(ref, wire.Release{Step: wire.StepFinish, Reason: "another agent failed"})
		b.awaitArrival(ref, wire.StepFinish)
		b.release(ref, wire.Release{Step: wire.StepTeardown, Agent: "a1"})
		b.awaitArrival(ref, wire.StepTeardown)
		b.release(ref, wire.Release{Step: wire.StepDone})
		b.awaitArrival(ref, wire.StepDone)
		if d.teardowns.Load() != 1 || d.open.Load() != 0 {
			t.Errorf("got %d teardowns, %d open sessions, want 1, 0", d.teardowns.Load(), d.open.Load())
		}
	})
}

func TestANewAssignmentEndsTheOld(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newHarness(t), &probe{}
		first := b.assign("t1", d, nil)
		b.awaitArrival(first, wire.StepOpen)
		second := b.assign("t2", d, func(a *plan.Assignment) { a.Deadline = plan.Duration(500 * time.Millisecond) })
		b.awaitArrival(first, wire.StepDone)
		if a := b.awaitArrival(second, wire.StepOpen); a.Error != "" {
			t.Errorf("open of the second task: got error %q, want none", a.Error)
		}
		if d.max.Load() != 1 {
			t.Errorf("maximum open sessions: got %d, want 1", d.max.Load())
		}
		b.awaitArrival(second, wire.StepDone)
	})
}

func TestSecretsDoNotLeaveTheAgent(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newHarness(t), &probe{failOpen: true}
		ref := b.assign("t1", d, func(a *plan.Assignment) { a.Deadline = plan.Duration(400 * time.Millisecond) })
		a := b.awaitArrival(ref, wire.StepOpen)
		if !strings.Contains(a.Error, "no such host") || strings.Contains(a.Error, "s3cr3t") {
			t.Errorf("error of the arrival: got %q, want \"no such host\" without the secret", a.Error)
		}
		if got := d.password.Load(); got == nil || *got != "s3cr3t" {
			t.Errorf("password in the driver's options: got %v, want the secret", got)
		}
		b.awaitArrival(ref, wire.StepDone)
	})
}

func TestInvalidAssignmentsAreRejected(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newHarness(t), &probe{}
		short := func(a *plan.Assignment) { a.Deadline = plan.Duration(200 * time.Millisecond) }
		for id, x := range map[string]struct {
			change func(*plan.Assignment)
			want   string
		}{
			"protocol": {func(a *plan.Assignment) { a.Protocol = 99 }, "protocol 99"},
			"driver":   {func(a *plan.Assignment) { a.Task.Cell.Broker.Driver = "nope" }, `no driver "nope"`},
			"queues":   {func(a *plan.Assignment) { a.Task.Cell.Workload.Topology.Queues = 0 }, "0 queues"},
			"size":     {func(a *plan.Assignment) { a.Task.Cell.Workload.Message.Size = 1 << 40 }, "message size"},
			"churn": {func(a *plan.Assignment) { a.Task.Cell.Workload.Topology.Churn = plan.Churn{Rate: 1} },
				"bindings per second"},
			"window": {func(a *plan.Assignment) { a.Task.Cell.Workload.Publishers.MaxInFlight = 100_000_000 },
				"want at most 10000000"},
			"measure": {func(a *plan.Assignment) { a.Task.Cell.Workload.Measure = plan.Duration(366 * 24 * time.Hour) },
				"want 0 to 24h"},
			"more":    {func(a *plan.Assignment) { a.Publishers.Count = 2 }, "2 publishers: want 0 to 1"},
			"threads": {func(a *plan.Assignment) { a.Publishers.Count = 1 << 40 }, "publishers"},
			"secret":  {func(a *plan.Assignment) { a.Task.Cell.Broker.Options = json.RawMessage(`{"url":"${env:NOT_THERE}"}`) }, "NOT_THERE"},
		} {
			ref := b.assign(id, d, func(a *plan.Assignment) { short(a); x.change(a) })
			if a := b.awaitArrival(ref, wire.StepOpen); !strings.Contains(a.Error, x.want) ||
				!strings.Contains(a.Error, "agent a1") {
				t.Errorf("%s: error of the arrival: got %q, want %q", id, a.Error, x.want)
			}
			b.awaitArrival(ref, wire.StepDone)
		}
		if d.opened.Load() != 0 {
			t.Error("the driver opened a session for an invalid assignment")
		}
	})
}

// A matrix can read only the files and variables of the host that the agent's flags allow.
func TestMatricesReadOnlyAllowedFilesAndVariables(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newHarness(t, func(cfg *Config) { cfg.Access = drivers.Access{} }), &probe{}
		for id, x := range map[string]struct{ options, payload, want string }{
			"variable": {`{"url":"${env:PW}"}`, "", "--env PW"},
			"file":     {`{"url":"${file:/etc/hostname}"}`, "", "--files"},
			"payload":  {"", "/etc/hostname", "--files"},
		} {
			ref := b.assign(id, d, func(a *plan.Assignment) {
				a.Deadline = plan.Duration(200 * time.Millisecond)
				broker, message := &a.Task.Cell.Broker, &a.Task.Cell.Workload.Message
				broker.Options = json.RawMessage(strings.ReplaceAll(string(broker.Options), "${env:PW}", "none"))
				if x.options != "" {
					broker.Options = json.RawMessage(x.options)
				}
				if x.payload != "" {
					message.Payload = plan.Payload{Kind: plan.PayloadFile, File: x.payload}
				}
			})
			if a := b.awaitArrival(ref, wire.StepOpen); !strings.Contains(a.Error, x.want) {
				t.Errorf("%s: error of the arrival: got %q, want %q", id, a.Error, x.want)
			}
			b.awaitArrival(ref, wire.StepDone)
		}
	})
}

func TestArrivalsContainTheClock(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b, d := newHarness(t), &probe{}
		ref := b.assign("t1", d, func(a *plan.Assignment) { a.Deadline = plan.Duration(time.Second) })
		if a := b.awaitArrival(ref, wire.StepOpen); a.Clock != clock.ID() || a.Now == 0 || a.Wall == 0 ||
			a.Subject == nil ||
			a.Subject.Product != "Probe" {
			t.Errorf("arrival at open: got %+v, want the clock's id and times, and the product of the broker", a)
		}
		b.release(ref, wire.Release{Step: wire.StepConsumers})
		b.release(ref, wire.Release{Step: wire.StepPublishers})
		b.awaitArrival(ref, wire.StepPublishers)
		b.release(ref, wire.Release{Step: wire.StepStart, Start: map[string]int64{"another clock": 1}})
		if a := b.awaitArrival(ref, wire.StepStart); !strings.Contains(a.Error, "no start time") {
			t.Errorf("start without a time for this host's clock: got error %q, want \"no start time\"", a.Error)
		}
		b.awaitArrival(ref, wire.StepDone)
	})
}
