package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

func TestEntriesComeInOrderAndOnlyOnce(t *testing.T) {
	s := plane(t, ServerConfig{})
	c, agent := link(t, s), link(t, s)
	ref := Ref{Run: "r", Task: "t", Try: "x"}
	const n = 50
	for i := range n {
		snap := record.Snapshot{Protocol: plan.Protocol, Task: "t", Agent: "a.1", Seq: uint64(i + 1)}
		for range 1 + i%2 { // every other one is sent twice, as after a lost answer
			if err := agent.Snapshot(t.Context(), "key", ref, snap); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := agent.Arrive(t.Context(), "key", Arrival{Ref: ref, Agent: "a.1", Step: StepFinish}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var next uint64 = 1
	_ = c.Watch(ctx, "r", 0, func(e Entry) {
		switch {
		case e.Err != nil:
			t.Error(e.Err)
		case e.Snapshot != nil:
			if e.Snapshot.Seq != next || e.Ref != ref || e.Agent != "a.1" {
				t.Errorf("got snapshot %d of %+v %s, want %d: lost, repeated or out of order", e.Snapshot.Seq, e.Ref, e.Agent, next)
			}
			next++
		case e.Arrival != nil:
			if next != n+1 {
				t.Errorf("the arrival came after %d of %d snapshots sent before it", next-1, n)
			}
			cancel()
		}
	})
	if next != n+1 {
		t.Errorf("%d snapshots came of %d", next-1, n)
	}
}

func TestTooLargeIsAnErrorThatCanBeActedOn(t *testing.T) {
	s := plane(t, ServerConfig{})
	c := link(t, s)
	snap := record.Snapshot{Task: "t", Agent: "a1", Seq: 1, Events: []record.Event{{Detail: strings.Repeat("x", MaxMessage)}}}
	err := c.Snapshot(t.Context(), "key", Ref{Run: "r", Task: "t", Try: "x"}, snap)
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("a snapshot of more than %d bytes: %v, want ErrTooLarge", MaxMessage, err)
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
	stop, err := now.Heartbeats(func(Heartbeat) string { t.Error("an agent of another version was let in"); return "" },
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
	if err := old.Pulse(ctx, func() Heartbeat { return Heartbeat{Agent: "a.1", Host: strings.Repeat("h", 1000)} }); !both(err) {
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

	if err := leading.Assign(ctx, "i", Assignment{Assignment: plan.Assignment{Agent: "a1", Task: plan.Task{Run: "r", ID: "t"}}, Try: "x"}); err != nil {
		t.Fatal(err)
	}
	_ = old.Assignments(ctx, "a1", "i", func(_ Assignment, ref Ref, err error) bool {
		if !both(err) || ref != (Ref{Run: "r", Task: "t", Try: "x"}) {
			t.Errorf("the agent got %v for %+v: it cannot tell the controller which assignment it refuses, and why", err, ref)
		}
		return false
	})
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
	put := func(i int) {
		t.Helper()
		if err := r.Event(t.Context(), RunEvent{Kind: TaskStarted, Task: "t", N: i}); err != nil {
			t.Fatal(err)
		}
		if err := c.Snapshot(t.Context(), "key", Ref{Run: "r", Task: "t", Try: "x"}, record.Snapshot{Task: "t", Agent: "a", Seq: uint64(i)}); err != nil {
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
		subjectArrival(Ref{"r", "t", "x"}, "a"), subjectSnapshot(Ref{"r", "t", "x"}, "a"), "lockstep.record.r.snapshot.=.=.=z", "lockstep.record.r.arrive.a.b.c.d.e"}
	for _, subject := range subjects {
		for _, body := range bodies {
			m := nats.NewMsg(subject)
			m.Header.Set(headerProtocol, fmt.Sprint(plan.Protocol))
			m.Header.Set(headerSubject, subject)
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
		e := c.entry(messageOf(m, seq))
		if e.Err == nil && e.Snapshot == nil && e.Arrival == nil && e.Event == nil && e.Outcome == nil && e.Plan == nil {
			t.Errorf("%s %.40q: neither a message nor an error", m.Subject(), m.Data())
		}
		if e.Snapshot != nil && e.Snapshot.Agent != e.Agent {
			t.Errorf("%s %.40q: taken for agent %q", m.Subject(), m.Data(), e.Agent)
		}
		got++
		return got < want
	})
	if got != want {
		t.Errorf("followed %d messages of %d", got, want)
	}
}
