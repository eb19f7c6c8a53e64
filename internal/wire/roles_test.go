package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire/keys"
	"example.org/lockstep/lockstep/internal/wire/subject"
	"example.org/lockstep/lockstep/test/wiretest"
)

// guardedPlane is a control plane with TLS and credentials for two agents, as "ctl fleet init" creates them.
type guardedPlane struct {
	dir    string
	creds  *keys.Credentials
	server *Server
	url    string
}

func guardPlane(t *testing.T) *guardedPlane {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "creds")
	creds, err := keys.Make(dir, dir, []string{"bench-1.example.org"}, false)
	if err == nil {
		err = creds.AddAgents(1, "a1", "a2.zone b")
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := Embedded(t.Context(), ServerConfig{Listen: "127.0.0.1:0", Config: filepath.Join(dir, "nats.conf"),
		Dir:  t.TempDir(),
		Auth: Auth{Creds: filepath.Join(dir, "controller.nk")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	g := &guardedPlane{dir: dir, creds: creds, server: s, url: strings.Replace(s.URL(), "nats://", "tls://", 1)}
	if err := storeOf(t, s).Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

func userOf(c *keys.Credentials, name string) keys.User {
	return c.Users[slices.IndexFunc(c.Users, func(u keys.User) bool { return u.Name == name })]
}

func (g *guardedPlane) auth(name string) Auth {
	u := userOf(g.creds, name)
	return Auth{CA: filepath.Join(g.dir, "ca.crt"), Creds: filepath.Join(g.dir, u.File())}
}

func (g *guardedPlane) dial(t *testing.T, name string) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), g.url, g.auth(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// hostile returns a connection and a channel with its permission errors.
func (g *guardedPlane) hostile(t *testing.T, name string) (*nats.Conn, <-chan error) {
	t.Helper()
	opts, err := g.auth(name).options()
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 100)
	nc,
		err := nats.Connect(g.url, append(opts, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription,
		err error) {
		refused <- err
	}))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc, refused
}

func mustRefuse(t *testing.T, what string, refused <-chan error) {
	t.Helper()
	select {
	case err := <-refused:
		if !errors.Is(err, nats.ErrPermissionViolation) &&
			!strings.Contains(strings.ToLower(err.Error()), "permissions violation") {
			t.Errorf("%s: refused with %v: want a permissions violation", what, err)
		}
	case <-time.After(hang):
		t.Errorf("%s: was not refused", what)
	}
}

// TestCommandsReachTheirAgentAlone proves this with other roles that subscribe to everything that they may.
func TestCommandsReachTheirAgentAlone(t *testing.T) {
	g := guardPlane(t)
	leader := campaign(t, storeOf(t, g.server), "test")
	var got atomic.Int32
	stop, err := NewAgent(g.dial(t, "a2.zone b")).Commands("a2.zone b", "i",
		func(Command) error { got.Add(1); return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	spy := g.dial(t, "a1")
	stopSpy, err := NewAgent(spy).Commands("a1", "", func(c Command) error { t.Errorf("a1 got %+v", c); return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer stopSpy()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	for i := range 5 {
		if err := leader.Command(ctx, "a2.zone b",
			Command{Instance: "i", Ref: Ref{Run: fmt.Sprint("r", i)}, Release: &Release{Step: StepStart}}); err != nil {
			t.Fatal(err)
		}
	}
	if got.Load() != 5 {
		t.Errorf("the agent got %d commands of 5", got.Load())
	}
	if _, err := spy.RTT(t.Context()); err != nil { // messages that were sent to it have arrived
		t.Error(err)
	}
}

// TestAnAccountProtectsStreamsWithoutPermissions proves that an agent with all permissions in its account reaches no
// stream, neither by its own request nor by a reply of the controller or the server.
func TestAnAccountProtectsStreamsWithoutPermissions(t *testing.T) {
	g := guardPlane(t)
	conf, err := os.ReadFile(filepath.Join(g.dir, "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	limits := regexp.MustCompile(`(# agent [^\n]*\n *\{nkey: "[^"]*"), permissions: \{\n[^\n]*\n[^\n]*\n[^\n]*\n *\}\}`)
	open := limits.ReplaceAllString(string(conf), "$1}")
	if n := len(limits.FindAllString(string(conf), -1)); n != 2 {
		t.Fatalf("the configuration has permissions of %d agents: want 2", n)
	}
	path := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(path, []byte(open), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Embedded(t.Context(), ServerConfig{Listen: "127.0.0.1:0", Config: path, Dir: t.TempDir(),
		Auth: g.server.cfg.Auth})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	g.url = strings.Replace(s.URL(), "nats://", "tls://", 1)
	controller := storeOf(t, s)
	if err := controller.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	leader := campaign(t, controller, "test")
	stop, err := leader.AnswerHeartbeats(func(Heartbeat) (bool, error) { return false, nil },
		func(Heartbeat, string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	r, err := leader.Acquire(t.Context(), "r")
	if err == nil {
		err = r.Event(t.Context(), RunEvent{Kind: RunAccepted})
	}
	before, err2 := wiretest.Stored(t.Context(), controller.js)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	nc, refused := g.hostile(t, "a1")
	for _, stream := range []string{subject.RunStream(subject.EventsStream, "r"),
		subject.RunStream(subject.SnapshotsStream, "r"), subject.QueueStream, "KV_" + subject.LeaseBucket,
		"KV_" + subject.StateBucket, "KV_" + subject.SchedulesBucket} {
		for _, request := range []string{"STREAM.DELETE.", "STREAM.PURGE.", "STREAM.INFO.", "CONSUMER.CREATE."} {
			for _, to := range []string{subject.Heartbeat("a1"), subject.Clock("a1"), subject.Arrive("a1"),
				subject.API + "CONSUMER.MSG.NEXT." + stream + ".x"} {
				if err := nc.PublishMsg(&nats.Msg{Subject: to, Reply: subject.API + request + stream,
					Data: []byte(`{"batch":1,"no_wait":true}`)}); err != nil {
					t.Fatal(err)
				}
			}
			m, err := nc.Request(subject.API+request+stream, nil, hang)
			if err != nil || !strings.Contains(string(m.Data), "JetStream not enabled for account") {
				t.Errorf("%s%s answers an agent: %s, %v", request, stream, m.Data, err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	if _, err := request[Heartbeat, HeartbeatAnswer](ctx, g.dial(t, "a1"), nil, subject.Heartbeat("a1"),
		Heartbeat{Agent: "a1"}); err != nil {
		t.Errorf("a heartbeat after all that: %v", err)
	}
	if after, err := wiretest.Stored(t.Context(), controller.js); err != nil ||
		fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the streams hold %v, %v; before %v", after, err, before)
	}
	if len(refused) > 0 {
		t.Errorf("the server refused what this test has to let through: %v", <-refused)
	}
}

// TestRequestsOfAgentsFailAtOnceWithoutALeader proves this across the border of their account.
func TestRequestsOfAgentsFailAtOnceWithoutALeader(t *testing.T) {
	g := guardPlane(t)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	if _, err := request[Heartbeat, HeartbeatAnswer](ctx, g.dial(t, "a1"), nil, subject.Heartbeat("a1"),
		Heartbeat{Agent: "a1"}); !errors.Is(err, ErrNoController) {
		t.Errorf("a heartbeat without a leader: %v, want ErrNoController", err)
	}
}

// longPoints is a number of long points that exceeds a message. With more and shorter points, a loaded machine needs
// longer than a request may take.
const longPoints = 3_000

// longHistory returns that many points, unless the query limits them.
func longHistory(q plan.HistoryQuery) plan.HistoryAnswer {
	n := longPoints
	if q.Max > 0 {
		n = q.Max
	}
	long := plan.HistoryPoint{Matrix: strings.Repeat("m", 4<<10)}
	return plan.HistoryAnswer{Cells: []plan.HistoryCell{{ID: "c", Points: slices.Repeat([]plan.HistoryPoint{long}, n)}}}
}

func TestEachRoleCanDoItsWork(t *testing.T) {
	g := guardPlane(t)
	controller, client, viewer, one, two := storeOf(t, g.server), g.client(t, "client"), g.client(t, "viewer"),
		g.dial(t, "a1"), g.dial(t, "a2.zone b")
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()

	beats := make(chan Heartbeat, 100)
	leading := recorder(t, controller, "r1")
	stop, err := leading.leader.AnswerHeartbeats(func(h Heartbeat) (bool, error) {
		select {
		case beats <- h:
		default:
		}
		return false, nil
	}, func(Heartbeat, string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	stopClock, err := leading.leader.AnswerClock()
	if err != nil {
		t.Fatal(err)
	}
	defer stopClock()

	ref := Ref{Run: "r1", Task: "t1", Attempt: "y1"}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	serveClients(t, leading.leader)
	takeReports(t, leading.leader, leading.Snapshots(ctx, ref, bytesPerAgent(1<<20), func(record.Snapshot) error { return nil }))
	must("submit", client.Submit(ctx, Submission{Run: plan.Run{ID: "r1"}}))
	must("record the plan", leading.Plan(ctx, plan.Run{ID: "r1"}))
	for name, c := range map[string]*Conn{"a1": one, "a2.zone b": two} {
		pulsing, quiet := context.WithCancel(ctx)
		pulsed := make(chan error, 1)
		agent := NewAgent(c)
		go func() {
			pulsed <- agent.SendHeartbeats(pulsing, func() Heartbeat { return Heartbeat{Agent: name, Instance: "i"} },
				nil)
		}()
		for reported := ""; reported != name; {
			select {
			case h := <-beats:
				reported = h.Agent
			case <-ctx.Done():
				t.Fatalf("no heartbeat of %s", name)
			}
		}
		quiet()
		must("beat", <-pulsed)
		_, _, err := agent.AskClock(ctx, name)
		must("ask the clock", err)
		must("arrive", agent.Arrive(ctx, Arrival{Ref: ref, Agent: name, Step: StepOpen}))
		must("send a snapshot", agent.Snapshot(ctx, ref, record.Snapshot{Task: "t1", Agent: name, Seq: 1}))
		commands := make(chan Command, 1)
		stop, err := agent.Commands(name, "i", func(c Command) error { commands <- c; return nil })
		must("take commands", err)
		a := plan.Assignment{Agent: name, Task: plan.Task{Run: "r1", ID: "t1", Attempt: "y1"}}
		must("assign", leading.leader.Command(ctx, name, Command{Instance: "i", Ref: ref, Assignment: &a}))
		if c := <-commands; c.Assignment == nil || c.Ref != ref {
			t.Errorf("%s got %+v", name, c)
		}
		stop()
	}
	must("event", leading.Event(ctx, RunEvent{Kind: RunEnded,
		End: &End{Reason: EndDone, Submission: submission(t, leading.leader.store, "r1")}}))
	_, err = client.Read(ctx, RecordQuery{Run: "r1", Wait: true}, func(Entry) error { return nil })
	must("follow the run", err)
	for who, c := range map[string]*Client{"client": client, "viewer": viewer} {
		agents, err := c.Agents(ctx)
		must(who+" lists agents", err)
		_, err = c.Runs(ctx)
		must(who+" lists runs", err)
		h, err := c.History(ctx, plan.HistoryQuery{Value: "publish.rate"})
		must(who+" asks for the history", err)
		if len(h.Cells) != 1 {
			t.Fatalf("%s gets %d cells of history, want one", who, len(h.Cells))
		}
		if n := len(h.Cells[0].Points); n < minPoints || n >= longPoints {
			t.Errorf("%s gets %d points: want as many as the answer can contain", who, n)
		}
		if _, err = c.History(ctx, plan.HistoryQuery{Cells: []string{"x"}}); err == nil ||
			!strings.Contains(err.Error(), "no such cell") {
			t.Errorf("%s requested a missing value: %v", who, err)
		}
		if len(agents) != 1 {
			t.Errorf("%s sees %d agents", who, len(agents))
		}
	}
	agent := g.client(t, "a1")
	for what, request := range map[string]func() error{
		"an agent reads the history": func() error { _, err := agent.History(ctx, plan.HistoryQuery{}); return err },
		"an agent lists agents":      func() error { _, err := agent.Agents(ctx); return err },
		"an agent looks who leads":   func() error { _, err := agent.Leader(ctx); return err },
		"an agent follows a run": func() error {
			_, err := agent.Read(ctx, RecordQuery{Run: "r1", Wait: true}, func(Entry) error { return nil })
			return err
		},
		"an agent submits a run": func() error { return agent.Submit(ctx, Submission{Run: plan.Run{ID: "r2"}}) },
		"a viewer submits a run": func() error { return viewer.Submit(ctx, Submission{Run: plan.Run{ID: "r2"}}) },
		"a viewer cancels a run": func() error { return viewer.Cancel(ctx, "r1", "") },
		"a viewer adds a schedule": func() error {
			return viewer.PutSchedule(ctx, schedule.New(aDefinition, "id", "me", time.Now()), 0)
		},
		"a viewer removes one": func() error { return viewer.RemoveSchedule(ctx, "x", 1) },
	} {
		holder := "those of the viewer; pass --creds with the client.nk"
		if strings.HasPrefix(what, "an agent") {
			holder = "those of agent a1; pass --creds with the client.nk"
		}
		if err := request(); !errors.Is(err, errNotAllowed) || !strings.Contains(err.Error(), "do not allow this") ||
			!strings.Contains(err.Error(), holder) {
			t.Errorf("%s: %v: want an error that it may not, with whose key it shows", what, err)
		}
	}
	// A viewer follows and copies runs. It can also follow a queued run, although it cannot read the queue.
	must("end the first", leading.leader.Dequeue(ctx, "r1", 0))
	must("submit again", client.Submit(ctx, Submission{Run: plan.Run{ID: "r1"}}))
	ended := make(chan *End, 1)
	go func() {
		end, err := viewer.Read(ctx, RecordQuery{Run: "r1", Wait: true}, func(Entry) error { return nil })
		must("a viewer follows", err)
		ended <- end
	}()
	if end, err := viewer.Read(ctx, RecordQuery{Run: "r1"}, func(Entry) error { return nil }); err != nil || end != nil {
		t.Errorf("a viewer copies a run that goes on: %+v, %v", end, err)
	}
	second := submission(t, leading.leader.store, "r1")
	must("event", leading.Event(ctx, RunEvent{Kind: RunEnded, End: &End{Reason: EndInterrupted, Submission: second}}))
	if end := <-ended; end.Submission != second {
		t.Errorf("a viewer saw the end %+v: want that of the second submission", end)
	}
	// Schedules: a client edits, a viewer reads.
	must("add a schedule", client.PutSchedule(ctx, schedule.New(aDefinition, "id", "me", time.Now()), 0))
	for who, c := range map[string]*Client{"client": client, "viewer": viewer} {
		all, err := c.Schedules(ctx)
		must(who+" lists schedules", err)
		hooks, err := c.Hooks(ctx)
		must(who+" lists hooks", err)
		if len(all) != 1 || all[0].Err != nil || len(hooks) != 1 {
			t.Errorf("%s sees schedules %+v and hooks %v", who, all, hooks)
		}
	}
	kept, err := client.Schedule(ctx, "x")
	must("read a schedule", err)
	_, err = client.EditSchedule(ctx, "x", func(s *schedule.Schedule) error { s.Pause("me", time.Now()); return nil })
	must("change a schedule", err)
	if err := client.RemoveSchedule(ctx, "x", kept.Revision); !errors.Is(err, ErrChanged) {
		t.Errorf("remove a schedule that was changed: %v", err)
	}
	kept, err = client.Schedule(ctx, "x")
	must("read a schedule", err)
	must("remove a schedule", client.RemoveSchedule(ctx, "x", kept.Revision))
	must("cancel", client.Cancel(ctx, "r1", ""))
	must("clear the queue", leading.leader.Dequeue(ctx, "r1", 0))
}

func TestRemovedAgentsAreRefused(t *testing.T) {
	g := guardPlane(t)
	stays, goes := g.dial(t, "a1"), g.dial(t, "a2.zone b")
	auth := g.auth("a2.zone b")
	seed, err := os.ReadFile(auth.Creds)
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(t.TempDir(), "kept.nk")
	if err := os.WriteFile(kept, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	auth.Creds = kept
	if err := g.creds.Remove("a2.zone b"); err != nil {
		t.Fatal(err)
	}
	if err := g.creds.AddAgents(1, "a3"); err != nil {
		t.Fatal(err)
	}
	if err := g.server.Reload(); err != nil {
		t.Fatal(err)
	}
	if c, err := Dial(t.Context(), g.url, auth); err == nil {
		c.Close()
		t.Error("an agent that was removed can connect")
	}
	if _, err := g.dial(t, "a3").RTT(t.Context()); err != nil {
		t.Errorf("an agent that was added: %v", err)
	}
	if _, err := stays.RTT(t.Context()); err != nil {
		t.Errorf("an agent that stays was cut off: %v", err)
	}
	if _, err := goes.RTT(t.Context()); err == nil && goes.nc.IsConnected() {
		t.Error("an agent that was removed is still connected")
	}
	if err := g.creds.Rotate("a1"); err != nil {
		t.Fatal(err)
	}
	if err := g.server.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.dial(t, "a1").RTT(t.Context()); err != nil {
		t.Errorf("an agent with a new key: %v", err)
	}
}

// TestReloadDuringRequests proves that a reload reads no account while connections change it: the race detector reports
// that. No request fails meanwhile.
func TestReloadDuringRequests(t *testing.T) {
	g := guardPlane(t)
	serveClients(t, recorder(t, storeOf(t, g.server), "r1").leader)
	ctx, stop := context.WithCancel(t.Context())
	var requests sync.WaitGroup
	for range 4 {
		client := g.client(t, "client")
		requests.Go(func() {
			for ctx.Err() == nil {
				if _, err := client.Runs(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("a request during a reload: %v", err)
					return
				}
			}
		})
	}
	for range 100 {
		if err := g.server.Reload(); err != nil {
			t.Error(err)
		}
	}
	stop()
	requests.Wait()
}

// TestPeersLearnThatTheirKeyIsNoLongerAccepted proves that agents and clients report this as the reason, not a closed
// connection or a missing controller, and do not retry for ever.
func TestPeersLearnThatTheirKeyIsNoLongerAccepted(t *testing.T) {
	g := guardPlane(t)
	lead := recorder(t, storeOf(t, g.server), "r1")
	serveClients(t, lead.leader)
	stop, err := lead.leader.AnswerHeartbeats(func(Heartbeat) (bool, error) { return false, nil },
		func(Heartbeat, string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := lead.Plan(t.Context(), plan.Run{ID: "r1"}); err != nil {
		t.Fatal(err)
	}
	old := g.auth("client")
	seed, err := os.ReadFile(old.Creds)
	if err != nil {
		t.Fatal(err)
	}
	old.Creds = filepath.Join(t.TempDir(), "old.nk")
	if err := os.WriteFile(old.Creds, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	idle, err := DialClient(t.Context(), g.url, old)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	agent, reports, follower := NewAgent(g.dial(t, "a1")), NewAgent(g.dial(t, "a1")), g.client(t, "client")
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	busy, beating, following := make(chan struct{}, 1), make(chan error, 1), make(chan error, 1)
	go func() {
		beating <- agent.SendHeartbeats(ctx, func() Heartbeat {
			return Heartbeat{Agent: "a1", Process: "a1",
				Slots: 1}
		}, nil)
	}()
	go func() {
		_, err := follower.Read(ctx, RecordQuery{Run: "r1", Wait: true}, func(Entry) error { busy <- struct{}{}; return nil })
		following <- err
	}()
	<-busy
	if err := g.creds.Rotate("a1", "client"); err != nil {
		t.Fatal(err)
	}
	if err := g.server.Reload(); err != nil {
		t.Fatal(err)
	}
	check := func(what, holder string, err error) {
		t.Helper()
		if !Unaccepted(err) || errors.Is(err, ErrNoController) ||
			!strings.Contains(err.Error(), "no longer accepts the credentials of "+holder) {
			t.Errorf("%s: %v, want that the key of %s is not accepted any more", what, err, holder)
		}
	}
	check("heartbeats", "agent a1", <-beating)
	check("a client that follows a run", "the client", <-following)
	arrival := Arrival{Ref: Ref{Run: "r1", Task: "t1", Attempt: "y"}, Agent: "a1", Step: StepOpen}
	check("a report of an agent", "agent a1", reports.Arrive(ctx, arrival))
	for !idle.connection().Closed() && Wait(ctx, retryWait) == nil {
	}
	_, err = idle.Read(ctx, RecordQuery{Run: "r1", Wait: true}, func(Entry) error { return nil }) // it connects again
	check("a client whose connection was closed", "the client", err)
}

// TestALostLinkComesBackWithoutTheKeyFile proves that an agent needs the key file only at its start.
func TestALostLinkComesBackWithoutTheKeyFile(t *testing.T) {
	g := guardPlane(t)
	c := g.dial(t, "a1")
	if err := os.Remove(g.auth("a1").Creds); err != nil {
		t.Fatal(err)
	}
	if err := c.nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Relinked():
	case <-time.After(hang):
		t.Error("the link did not come back")
	}
}

// TestALinkThatCannotBeRestoredIsLoggedOnce proves that the reason is not logged for each attempt.
func TestALinkThatCannotBeRestoredIsLoggedOnce(t *testing.T) {
	g := guardPlane(t)
	c := g.dial(t, "a1")
	log := &logged{}
	c.LogTo(slog.New(log))
	if err := g.creds.Remove("a1"); err != nil {
		t.Fatal(err)
	}
	if err := g.server.Reload(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	for !c.Closed() && Wait(ctx, retryWait) == nil {
	}
	want := []string{"WARN connection to the control plane lost; reconnecting",
		"WARN error on the connection to the control plane"}
	if got := log.await(t, 2); !slices.Equal(got, want) {
		t.Errorf("logged is %q, want %q", got, want)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	g := guardPlane(t)
	dir := filepath.Join(t.TempDir(), "other")
	_, err := keys.Make(dir, "/", []string{"x"}, false)
	if err != nil {
		t.Fatal(err)
	}
	known := g.auth("client")
	for what, auth := range map[string]Auth{
		"nobody":                   {CA: known.CA},
		"a key of another fleet":   {CA: known.CA, Creds: filepath.Join(dir, "controller.nk")},
		"a user and password":      {CA: known.CA, User: "controller", Password: "x"},
		"a token":                  {CA: known.CA, Token: "x"},
		"another authority's cert": {CA: filepath.Join(dir, "ca.crt"), Creds: known.Creds},
		"no authority":             {Creds: known.Creds},
	} {
		if c, err := Dial(t.Context(), g.url, auth); err == nil {
			c.Close()
			t.Errorf("%s: connected", what)
		}
	}
	// Without TLS the server accepts no connection.
	if c, err := Dial(t.Context(), strings.Replace(g.url, "tls://", "nats://", 1),
		Auth{Creds: known.Creds}); err == nil {
		c.Close()
		t.Error("connected without the authority")
	}
}

func TestCredentialsAreTheirOwnersAlone(t *testing.T) {
	g := guardPlane(t)
	n := 0
	err := filepath.WalkDir(g.dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v: others can read it", path, info.Mode())
		}
		if !e.IsDir() {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n != 11 { // two certificates and keys, a list, a configuration, five users
		t.Errorf("%d files: want 11", n)
	}
	if _, err := keys.Make(g.dir, g.dir, nil, false); err == nil {
		t.Error("credentials were made over others")
	}
}

// TestCredentialsOfAnAgentReachItsSlotsAlone covers another agent whose name is that of a slot.
func TestCredentialsOfAnAgentReachItsSlotsAlone(t *testing.T) {
	g := guardPlane(t)
	if err := g.creds.AddAgents(2, "s"); err != nil {
		t.Fatal(err)
	}
	if err := g.creds.AddAgents(1, "s.3"); err != nil {
		t.Fatal(err)
	}
	if err := g.creds.Rotate("s"); err != nil { // keeps them
		t.Fatal(err)
	}
	for _, x := range []struct {
		slots int
		name  string
	}{{1, "s.2"}, {3, "s"}, {0, "x"}, {keys.MaxSlots + 1, "x"}} {
		if err := g.creds.AddAgents(x.slots, x.name); err == nil {
			t.Errorf("%d slots of %s were added", x.slots, x.name)
		}
	}
	if err := g.creds.Remove("s.3"); err != nil {
		t.Fatal(err)
	}
	if err := g.creds.AddAgents(3, "s"); err == nil {
		t.Error("an agent was added twice")
	}
	if err := g.creds.AddAgents(1, "s.3"); err != nil {
		t.Fatal(err)
	}
	if err := g.server.Reload(); err != nil {
		t.Fatal(err)
	}
	controller := storeOf(t, g.server)
	lead := recorder(t, controller, "r1")
	takeReports(t, lead.leader, nil)
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	agent := NewAgent(g.dial(t, "s"))
	for _, name := range []string{"s", "s.2"} {
		ref := Ref{Run: "r1", Task: "t1", Attempt: name}
		stop, err := agent.Commands(name, "i", func(Command) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		a := plan.Assignment{Agent: name, Task: plan.Task{Run: "r1", ID: "t1", Attempt: name}}
		if err = lead.leader.Command(ctx, name, Command{Instance: "i", Ref: ref, Assignment: &a}); err == nil {
			err = agent.Arrive(ctx, Arrival{Ref: ref, Agent: name, Step: StepOpen})
		}
		if err != nil {
			t.Errorf("slot %s: %v", name, err)
		}
	}
	nc, refused := g.hostile(t, "s")
	for _, name := range []string{"s.3", "s.22", "a1"} {
		for what, subject := range map[string]string{"beat": subject.Heartbeat(name), "arrive": subject.Arrive(name),
			"report": subject.Report(name)} {
			if err := nc.Publish(subject, nil); err != nil {
				t.Fatal(err)
			}
			mustRefuse(t, what+" as "+name, refused)
		}
	}
}

// An agent with credentials for another name, or for fewer slots, gets an error with the name that they are for.
func TestAnAgentLearnsThatItsCredentialsAreNotItsOwn(t *testing.T) {
	t.Parallel()
	g := guardPlane(t)
	for name, x := range map[string]struct {
		h    Heartbeat
		want []string
	}{
		"another name": {Heartbeat{Agent: "load-1", Process: "load-1", Slots: 1},
			[]string{"the credentials of agent load-1 are those of agent a1", "ctl fleet add DIR load-1"}},
		"fewer slots": {Heartbeat{Agent: "a1.2", Process: "a1", Slots: 4},
			[]string{"do not include a1.2", "--slots 4 DIR a1"}},
		"a slot of one": {Heartbeat{Agent: "load-1.2", Process: "load-1", Slots: 4}, []string{"those of agent a1"}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := NewAgent(g.dial(t, "a1")).SendHeartbeats(ctx, func() Heartbeat { return x.h }, nil)
		cancel()
		for _, want := range x.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*HeartbeatEvery)
	defer cancel()
	if err := NewAgent(g.dial(t, "a1")).SendHeartbeats(ctx,
		func() Heartbeat { return Heartbeat{Agent: "a1", Process: "a1", Slots: 1} }, nil); err != nil {
		t.Errorf("its own credentials: %v", err)
	}
}

// A controller with the key of a client or viewer ends at once, because waiting does not change its permissions.
func TestAControllerLearnsThatItsCredentialsAreOfAnotherRole(t *testing.T) {
	g := guardPlane(t)
	for _, name := range []string{"client", "viewer"} {
		err := NewStore(g.dial(t, name), StoreConfig{}).Prepare(t.Context())
		if !errors.Is(err, errNotAllowed) || !strings.Contains(err.Error(),
			"those of the "+name+"; pass --creds with the controller.nk") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
