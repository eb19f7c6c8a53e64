package chaos

import (
	"context"
	"encoding/json"
	"fmt"
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
	t        *testing.T
	nc       *natsgo.Conn
	mu       sync.Mutex
	messages []*natsgo.Msg
	added    chan struct{} // closed and replaced when a message is added
}

// leaseSubject is the subject of renewals of the lease.
const leaseSubject = "$KV.LOCKSTEP_LEASE.leader"

func newWatch(t *testing.T, url string) *watch {
	t.Helper()
	nc, err := natsgo.Connect(url, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(100*time.Millisecond),
		natsgo.RetryOnFailedConnect(true),
		natsgo.ErrorHandler(func(*natsgo.Conn, *natsgo.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{t: t, nc: nc, added: make(chan struct{})}
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
	w.messages = append(w.messages, m)
	close(w.added)
	w.added = make(chan struct{})
}

// position returns the index of the next message.
func (w *watch) position() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.messages)
}

// awaitMessage waits for the first matching message from an index on, and returns it and the index after it.
func (w *watch) awaitMessage(from int, description string, within time.Duration,
	matches func(*natsgo.Msg) bool) (*natsgo.Msg, int) {
	w.t.Helper()
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		w.mu.Lock()
		all, added := w.messages, w.added
		w.mu.Unlock()
		for ; from < len(all); from++ {
			if matches(all[from]) {
				return all[from], from + 1
			}
		}
		select {
		case <-added:
		case <-timeout.C:
			w.t.Fatalf("no message for %v: %s", within, description)
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

// startedAttempt is an attempt of a task that has started.
type startedAttempt struct {
	wire.RunEvent
	next int // index after its event in watch.messages
}

func event(m *natsgo.Msg) (e wire.RunEvent, ok bool) {
	return e, kind(m.Subject) == "events.event" && json.Unmarshal(m.Data, &e) == nil
}

// awaitEvent waits for an event of a kind.
func (w *watch) awaitEvent(from int, k wire.EventKind, within time.Duration) startedAttempt {
	w.t.Helper()
	m, next := w.awaitMessage(from, "event "+string(k), within,
		func(m *natsgo.Msg) bool { e, ok := event(m); return ok && e.Kind == k })
	e, _ := event(m)
	return startedAttempt{e, next}
}

// awaitTask waits until the nth task of the run has started.
func (w *watch) awaitTask(n int) startedAttempt {
	w.t.Helper()
	m, next := w.awaitMessage(0, fmt.Sprintf("the start of task %d", n), runLimit, func(m *natsgo.Msg) bool {
		e, ok := event(m)
		return ok && e.Kind == wire.TaskStarted && e.N == n
	})
	e, _ := event(m)
	return startedAttempt{e, next}
}

// awaitRelease waits for the release of a step in an attempt.
func (w *watch) awaitRelease(b startedAttempt, step wire.Step) wire.Release {
	w.t.Helper()
	var c wire.Command
	w.awaitMessage(b.next, "the release to "+string(step), stepLimit, func(m *natsgo.Msg) bool {
		c = wire.Command{}
		return kind(m.Subject) == "command" && json.Unmarshal(m.Data, &c) == nil && c.Ref.Attempt == b.Attempt &&
			c.Release != nil && c.Release.Step == step
	})
	return *c.Release
}

// awaitArrival waits until the first agent has completed a step.
func (w *watch) awaitArrival(b startedAttempt, step wire.Step) {
	w.t.Helper()
	w.awaitMessage(b.next, "the arrival at "+string(step), stepLimit, func(m *natsgo.Msg) bool {
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

// awaitTaskPhase waits until the nth task of the run is in a phase, and for a random part of that phase.
func (w *watch) awaitTaskPhase(r *row, n int, phase string) startedAttempt {
	w.t.Helper()
	b := w.awaitTask(n)
	w.awaitPhase(r, b, phase)
	return b
}

// awaitPhase waits until an attempt is in a phase, and for a random part of that phase.
func (w *watch) awaitPhase(r *row, b startedAttempt, phase string) {
	w.t.Helper()
	fraction := r.random.Float64()
	switch phase {
	case inPrepare:
		r.wait(time.Duration(fraction * float64(60*time.Millisecond)))
	case inReady:
		w.awaitArrival(b, wire.StepPublishers)
		r.wait(time.Duration(fraction * float64(20*time.Millisecond)))
	case inWarmup:
		w.awaitLoad(b, time.Duration(fraction*float64(warmup)))
	case inMeasure:
		w.awaitLoad(b, warmup+time.Duration((0.05+0.85*fraction)*float64(measure)))
	case inDrain:
		w.awaitRelease(b, wire.StepDrain)
		r.wait(time.Duration(fraction * float64(300*time.Millisecond)))
	case inTeardown:
		w.awaitRelease(b, wire.StepFinish)
		r.wait(time.Duration(fraction * float64(30*time.Millisecond)))
	case inSettle:
		w.awaitMessage(b.next, "an outcome", stepLimit,
			func(m *natsgo.Msg) bool { return kind(m.Subject) == "events.outcome" })
		r.wait(time.Duration(fraction * float64(500*time.Millisecond)))
	}
}

// awaitLoad waits until a time after the start of the load.
func (w *watch) awaitLoad(b startedAttempt, after time.Duration) {
	w.t.Helper()
	begin := w.awaitRelease(b, wire.StepStart).Start[clock.ID()]
	if err := clock.Until(context.Background(), begin+after.Nanoseconds()); err != nil {
		w.t.Fatal(err)
	}
}
