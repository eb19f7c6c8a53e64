package controller_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/internal/controller"
	"lockstep/internal/plan"
	"lockstep/internal/runs"
	"lockstep/internal/wire"
	"lockstep/test/wiretest"
)

// newRoom is a lab whose record has little room, over the network: nothing is deleted there but what was copied.
func newRoom(t *testing.T, limit int64, wait time.Duration) *lab {
	t.Helper()
	l := &lab{t: t, cfg: wire.ServerConfig{Shared: true}, agents: map[string]*labAgent{}, dir: t.TempDir(), limit: limit,
		config: controller.Config{RoomWait: wait, Copies: t.TempDir()}}
	l.open()
	for i := range 4 {
		l.start(fmt.Sprintf("a%d", i+1))
	}
	return l
}

// wordy is a run of so many tasks whose plan takes so many bytes of the record.
func wordy(tasks, bytes int) plan.Run {
	run := aRun(make([]func(*plan.Cell), tasks)...)
	text := make([]byte, bytes*3/4)
	rand.NewChaCha8([32]byte{1}).Read(text) //nolint:errcheck // never fails
	run.Source.Text = base64.StdEncoding.EncodeToString(text)
	return run
}

// A run whose record and the one before it do not fit together goes on where the older was copied, and nothing of it is lost.
func TestRoomIsMadeBetweenTasks(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newRoom(t, 512<<10, time.Minute) // 448 KiB without the reserve: half of it is not yet used when the second run begins
		first, second := wordy(1, 180<<10), wordy(1, 0)
		second.Repeat = 4
		for _, run := range []plan.Run{first, second} {
			w := l.run(run, nil, nil)
			if w.end.Reason != wire.EndDone || w.end.Failed != 0 || len(w.outcomes()) != run.Repeat {
				t.Errorf("run %s ended so: %+v, with %d outcomes", run.ID, w.end, len(w.outcomes()))
			}
			l.state(run.ID, func(s wire.RunState) bool { return s.Copied })
		}
		kept, err := l.conn.Stored(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := kept["lockstep.record."+first.ID+".plan"]; n != 0 {
			t.Error("the older run is still there: no room had to be made")
		}
		for run, tasks := range map[string]int{first.ID: 1, second.ID: 4} {
			copied, err := runs.Open(l.config.Copies, filepath.Join(l.config.Copies, run))
			if err != nil {
				t.Fatal(err)
			}
			if all, err := copied.Outcomes(); err != nil || len(all) != tasks {
				t.Errorf("the copy of %s has %d outcomes, %v; want %d", run, len(all), err, tasks)
			}
		}
	})
}

// A run that needs more than there is says that it waits, ends, and keeps the outcomes that it had.
func TestARunThatIsTooLargeForTheRecordEnds(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newRoom(t, 512<<10, 10*time.Minute)
		w := l.run(wordy(30, 350<<10), nil, nil)
		if w.end.Reason != wire.EndFailed || !strings.Contains(w.end.Detail, "--record-limit") {
			t.Errorf("the run ended so: %+v", w.end)
		}
		if w.end.Ran < 1 || w.end.Ran >= 30 || len(w.outcomes()) != w.end.Ran || w.end.Failed > 0 {
			t.Errorf("of %d tasks that were run %d have outcomes, and %d failed", w.end.Ran, len(w.outcomes()), w.end.Failed)
		}
		if !strings.Contains(w.kinds(), string(controller.WaitingAgents)) {
			t.Errorf("events %s: want one that says that the run waits", w.kinds())
		}
	})
}
