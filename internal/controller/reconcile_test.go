package controller

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// TestALostAssignmentIsNoticed: an agent that lives and says that it does nothing would be waited for until the step's limit.
func TestALostAssignmentIsNoticed(t *testing.T) {
	ref, other := wire.Ref{Run: "r", Task: "t", Try: "2"}, wire.Ref{Run: "r", Task: "t", Try: "1"}
	for name, x := range map[string]struct {
		says     func(second int) wire.Ref
		protocol int
		lost     bool
	}{
		"it does nothing":                  {func(int) wire.Ref { return wire.Ref{} }, 3, true},
		"it works on it":                   {func(int) wire.Ref { return ref }, 3, false},
		"it ends the task before":          {func(int) wire.Ref { return other }, 3, false},
		"its assignment is a little late":  {func(s int) wire.Ref { return map[bool]wire.Ref{true: ref}[s > 10] }, 3, false},
		"it loses it while the load runs":  {func(s int) wire.Ref { return map[bool]wire.Ref{true: ref}[s < 3] }, 3, true},
		"it does not say what it works on": {func(int) wire.Ref { return wire.Ref{} }, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(slog.New(slog.DiscardHandler), func() bool { return true })
			defer f.close()
			beat := wire.Heartbeat{Agent: "a1", Instance: "i", Protocol: x.protocol}
			f.heard(beat)
			a := f.list()[0]
			f.expect(a, ref)
			c := &conduct{execution: &execution{leader: &leader{agents: f}}, ref: ref,
				parts: []*part{{agent: a, AgentPart: plan.AgentPart{Agent: "a1"}, at: map[wire.Step]bool{}}}}
			told := f.watch()
			for second := range 20 {
				time.Sleep(time.Second)
				beat.Try = x.says(second)
				f.heard(beat)
			}
			c.lookForIdle()
			err := c.trouble()
			if (err != nil) != x.lost {
				t.Errorf("%s: %v", name, err)
			}
			if !x.lost {
				return
			}
			if !strings.Contains(err.Error(), "assignment was lost") || err.(*failure).kind != plan.FailedConnect {
				t.Errorf("%s: %v", name, err)
			}
			select {
			case <-told:
			default:
				t.Errorf("%s: nobody who waits is woken", name)
			}
		})
	}
}

// What is read again after a takeover, and what a former process left to say, are no signs of life.
func TestWhatWasSaidLongAgoIsNoSignOfLife(t *testing.T) {
	server, err := wire.Embedded(t.Context(), wire.ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	conn, err := server.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if err := conn.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	lease, err := conn.Campaign(t.Context(), wire.LeaderInfo{Name: "c", Instance: "i"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Resign(t.Context())
	r, err := lease.TakeUp(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(slog.New(slog.DiscardHandler), func() bool { return true })
	defer f.close()
	f.heard(wire.Heartbeat{Agent: "a", Instance: "new"})
	ref := wire.Ref{Run: "r", Task: "t", Try: "x"}
	for name, x := range map[string]struct {
		instance string
		seq      uint64
		alive    bool
	}{
		"read again":          {"new", r.Since() - 1, false},
		"of a former process": {"old", r.Since() + 1, false},
		"of this one":         {"new", r.Since() + 1, true},
	} {
		a := wire.AgentInfo{Heartbeat: wire.Heartbeat{Agent: "a", Instance: x.instance}}
		c := &conduct{execution: &execution{leader: &leader{agents: f}, record: r}, ref: ref, byName: map[string]*part{"a": {agent: a, at: map[wire.Step]bool{}}}}
		before := f.find("a").Seen
		time.Sleep(time.Millisecond)
		c.take(wire.Entry{Ref: ref, Agent: "a", Seq: x.seq, Arrival: &wire.Arrival{Ref: ref, Agent: "a", Step: wire.StepOpen}})
		if moved := f.find("a").Seen.After(before); moved != x.alive {
			t.Errorf("%s: a sign of life is %v, want %v", name, moved, x.alive)
		}
	}
}
