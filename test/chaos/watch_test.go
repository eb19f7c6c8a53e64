package chaos

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/wire"
)

// watch records all messages of the control plane during the run. It detects phases, and provides messages that can be
// repeated. The record itself is read from the streams.
type watch struct {
	t    *testing.T
	nc   *natsgo.Conn
	mu   sync.Mutex
	all  []*natsgo.Msg
	more chan struct{} // closed and replaced for each message
}

// leaseSubject is the subject of renewals of the lease.
const leaseSubject = "$KV.LOCKSTEP_STATE.leader"

func newWatch(t *testing.T, url string) *watch {
	t.Helper()
	nc, err := natsgo.Connect(url, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(100*time.Millisecond),
		natsgo.RetryOnFailedConnect(true),
		natsgo.ErrorHandler(func(*natsgo.Conn, *natsgo.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{t: t, nc: nc, more: make(chan struct{})}
	for _, subject := range []string{"lockstep.>", leaseSubject} {
		if _, err := nc.Subscribe(subject, w.add); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(nc.Close)
	return w
}

func (w *watch) add(m *natsgo.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, m)
	close(w.more)
	w.more = make(chan struct{})
}

// mark returns the index of the next message.
func (w *watch) mark() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// find waits for the first matching message from an index on, and returns it and the index after it.
func (w *watch) find(from int, what string, within time.Duration, fits func(*natsgo.Msg) bool) (*natsgo.Msg, int) {
	w.t.Helper()
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		w.mu.Lock()
		all, more := w.all, w.more
		w.mu.Unlock()
		for ; from < len(all); from++ {
			if fits(all[from]) {
				return all[from], from + 1
			}
		}
		select {
		case <-more:
		case <-late.C:
			w.t.Fatalf("after %v: not seen %s", within, what)
		}
	}
}

// kind returns the part of a subject that identifies the kind of message: "command", "agent.arrive", "events.event".
func kind(subject string) string {
	words := strings.Split(subject, ".")
	switch {
	case len(words) < 2 || words[0] != "lockstep":
		return ""
	case (words[1] == "events" || words[1] == "snapshots") && len(words) > 3:
		return words[1] + "." + words[3]
	case (words[1] == "agent" || words[1] == "queue") && len(words) > 2:
		return words[1] + "." + words[2]
	}
	return words[1]
}

// begun is an attempt of a task that has started.
type begun struct {
	wire.RunEvent
	place int // index after its event in watch.all
}

func event(m *natsgo.Msg) (e wire.RunEvent, ok bool) {
	return e, kind(m.Subject) == "events.event" && json.Unmarshal(m.Data, &e) == nil
}

// event waits for an event of a kind.
func (w *watch) event(from int, k wire.EventKind, within time.Duration) begun {
	w.t.Helper()
	m, place := w.find(from, "event "+string(k), within,
		func(m *natsgo.Msg) bool { e, ok := event(m); return ok && e.Kind == k })
	e, _ := event(m)
	return begun{e, place}
}

// task waits until the nth task of the run has started.
func (w *watch) task(n int) begun {
	w.t.Helper()
	m, place := w.find(0, "the begin of a task", runLimit, func(m *natsgo.Msg) bool {
		e, ok := event(m)
		return ok && e.Kind == wire.TaskStarted && e.N == n
	})
	e, _ := event(m)
	return begun{e, place}
}

// release waits for the release of a step in an attempt.
func (w *watch) release(b begun, step wire.Step) wire.Release {
	w.t.Helper()
	var c wire.Command
	w.find(b.place, "the release to "+string(step), stepLimit, func(m *natsgo.Msg) bool {
		c = wire.Command{}
		return kind(m.Subject) == "command" && json.Unmarshal(m.Data, &c) == nil && c.Ref.Attempt == b.Attempt &&
			c.Release != nil && c.Release.Step == step
	})
	return *c.Release
}

// arrival waits until the first agent has completed a step.
func (w *watch) arrival(b begun, step wire.Step) {
	w.t.Helper()
	w.find(b.place, "the arrival at "+string(step), stepLimit, func(m *natsgo.Msg) bool {
		var a wire.Arrival
		return kind(m.Subject) == "agent.arrive" && json.Unmarshal(m.Data, &a) == nil && a.Attempt == b.Attempt &&
			a.Step == step
	})
}

const (
	runLimit  = 3 * time.Minute // for every event that must happen, on a slow machine
	stepLimit = time.Minute
)

// Phases in which faults are injected.
const (
	inPrepare  = "prepare"
	inReady    = "ready"
	inWarmup   = "warm-up"
	inMeasure  = "measure"
	inDrain    = "drain"
	inTeardown = "teardown"
	inSettle   = "settle" // after the task's outcome
)

// reach waits until the nth task of the run is in a phase, and for a random part of that phase.
func (w *watch) reach(r *row, n int, phase string) begun {
	w.t.Helper()
	b := w.task(n)
	w.within(r, b, phase)
	return b
}

// within waits until an attempt is in a phase, and for a random part of that phase.
func (w *watch) within(r *row, b begun, phase string) {
	w.t.Helper()
	part := r.random.Float64()
	switch phase {
	case inPrepare:
		r.pass(time.Duration(part * float64(60*time.Millisecond)))
	case inReady:
		w.arrival(b, wire.StepPublishers)
		r.pass(time.Duration(part * float64(20*time.Millisecond)))
	case inWarmup:
		w.load(b, time.Duration(part*float64(warmup)))
	case inMeasure:
		w.load(b, warmup+time.Duration((0.05+0.85*part)*float64(measure)))
	case inDrain:
		w.release(b, wire.StepDrain)
		r.pass(time.Duration(part * float64(300*time.Millisecond)))
	case inTeardown:
		w.release(b, wire.StepFinish)
		r.pass(time.Duration(part * float64(30*time.Millisecond)))
	case inSettle:
		w.find(b.place, "an outcome", stepLimit,
			func(m *natsgo.Msg) bool { return kind(m.Subject) == "events.outcome" })
		r.pass(time.Duration(part * float64(500*time.Millisecond)))
	}
}

// load waits until a time after the start of the load.
func (w *watch) load(b begun, after time.Duration) {
	w.t.Helper()
	begin := w.release(b, wire.StepStart).Start[clock.ID()]
	if err := clock.Until(context.Background(), begin+after.Nanoseconds()); err != nil {
		w.t.Fatal(err)
	}
}
