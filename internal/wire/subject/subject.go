// Package subject has the names of the control plane's subjects, streams and buckets.
package subject

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Names of the streams. Each run has two, whose names end with the run's: see RunStream.
const (
	QueueStream     = "LOCKSTEP_QUEUE"
	EventsStream    = "LOCKSTEP_EVENTS_"
	SnapshotsStream = "LOCKSTEP_SNAPSHOTS_"
)

// Names of the buckets: of the lease and the states of runs, of schedules, and of baselines.
const (
	StateBucket     = "LOCKSTEP_STATE"
	SchedulesBucket = "LOCKSTEP_SCHEDULES"
	BaselinesBucket = "LOCKSTEP_BASELINES"
)

// First words of subjects. Those of services name who may use them: clients, viewers and clients, agents.
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
	// BorderReplies begin the reply subjects that a server writes where a request crosses from one account to another.
	BorderReplies = "_R_."
)

// Submit and Cancel are the subjects of a run's messages in the queue.
func Submit(run string) string { return Queue + "submit." + EncodeToken(run) }
func Cancel(run string) string { return Queue + "cancel." + EncodeToken(run) }

// Plan, Event and Outcome are the subjects of a run's record, besides its snapshots.
func Plan(run string) string  { return Events + EncodeToken(run) + ".plan" }
func Event(run string) string { return Events + EncodeToken(run) + ".event" }
func Outcome(run, task string) string {
	return Events + EncodeToken(run) + ".outcome." + EncodeToken(task)
}

// Fence has the fences of leaderships in a stream of a run. first is Events or Snapshots.
func Fence(first, run string) string { return first + EncodeToken(run) + ".epoch" }

// AttemptSnapshots has the snapshots of an attempt, several in one message.
func AttemptSnapshots(run, task, try string) string {
	return Snapshots + EncodeToken(run) + ".snapshot." + EncodeToken(task) + "." + EncodeToken(try)
}

// Heartbeat, Clock, Arrive and Report are services of the controller that leads, for agents. Command is the service of
// an agent, for that controller. The last word is the agent's name, "*" for all: the server lets an agent use its own.
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

// RunStream is the name of a run's stream. stream is EventsStream or SnapshotsStream. A server takes 255 bytes.
func RunStream(stream, run string) string {
	name := EncodeToken(run)
	if len(name) > 200 {
		name = fmt.Sprintf("==%x", sha256.Sum256([]byte(run)))
	}
	return stream + name
}

// EncodeToken writes a name as one word of a subject: letters, digits, "-" and "_" as they are, anything else as =hex.
func EncodeToken(name string) string {
	if name == "" {
		return "="
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

// MaxName is the maximum length of a name, in bytes. Names of runs, tasks, attempts, agents, processes and schedules
// are words of NATS subjects, and a server closes the connection of whoever uses a subject of more than 4,096 bytes.
const MaxName = 200

// CheckNames returns an error if one of the names is too long.
func CheckNames(names ...string) error {
	for _, name := range names {
		if len(name) > MaxName {
			return fmt.Errorf("the name %.20q… has %d bytes: want at most %d", name, len(name), MaxName)
		}
	}
	return nil
}

// CheckName returns an error unless a name that a request has to have is there, and not too long.
func CheckName(name string) error {
	if name == "" {
		return errors.New("a name is missing")
	}
	return CheckNames(name)
}

// DecodeToken is the reverse of EncodeToken. A name that is too long is an error: names of all that is received are
// read here.
func DecodeToken(word string) (string, error) {
	if word == "=" {
		return "", nil
	}
	name, err := url.PathUnescape(strings.ReplaceAll(word, "=", "%"))
	if err != nil {
		return "", fmt.Errorf("read subject word %q: %w", word, err)
	}
	return name, CheckNames(name)
}
