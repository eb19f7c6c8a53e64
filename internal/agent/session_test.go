package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/test/wiretest"
)

// lateSession returns a session whose driver is inside Open. Open returns when opens is closed; opened has its result.
func lateSession(t *testing.T) (s *session, opens chan struct{}, opened <-chan error, env drivers.Env) {
	t.Helper()
	d := &probe{opening: make(chan drivers.Env, 1), openGate: make(chan struct{})}
	s = &session{broker: plan.Broker{Driver: "probe", Options: []byte(`{"probe":"` + d.register() + `"}`),
		Via: "127.0.0.1:1"},
		parent: t.TempDir(), log: slog.New(slog.DiscardHandler), event: func(drivers.EventKind, string) {}}
	t.Cleanup(func() {
		if n := d.open.Load(); n != 0 {
			t.Errorf("open sessions of the driver: got %d, want 0", n)
		}
	})
	ended := make(chan error, 1)
	go func() { ended <- s.open(context.Background()) }()
	return s, d.openGate, ended, <-d.opening
}

// TestASessionThatOpensAfterItsEndIsReleased proves that an Open that returns late leaves no session, folder or
// listener.
func TestASessionThatOpensAfterItsEndIsReleased(t *testing.T) {
	s, opens, opened, env := lateSession(t)
	near, err := env.Forward(t.Context(), "broker:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(env.Dir, "late"), 0o700); err != nil { // as a driver that continues
		t.Fatal(err)
	}
	close(opens)
	if err := <-opened; !errors.Is(err, errSessionClosed) {
		t.Errorf("open: got error %v, want errSessionClosed", err)
	}
	if left, err := os.ReadDir(s.parent); err != nil || len(left) > 0 {
		t.Errorf("files of the session: got %v, error %v, want none", left, err)
	}
	if c, err := net.Dial("tcp", near); err == nil {
		c.Close()
		t.Errorf("the forwarder still listens on %s", near)
	}
}

// TestClosedSessionsDoNotOpen covers a session that was closed while its options were read.
func TestClosedSessionsDoNotOpen(t *testing.T) {
	s, opens, opened, _ := lateSession(t)
	close(opens)
	if err := errors.Join(<-opened, s.close()); err != nil {
		t.Fatal(err)
	}
	if err := s.open(t.Context()); !errors.Is(err, errSessionClosed) {
		t.Errorf("open: got error %v, want errSessionClosed", err)
	}
	if left, err := os.ReadDir(s.parent); err != nil || len(left) > 0 {
		t.Errorf("files of the session: got %v, error %v, want none", left, err)
	}
	if _, err := s.forwarder.Forward(t.Context(), "broker:1"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Forward of a closed session: got error %v, want net.ErrClosed", err)
	}
}

// TestATaskWhoseSessionOpensLateLeavesNothing covers a task that the agent abandons while the driver is inside Open.
func TestATaskWhoseSessionOpensLateLeavesNothing(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		b := newHarness(t, func(c *Config) { c.obey, c.leave = 20*time.Millisecond, 300*time.Millisecond })
		d := &probe{opening: make(chan drivers.Env, 1), openGate: make(chan struct{})}
		ref := b.assign("t1", d, nil)
		<-d.opening
		b.release(ref, wire.Release{Step: wire.StepFinish})
		b.awaitArrival(ref, wire.StepFinish)
		b.release(ref, wire.Release{Step: wire.StepDone})
		b.awaitArrival(ref, wire.StepDone)
		close(d.openGate)
		for timeout := time.Now().Add(time.Minute); d.opened.Load() == 0 ||
			d.open.Load() > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(timeout) {
				t.Fatalf("open sessions after the end of the task: got %d, want 0", d.open.Load())
			}
		}
	})
}
