package wire

import (
	"fmt"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// Entry is one message of a run's record. One of Plan, Event, Snapshot, Outcome and Err is set; none for a fence.
type Entry struct {
	Ref      Ref    // Run always; Task and Attempt of messages that belong to one
	At       Cursor // the position behind it
	Plan     *plan.Run
	Event    *RunEvent
	Snapshot *record.Snapshot
	Outcome  *plan.Outcome
	Err      error // the message is invalid, or of another format; Ref identifies it as far as possible
	Agent    string
	Last     bool // no further entry is available at present

	snapshots []record.Snapshot // of one message: see entriesOf
}

// entriesOf decodes one message of a run's record: to one entry, or one entry per snapshot.
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
			all[i].Snapshot, all[i].Err = nil, fmt.Errorf("read snapshot of agent %s: it belongs to another task", s.Agent)
		}
	}
	return all
}

// entryOf decodes one message of a run's record. Snapshots of one message stay together.
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
		e.Err = fmt.Errorf("read subject %q: not a subject of Lockstep", m.Subject)
		return e
	}
	if err := Guard(c.log, m.Subject, func() error { return readBody(c, &e, words[1], m) }); err != nil {
		e = Entry{Ref: e.Ref, Err: err}
	}
	return e
}

func readBody(c *Conn, e *Entry, kind string, m stored) (err error) {
	const who = "the controller"
	switch kind {
	case "epoch": // the fence of a leadership
		return nil
	case "plan":
		e.Plan = &plan.Run{}
		if err = c.codec.unpack(m.Header, m.Body, who, e.Plan); err == nil {
			err = e.Plan.CheckTasks()
		}
	case "event":
		if err = c.codec.decode(m.Header, m.Body, who, &e.Event); err == nil && e.Event != nil {
			err = subject.CheckNames(e.Event.Task, e.Event.Attempt)
		}
	case "outcome":
		err = c.codec.decode(m.Header, m.Body, who, &e.Outcome)
		if o := e.Outcome; err == nil && o != nil && (o.Run != e.Ref.Run || o.Task != e.Ref.Task) {
			err = fmt.Errorf("read message of %s: it belongs to another task", who)
		}
	case "snapshot":
		err = c.codec.decode(m.Header, m.Body, who, &e.snapshots)
	default:
		err = fmt.Errorf("read subject %q: not a subject of Lockstep", m.Subject)
	}
	if err == nil && e.Plan == nil && e.Event == nil && e.Outcome == nil && e.snapshots == nil {
		err = fmt.Errorf("read message of %s: empty", who)
	}
	return err
}
