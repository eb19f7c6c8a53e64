package controller_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// A standby controller copies ended runs, once each, also if the leader makes no copies.
func TestAStandbyCopiesRuns(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleetOn(t, wire.ServerConfig{Shared: true}, "a1", "a2", "a3", "a4")
		run := newRun(nil, nil)
		checkAllValid(t, run, l.run(run, nil, nil))
		folder := t.TempDir()
		for range 2 { // the second one finds the copy
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			standby := l.connect()
			go func() {
				ended <- controller.Serve(ctx, standby,
					controller.Config{Log: l.log(), Name: "standby", Copies: folder})
			}()
			time.Sleep(90 * time.Second) // the leader has a minute for its own copy
			if s := l.awaitState(run.ID, wire.RunState.Over); !s.Copied {
				t.Error("Copied in the state of the run: got false, want true")
			}
			copied, err := runs.Open(folder, filepath.Join(folder, run.ID))
			if err != nil {
				t.Fatal(err)
			}
			all, err := copied.Outcomes()
			timeline, err2 := copied.Timeline()
			if err != nil || err2 != nil || len(all) != 2 || len(timeline) != 3 { // two beginnings and one end
				t.Errorf("copy: got %d outcomes, %d events, errors %v, %v, want 2, 3", len(all), len(timeline), err, err2)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}
