package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/wire"
)

// A loop is stuck when it has made no progress for maxStall in addition to the wait that it announced.
func TestAStuckLoopIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Status
		ctx, stop := s.watch(t.Context(), "runs")
		defer stop()
		wire.Progress(ctx, time.Minute)
		time.Sleep(time.Minute + maxStall - 1)
		if err := s.Stuck(); err != nil {
			t.Errorf("before the limit: got %v, want nil", err)
		}
		time.Sleep(time.Nanosecond)
		if err := s.Stuck(); err == nil ||
			!strings.Contains(err.Error(), "no progress for 30s longer than announced: runs") {
			t.Errorf("at the limit: got %v, want an error with the name of the loop", err)
		}
	})
}
