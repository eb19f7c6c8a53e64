package wire

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// In a cluster, other servers than the reader's own may serve it. If one of them fails, the reader continues, within 15
// s (checked with LOCKSTEP_LONG): the servers elect a leader within 9 s, and readers look for entries every 5 s.
func TestReadersGoOnWhenTheServerThatServesThemDies(t *testing.T) {
	t.Parallel()
	took := outlived(t)
	t.Log("readers have gone on after", took)
	if os.Getenv("LOCKSTEP_LONG") != "" && took > 15*time.Second {
		t.Errorf("readers went on after %v, want 15 s at most", took)
	}
}

// outlived returns the time for which readers are interrupted when a server that serves some of them fails.
func outlived(t *testing.T) time.Duration {
	t.Helper()
	servers, c := cluster(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := campaign(t, c, "one")
	defer l.Lease.Resign(t.Context())
	r, err := l.Acquire(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	const readers = 12
	got := make(chan string, 2*readers)
	for range readers {
		go c.Read(ctx, RecordQuery{Run: "r", Summary: true, Wait: true}, func(e Entry) error { //nolint:errcheck // its end is that of ctx
			got <- fmt.Sprint(e.Event.Detail, e.Err)
			return nil
		})
	}
	queued := make(chan string, 2)
	// nolint:errcheck // its end is that of ctx
	go l.Queue(ctx, func(r Request) { queued <- fmt.Sprint(r.Run, r.Err) }, func() {})
	pass := func(task string) {
		t.Helper()
		if err := r.Event(t.Context(), RunEvent{Kind: AgentLost, Detail: task}); err != nil {
			t.Fatal(err)
		}
		limit := time.After(5 * time.Minute)
		for i := range readers {
			select {
			case words := <-got:
				if words != task+"<nil>" {
					t.Fatalf("read %s, want %s", words, task)
				}
			case <-limit:
				t.Fatalf("%d of %d readers have got %s", i, readers, task)
			}
		}
		queueRun(t, c, plan.Run{ID: task})
		select {
		case words := <-queued:
			if words != task+"<nil>" {
				t.Fatalf("the queue has %s, want %s", words, task)
			}
		case <-limit:
			t.Fatalf("the queue was not read on to %s", task)
		}
	}
	pass("before")
	servers[served(t, c)].Shutdown()
	dead := time.Now()
	pass("after")
	return time.Since(dead)
}

// served returns the number of a server that leads a stream of the run and is not the one that c is connected to, if
// there is one.
func served(t *testing.T, c *Store) int {
	t.Helper()
	for _, name := range []string{subject.RunStream(subject.EventsStream, "r"), subject.QueueStream} {
		s, err := c.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.TrimPrefix(s.CachedInfo().Cluster.Leader, "n"); n != "2" {
			return int(n[0] - '0')
		}
	}
	return 0
}
