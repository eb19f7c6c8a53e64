// Package wire is the control plane: every message between ctl, the controller and the agents, as typed functions over
// NATS JetStream, the same in one process and in a fleet. It guarantees that what is stored is stored before a call
// returns, that a peer of another protocol version is refused with an error both sides can read, and that no message,
// however broken, does more than return an error.
//
// # For clients
//
//	server, err := wire.Embedded(ctx, wire.ServerConfig{Log: log})  // no port; Listen opens one
//	conn, err := server.Connect(ctx)                                // in process: one for each agent and controller
//	err = conn.Prepare(ctx)                                         // once; the controller does it, too
//	conn, err := wire.Dial(ctx, "nats://bench:4222", wire.Auth{})   // a fleet
//
//	controller.Serve(ctx, conn, controller.Config{Log: log})        // blocks until ctx ends
//	agent.Serve(ctx, conn.Agent(), agent.Config{Name: "a1", Dir: dir, Log: log})
//
//	client, err := server.Client(ctx)                               // in process
//	client, err := wire.DialClient(ctx, url, wire.Auth{})           // of a fleet
//	agents, err := client.Agents(ctx)                               // who is there, as the controller sees it
//	err = client.Submit(ctx, wire.Submission{Run: run, Done: ids})  // stored, then executed in turn; Done: resume
//	end, err := controller.Record(ctx, client, run.ID, root, watch, // writes the run directory, reports progress,
//		points)                                                 // and hands on points; nil: it does not
//	err = client.Cancel(ctx, run.ID, "me@here")                     // stops cleanly; Record then returns with End
//
// Clients and agents send requests to the controller that leads; controllers alone use JetStream.
//
// # What is where
//
// One stream is the queue: submissions with literal options, and cancellations; deleted when their run has ended. Each
// run has two streams: its events (plan, events, outcomes), and its snapshots. Each has a limit of its own, so that
// snapshots never take the space of outcomes. A message of one stream names the last message of the other that was
// stored before it, and readers keep that order: an outcome comes after every snapshot that it was judged from. One
// bucket holds the lease of the controller that leads and how runs stand, another the schedules.
//
// Agents and the controller that leads send each other requests: heartbeats, clock readings, arrivals and snapshots one
// way, assignments and releases the other. Only snapshots are stored, by the controller, before it answers.
//
// One controller leads at a time. It writes a run's record behind a fence: a former leader's late writes are refused by
// the server, and what it still tells agents is refused by these.
package wire

import (
	"context"
	"time"

	"github.com/nats-io/nuid"

	"lockstep/internal/wire/keys"
	"lockstep/internal/wire/subject"
)

// MaxMessage is the greatest message in bytes that an embedded server takes; a fleet's server may be set lower.
const MaxMessage = keys.MaxPayload

// HeartbeatEvery is how often agents say that they live. LostAfter is the silence after which the controller takes one
// as lost.
const (
	HeartbeatEvery = time.Second
	LostAfter      = 4 * time.Second
)

// MaxName is the maximum length of a name, in bytes: see subject.MaxName.
const MaxName = subject.MaxName

// Ref names one attempt of a task: an interrupted task is run again, and what its first attempt still sends is told
// apart.
type Ref struct {
	Run     string `json:"run"`
	Task    string `json:"task"`
	Attempt string `json:"attempt"`
}

// String is the name as one of three words, joined by dots, each of letters, digits, "-", "_" and "=".
func (r Ref) String() string {
	return subject.EncodeToken(r.Run) + "." + subject.EncodeToken(r.Task) + "." + subject.EncodeToken(r.Attempt)
}

// NewName returns a unique name for an agent's process or an attempt.
func NewName() string { return nuid.Next() }

// WithGracePeriod returns a context that ends d after ctx ends, for the last messages of what was ended.
func WithGracePeriod(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	grace, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(d):
			cancel()
		case <-grace.Done():
		}
	})
	return grace, func() {
		stop()
		cancel()
	}
}
