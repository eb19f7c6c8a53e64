package controller_test

import (
	"log/slog"
	"testing"

	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// A leader with a loop that makes no progress does not renew its lease. Another controller takes over and executes the
// run.
func TestALeaderThatMakesNoProgressIsReplaced(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		l.stopController()
		hangs, release := make(chan struct{}), make(chan struct{})
		l.config.Log = slog.New(logHook{l.log().Handler(), "run started", func() { close(hangs); <-release }})
		l.startController()
		stop := l.cancelController
		defer func() {
			close(release)
			stop()
		}()
		run := newRun(nil)
		l.submit(run)
		<-hangs
		l.config.Log = nil
		l.startController()
		if s := l.awaitEnd(run.ID); s.State != string(wire.EndDone) || s.Failed != 0 {
			t.Errorf("state of the ended run: got %+v, want done, 0 failed", s)
		}
	})
}
