// Package subject defines the names of the control plane's subjects, streams and buckets.
package subject

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Names of the streams. Each run has two streams, whose names end with that of the run: see RunStream.
const (
	QueueStream     = "LOCKSTEP_QUEUE"
	EventsStream    = "LOCKSTEP_EVENTS_"
	SnapshotsStream = "LOCKSTEP_SNAPSHOTS_"
)

// Names of the buckets. Only leaders write the lease, so that nothing else fills its bucket.
const (
	LeaseBucket     = "LOCKSTEP_LEASE"
	StateBucket     = "LOCKSTEP_STATE"
	SchedulesBucket = "LOCKSTEP_SCHEDULES"
	BaselinesBucket = "LOCKSTEP_BASELINES"
)

// First words of subjects. Services are grouped by the roles that may use them: clients, viewers too, agents.
const (
	Root           = "lockstep."
	Queue          = Root + "queue."
	Events         = Root + "events."
	Snapshots      = Root + "snapshots."
	ClientServices = Root + "client."
	ViewServices   = Root + "view."
	AgentServices  = Root + "agent."

	Inboxes = "_INBOX."
	API     = "$JS.API."
	// BorderReplies are the reply subjects that a server inserts when a request crosses accounts.
	BorderReplies = "_R_."
)

// Submit and Cancel return the subjects of a run's messages in the queue.
func Submit(run string) string { return Queue + "submit." + EncodeToken(run) }
func Cancel(run string) string { return Queue + "cancel." + EncodeToken(run) }

// Plan, Event and Outcome return the subjects of a run's record, except its snapshots.
func Plan(run string) string  { return Events + EncodeToken(run) + ".plan" }
func Event(run string) string { return Events + EncodeToken(run) + ".event" }
func Outcome(run, task string) string {
	return Events + EncodeToken(run) + ".outcome." + EncodeToken(task)
}

// Fence returns the subject of the fences in a stream of a run. first is Events or Snapshots.
func Fence(first, run string) string { return first + EncodeToken(run) + ".epoch" }

// AttemptSnapshots returns the subject of the snapshots of an attempt. A message has several snapshots.
func AttemptSnapshots(run, task, attempt string) string {
	return Snapshots + EncodeToken(run) + ".snapshot." + EncodeToken(task) + "." + EncodeToken(attempt)
}

// Heartbeat, Clock, Arrive and Report return the subjects of services of the leader for agents. Command is the service
// of an agent for the leader. The last word is the agent's name, or "*" for all. An agent may only use its own.
func Heartbeat(agent string) string { return AgentServices + "heartbeat." + agentToken(agent) }
func Clock(agent string) string     { return AgentServices + "clock." + agentToken(agent) }
func Arrive(agent string) string    { return AgentServices + "arrive." + agentToken(agent) }
func Report(agent string) string    { return AgentServices + "snapshot." + agentToken(agent) }
func Command(agent string) string   { return Root + "command." + agentToken(agent) }

func agentToken(agent string) string {
	if agent == "*" {
		return agent
	}
	return EncodeToken(agent)
}

// RunStream returns the name of a run's EventsStream or SnapshotsStream. A server accepts at most 255 bytes.
func RunStream(stream, run string) string {
	name := EncodeToken(run)
	if len(name) > 200 {
		name = hashed(run)
	}
	return stream + name
}

func hashed(name string) string { return fmt.Sprintf("==%x", sha256.Sum256([]byte(name))) }

// EncodeToken encodes a name as one word of a subject. Letters, digits, "-" and "_" are unchanged; other bytes become
// =hex. Names of more than MaxName bytes are hashed: no name makes a subject too long for the server, whoever chose it.
func EncodeToken(name string) string {
	switch {
	case name == "":
		return "="
	case len(name) > MaxName:
		return hashed(name)
	}
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "=%02x", c)
		}
	}
	return b.String()
}

// MaxName is the maximum length in bytes of names of runs, tasks, attempts, agents, processes and schedules. The names
// are tokens of NATS subjects, and a server closes connections that use subjects of more than 4,096 bytes.
const MaxName = 200

// CheckNames returns an error if a name is too long.
func CheckNames(names ...string) error {
	for _, name := range names {
		if len(name) > MaxName {
			return fmt.Errorf("the name %.20q… has %d bytes: want at most %d", name, len(name), MaxName)
		}
	}
	return nil
}

// CheckName returns an error if a required name is missing or too long.
func CheckName(name string) error {
	if name == "" {
		return errors.New("empty name")
	}
	return CheckNames(name)
}

// DecodeToken reverses EncodeToken. A name that is too long is an error, as received names are checked here.
func DecodeToken(word string) (string, error) {
	if word == "=" {
		return "", nil
	}
	name, err := url.PathUnescape(strings.ReplaceAll(word, "=", "%"))
	if err != nil {
		return "", fmt.Errorf("read subject token %q: %w", word, err)
	}
	return name, CheckNames(name)
}
