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

// hang is the time limit of waits: it ends a test that hangs.
const hang = 2 * time.Minute

// lab is an embedded control plane with a controller and agents in this process.
type lab struct {
	t      testing.TB
	cfg    wire.ServerConfig
	server *wire.Server
	client *wire.Client
	store  *wire.Store // of the test itself
	agents map[string]*labAgent
	conns  []*wire.Conn
	dir    string // of the agents
	wg     sync.WaitGroup
	stop   context.CancelFunc
	points *sink.Sink // for the next run; nil: none
	config controller.Config
	clock  *handClock // of schedules; nil: the host's
	leads  *wire.Conn // of the latest controller
}

type labAgent struct {
	conn *wire.Conn
	stop context.CancelFunc
	done chan error
	// drain makes it leave when it is idle.
	drain context.CancelFunc
}

func newLab(t testing.TB, agents ...string) *lab {
	t.Helper()
	return newLabOn(t, wire.ServerConfig{}, agents...)
}

// newLabOn is newLab with a configuration of the control plane. If it listens, it is used over the network.
func newLabOn(t testing.TB, cfg wire.ServerConfig, agents ...string) *lab {
	t.Helper()
	l := &lab{t: t, cfg: cfg, agents: map[string]*labAgent{}, dir: t.TempDir()}
	l.open()
	for _, name := range agents {
		l.start(name)
	}
	return l
}

// open starts the control plane and a controller.
func (l *lab) open() {
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
	l.control()
}

// control starts a controller. stop ends it, and wg waits for its end.
func (l *lab) control() {
	l.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	conn := l.connect()
	if err := wire.NewStore(conn, l.config.Store).Prepare(ctx); err != nil {
		l.t.Fatal(err)
	}
	l.leads = conn
	cfg := l.config
	cfg.Log = cmp.Or(cfg.Log, l.log())
	l.wg.Go(func() {
		if err := controller.Serve(ctx, conn, cfg); err != nil && !conn.Closed() {
			l.t.Errorf("controller: %v", err)
		}
	})
}

// crash disconnects the controller at once, so that none of its later messages is received.
func (l *lab) crash() {
	l.leads.Close()
	l.stop()
	l.wg.Wait()
}

func (l *lab) log() *slog.Logger {
	if !testing.Verbose() {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func (l *lab) connect() *wire.Conn {
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

func (l *lab) start(name string) {
	l.t.Helper()
	l.startWith(name, func(*agent.Config) {})
}

// startWith starts an agent with a modified configuration.
func (l *lab) startWith(name string, change func(*agent.Config)) {
	l.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	asked, drain := context.WithCancel(ctx)
	a := &labAgent{conn: l.connect(), stop: stop, done: make(chan error, 1), drain: drain}
	l.agents[name] = a
	cfg := agent.Config{Name: name, Dir: l.dir, Log: l.log(), Drain: asked.Done()}
	change(&cfg)
	if len(cfg.Observes) == 0 { // measurements of this host mean nothing in virtual time
		cfg.Proc = filepath.Join(l.dir, "no-proc")
	}
	go func() {
		a.done <- agent.Serve(ctx, wire.NewAgent(a.conn), cfg)
	}()
}

// await returns the agents when there are n of them.
func (l *lab) await(n int) []wire.AgentInfo {
	l.t.Helper()
	for deadline := time.Now().Add(hang); ; time.Sleep(10 * time.Millisecond) {
		agents, err := l.client.Agents(l.t.Context())
		if err == nil && len(agents) == n {
			return agents
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("agents are %+v, %v; want %d", agents, err, n)
		}
	}
}

// unqueue removes a run from the queue without a trace.
func (l *lab) unqueue(run string) {
	l.t.Helper()
	js, err := jetstream.New(l.foreigner())
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

// kill ends an agent without its goodbye: its connection is closed first, so that none of its later messages is
// received.
func (l *lab) kill(name string) {
	a := l.agents[name]
	a.conn.Close()
	a.stop()
}

func (l *lab) close() {
	for name, a := range l.agents {
		a.stop()
		select {
		case <-a.done:
		case <-time.After(hang):
			l.t.Errorf("agent %s did not stop", name)
		}
		a.conn.Close()
	}
	if l.stop != nil {
		l.stop()
	}
	l.wg.Wait()
	for _, c := range l.conns {
		c.Close()
	}
	l.server.Close()
	if left, err := os.ReadDir(l.dir); err != nil || len(left) > 0 {
		l.t.Errorf("agents left %v behind, %v", left, err)
	}
}

// liveMetrics is the kind that runInto gives to snapshots of the load.
const liveMetrics wire.EventKind = "live"

// sinceBegin returns the time of a snapshot since the measurement began; negative: before.
func sinceBegin(p controller.Progress) time.Duration {
	return time.Duration(p.Entry.Snapshot.At - p.Entry.Snapshot.Begin)
}

// watched is what a follower has received.
type watched struct {
	end    wire.End
	events []controller.Progress
	root   string
	id     string
}

// run submits a run and follows it to its end.
func (l *lab) run(run plan.Run, done []string, watch func(controller.Progress)) watched {
	l.t.Helper()
	return l.runInto(l.t.TempDir(), run, done, watch)
}

func (l *lab) runInto(root string, run plan.Run, done []string, watch func(controller.Progress)) watched {
	l.t.Helper()
	if err := l.client.Submit(l.t.Context(), wire.Submission{Run: run, Done: done}); err != nil {
		l.t.Fatal(err)
	}
	w := watched{root: root, id: run.ID}
	ctx, cancel := context.WithTimeout(l.t.Context(), hang)
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
func (w watched) outcomes() (all []plan.Outcome) {
	for _, p := range w.events {
		if p.Kind == controller.TaskEnded {
			all = append(all, p.Outcome)
		}
	}
	return all
}

func (w watched) kinds() string {
	var words []string
	for _, p := range w.events {
		if p.Kind != liveMetrics {
			words = append(words, string(p.Kind))
		}
	}
	return strings.Join(words, " ")
}

// everything returns the text of all files in the run directory.
func everything(t testing.TB, root string) string {
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

var made int // number of runs
var madeMu sync.Mutex

// aRun returns a run of cells over loopback. Each change modifies a short workload: 4,000 messages in 2 s, confirmed
// after 1 ms.
func aRun(changes ...func(*plan.Cell)) plan.Run {
	madeMu.Lock()
	made++
	id := fmt.Sprintf("run%d", made)
	madeMu.Unlock()
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
			w.Publishers.Rate, w.Measure, w.Connect = 0, plan.Duration(hang), plan.Duration(hang)
			w.Drain = plan.Drain{Idle: plan.Duration(hang), Timeout: plan.Duration(hang)}
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

// long makes a cell that lasts until it is stopped.
func long(c *plan.Cell) {
	c.Workload.Publishers.Count, c.Workload.Publishers.Rate = 0, 100
	c.Workload.Measure = plan.Duration(20 * time.Second)
}
