package controller

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// TestAgentsOfATryThatNobodyLeadsAreReleased looks for a minute at one agent that says the same all the time.
func TestAgentsOfATryThatNobodyLeadsAreReleased(t *testing.T) {
	server, err := wire.Embedded(t.Context(), wire.ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	conn, err := server.Connect(t.Context())
	if err == nil {
		t.Cleanup(conn.Close)
		err = conn.Prepare(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	lease, err := conn.Campaign(t.Context(), wire.LeaderInfo{Name: "test", Instance: "i"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Resign(context.Background())

	const bare, whole = "finish done", "finish teardown:a1 done"
	for i, x := range []struct {
		name   string
		stands func(*charge, wire.Ref)
		queued bool
		want   string
	}{
		{"the try is led", func(c *charge, ref wire.Ref) { c.take(ref.Run); c.settle(ref.Run); c.lead(ref) }, true, ""},
		{"a former leader's may still be taken over", func(c *charge, ref wire.Ref) { c.take(ref.Run) }, true, ""},
		{"so may it while another is led", func(c *charge, ref wire.Ref) { c.take(ref.Run); c.lead(wire.Ref{Run: ref.Run, Task: "u", Try: "2"}) }, true, ""},
		{"its run waits", func(*charge, wire.Ref) {}, true, ""},
		{"the task is repeated", func(c *charge, ref wire.Ref) {
			c.take(ref.Run)
			c.settle(ref.Run)
			c.lead(wire.Ref{Run: ref.Run, Task: ref.Task, Try: "2"})
		}, true, bare},
		{"its run is taken up, with nothing in flight", func(c *charge, ref wire.Ref) { c.take(ref.Run); c.settle(ref.Run) }, true, bare},
		{"its run has ended", func(c *charge, ref wire.Ref) { c.take(ref.Run); c.settle(ref.Run); c.lead(ref); c.drop(ref.Run) }, false, whole},
		{"nobody knows its run", func(*charge, wire.Ref) {}, false, whole},
	} {
		t.Run(x.name, func(t *testing.T) {
			l := &leader{conn: conn, lease: lease, cfg: Config{Log: slog.New(slog.DiscardHandler)}}
			ref := wire.Ref{Run: fmt.Sprint("run", i), Task: "t", Try: "1"}
			if x.queued {
				if err := lease.SubmitOnce(t.Context(), wire.Submission{Run: plan.Run{ID: ref.Run}}); err != nil {
					t.Fatal(err)
				}
			}
			x.stands(&l.charge, ref)
			o, now := orphans{leader: l, known: map[wire.Ref]*orphan{}}, time.Now()
			busy := []wire.AgentInfo{{Heartbeat: wire.Heartbeat{Agent: "a0"}}, {Heartbeat: wire.Heartbeat{Agent: "a1", Try: ref}}}
			at := func(second int) string {
				o.look(t.Context(), busy, now.Add(time.Duration(second)*time.Second))
				return releasesOf(t, conn, ref)
			}
			if got := at(0) + at(2); got != "" {
				t.Errorf("told %q although it may just be ending", got)
			}
			at(3)
			at(4)
			if got := at(5); got != x.want {
				t.Fatalf("told %q after 5 s, want %q", got, x.want)
			}
			if got := at(20); got != x.want {
				t.Errorf("told %q after 20 s: that was said", got)
			}
			at(40)
			if got, want := at(43), strings.TrimSpace(x.want+" "+x.want); got != want {
				t.Errorf("told %q after 43 s, want %q", got, want)
			}
			busy = busy[:1]
			if got := at(44); got != "" || len(o.known) != 0 {
				t.Errorf("%q and %v are left of it", got, o.known)
			}
		})
	}
}

// releasesOf is what the agents of a try have been told.
func releasesOf(t *testing.T, conn *wire.Conn, ref wire.Ref) string {
	t.Helper()
	made, err := conn.Released(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, r := range made {
		word := string(r.Step)
		if r.Agent != "" {
			word += ":" + r.Agent
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}
