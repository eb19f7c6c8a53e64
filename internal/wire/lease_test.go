package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire/lease"
	"example.org/lockstep/lockstep/internal/wire/subject"
	"example.org/lockstep/lockstep/test/wiretest"
)

// campaign makes a controller lead.
func campaign(t testing.TB, c *Store, name string) *Leader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	l, err := c.Campaign(ctx, lease.Holder{Name: name, Instance: name}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Lease.Resign(context.Background()) })
	return l
}

func recorder(t testing.TB, c *Store, run string) *Recorder {
	t.Helper()
	r, err := campaign(t, c, "test").Acquire(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// gate is an in-process link that can delay messages, as a stopped process or a network failure does, and deliver them
// later.
type gate struct {
	server *Server
	mu     sync.Mutex
	closed chan struct{} // nil: open
}

// through connects to a server through a gate.
func through(t *testing.T, s *Server) (*Store, *gate) {
	t.Helper()
	g := &gate{server: s}
	c, err := connect(t.Context(), "", Auth{}, false, false, nats.InProcessServer(g))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.open(); c.Close() })
	return NewStore(c, StoreConfig{}), g
}

func (g *gate) InProcessConn() (net.Conn, error) {
	server, err := g.server.InProcessConn()
	if err != nil {
		return nil, err
	}
	client, here := net.Pipe()
	go g.pass(server, here)
	go g.pass(here, server)
	return client, nil
}

// pass never blocks the sender, which would hold locks of the client.
func (g *gate) pass(to, from net.Conn) {
	held := make(chan []byte, 10_000)
	go func() {
		defer to.Close()
		for b := range held {
			g.mu.Lock()
			closed := g.closed
			g.mu.Unlock()
			if closed != nil {
				<-closed
			}
			if _, err := to.Write(b); err != nil {
				from.Close()
			}
		}
	}()
	defer close(held)
	for {
		b := make([]byte, 4096)
		n, err := from.Read(b)
		if err != nil {
			return
		}
		held <- b[:n]
	}
}

func (g *gate) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

func TestWhatAFormerLeaderStillWritesIsRefused(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := plane(t, ServerConfig{Shared: true})
		first, way := through(t, s)
		second, agent := storeOf(t, s), storeOf(t, s)
		old := campaign(t, first, "one")
		was, err := old.Acquire(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		event := func(r *Recorder, detail string) error {
			return r.Event(t.Context(), RunEvent{Kind: AgentLost, Detail: detail})
		}
		if err := event(was, "in time"); err != nil {
			t.Fatal(err)
		}

		way.hold() // from now on, messages of the first one are delayed
		late := make(chan error, 2)
		go func() { late <- event(was, "late") }()
		go func() { late <- old.PutRun(context.Background(), RunState{Run: "r", State: "late"}) }()
		leader := campaign(t, second, "two")
		if old.Lease.Lapsed() == 0 {
			t.Error("the first leader takes its lease for renewed")
		}
		is, err := leader.Acquire(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		if is.PreviousEpoch() != old.Epoch() {
			t.Errorf("the previous leadership had epoch %d, and PreviousEpoch is %d", old.Epoch(), is.PreviousEpoch())
		}
		if err := errors.Join(leader.PutRun(t.Context(), RunState{Run: "r", State: StateRunning}),
			event(is, "after")); err != nil {
			t.Fatal(err)
		}
		way.open()
		for range cap(late) {
			if err := <-late; err == nil {
				t.Error("a write of a former leader was acknowledged")
			}
		}
		if err := first.conn.flush(t.Context(), 10*time.Second); err != nil { // all delayed messages have arrived
			t.Fatal(err)
		}
		select {
		case <-old.Context().Done():
		case <-time.After(20 * time.Second):
		}
		if cause := context.Cause(old.Context()); !errors.Is(cause, lease.ErrLost) {
			t.Fatalf("two controllers lead: the first one's lease ended with %v", cause)
		}
		if _, err := old.Acquire(context.Background(), "r"); err == nil {
			t.Error("a former leader took a run up again")
		}
		// The server also rejects writes that do not use the lease's context.
		was.leader = leaderOf(context.Background(), first, old.who.Epoch)
		if err := event(was, "much later"); !errors.Is(err, lease.ErrFenced) {
			t.Errorf("a former leader's event: %v, want lease.ErrFenced", err)
		}
		if err := was.leader.PutRun(t.Context(), RunState{Run: "r", State: "late"}); !errors.Is(err, lease.ErrFenced) {
			t.Errorf("a former leader's run state: %v, want lease.ErrFenced", err)
		}
		if err := event(is, "end"); err != nil {
			t.Fatal(err)
		}
		var said []string
		_, err = agent.Read(t.Context(),
			RecordQuery{Run: "r", Summary: true, Behind: Cursor{Events: 1}}, func(e Entry) error {
				said = append(said, e.Event.Detail)
				return e.Err
			})
		if got := strings.Join(said, ", "); err != nil || got != "in time, after, end" {
			t.Errorf("the record holds %q, %v", got, err)
		}
		if runs, err := agent.Runs(t.Context()); err != nil || len(runs) != 1 || runs[0].State != StateRunning {
			t.Errorf("the run's state is %+v, %v", runs, err)
		}
	})
}

