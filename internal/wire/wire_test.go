package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire/lease"
	"example.org/lockstep/lockstep/internal/wire/subject"
	"example.org/lockstep/lockstep/test/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(wiretest.Background)) }

// hang is the time limit of waits: it ends a test that hangs.
const hang = 2 * time.Minute

// plane starts a control plane with its streams, until the end of the test.
func plane(t testing.TB, cfg ServerConfig) *Server {
	t.Helper()
	s, err := Embedded(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := storeOf(t, s).Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func link(t testing.TB, s *Server) *Conn {
	t.Helper()
	c, err := s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// storeOf returns a store with a new connection.
func storeOf(t testing.TB, s *Server) *Store { return NewStore(link(t, s), StoreConfig{}) }

// knownEpoch returns the highest epoch that an agent has received.
func knownEpoch(a *Agent) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.epoch
}

// leaderOf returns a leader whose lease is not renewed.
func leaderOf(ctx context.Context, store *Store, epoch uint64) *Leader {
	return &Leader{store: store, conn: store.conn, who: lease.Holder{Epoch: epoch}, ctx: ctx}
}

// TestAStreamThatIsBeingMadeIsWaitedFor covers a server that is creating a stream: it stores messages before it finds
// the stream by name.
func TestAStreamThatIsBeingMadeIsWaitedFor(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s, err := Embedded(t.Context(), ServerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		c, asked := storeOf(t, s), make(chan error, 1)
		started := make(chan struct{})
		go func() {
			close(started)
			_, err := c.lastMessage(t.Context(), subject.QueueStream, subject.Submit("r"))
			asked <- err
		}()
		<-started
		time.Sleep(retryWait) // long enough for the error that there is no such stream
		if err := storeOf(t, s).Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-asked; err != nil {
			t.Errorf("the stream was made meanwhile: %v", err)
		}
	})
}

func TestTokensKeepNamesApart(t *testing.T) {
	for _, name := range []string{"", "a1", "bench-1.example.org", "a*b>c", "ü =.", "=", "=2e"} {
		word := subject.EncodeToken(name)
		if strings.ContainsAny(word, ".*> \t") {
			t.Errorf("token(%q) = %q would match or split subjects", name, word)
		}
		back, err := subject.DecodeToken(word)
		if err != nil || back != name {
			t.Errorf("untoken(token(%q)) = %q, %v: two names could share a subject", name, back, err)
		}
	}
	for _, word := range []string{"=2", "a=", "=zz"} {
		if name, err := subject.DecodeToken(word); err == nil {
			t.Errorf("untoken(%q) = %q without an error", word, name)
		}
	}
}

func TestEmbeddedOpensNoPort(t *testing.T) {
	s := plane(t, ServerConfig{})
	if s.URL() != "" {
		t.Errorf("URL is %q without Listen", s.URL())
	}
	if addr := s.ns.Addr(); addr != nil {
		t.Errorf("the embedded server listens on %v", addr)
	}
}

func TestListenNeedsCredentials(t *testing.T) {
	for _, cfg := range []ServerConfig{
		{Listen: "127.0.0.1:0"}, {Listen: "[::1]:0"}, {Listen: "localhost:0"},
		{Listen: "127.0.0.1:0", Auth: Auth{User: "u"}},
		{Listen: "0.0.0.0:0", Open: true}, {Listen: ":0", Open: true}, {Listen: "example.org:0", Open: true},
		{Listen: "0.0.0.0:0"}, {Listen: ":0"}, {Listen: "[::]:0"}, {Listen: "192.0.2.1:0"}, {Listen: "example.org:0"},
		{Listen: "0.0.0.0:0", Auth: Auth{User: "u"}},
	} {
		s, err := Embedded(t.Context(), cfg)
		if err == nil {
			s.Close()
			t.Errorf("listening on %q with %+v was not refused", cfg.Listen, cfg.Auth)
			continue
		}
		if !errors.Is(err, ErrOpen) {
			t.Errorf("listening on %q: %v is not ErrOpen", cfg.Listen, err)
		}
	}
}

func TestDialNeedsTheCredentials(t *testing.T) {
	s := plane(t, ServerConfig{Listen: "127.0.0.1:0", Auth: Auth{Token: "secret-token"}})
	if c, err := Dial(t.Context(), s.URL(), Auth{}); err == nil {
		c.Close()
		t.Error("connected without the token")
	}
	c, err := Dial(t.Context(), s.URL(), Auth{Token: "secret-token"})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, _, err := net.SplitHostPort(strings.TrimPrefix(s.URL(), "nats://")); err != nil ||
		!strings.Contains(s.URL(), "127.0.0.1") {
		t.Errorf("URL %q is not the loopback address asked for", s.URL())
	}
}

func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := Embedded(t.Context(), ServerConfig{Listen: l.Addr().String(), Open: true})
	if err == nil {
		s.Close()
		t.Fatal("two servers share an address")
	}
	if !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("%v does not name the address", err)
	}
}

