package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// takeReports stores snapshots as a leader does, until the test ends.
func takeReports(t testing.TB, c *Conn, store *SnapshotStore) {
	t.Helper()
	stop, err := c.AnswerReports(func(context.Context, Arrival) error { return nil },
		func(ctx context.Context, _ Ref, s record.Snapshot) error { return store.Store(ctx, s) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
}

// TestSnapshotsAreStoredInOrderAndOnce: several agents at a time, and every other snapshot is sent twice.
func TestSnapshotsAreStoredInOrderAndOnce(t *testing.T) {
	s := plane(t, ServerConfig{})
	c := link(t, s)
	r := recorder(t, c, "r")
	ref := Ref{Run: "r", Task: "t", Try: "x"}
	const agents, n = 20, 50
	var handed atomic.Int32
	store := r.Snapshots(t.Context(), ref, 1<<20, func(record.Snapshot) { handed.Add(1) })
	takeReports(t, c, store)
	queueRun(t, c, plan.Run{ID: "r"})
	serveClients(t, r.lease)
	client := clientOf(t, s)
	if err := r.Plan(t.Context(), plan.Run{ID: "r"}); err != nil {
		t.Fatal(err)
	}
	var sending sync.WaitGroup
	for a := range agents {
		agent := link(t, s).Agent()
		sending.Go(func() {
			for i := range n {
				for range 1 + i%2 {
					if err := agent.Snapshot(t.Context(), ref, record.Snapshot{Task: "t", Agent: fmt.Sprint("a.", a), Seq: uint64(i + 1)}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	sending.Wait()
	if handed.Load() != agents*n {
		t.Errorf("%d snapshots were handed on, of %d", handed.Load(), agents*n)
	}
	if err := r.Event(t.Context(), RunEvent{Kind: RunEnded, End: &End{Reason: EndDone, Submission: 1}}); err != nil {
		t.Fatal(err)
	}
	next, messages := map[string]uint64{}, map[uint64]bool{}
	_, err := client.Follow(t.Context(), "r", func(e Entry) error {
		if e.Snapshot == nil {
			return e.Err
		}
		messages[e.Seq] = true
		if next[e.Agent]++; e.Snapshot.Seq != next[e.Agent] || e.Ref != ref || e.Snapshot.Agent != e.Agent {
			t.Errorf("got snapshot %d of %+v %s, want %d: lost, repeated or out of order", e.Snapshot.Seq, e.Ref, e.Agent, next[e.Agent])
		}
		return nil
	})
	if err != nil || len(next) != agents || next["a.0"] != n {
		t.Errorf("the record has snapshots %v, %v: want %d of each of %d agents", next, err, n, agents)
	}
	if len(messages) >= agents*n {
		t.Errorf("%d snapshots are in %d messages: none were stored together", agents*n, len(messages))
	}
}

// TestAnAgentCannotStoreWithoutBound: neither more bytes than its attempt can need, nor a message that no server takes.
func TestAnAgentCannotStoreWithoutBound(t *testing.T) {
	s := plane(t, ServerConfig{})
	c, agent := link(t, s), link(t, s).Agent()
	r, ref := recorder(t, c, "r"), Ref{Run: "r", Task: "t", Try: "x"}
	takeReports(t, c, r.Snapshots(t.Context(), ref, 100_000, func(record.Snapshot) {}))
	large := record.Snapshot{Task: "t", Agent: "a1", Seq: 1, Events: []record.Event{{Detail: strings.Repeat("x", MaxMessage)}}}
	if err := agent.Snapshot(t.Context(), ref, large); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a snapshot of more than %d bytes: %v, want ErrTooLarge", MaxMessage, err)
	}
	for n := uint64(1); ; n++ {
		err := agent.Snapshot(t.Context(), ref, record.Snapshot{Task: "t", Agent: "a1", Seq: n, Clock: fill(30_000)})
		if err != nil && n == 4 && strings.Contains(err.Error(), "may store 100000") {
			break
		}
		if err != nil || n > 3 {
			t.Fatalf("snapshot %d: %v: want three stored, and the fourth refused", n, err)
		}
	}
	if err := agent.Snapshot(t.Context(), ref, record.Snapshot{Task: "t", Agent: "a2", Seq: 1}); err != nil {
		t.Errorf("another agent: %v", err)
	}
}

func TestOtherProtocolVersionIsRefusedReadably(t *testing.T) {
	s := plane(t, ServerConfig{})
	old, now := link(t, s), link(t, s)
	old.protocol = plan.Protocol + 1
	both := func(err error) bool {
		return err != nil && errors.Is(err, ErrProtocol) && strings.Contains(err.Error(), fmt.Sprint(plan.Protocol)) &&
			strings.Contains(err.Error(), fmt.Sprint(plan.Protocol+1))
	}

	refused := make(chan Heartbeat, 1)
	lease := campaign(t, now, "test")
	stop, err := lease.AnswerHeartbeats(func(Heartbeat) (bool, error) { t.Error("an agent of another version was let in"); return false, nil },
		func(h Heartbeat, why string) {
			if !strings.Contains(why, fmt.Sprint(plan.Protocol+1)) {
				t.Errorf("the controller is told %q", why)
			}
			select {
			case refused <- h:
			default:
			}
		})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := old.Agent().SendHeartbeats(ctx, func() Heartbeat { return Heartbeat{Agent: "a.1", Host: strings.Repeat("h", 1000)} }, nil); !both(err) {
		t.Errorf("the agent reads %v: it names not both versions", err)
	}
	if h := <-refused; h.Agent != "a.1" || h.Protocol != plan.Protocol+1 || len(h.Host) != MaxName {
		t.Errorf("refused is %+v", h)
	}

	leading := recorder(t, now, "r")
	serveClients(t, leading.lease)
	client := &Client{conn: old}
	for what, request := range map[string]func() error{
		"lists agents": func() error { _, err := client.Agents(ctx); return err },
		"submits":      func() error { return client.Submit(ctx, Submission{Run: plan.Run{ID: "s"}}) },
		"follows":      func() error { _, err := client.Follow(ctx, "r", func(Entry) error { return nil }); return err },
	} {
		if err := request(); !both(err) || !errors.Is(err, ErrProtocol) {
			t.Errorf("a client that %s reads %v: it names not both versions", what, err)
		}
	}

	refuses, err := old.Agent().Commands("a1", func(Command) error { t.Error("a command of another version was obeyed"); return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer refuses()
	if err := lease.Command(ctx, "a1", Command{Instance: "i", Release: &Release{Step: StepFinish}}); !both(err) {
		t.Errorf("the controller reads %v of the agent: it names not both versions", err)
	}
	queueRun(t, old, plan.Run{ID: "r"})
	queue, stopQueue := context.WithCancel(ctx)
	_ = now.Queue(queue, func(r Request) {
		if !both(r.Err) || r.Submission != nil {
			t.Errorf("the controller reads %+v", r)
		}
		stopQueue()
	})
}

func TestFollowGoesOnWhereItWas(t *testing.T) {
	s := plane(t, ServerConfig{})
	c := link(t, s)
	r := recorder(t, c, "r")
	store := r.Snapshots(t.Context(), Ref{Run: "r", Task: "t", Try: "x"}, 1<<20, func(record.Snapshot) {})
	put := func(i int) {
		t.Helper()
		if err := r.Event(t.Context(), RunEvent{Kind: TaskStarted, Task: "t", N: i}); err != nil {
			t.Fatal(err)
		}
		if err := store.Store(t.Context(), record.Snapshot{Task: "t", Agent: "a", Seq: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	queueRun(t, c, plan.Run{ID: "r"})
	const n = 12
	put(1)
	seen := 0
	end, err := c.Follow(t.Context(), "r", func(e Entry) error {
		if e.Event == nil || e.Event.Kind == RunEnded {
			return e.Err
		}
		if seen++; e.Event.N != seen {
			t.Errorf("event %d came as number %d: lost or repeated", e.Event.N, seen)
		}
		if err := c.Forget(t.Context(), Ref{Run: "r", Task: "t"}); err != nil {
			t.Fatal(err)
		}
		if seen == n/2 { // the server forgets who follows
			st, err := c.js.Stream(t.Context(), streamRecord)
			if err != nil {
				t.Fatal(err)
			}
			for name := range st.ConsumerNames(t.Context()).Name() {
				if err := st.DeleteConsumer(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
		}
		if seen < n {
			put(seen + 1)
			return nil
		}
		if err := r.Event(t.Context(), RunEvent{Kind: RunEnded, End: &End{Reason: EndDone, Ran: 99}}); err != nil { // of an earlier submission
			t.Fatal(err)
		}
		return r.Event(t.Context(), RunEvent{Kind: RunEnded, End: &End{Reason: EndDone, Ran: n, Submission: 1}})
	})
	if err != nil || seen != n || end.Ran != n {
		t.Errorf("saw %d events of %d and the end %+v, %v", seen, n, end, err)
	}
}

func TestHostileMessagesAreErrors(t *testing.T) {
	s := plane(t, ServerConfig{})
	c := link(t, s)
	bodies := []string{"", "null", "[]", "{}", "{", strings.Repeat("[", 100000), `{"windows":[{"hists":["AAAA"]}]}`, `{"seq":-1}`, "\x1f\x8b\x08\x00",
		`{"agent":"other"}`, `{"sets":[{"pages":[{"index":18446744073709551615}]}]}`}
	subjects := []string{subjectPlan("r"), subjectEvent("r"), subjectOutcome("r", "t"), "lockstep.record.r", "lockstep.record.r.odd", "lockstep.record.r.snapshot",
		subjectSnapshots(Ref{"r", "t", "x"}), "lockstep.record.r.snapshot.=.=.=z", "lockstep.record.r.snapshot.a.b.c.d.e"}
	for _, subject := range subjects {
		for _, body := range bodies {
			m := nats.NewMsg(subject)
			m.Header.Set(headerProtocol, fmt.Sprint(plan.Protocol))
			m.Data = []byte(body)
			if _, err := c.js.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := len(subjects) * len(bodies)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got := 0
	_ = c.follow(ctx, streamRecord, nil, func(m jetstream.Msg, seq uint64) bool {
		for _, e := range c.entries(messageOf(m, seq)) {
			empty := strings.Contains(m.Subject(), ".snapshot") && (string(m.Data()) == "[]" || string(m.Data()) == "null") // no snapshots
			if e.Err == nil && e.Snapshot == nil && e.Event == nil && e.Outcome == nil && e.Plan == nil && !empty {
				t.Errorf("%s %.40q: neither a message nor an error", m.Subject(), m.Data())
			}
			if e.Snapshot != nil && e.Snapshot.Agent != e.Agent {
				t.Errorf("%s %.40q: taken for agent %q", m.Subject(), m.Data(), e.Agent)
			}
		}
		got++
		return got < want
	})
	if got != want {
		t.Errorf("followed %d messages of %d", got, want)
	}
}
