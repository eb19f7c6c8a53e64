package wire

import (
	"fmt"
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire/subject"
)

// Entry is one message of a run's record: exactly one field besides Ref and At is set.
type Entry struct {
	Ref      Ref    // Run always; Task and Attempt where the message belongs to one
	At       Cursor // behind it
	Plan     *plan.Run
	Event    *RunEvent
	Snapshot *record.Snapshot
	Outcome  *plan.Outcome
	Err      error // the message could not be read, or is of another protocol version; Ref says whose it is
	Agent    string
	Last     bool // FollowFrom: there is no more behind it for the moment

	snapshots []record.Snapshot // that one message holds: see entriesOf
}

// entriesOf reads one message of a run's record: one entry, or one for each snapshot.
func entriesOf(c *Conn, m stored) []Entry {
	e := entryOf(c, m)
	if len(e.snapshots) == 0 {
		return []Entry{e}
	}
	all := make([]Entry, len(e.snapshots))
	for i := range e.snapshots {
		s := &e.snapshots[i]
		all[i] = Entry{Ref: e.Ref, Agent: s.Agent, Snapshot: s}
		if s.Task != e.Ref.Task {
			all[i].Snapshot, all[i].Err = nil, fmt.Errorf("read snapshot of agent %s: it is of another task", s.Agent)
		}
	}
	return all
}

// entryOf reads one message of a run's record; its snapshots stay together.
func entryOf(c *Conn, m stored) (e Entry) {
	words := strings.Split(strings.TrimPrefix(strings.TrimPrefix(m.Subject, subject.Events), subject.Snapshots), ".")
	for i, to := range []*string{&e.Ref.Run, nil, &e.Ref.Task, &e.Ref.Attempt} {
		if to == nil || i >= len(words) {
			continue
		}
		if *to, e.Err = subject.DecodeToken(words[i]); e.Err != nil {
			return e
		}
	}
	if len(words) < 2 {
		e.Err = fmt.Errorf("read subject %q: not one of ours", m.Subject)
		return e
	}
	e.Err = Guard(c.log, m.Subject, func() error { return readBody(c, &e, words[1], m) })
	return e
}

func readBody(c *Conn, e *Entry, kind string, m stored) error {
	const who = "the controller"
	var err error
	switch kind {
	case "plan":
		var v plan.Run
		if err = c.codec.unpack(m.Header, m.Body, who, &v); err == nil {
			err = v.CheckTasks()
		}
		if err == nil {
			e.Plan = &v
		}
	case "epoch": // the fence of a leadership
	case "event":
		if err = decodeInto(c, m, who, &e.Event); err == nil {
			err = subject.CheckNames(e.Event.Task, e.Event.Attempt)
		}
	case "outcome":
		if err = decodeInto(c, m, who, &e.Outcome); err == nil &&
			(e.Outcome.Run != e.Ref.Run || e.Outcome.Task != e.Ref.Task) {
			e.Outcome, err = nil, fmt.Errorf("read message of %s: it is of another task", who)
		}
	case "snapshot":
		err = c.codec.decode(m.Header, m.Body, who, &e.snapshots)
	default:
		err = fmt.Errorf("read subject %q: not one of ours", m.Subject)
	}
	return err
}

// decodeInto sets *to only if the message is whole.
func decodeInto[T any](c *Conn, m stored, who string, to **T) error {
	v := new(T)
	if err := c.codec.decode(m.Header, m.Body, who, v); err != nil {
		return err
	}
	if string(m.Body) == "null" {
		return fmt.Errorf("read message of %s: it is empty", who)
	}
	*to = v
	return nil
}
