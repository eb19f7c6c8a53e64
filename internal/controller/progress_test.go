package controller_test

import (
	"log/slog"
	"testing"

	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// A leader with a loop that hangs does not renew its lease. Another controller takes over and executes the run.
func TestALeaderThatMakesNoProgressIsReplaced(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		l.leave()
		hangs, release := make(chan struct{}), make(chan struct{})
		l.config.Log = slog.New(failing{l.log().Handler(), "run started", func() { close(hangs); <-release }})
		l.control()
		stop := l.stop
		defer func() {
			close(release)
			stop()
		}()
		run := aRun(nil)
		l.submit(run)
		<-hangs
		l.config.Log = nil
		l.control()
		if s := l.ended(run.ID); s.State != string(wire.EndDone) || s.Failed != 0 {
			t.Errorf("the run ended as %+v", s)
		}
	})
}
