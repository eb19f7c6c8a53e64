package controller_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// A run whose snapshots have reached their limit ends with that reason. It keeps its outcomes, and the task in flight
// has none. It can be resumed when there is space.
func TestARunWhoseSnapshotsAreFullEnds(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleetOn(t, wire.ServerConfig{Shared: true}, "a1", "a2", "a3", "a4")
		js, err := jetstream.New(l.natsConn())
		if err != nil {
			t.Fatal(err)
		}
		run := newRun(nil)
		run.Repeat = 5
		root := t.TempDir()
		w := l.runInto(root, run, nil, func(p controller.Progress) {
			if p.Kind != controller.TaskEnded || p.N != 2 {
				return
			}
			s, err := js.Stream(t.Context(), "LOCKSTEP_SNAPSHOTS_"+run.ID)
			if err == nil {
				cfg := s.CachedInfo().Config
				cfg.MaxBytes = 1
				_, err = js.UpdateStream(t.Context(), cfg)
			}
			if err != nil {
				t.Error(err)
			}
		})
		if w.end.Reason != wire.EndFailed || !strings.Contains(w.end.Detail,
			"the snapshots of a run may use 512.0 MiB") ||
			!strings.Contains(w.end.Detail, "--record-limit") || !strings.Contains(w.end.Detail, "ctl run --resume") {
			t.Errorf("end of the run: got %+v, want failed with the limit and the fix", w.end)
		}
		if w.end.Ran < 2 || w.end.Ran >= 5 || len(w.outcomes()) != w.end.Ran || w.end.Failed > 0 {
			t.Errorf("got %d executed tasks, %d outcomes, %d failed, want 2 to 4, as many, 0", w.end.Ran,
				len(w.outcomes()), w.end.Failed)
		}
		if !strings.HasSuffix(w.kinds(), string(wire.TaskInterrupted)+" "+string(wire.RunEnded)) {
			t.Errorf("events: got %s, want the task in flight interrupted", w.kinds())
		}
		var done []string
		for _, o := range w.outcomes() {
			done = append(done, o.Task)
		}
		if w = l.runInto(root, run, done, nil); w.end.Reason != wire.EndDone || w.end.Ran != 5-len(done) ||
			w.end.Failed > 0 {
			t.Errorf("resumed run: got end %+v, want done, %d tasks", w.end, 5-len(done))
		}
	})
}

// A run waits while 50 other runs have streams that are not copied. Its state names the reason.
func TestARunWaitsForStorage(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleetOn(t, wire.ServerConfig{Shared: true}, "a1", "a2", "a3", "a4")
		js, err := jetstream.New(l.natsConn())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			cfg := jetstream.StreamConfig{Name: fmt.Sprint("LOCKSTEP_EVENTS_old", i),
				Subjects: []string{fmt.Sprint("lockstep.events.old", i, ".>")},
				Storage:  jetstream.MemoryStorage}
			if _, err := js.CreateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		}
		run := newRun(nil)
		l.submit(run)
		l.awaitState(run.ID, func(s wire.RunState) bool {
			return s.State == wire.StateQueued && strings.Contains(s.Waiting, "it has the streams of 50 runs") &&
				strings.Contains(s.Waiting, "--dir")
		})
		if err := js.DeleteStream(t.Context(), "LOCKSTEP_EVENTS_old7"); err != nil {
			t.Fatal(err)
		}
		if w := l.follow(run)[0]; w.end.Reason != wire.EndDone || w.end.Failed > 0 {
			t.Errorf("end of the run: got %+v, want done, 0 failed", w.end)
		}
		if s := l.awaitState(run.ID, wire.RunState.Over); s.Waiting != "" {
			t.Errorf("waiting of the ended run: got %q, want none", s.Waiting)
		}
	})
}
