package wire

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/wire/lease"
)

// logged records the levels and messages of a log.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logged) WithGroup(string) slog.Handler            { return l }
func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Level.String()+" "+r.Message)
	return nil
}

func (l *logged) await(t *testing.T, n int) []string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		lines := slices.Clone(l.lines)
		l.mu.Unlock()
		if len(lines) >= n || time.Now().After(end) {
			return lines
		}
	}
}

// TestALinkThatIsLostIsLogged proves that the loss of a link and its return are logged, and that an orderly end is not.
func TestALinkThatIsLostIsLogged(t *testing.T) {
	s := plane(t, ServerConfig{Listen: "127.0.0.1:0", Open: true})
	at := strings.TrimPrefix(s.URL(), "nats://")
	c, err := Dial(t.Context(), s.URL(), Auth{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	log := &logged{}
	c.LogTo(slog.New(log))
	s.Close()
	lost := "WARN connection to the control plane lost; reconnecting"
	if got := log.await(t, 1); !slices.Equal(got, []string{lost}) {
		t.Fatalf("the link is gone, and logged is %q", got)
	}
	plane(t, ServerConfig{Listen: at, Open: true})
	want := []string{lost, "INFO reconnected to the control plane"}
	if got := log.await(t, 2); !slices.Equal(got, want) {
		t.Fatalf("the link is back, and logged is %q", got)
	}
	select {
	case <-c.Relinked():
	case <-time.After(time.Minute):
		t.Error("Relinked received nothing")
	}
	c.Close()
	if got := log.await(t, 2); !slices.Equal(got, want) {
		t.Errorf("the connection was closed, and logged is %q", got)
	}
}

// TestAgentsObeyTheLeaderOfAServerThatStartedAgain proves that a lower epoch is accepted from a server that was started
// again: it may have lost its data, and its clock may have been set back.
func TestAgentsObeyTheLeaderOfAServerThatStartedAgain(t *testing.T) {
	s := plane(t, ServerConfig{Listen: "127.0.0.1:0", Open: true})
	c, err := Dial(t.Context(), s.URL(), Auth{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a, now := NewAgent(c), uint64(time.Now().UnixMilli())
	if err := a.acceptEpoch(now + 1000); err != nil {
		t.Fatal(err)
	}
	if err := a.acceptEpoch(now); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("a lower epoch on the same server: %v, want lease.ErrFenced", err)
	}
	s.Close()
	if err := a.acceptEpoch(now); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("a lower epoch without a server: %v, want lease.ErrFenced", err)
	}
	plane(t, ServerConfig{Listen: strings.TrimPrefix(s.URL(), "nats://"), Open: true})
	select {
	case <-c.Relinked():
	case <-time.After(time.Minute):
		t.Fatal("the link is not back")
	}
	if err := a.acceptEpoch(now); err != nil {
		t.Errorf("the leader of the server that started again: %v", err)
	}
	if err := a.acceptEpoch(now - 1); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("a former leader of it: %v, want lease.ErrFenced", err)
	}
}

func TestAServerThatIsStuckIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		s := &Server{cfg: ServerConfig{Log: slog.New(slog.NewTextHandler(&said, nil))}}
		free := make(chan struct{})
		begin := time.Now()
		s.shut(func() { <-free })
		if d := time.Since(begin); d != stopTimeout || !strings.Contains(said.String(), "does not stop") {
			t.Errorf("shut returned after %v and logged %q: want %v and one line", d, said.String(), stopTimeout)
		}
		close(free)
	})
}