// TestALapseIsSeenDuringAWrite proves that a blocked write of a run's state delays neither the check of the lease nor
// its renewal.
func TestALapseIsSeenDuringAWrite(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := plane(t, ServerConfig{Shared: true})
		c, way := through(t, s)
		l := campaign(t, c, "one")
		way.hold()
		stored := make(chan error, 1)
		go func() {
			defer close(stored)
			stored <- l.PutRun(t.Context(), RunState{Run: "r", State: "on"})
		}()
		for l.Lease.Lapsed() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		select {
		case err := <-stored:
			t.Errorf("the lapse was seen after the write, which ended with %v", err)
		default:
		}
		way.open()
		if err := <-stored; err != nil {
			t.Errorf("it leads on, and may not write: %v", err)
		}
	})
}

// The requests of a new leader have deadlines. Otherwise it would lead without serving if the server is gone.
func TestThePreparationEndsWithoutAnAnswer(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		c, way := through(t, plane(t, ServerConfig{Shared: true}))
		way.hold()
		defer way.open()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if err := c.Prepare(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > prepareTimeout {
			t.Errorf("after %v: %v, want an error after %v at the latest", time.Since(began), err, prepareTimeout)
		}
	})
}

func TestALeaseWhoseBucketWasLostIsLost(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := plane(t, ServerConfig{})
		c, other := storeOf(t, s), storeOf(t, s)
		l := campaign(t, c, "one")
		for range 10 { // so that revisions of the next bucket differ from this one
			if err := l.Lease.Confirm(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.js.DeleteKeyValue(t.Context(), subject.LeaseBucket); err != nil {
			t.Fatal(err)
		}
		if next := campaign(t, other, "two"); next.Epoch() <= l.Epoch() {
			t.Errorf("epoch %d follows %d: agents would refuse the new leader", next.Epoch(), l.Epoch())
		}
		select {
		case <-l.Context().Done():
		case <-time.After(20 * time.Second):
			t.Fatal("it continues to lead without a lease")
		}
	})
}

// freePorts returns different free ports.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // after all ports are chosen
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports
}

