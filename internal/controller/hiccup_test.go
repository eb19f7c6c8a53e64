package controller_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/wiretest"
)

// natsConn returns a plain NATS connection to the lab's server.
func (l *localFleet) natsConn() *nats.Conn {
	l.t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(l.server))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(nc.Close)
	return nc
}

// jetstream returns the API of the lab's server.
func (l *localFleet) jetstream() jetstream.JetStream {
	l.t.Helper()
	js, err := jetstream.New(l.natsConn())
	if err != nil {
		l.t.Fatal(err)
	}
	return js
}

// withDeadline returns a context with a deadline. The timers of nats.Conn.RequestMsg cannot be used, because all tests
// in virtual time share them.
func withDeadline(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// TestRunContinuesAfterRejectedWrites proves that a run continues after all its writes were rejected for some
// time between two tasks.
func TestRunContinuesAfterRejectedWrites(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleetOn(t, wire.ServerConfig{Shared: true}, "a1", "a2", "a3", "a4")
		js, err := jetstream.New(l.natsConn())
		if err != nil {
			t.Fatal(err)
		}
		run := newRun(nil, nil)
		storeOnly := func(subject string) { // the stream rejects other subjects
			s, err := js.Stream(t.Context(), "LOCKSTEP_EVENTS_"+run.ID)
			if err == nil {
				cfg := s.CachedInfo().Config
				cfg.Subjects = []string{subject}
				_, err = js.UpdateStream(t.Context(), cfg)
			}
			if err != nil {
				t.Error(err)
			}
		}
		run.Settle = plan.Duration(2 * time.Second)
		again := make(chan struct{})
		w := l.run(run, nil, func(p controller.Progress) {
			if p.Kind == controller.TaskEnded && p.N == 1 {
				storeOnly("elsewhere")
				time.AfterFunc(4*time.Second, func() {
					defer close(again)
					storeOnly("lockstep.events." + run.ID + ".>")
				})
			}
		})
		<-again
		checkAllValid(t, run, w)
		awaitCleanup(t, l)
	})
}

// TestRunContinuesAfterAForeignFence proves that a run continues after another client has written a fence to its
// record, which blocks the leader although its lease is valid.
func TestRunContinuesAfterAForeignFence(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleetOn(t, wire.ServerConfig{Shared: true}, "a1", "a2", "a3", "a4")
		nc := l.natsConn()
		run := newRun(nil, nil)
		sent := false
		w := l.run(run, nil, func(p controller.Progress) {
			if sent || p.Kind != wire.TaskStarted {
				return
			}
			sent = true
			m := nats.NewMsg("lockstep.events." + run.ID + ".epoch")
			m.Header.Set("Lockstep-Format", strconv.Itoa(plan.RecordFormat))
			if _, err := nc.RequestMsgWithContext(withDeadline(t, 5*time.Second), m); err != nil {
				t.Error(err)
			}
		})
		checkAllValid(t, run, w)
		awaitCleanup(t, l)
	})
}

// checkAllValid checks that every task of a run has one valid outcome.
func checkAllValid(t *testing.T, run plan.Run, w followedRun) {
	t.Helper()
	all := w.outcomes()
	if w.end.Reason != wire.EndDone || len(all) != len(run.Tasks()) {
		t.Fatalf("got %d outcomes, end %+v, events %s, want %d outcomes", len(all), w.end, w.kinds(), len(run.Tasks()))
	}
	for i, o := range all {
		if o.Task != run.Tasks()[i].ID || o.Verdict != plan.Valid {
			t.Errorf("outcome %d: got task %s, %s %v, want task %s, valid", i, o.Task, o.Verdict, o.Reasons,
				run.Tasks()[i].ID)
		}
	}
}

// TestACopyThatFailedIsRetried blocks the folder of copies for some time.
func TestACopyThatFailedIsRetried(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		l.cancelController()
		l.controllers.Wait()
		l.config.Copies = filepath.Join(t.TempDir(), "runs")
		if err := os.WriteFile(l.config.Copies, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		l.startController()
		run := newRun(nil)
		l.run(run, nil, nil)
		time.Sleep(3 * time.Second) // it was tried by then
		if err := os.Remove(l.config.Copies); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			runs, err := l.client.Runs(t.Context())
			if err == nil && len(runs) == 1 && runs[0].Copied {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the run was not copied: got %+v, error %v", runs, err)
			}
		}
	})
}
