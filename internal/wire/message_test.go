package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire/subject"
	"example.org/lockstep/lockstep/test/wiretest"
)

// takeReports stores snapshots like a leader, until the end of the test.
func takeReports(t testing.TB, leader *Leader, store *SnapshotStore) {
	t.Helper()
	stop, err := leader.AnswerReports(func(context.Context, Arrival) error { return nil },
		func(ctx context.Context, _ Ref, s record.Snapshot) error { return store.Store(ctx, s) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
}

// bytesPerAgent returns the same limit for all agents.
func bytesPerAgent(n int) func(string) int { return func(string) int { return n } }

// After a power cut, an event may wait for snapshots that are missing, or whose numbers later snapshots have. Readers
// get everything that is left, and the snapshots before an event before it.
func TestStreamsThatWaitForLostMessages(t *testing.T) {
	for _, lost := range []uint64{2, 100} {
		s := plane(t, ServerConfig{Shared: true})
		c := storeOf(t, s)
		r := recorder(t, c, "r")
		queueRun(t, c, plan.Run{ID: "r"})
		serveClients(t, r.leader)
		store := r.Snapshots(t.Context(), Ref{Run: "r", Task: "t", Attempt: "x"}, bytesPerAgent(1<<20),
			func(record.Snapshot) error { return nil })
		if err := r.Plan(t.Context(), plan.Run{ID: "r"}); err != nil {
			t.Fatal(err)
		}
		// lose makes the next event wait for snapshots that do not exist.
		lose := func(e RunEvent) {
			last := r.snapshots.last.Load()
			r.snapshots.last.Store(last + lost)
			if err := r.Event(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			r.snapshots.last.Store(last)
		}
		lose(RunEvent{Kind: RunAccepted})
		for seq := range uint64(3) {
			if err := store.Store(t.Context(), record.Snapshot{Task: "t", Agent: "a", Seq: seq + 1}); err != nil {
				t.Fatal(err)
			}
		}
		lose(RunEvent{Kind: RunEnded, End: &End{Reason: EndDone, Submission: submission(t, c, "r")}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		events, snapshots := 0, 0
		if _, err := clientOf(t, s).Read(ctx, RecordQuery{Run: "r", Wait: true}, func(e Entry) error {
			events, snapshots = events+btoi(e.Event != nil), snapshots+btoi(e.Snapshot != nil)
			return nil
		}); err != nil || events != 2 || snapshots != 3 {
			t.Errorf("%d lost: got %d events, %d snapshots, error %v, want 2, 3", lost, events, snapshots, err)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestSnapshotsAreStoredInOrderAndOnce covers several concurrent agents that send every other snapshot twice.
func TestSnapshotsAreStoredInOrderAndOnce(t *testing.T) {
	s := plane(t, ServerConfig{})
	c := storeOf(t, s)
	r := recorder(t, c, "r")
	ref := Ref{Run: "r", Task: "t", Attempt: "x"}
	const agents, n = 20, 50
	var handed atomic.Int32
	store := r.Snapshots(t.Context(), ref, bytesPerAgent(1<<20), func(record.Snapshot) error { handed.Add(1); return nil })
	takeReports(t, r.leader, store)
	queueRun(t, c, plan.Run{ID: "r"})
	serveClients(t, r.leader)
	client := clientOf(t, s)
	if err := r.Plan(t.Context(), plan.Run{ID: "r"}); err != nil {
		t.Fatal(err)
	}
	var sending sync.WaitGroup
	for a := range agents {
		agent := NewAgent(link(t, s))
		sending.Go(func() {
			for i := range n {
				for range 1 + i%2 {
					if err := agent.Snapshot(t.Context(), ref,
						record.Snapshot{Task: "t", Agent: fmt.Sprint("a.", a), Seq: uint64(i + 1)}); err != nil {
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
	if err := r.Event(t.Context(), RunEvent{Kind: RunEnded,
		End: &End{Reason: EndDone, Submission: submission(t, c, "r")}}); err != nil {
		t.Fatal(err)
	}
	next, messages := map[string]uint64{}, map[uint64]bool{}
	_, err := client.Read(t.Context(), RecordQuery{Run: "r", Wait: true}, func(e Entry) error {
		if e.Snapshot == nil {
			return e.Err
		}
		messages[e.At.Snapshots] = true
		if next[e.Agent]++; e.Snapshot.Seq != next[e.Agent] || e.Ref != ref || e.Snapshot.Agent != e.Agent {
			t.Errorf("got snapshot %d of %+v %s, want %d: lost, repeated or out of order", e.Snapshot.Seq, e.Ref,
				e.Agent, next[e.Agent])
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

// TestAnAgentCannotStoreWithoutBound proves that an agent can store neither more bytes than an attempt can need, nor a
// message beyond the server's limit.
func TestAnAgentCannotStoreWithoutBound(t *testing.T) {
	s := plane(t, ServerConfig{})
	c, agent := storeOf(t, s), NewAgent(link(t, s))
	r, ref := recorder(t, c, "r"), Ref{Run: "r", Task: "t", Attempt: "x"}
	takeReports(t, r.leader, r.Snapshots(t.Context(), ref, bytesPerAgent(100_000), func(record.Snapshot) error { return nil }))
	large := record.Snapshot{Task: "t", Agent: "a1", Seq: 1,
		Events: []record.Event{{Detail: strings.Repeat("x", MaxMessage)}}}
	if err := agent.Snapshot(t.Context(), ref, large); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a snapshot of more than %d bytes: %v, want ErrTooLarge", MaxMessage, err)
	}
	for n := uint64(1); ; n++ {
		err := agent.Snapshot(t.Context(), ref, record.Snapshot{Task: "t", Agent: "a1", Seq: n, Clock: fill(30_000)})
		if err != nil && n == 4 && strings.Contains(err.Error(), "the limit is 100000") {
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
	old, now := link(t, s), storeOf(t, s)
	old.codec.protocol = plan.Protocol + 1
	both := func(err error) bool {
		return err != nil && errors.Is(err, ErrProtocol) && strings.Contains(err.Error(), fmt.Sprint(plan.Protocol)) &&
			strings.Contains(err.Error(), fmt.Sprint(plan.Protocol+1))
	}

	refused := make(chan Heartbeat, 1)
	leader := campaign(t, now, "test")
	stop, err := leader.AnswerHeartbeats(func(Heartbeat) (bool,
		error) {
		t.Error("an agent of another version was let in")
		return false, nil
	},
		func(h Heartbeat, why string) {
			if !strings.Contains(why, fmt.Sprint(plan.Protocol+1)) {
				t.Errorf("the controller received the reason %q", why)
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
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	if err := NewAgent(old).SendHeartbeats(ctx, func() Heartbeat {
		return Heartbeat{Agent: "a.1",
			Host: strings.Repeat("h", 1000)}
	}, nil); !both(err) {
		t.Errorf("the agent reads %v: it names not both versions", err)
	}
	if h := <-refused; h.Agent != "a.1" || h.Protocol != plan.Protocol+1 || len(h.Host) != MaxName {
		t.Errorf("refused is %+v", h)
	}

	leading := recorder(t, now, "r")
	serveClients(t, leading.leader)
	client := &Client{conn: old}
	for what, request := range map[string]func() error{
		"lists agents": func() error { _, err := client.Agents(ctx); return err },
		"submits":      func() error { return client.Submit(ctx, Submission{Run: plan.Run{ID: "s"}}) },
		"follows": func() error {
			_, err := client.Read(ctx, RecordQuery{Run: "r", Wait: true},
				func(Entry) error { return nil })
			return err
		},
	} {
		if err := request(); !both(err) || !errors.Is(err, ErrProtocol) {
			t.Errorf("a client that %s reads %v: it names not both versions", what, err)
		}
	}

	refuses, err := NewAgent(old).Commands("a1", "",
		func(Command) error { t.Error("a command of another version was obeyed"); return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer refuses()
	if err := leader.Command(ctx, "a1", Command{Instance: "i", Release: &Release{Step: StepFinish}}); !both(err) {
		t.Errorf("the controller reads %v of the agent: it names not both versions", err)
	}
}

// TestRecordsHaveAFormatOfTheirOwn stores a submission and a plan in several formats, by programs with several protocol
// numbers.
func TestRecordsHaveAFormatOfTheirOwn(t *testing.T) {
	s := plane(t, ServerConfig{Shared: true})
	c := storeOf(t, s)
	other, leader := storeOf(t, s), campaign(t, c, "test")
	other.conn.codec.protocol++
	for name, x := range map[string]struct {
		by     *Store
		format int
	}{"other protocol": {other, plan.RecordFormat}, "newer": {c, plan.RecordFormat + 1},
		"older": {c, plan.RecordFormat - 1}} {
		check := func(what string, err error) {
			t.Helper()
			names := err != nil && errors.Is(err, ErrProtocol) &&
				strings.Contains(err.Error(), fmt.Sprintf("format %d: this program reads format %d", x.format,
					plan.RecordFormat))
			if x.format == plan.RecordFormat && err != nil || x.format != plan.RecordFormat && !names {
				t.Errorf("%s: %s of format %d: %v", name, what, x.format, err)
			}
		}
		queued, e1 := pack(Submission{Run: plan.Run{ID: name}})
		recorded, e2 := pack(plan.Run{ID: name})
		submission, e3 := x.by.conn.codec.encode(subject.Submit(name), queued)
		run, e4 := x.by.conn.codec.encode(subject.Plan(name), recorded)
		if err := errors.Join(e1, e2, e3, e4); err != nil {
			t.Fatal(err)
		}
		if _, err := leader.Acquire(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		for _, m := range []*nats.Msg{submission, run} {
			if m.Header.Get(headerFormat) != strconv.Itoa(plan.RecordFormat) || m.Header.Get(headerProtocol) != "" {
				t.Errorf("%s has the headers %v: want the format of records, and no protocol", m.Subject, m.Header)
			}
			m.Header.Set(headerFormat, strconv.Itoa(x.format))
			if _, err := c.js.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		_ = leader.Queue(ctx, func(r Request) {
			if r.Run == name {
				check("a submission", r.Err)
				stop()
			}
		}, func() {})
		if _, err := c.Read(t.Context(), RecordQuery{Run: name},
			func(e Entry) error { check("a plan", e.Err); return nil }); err != nil {
			t.Error(err)
		}
	}
}

func TestFollowGoesOnWhereItWas(t *testing.T) {
	s := plane(t, ServerConfig{})
	c := storeOf(t, s)
	r := recorder(t, c, "r")
	store := r.Snapshots(t.Context(), Ref{Run: "r", Task: "t", Attempt: "x"}, bytesPerAgent(1<<20), func(record.Snapshot) error { return nil })
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
	serveClients(t, r.leader)
	client := clientOf(t, s)
	const n = 12
	put(1)
	seen := 0
	end, err := client.Read(t.Context(), RecordQuery{Run: "r", Wait: true}, func(e Entry) error {
		if e.Event == nil || e.Event.Kind == RunEnded {
			return e.Err
		}
		if seen++; e.Event.N != seen {
			t.Errorf("event %d came as number %d: lost or repeated", e.Event.N, seen)
		}
		kept, err := wiretest.Stored(t.Context(), c.js)
		if n := kept[subject.AttemptSnapshots("r", "t", "x")]; err != nil || n > 1 {
			t.Errorf("%d snapshots are stored, %v: want those alone that the follower of a local run has not handled",
				n, err)
		}
		if seen < n {
			put(seen + 1)
			return nil
		}
		// of an earlier submission
		if err := r.Event(t.Context(), RunEvent{Kind: RunEnded, End: &End{Reason: EndDone, Ran: 99}}); err != nil {
			t.Fatal(err)
		}
		return r.Event(t.Context(), RunEvent{Kind: RunEnded,
			End: &End{Reason: EndDone, Ran: n, Submission: submission(t, c, "r")}})
	})
	if err != nil || seen != n || end.Ran != n {
		t.Errorf("saw %d events of %d and the end %+v, %v", seen, n, end, err)
	}
}

func TestHostileMessagesAreErrors(t *testing.T) {
	s := plane(t, ServerConfig{})
	c := storeOf(t, s)
	bodies := []string{"", "null", "[]", "{}", "{", strings.Repeat("[", 100000), `{"windows":[{"hists":["AAAA"]}]}`,
		`{"seq":-1}`, "\x1f\x8b\x08\x00",
		`{"agent":"other"}`, `{"sets":[{"pages":[{"index":18446744073709551615}]}]}`}
	recorder(t, c, "r")
	subjects := []string{subject.Plan("r"), subject.Event("r"), subject.Outcome("r", "t"), subject.Events + "r.odd",
		subject.Snapshots + "r.snapshot",
		subject.AttemptSnapshots("r", "t", "x"), subject.Snapshots + "r.snapshot.=.=.=z",
		subject.Snapshots + "r.snapshot.a.b.c.d.e"}
	for _, subject := range subjects {
		for _, body := range bodies {
			m := nats.NewMsg(subject)
			m.Header.Set(headerFormat, fmt.Sprint(plan.RecordFormat))
			m.Data = []byte(body)
			if _, err := c.js.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, q, more := 0, RecordQuery{Run: "r"}, true
	for more {
		b, err := recordReader{store: c}.read(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		more = b.More
		for _, m := range b.Messages {
			q.Behind = q.Behind.behind(m)
			got++
			for _, e := range entriesOf(c.conn, m) {
				// no snapshots
				empty := strings.HasPrefix(m.Subject, subject.Snapshots) &&
					(string(m.Body) == "[]" || string(m.Body) == "null")
				if e.Err == nil && e.Snapshot == nil && e.Event == nil && e.Outcome == nil && e.Plan == nil && !empty {
					t.Errorf("%s %.40q: neither a message nor an error", m.Subject, m.Body)
				}
				if e.Snapshot != nil && e.Snapshot.Agent != e.Agent {
					t.Errorf("%s %.40q: taken for agent %q", m.Subject, m.Body, e.Agent)
				}
			}
		}
	}
	if want := len(subjects) * len(bodies); got != want {
		t.Errorf("read %d messages of %d", got, want)
	}
}

// An invalid snapshot of one agent does not affect those of other agents in the same message.
func TestAnInvalidSnapshotAffectsNoOther(t *testing.T) {
	m := stored{Subject: subject.AttemptSnapshots("r", "t", "x"), Header: nats.Header{},
		Body: []byte(`[{"agent":"a","seq":1,"task":"t"},{"agent":"b","seq":1,"task":"t","windows":[` +
			strings.Repeat("{},", 20000) + `{}]},{"agent":"c","seq":2,"task":"t"},{"agent":"d","seq":1,"task":"other"}]`)}
	m.Header.Set(headerFormat, fmt.Sprint(plan.RecordFormat))
	var got []string
	for _, e := range entriesOf(storeOf(t, plane(t, ServerConfig{})).conn, m) {
		if (e.Snapshot == nil) == (e.Err == nil) {
			t.Errorf("agent %q: got snapshot %v, error %v, want one of them", e.Agent, e.Snapshot, e.Err)
		}
		if e.Snapshot != nil {
			got = append(got, e.Agent)
		}
	}
	if want := []string{"a", "c"}; !slices.Equal(got, want) {
		t.Errorf("agents of the snapshots: got %q, want %q", got, want)
	}
}

// TestAFormerLeadersAnswerIsNotTaken covers a former leader that has not noticed its end, and does not have the
// attempts of the new one.
func TestAFormerLeadersAnswerIsNotTaken(t *testing.T) {
	s := plane(t, ServerConfig{})
	agent, next := NewAgent(link(t, s)), campaign(t, storeOf(t, s), "next")
	previous := leaderOf(t.Context(), storeOf(t, s), next.who.Epoch-1)
	none := func(context.Context, Ref, record.Snapshot) error { return ErrNoAttempt }
	stopHeartbeats, err := next.AnswerHeartbeats(func(Heartbeat) (bool, error) { return false, nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.heartbeat(t.Context(), Heartbeat{Agent: "a1"}); err != nil ||
		knownEpoch(agent) != next.Epoch() {
		t.Fatalf("%v: it has epoch %d, want %d", err, knownEpoch(agent), next.Epoch())
	}
	stopHeartbeats()
	var asked atomic.Int32
	stopPrevious, err := previous.AnswerReports(
		func(context.Context, Arrival) error { asked.Add(1); return ErrNoAttempt }, none)
	if err != nil {
		t.Fatal(err)
	}
	defer stopPrevious()
	ended := make(chan error, 1)
	go func() { ended <- agent.Arrive(t.Context(), Arrival{Agent: "a1", Step: StepOpen}) }()
	for asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	stopNext, err := next.AnswerReports(func(context.Context, Arrival) error { return nil }, none)
	if err != nil {
		t.Fatal(err)
	}
	defer stopNext()
	if err := <-ended; err != nil {
		t.Errorf("the agent took the answer of a former leader: %v", err)
	}
}

// TestAnotherProcessOfTheNameAnswersNoCommand proves that only the addressed process responds. Otherwise the command
// would never be repeated for it.
func TestAnotherProcessOfTheNameAnswersNoCommand(t *testing.T) {
	s := plane(t, ServerConfig{})
	leader := campaign(t, storeOf(t, s), "test")
	var got atomic.Int32
	for _, instance := range []string{"other", "i"} {
		stop, err := NewAgent(link(t, s)).Commands("a1", instance, func(c Command) error {
			if c.Instance != instance {
				t.Errorf("process %s was handed a command for %s", instance, c.Instance)
			}
			got.Add(1)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	if err := leader.Command(t.Context(), "a1", Command{Instance: "i",
		Release: &Release{Step: StepStart}}); err != nil || got.Load() == 0 {
		t.Errorf("%v, handed over %d times", err, got.Load())
	}
}

// TestCommandsAreHandledInOrder proves that a delayed assignment does not replace a later one.
func TestCommandsAreHandledInOrder(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := plane(t, ServerConfig{})
		sender := link(t, s)
		got := make(chan Step, 2)
		stop, err := NewAgent(link(t, s)).Commands("a1", "i", func(c Command) error {
			if c.Release.Step == StepConsumers {
				time.Sleep(100 * time.Millisecond) // the other one would overtake it
			}
			got <- c.Release.Step
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		for _, step := range []Step{StepConsumers, StepPublishers} {
			m, err := sender.codec.encode(subject.Command("a1"),
				Command{Epoch: 1, Instance: "i", Release: &Release{Step: step}})
			if err != nil {
				t.Fatal(err)
			}
			m.Reply = nats.NewInbox()
			if err := sender.nc.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		if first, second := <-got, <-got; first != StepConsumers {
			t.Errorf("%s was handled before %s", first, second)
		}
	})
}

// TestRequestsOfAgentsAreBounded proves that large requests wait for each other, for any number of agents.
func TestRequestsOfAgentsAreBounded(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := plane(t, ServerConfig{})
		leader, nc := campaign(t, storeOf(t, s), "test"), link(t, s)
		var now atomic.Int64
		held := make(chan struct{})
		stop, err := leader.AnswerReports(func(_ context.Context, a Arrival) error {
			if len(a.Error) > maxError {
				t.Errorf("an error of %d bytes", len(a.Error))
			}
			return nil
		}, func(_ context.Context, _ Ref, s record.Snapshot) error {
			now.Add(1)
			<-held
			now.Add(-1)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var sent sync.WaitGroup
		const large = 3 << 20
		for i := range 6 { // more would not wait
			name := fmt.Sprint("a", i)
			sent.Go(func() {
				_, err := request[snapshotReport, struct{}](ctx, nc, nil, subject.Report(name),
					snapshotReport{Ref{Task: "t"}, record.Snapshot{Task: "t", Agent: name, Clock: fill(large)}})
				if err != nil {
					t.Error(err)
				}
			})
		}
		const together = maxBytes / (decodedSize * large)
		time.Sleep(time.Second) // all requests are handled or wait
		if now.Load() != together {
			t.Errorf("%d requests of %d bytes are handled at a time: want %d", now.Load(), large, together)
		}
		close(held)
		sent.Wait()
		_, err = request[Arrival, struct{}](ctx, nc, nil, subject.Arrive("a1"),
			Arrival{Agent: "a1", Step: StepOpen, Error: strings.Repeat("é", maxError)})
		if err != nil {
			t.Error(err)
		}
		_, err = request[Arrival, struct{}](ctx, nc, nil, subject.Arrive("a1"),
			Arrival{Agent: "a1", Step: StepOpen, Error: strings.Repeat("e", agentRequest)})
		if err == nil || !strings.Contains(err.Error(), "exceeds the limit of") {
			t.Errorf("an arrival of more than %d bytes: %v", agentRequest, err)
		}
	})
}