// cluster starts a cluster of three servers, n0 to n2, and connects to the last one.
func cluster(t *testing.T) ([]*server.Server, *Store) {
	t.Helper()
	var routes []*url.URL
	ports := freePorts(t, 3)
	for _, port := range ports {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	var servers []*server.Server
	for i := range ports {
		opts := &server.Options{ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: server.RANDOM_PORT,
			JetStream: true, StoreDir: t.TempDir(),
			NoSigs: true, NoLog: true, Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[i]},
			Routes: routes}
		s, err := server.NewServer(opts)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, s)
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	}
	for _, s := range servers {
		s.Start()
	}
	for _, s := range servers {
		if !s.ReadyForConnections(hang) {
			t.Fatal("a server does not start")
		}
	}
	c, err := Dial(t.Context(), servers[2].ClientURL(), Auth{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	store := NewStore(c, StoreConfig{})
	for deadline := time.Now().Add(hang); ; time.Sleep(200 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := store.Prepare(ctx)
		cancel()
		if err == nil {
			return servers, store
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestTheFenceHoldsInAClusterWhateverIsWrittenAtATime(t *testing.T) {
	t.Parallel()
	_, c := cluster(t)
	l := campaign(t, c, "one")
	r, err := l.Acquire(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	again := *r // a second, unsynchronised writer of the same leader
	again.events, _ = newRunStreams(c, "r")
	again.events.fence = r.events.fence
	const n = 40
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			by := []*Recorder{r, &again}[i%2]
			if err := by.Event(t.Context(), RunEvent{Kind: AgentLost, N: i}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	l.Lease.Resign(t.Context())
	next := campaign(t, c, "two")
	if _, err := next.Acquire(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	r.leader = leaderOf(context.Background(), c, l.who.Epoch)
	if err := r.Event(t.Context(), RunEvent{Kind: AgentLost, N: n}); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("a former leader's event: %v, want lease.ErrFenced", err)
	}
	s, err := c.js.Stream(t.Context(), subject.RunStream(subject.EventsStream, "r"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(subject.Event("r")))
	if err != nil || info.State.Subjects[subject.Event("r")] != n || info.Config.Replicas != 3 {
		t.Errorf("%d events are stored of %d, with %d replicas, %v", info.State.Subjects[subject.Event("r")], n,
			info.Config.Replicas, err)
	}
}

func TestTooFewServersForTheReplicasIsSaid(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := plane(t, ServerConfig{})
		c := NewStore(link(t, s), StoreConfig{Replicas: 3})
		if err := c.Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "3 servers") {
			t.Errorf("three replicas on one server: %v", err)
		}
	})
}

// TestAgentsRefuseAFormerLeadersCommands also proves that agents reject an impossible epoch, after which every later
// leader would be rejected.
func TestAgentsRefuseAFormerLeadersCommands(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := plane(t, ServerConfig{})
		first, second, agent := storeOf(t, s), storeOf(t, s), NewAgent(link(t, s))
		old := campaign(t, first, "one")
		old.Lease.Resign(t.Context())
		next := campaign(t, second, "two")
		var got []string
		stop, err := agent.Commands("a", "i", func(c Command) error { got = append(got, c.Ref.Task); return nil })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		send := func(c *Store, epoch uint64, task string) error {
			ref := Ref{Run: "r", Task: task, Attempt: "x"}
			a := plan.Assignment{Agent: "a", Task: plan.Task{Run: "r", ID: task, Attempt: "x"}}
			return leaderOf(t.Context(), c, epoch).Command(ctx, "a", Command{Instance: "i", Ref: ref, Assignment: &a})
		}
		ahead := uint64(time.Now().Add(25 * time.Hour).UnixMilli())
		if err := send(second, ahead, "ahead"); err == nil ||
			!strings.Contains(err.Error(), "ahead of this host's clock") {
			t.Errorf("an epoch 25 h ahead: %v: want to read that no leader has it", err)
		}
		if err := send(second, next.Epoch(), "new"); err != nil {
			t.Errorf("the leader's command: %v", err)
		}
		if err := send(first, old.Epoch(), "old"); !errors.Is(err, lease.ErrFenced) {
			t.Errorf("a former leader's command: %v, want lease.ErrFenced", err)
		}
		if fmt.Sprint(got) != "[new]" || knownEpoch(agent) != next.Epoch() {
			t.Errorf("the agent obeyed %v, and knows epoch %d; want the leader's alone, %d", got, knownEpoch(agent),
				next.Epoch())
		}
	})
}

// A standby whose limit of the record differs from the leader's logs it, because the limit would change at a takeover.
func TestAStandbyLogsADifferentRecordLimit(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := plane(t, ServerConfig{})
		campaign(t, storeOf(t, s), "one")
		for _, limit := range []int64{0, MinRecord} {
			var log strings.Builder
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			l, err := NewStore(link(t, s), StoreConfig{RecordLimit: limit}).
				Campaign(ctx, lease.Holder{Instance: "two"}, slog.New(slog.NewTextHandler(&log, nil)))
			cancel()
			if l != nil || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(l, err)
			}
			warned := strings.Contains(log.String(), "a different --record-limit") &&
				strings.Contains(log.String(), "leader=1073741824 here=134217728")
			if !strings.Contains(log.String(), "standing by") || warned != (limit == MinRecord) {
				t.Errorf("limit %d: %s", limit, log.String())
			}
		}
	})
}
