package controller_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"example.org/lockstep/lockstep/internal/agent"
	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/internal/sink"
	"example.org/lockstep/lockstep/internal/wire"
	_ "example.org/lockstep/lockstep/pkg/drivers/loopback"
	"example.org/lockstep/lockstep/test/wiretest"
)

func TestMain(m *testing.M) {
	// The timekeeper of package clock runs until the process ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("example.org/lockstep/lockstep/internal/clock.(*keeper).keep"),
		goleak.IgnoreAnyFunction(wiretest.Background))
}

// waitLimit is the time limit of waits: it ends a test that hangs.
const waitLimit = 2 * time.Minute

// localFleet is an embedded control plane with a controller and agents in this process.
type localFleet struct {
	t                testing.TB
	cfg              wire.ServerConfig
	server           *wire.Server
	client           *wire.Client
	store            *wire.Store // of the test itself
	agents           map[string]*localAgent
	conns            []*wire.Conn
	dir              string // of the agents
	controllers      sync.WaitGroup
	cancelController context.CancelFunc
	points           *sink.Sink // for the next run; nil: none
	config           controller.Config
	clock            *manualClock // of schedules; nil: the host's
	leaderConn       *wire.Conn   // of the latest controller
}

type localAgent struct {
	conn *wire.Conn
	stop context.CancelFunc
	done chan error
	// drain ends the agent when it is idle.
	drain context.CancelFunc
}

func newLocalFleet(t testing.TB, agents ...string) *localFleet {
	t.Helper()
	return newLocalFleetOn(t, wire.ServerConfig{}, agents...)
}

// newLocalFleetOn is newLocalFleet with a configuration of the control plane. If the configuration has an address to
// listen on, the connections use the network.
func newLocalFleetOn(t testing.TB, cfg wire.ServerConfig, agents ...string) *localFleet {
	t.Helper()
	l := &localFleet{t: t, cfg: cfg, agents: map[string]*localAgent{}, dir: t.TempDir()}
	l.startControlPlane()
	for _, name := range agents {
		l.startAgent(name)
	}
	return l
}

// startControlPlane starts the control plane and a controller.
func (l *localFleet) startControlPlane() {
	l.t.Helper()
	cfg := l.cfg
	cfg.Log = l.log()
	var err error
	if l.server, err = wire.Embedded(l.t.Context(), cfg); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(l.close)
	l.store = wire.NewStore(l.connect(), wire.StoreConfig{})
	if l.client, err = wire.NewClient(l.t.Context(),
		func(context.Context) (*wire.Conn, error) { return l.connect(), nil }); err != nil {
		l.t.Fatal(err)
	}
	l.startController()
}

// startController starts a controller. stop ends it, and wg waits for its end.
func (l *localFleet) startController() {
	l.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l.cancelController = stop
	conn := l.connect()
	if err := wire.NewStore(conn, l.config.Store).Prepare(ctx); err != nil {
		l.t.Fatal(err)
	}
	l.leaderConn = conn
	cfg := l.config
	cfg.Log = cmp.Or(cfg.Log, l.log())
	l.controllers.Go(func() {
		if err := controller.Serve(ctx, conn, cfg); err != nil && !conn.Closed() {
			l.t.Errorf("serve the controller: %v", err)
		}
	})
}

// crashController disconnects the controller at once, so that none of its later messages is received.
func (l *localFleet) crashController() {
	l.leaderConn.Close()
	l.cancelController()
	l.controllers.Wait()
}

