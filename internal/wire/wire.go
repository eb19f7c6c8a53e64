// Package wire is the control plane: all messages between clients, the controller and the agents, as typed functions
// over NATS JetStream. A local run in one process uses the same functions as a fleet.
//
// The package guarantees:
//
//   - A call that stores something returns after it was stored.
//   - A peer of another protocol version is refused, with an error that both sides can read.
//   - An invalid message only leads to an error.
//
// Clients and agents send requests to the controller that leads. Only controllers use JetStream.
//
// # Storage
//
// The queue is one stream with submissions, which contain secrets, and cancellations. The end of a run deletes them.
//
// Each run has two streams: events (plan, events, outcomes) and snapshots. Each has a limit of its own, so that
// snapshots never use the space of outcomes. Every message names the last earlier message of the other stream, and
// readers keep that order. So an outcome is read after all snapshots that it was judged from.
//
// One bucket has the lease and the states of runs. Two others have the schedules and the baselines.
//
// Agents send heartbeats, clock requests, arrivals and snapshots to the leader. The leader sends assignments and
// releases to the agents. Only snapshots are stored: the controller stores them before it answers.
//
// # Leadership
//
// One controller leads at a time. It writes a run's record behind a fence: the server refuses late writes of a former
// leader. Agents refuse commands of a former leader.
package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/nats-io/nuid"

	"example.org/lockstep/lockstep/internal/wire/keys"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// MaxMessage is the maximum size of a message in bytes on an embedded server. Other servers may have a lower limit.
const MaxMessage = keys.MaxPayload

// HeartbeatEvery is the interval of an agent's heartbeats. An agent is lost after LostAfter without one.
const (
	HeartbeatEvery = time.Second
	LostAfter      = 4 * time.Second
)

// MaxName is the maximum length of a name, in bytes: see subject.MaxName.
const MaxName = subject.MaxName

// Ref identifies one attempt of a task. Messages of a task's earlier attempts must be distinguishable.
type Ref struct {
	Run     string `json:"run"`
	Task    string `json:"task"`
	Attempt string `json:"attempt"`
}

// String returns the name as three tokens joined by dots. Tokens consist of letters, digits, "-", "_" and "=".
func (r Ref) String() string {
	return subject.EncodeToken(r.Run) + "." + subject.EncodeToken(r.Task) + "." + subject.EncodeToken(r.Attempt)
}

// NewName returns a unique name for an agent's process or an attempt.
func NewName() string { return nuid.Next() }

// WithGracePeriod returns a context that ends d after ctx, for the last messages of an operation that was ended.
func WithGracePeriod(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	grace, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return grace, func() {
		stop()
		cancel()
	}
}

// Either returns a context with the values of ctx that ends with ctx or with other, and has the cause of the first.
func Either(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Wait waits for d. It returns the cause of ctx if ctx ends first.
func Wait(ctx context.Context, d time.Duration) error {
	Progress(ctx, d)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// ErrPanic is wrapped by errors that come from a panic.
var ErrPanic = errors.New("internal error of Lockstep; please report it")

// Guard calls do and returns its error. If do panics, Guard logs the panic with its stack and returns an error that
// wraps ErrPanic. It is used for each message and request: peers may send anything.
func Guard(log *slog.Logger, what string, do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			log.Error(ErrPanic.Error(), "in", what, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %s: %v", ErrPanic, what, r)
		}
	}()
	return do()
}

type progressKey struct{}

// WithProgress returns a context for one goroutine whose progress is watched. Functions of this package that wait under
// it call report with the maximum duration of the wait. With a nil report, nothing is watched.
func WithProgress(ctx context.Context, report func(within time.Duration)) context.Context {
	return context.WithValue(ctx, progressKey{}, report)
}

// Progress reports progress of the goroutine of ctx, until its next report within a duration. See WithProgress.
func Progress(ctx context.Context, within time.Duration) {
	if report, ok := ctx.Value(progressKey{}).(func(time.Duration)); ok && report != nil {
		report(within)
	}
}
