package wire

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A reader's own link tells nothing of the server that serves it, in a cluster: when that server dies, the reader continues at another one. LOCKSTEP_LONG
// requires that within 8 s; the library by itself takes at least ten.
func TestReadersGoOnWhenTheServerThatServesThemDies(t *testing.T) {
	t.Parallel()
	took := outlived(t)
	t.Log("readers have gone on after", took)
	if os.Getenv("LOCKSTEP_LONG") != "" && took > 8*time.Second {
		t.Errorf("readers went on after %v, want 8 s at most", took)
	}
}

// outlived is the time that readers stand when a server that serves some of them dies.
func outlived(t *testing.T) time.Duration {
	t.Helper()
	servers, c := cluster(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := campaign(t, c, "one")
	defer l.Resign(t.Context())
	r, err := l.TakeUp(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	const readers = 12 // so many that all are served by the server they are connected to once in 500,000 times
	got := make(chan string, 2*readers)
	for range readers {
		go c.follow(ctx, nameOf(streamEvents, "r"), []string{subjectEvent("r")}, func(m jetstream.Msg, seq uint64) bool { //nolint:errcheck // its end is that of ctx
			e := c.entry(messageOf(m, seq))
			got <- fmt.Sprint(e.Event.Detail, e.Err)
			return true
		})
	}
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
	}
	pass("before")
	servers[served(t, c)].Shutdown()
	dead := time.Now()
	pass("after")
	return time.Since(dead)
}

// served is the number of a server that serves a reader, but is not the one that c is connected to.
func served(t *testing.T, c *Conn) int {
	t.Helper()
	s, err := c.js.Stream(t.Context(), nameOf(streamEvents, "r"))
	if err != nil {
		t.Fatal(err)
	}
	found := -1
	for info := range s.ListConsumers(t.Context()).Info() { // whose sender waits until all are read
		if n := strings.TrimPrefix(info.Cluster.Leader, "n"); n != "2" {
			found = int(n[0] - '0')
		}
	}
	if found < 0 {
		t.Fatal("one server serves all readers")
	}
	return found
}