func TestHeartbeatsEndWithALeavingHeartbeat(t *testing.T) {
	s := plane(t, ServerConfig{})
	controller, agent := storeOf(t, s), NewAgent(link(t, s))
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	over := Ref{Run: "r", Task: "t", Attempt: "x"}
	told := make(chan Ref, 16)
	go func() { // a controller starts later
		ended <- agent.SendHeartbeats(ctx, func() Heartbeat { return Heartbeat{Agent: "a1", Attempt: over} },
			func(ref Ref, why error) {
				if !errors.Is(why, ErrNoAttempt) {
					t.Errorf("the attempt is to be ended: %v", why)
				}
				told <- ref
			})
	}()
	leader := campaign(t, controller, "test")
	var left atomic.Int32
	stop, err := leader.AnswerHeartbeats(func(h Heartbeat) (bool, error) {
		if h.Leaving {
			left.Add(1)
		}
		return h.Attempt == over, nil
	}, func(Heartbeat, string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if ref := <-told; ref != over || knownEpoch(agent) != leader.Epoch() {
		t.Errorf("the agent is to end %+v under epoch %d: want the attempt that no controller leads, and %d", ref,
			knownEpoch(agent), leader.Epoch())
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if left.Load() != 1 {
		t.Error("no leaving heartbeat: the controller would report the agent as lost")
	}
}

func TestARunOfTenThousandCellsFits(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := plane(t, ServerConfig{})
		leader := campaign(t, storeOf(t, s), "test")
		run := plan.Run{ID: "r", Repeat: 3}
		for i := range 10_000 {
			cell := plan.Cell{ID: fmt.Sprintf("%012x", uint64(i)*0x9e3779b97f4a7c15>>16), Index: i,
				Workload: plan.Default(), Broker: plan.Broker{Name: "b", Driver: "nats",
					Options: []byte(`{"url":"nats://u:p@127.0.0.1:4222"}`)}}
			run.Cells = append(run.Cells, cell)
		}
		serveClients(t, leader)
		if err := clientOf(t, s).Submit(t.Context(), Submission{Run: run}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		_ = leader.Queue(ctx, func(r Request) {
			if r.Err != nil || len(r.Submission.Run.Cells) != len(run.Cells) ||
				r.Submission.Run.Cells[9999].ID != run.Cells[9999].ID {
				t.Errorf("the run came back as %d cells, %v", len(r.Submission.Run.Cells), r.Err)
			}
			stop()
		}, func() {})
	})
}

func TestGracePeriodEndsAfterAFixedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		extended, cancel := WithGracePeriod(ctx, 10*time.Second)
		defer cancel()
		time.Sleep(time.Minute)
		if extended.Err() != nil {
			t.Error("it ended before the other did")
		}
		end()
		time.Sleep(9 * time.Second)
		if extended.Err() != nil {
			t.Error("it ended too early")
		}
		time.Sleep(2 * time.Second)
		if extended.Err() == nil {
			t.Error("it did not end: what waits with it could hang for ever")
		}
	})
}

func FuzzUntoken(f *testing.F) {
	f.Add("=2e")
	f.Fuzz(func(t *testing.T, word string) {
		if name, err := subject.DecodeToken(word); err == nil {
			if again, err := subject.DecodeToken(subject.EncodeToken(name)); err != nil || again != name {
				t.Errorf("%q: %q then %q, %v", word, name, again, err)
			}
		}
	})
}

// TestAListHasEveryRunThatChanges lists the states of runs while all of them are replaced.
func TestAListHasEveryRunThatChanges(t *testing.T) {
	s := plane(t, ServerConfig{})
	store := storeOf(t, s)
	kv, err := storeOf(t, s).js.KeyValue(t.Context(), subject.StateBucket)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"a", "b", "c"}
	replace := func() {
		for _, name := range names {
			state, _ := json.Marshal(RunState{Run: name})
			if _, err := kv.Put(t.Context(), keyRun(name), state); err != nil {
				t.Error(err)
			}
		}
	}
	replace()
	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				replace()
			}
		}
	})
	for range 100 {
		if all, err := store.Runs(t.Context()); err != nil || len(all) != len(names) {
			t.Errorf("the list has %d runs, want %d: %v", len(all), len(names), err)
		}
	}
	close(stop)
	writing.Wait()
}