func (l *localFleet) log() *slog.Logger {
	if !testing.Verbose() {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func (l *localFleet) connect() *wire.Conn {
	l.t.Helper()
	c, err := l.server.Connect(l.t.Context())
	if l.cfg.Listen != "" {
		c.Close()
		c, err = wire.Dial(l.t.Context(), l.server.URL(), l.cfg.Auth)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.conns = append(l.conns, c)
	return c
}

func (l *localFleet) startAgent(name string) {
	l.t.Helper()
	l.startAgentWith(name, func(*agent.Config) {})
}

// startAgentWith starts an agent with a modified configuration.
func (l *localFleet) startAgentWith(name string, change func(*agent.Config)) {
	l.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	drained, drain := context.WithCancel(ctx)
	a := &localAgent{conn: l.connect(), stop: stop, done: make(chan error, 1), drain: drain}
	l.agents[name] = a
	cfg := agent.Config{Name: name, Dir: l.dir, Log: l.log(), Drain: drained.Done()}
	change(&cfg)
	if len(cfg.Observes) == 0 { // measurements of this host mean nothing in virtual time
		cfg.Proc = filepath.Join(l.dir, "no-proc")
	}
	go func() {
		a.done <- agent.Serve(ctx, wire.NewAgent(a.conn), cfg)
	}()
}

// awaitAgents waits until n agents are listed, and returns them.
func (l *localFleet) awaitAgents(n int) []wire.AgentInfo {
	l.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(10 * time.Millisecond) {
		agents, err := l.client.Agents(l.t.Context())
		if err == nil && len(agents) == n {
			return agents
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("agents after %v: got %+v, error %v, want %d", waitLimit, agents, err, n)
		}
	}
}

// removeFromQueue deletes a run's submission from the queue.
func (l *localFleet) removeFromQueue(run string) {
	l.t.Helper()
	js, err := jetstream.New(l.natsConn())
	if err == nil {
		var s jetstream.Stream
		if s, err = js.Stream(l.t.Context(), "LOCKSTEP_QUEUE"); err == nil {
			err = s.Purge(l.t.Context(), jetstream.WithPurgeSubject("lockstep.queue.submit."+run))
		}
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// killAgent ends an agent without its last heartbeat: its connection is closed first, so that none of its later
// messages is received.
func (l *localFleet) killAgent(name string) {
	a := l.agents[name]
	a.conn.Close()
	a.stop()
}

func (l *localFleet) close() {
	for name, a := range l.agents {
		a.stop()
		select {
		case <-a.done:
		case <-time.After(waitLimit):
			l.t.Errorf("agent %s did not stop within %v", name, waitLimit)
		}
		a.conn.Close()
	}
	if l.cancelController != nil {
		l.cancelController()
	}
	l.controllers.Wait()
	for _, c := range l.conns {
		c.Close()
	}
	l.server.Close()
	if left, err := os.ReadDir(l.dir); err != nil || len(left) > 0 {
		l.t.Errorf("files in the folder of the agents: got %v, error %v, want none", left, err)
	}
}

// liveMetrics is the kind that runInto gives to snapshots of the load.
const liveMetrics wire.EventKind = "live"

// sinceBegin returns the time of a snapshot since the measurement began; negative: before.
func sinceBegin(p controller.Progress) time.Duration {
	return time.Duration(p.Entry.Snapshot.At - p.Entry.Snapshot.Begin)
}

// followedRun contains the events of a run, and its directory.
type followedRun struct {
	end    wire.End
	events []controller.Progress
	root   string
	id     string
}

// run submits a run and follows it to its end.
func (l *localFleet) run(run plan.Run, done []string, watch func(controller.Progress)) followedRun {
	l.t.Helper()
	return l.runInto(l.t.TempDir(), run, done, watch)
}

func (l *localFleet) runInto(root string, run plan.Run, done []string, watch func(controller.Progress)) followedRun {
	l.t.Helper()
	if err := l.client.Submit(l.t.Context(), wire.Submission{Run: run, Done: done}); err != nil {
		l.t.Fatal(err)
	}
	w := followedRun{root: root, id: run.ID}
	ctx, cancel := context.WithTimeout(l.t.Context(), waitLimit)
	defer cancel()
	n := 0
	end, err := controller.Record(ctx, l.client, run.ID, root, func(p controller.Progress) {
		if p.Kind == wire.TaskStarted {
			n = p.N
		}
		if s := p.Entry.Snapshot; s != nil && s.At != 0 && len(s.Windows) > 0 {
			p.Kind, p.N = liveMetrics, n
		}
		if p.Kind == "" {
			return
		}
		w.events = append(w.events, p)
		if watch != nil {
			watch(p)
		}
	}, l.points)
	if err != nil {
		l.t.Fatal(err)
	}
	w.end = end
	return w
}

// outcomes returns the received outcomes in order.
func (w followedRun) outcomes() (all []plan.Outcome) {
	for _, p := range w.events {
		if p.Kind == controller.TaskEnded {
			all = append(all, p.Outcome)
		}
	}
	return all
}

func (w followedRun) kinds() string {
	var words []string
	for _, p := range w.events {
		if p.Kind != liveMetrics {
			words = append(words, string(p.Kind))
		}
	}
	return strings.Join(words, " ")
}

// allText returns the text of all files in the run directory.
func allText(t testing.TB, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Type()&os.ModeSymlink != 0 {
			return err
		}
		text, err := os.ReadFile(path)
		b.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var runCount int // number of runs
var runCountMu sync.Mutex

// newRun returns a run of cells over loopback. Each change modifies a short workload: 4,000 messages in 2 s, confirmed
// after 1 ms.
func newRun(changes ...func(*plan.Cell)) plan.Run {
	runCountMu.Lock()
	runCount++
	id := fmt.Sprintf("run%d", runCount)
	runCountMu.Unlock()
	run := plan.Run{Version: plan.RecordFormat, ID: id, Name: "test", Repeat: 1,
		Grace: plan.Duration(100 * time.Millisecond), Started: time.Now().UTC().Truncate(time.Second),
		Source: plan.Source{File: "test.cue", Text: "name: \"test\"\n"}, Axes: []string{"n"}}
	for i, change := range changes {
		w := plan.Default()
		w.Publishers.Nodes, w.Publishers.Count, w.Publishers.MaxInFlight, w.Publishers.Rate = 2, 2000, 100, 2000
		w.Consumers.Nodes = 2
		w.Topology.Queues = 2
		w.Warmup, w.Measure = 0, plan.Duration(5*time.Second)
		w.Drain = plan.Drain{Idle: plan.Duration(500 * time.Millisecond), Timeout: plan.Duration(5 * time.Second)}
		w.Connect = plan.Duration(2 * time.Second)
		if !wiretest.Virtual() { // on a busy machine, the count and the last message end each step
			w.Publishers.Rate, w.Measure, w.Connect = 0, plan.Duration(waitLimit), plan.Duration(waitLimit)
			w.Drain = plan.Drain{Idle: plan.Duration(waitLimit), Timeout: plan.Duration(waitLimit)}
		}
		n, _ := json.Marshal(i)
		options, _ := json.Marshal(map[string]any{"name": fmt.Sprintf("%s-%d", id, i), "confirmDelay": "1ms"})
		c := plan.Cell{Index: i, Coordinates: []plan.Coordinate{{Axis: "n", Value: n}}, Workload: w,
			Broker:     plan.Broker{Name: "loop", Driver: "loopback", Options: options},
			Guarantees: plan.Guarantees{ConfirmedKept: true, SentKept: true, NoDuplicates: true, Ordered: true}}
		if change != nil {
			change(&c)
		}
		c.Broker.Options = schematest.FillNamed(c.Broker.Driver, c.Broker.Options)
		c.ID = plan.CellID(fmt.Sprintf("loop%d", i), c.Workload)
		run.Agents = max(run.Agents, c.Agents())
		run.Cells = append(run.Cells, c)
	}
	return run
}

// longCell changes a cell to last 20 s.
func longCell(c *plan.Cell) {
	c.Workload.Publishers.Count, c.Workload.Publishers.Rate = 0, 100
	c.Workload.Measure = plan.Duration(20 * time.Second)
}
