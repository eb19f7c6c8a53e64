package wire

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"lockstep/internal/plan"
)

// ErrNoRecord is wrapped by the error of reading a run whose record is not on the control plane: it has not begun, or
// was deleted there.
var ErrNoRecord = errors.New("the control plane has no record of it")

// ErrNoRun is wrapped by the error of reading a run that the control plane does not know.
var ErrNoRun = errors.New("the control plane knows no such run: it was never submitted, or its record is too old")

// Limits of one batch of a record, and how long a reader waits for the first message of one.
const (
	batchBytes    = 512 << 10 // unless its only message is larger
	batchMessages = 256
	batchWait     = 5 * time.Second
)

// batchPause is the pause of a reader that has read everything.
const batchPause = 250 * time.Millisecond

// Cursor is a position in the record of a run: the sequence numbers of the last messages that were read. The zero value
// is its beginning.
type Cursor struct {
	Events    uint64 `json:"events,omitempty"`
	Snapshots uint64 `json:"snapshots,omitempty"`
}

// behind returns the position behind a message. Snapshots that were stored before an event are never read after it.
func (c Cursor) behind(m stored) Cursor {
	if strings.HasPrefix(m.Subject, rootSnapshots) {
		return Cursor{c.Events, m.Seq}
	}
	return Cursor{m.Seq, max(c.Snapshots, m.after())}
}

// recordQuery asks for a batch of the record of a run.
type recordQuery struct {
	Run     string `json:"run"`
	Behind  Cursor `json:"behind,omitzero"`
	Outline bool   `json:"outline,omitempty"` // without snapshots
	Wait    bool   `json:"wait,omitempty"`    // for a first message, at most batchWait
	Delete  bool   `json:"delete,omitempty"`  // the snapshots that are not behind it, of a local run
}

// batch is a part of the record of a run, in order.
type batch struct {
	Messages []stored `json:"messages,omitempty"`
	More     bool     `json:"more,omitempty"` // there is more behind it
	End      *End     `json:"end,omitempty"`  // of the run, if the last message is its last end
}

// stored is a message of a stream.
type stored struct {
	Subject string      `json:"subject"`
	Seq     uint64      `json:"seq"` // 0: there is no such message
	Header  nats.Header `json:"header"`
	Body    body        `json:"body"`
}

// headerAfter names the last message of the other stream of the run that was stored before a message was sent.
const headerAfter = "Lockstep-After"

func (m stored) after() uint64 {
	n, _ := strconv.ParseUint(m.Header.Get(headerAfter), 10, 64) // 0: nothing precedes it
	return n
}

// body is the body of a message. In JSON an object or a list is itself, anything else is a string in base64.
type body []byte

func (b body) MarshalJSON() ([]byte, error) {
	if structured(b) && json.Valid(b) {
		return b, nil
	}
	return json.Marshal([]byte(b))
}

func (b *body) UnmarshalJSON(text []byte) error {
	if !structured(text) {
		return json.Unmarshal(text, (*[]byte)(b))
	}
	*b = bytes.Clone(text)
	return nil
}

func structured(b []byte) bool { return len(b) > 0 && (b[0] == '{' || b[0] == '[') }

// read reads a batch. The error wraps ErrNoRun if the run is not known, or not any more, ErrNoRecord if its record was deleted since its
// last message was read, or, without Wait, if it has none.
func (c *Conn) read(ctx context.Context, q recordQuery) (b batch, err error) {
	// What ends the run is looked up first: an end that is stored meanwhile is of this submission, or a later one.
	pending, err := c.last(ctx, streamQueue, subjectSubmit(q.Run))
	if err != nil {
		return b, err
	}
	reading, cancel := context.WithTimeout(ctx, batchWait)
	defer cancel()
	for {
		b, err = c.readOnce(ctx, q, pending)
		if err != nil || len(b.Messages) > 0 || !q.Wait || wait(reading, batchPause) != nil {
			return b, err
		}
	}
}

// readOnce merges the streams of a run. It looks up the end of the events before that of the snapshots: then all
// snapshots that precede an event are in sight.
func (c *Conn) readOnce(ctx context.Context, q recordQuery, pending uint64) (b batch, err error) {
	ctx, cancel := context.WithTimeout(ctx, slowTimeout-requestTimeout)
	defer cancel()
	events, err := c.js.Stream(ctx, nameOf(streamEvents, q.Run))
	switch missing := errors.Is(err, jetstream.ErrStreamNotFound); {
	case missing && !q.Wait:
		return b, ErrNoRecord
	case missing && pending > 0:
		return b, nil
	case missing && q.Behind != Cursor{}:
		if state, err := c.RunState(ctx, q.Run); state.Run == "" && !errors.Is(err, ErrUnreadable) {
			return b, cmp.Or(err, ErrNoRun) // it came back without its data
		}
		return b, fmt.Errorf("%w any more: it was deleted for newer runs before its end was read; "+
			"a controller with --dir has a copy, below runs", ErrNoRecord)
	case missing:
		return b, ErrNoRun
	case err != nil:
		return b, fmt.Errorf("read the record of run %s: %w", q.Run, err)
	}
	if !q.Wait && q.Behind == (Cursor{}) {
		if begun, err := lastOf(ctx, events, subjectPlan(q.Run)); err != nil || begun.Seq == 0 {
			return b, cmp.Or(err, ErrNoRecord)
		}
	}
	var snapshots jetstream.Stream
	if !q.Outline {
		if snapshots, err = c.js.Stream(ctx, nameOf(streamSnapshots, q.Run)); err != nil {
			return b, fmt.Errorf("read the snapshots of run %s: %w", q.Run, err)
		}
	}
	at, size := q.Behind, 0
	var event, snapshot stored
	for len(b.Messages) < batchMessages {
		if event.Seq <= at.Events {
			if event, err = c.next(ctx, events, at.Events); err != nil {
				break
			}
		}
		if snapshots != nil && snapshot.Seq <= at.Snapshots {
			if snapshot, err = c.next(ctx, snapshots, at.Snapshots); err != nil {
				break
			}
		}
		var m stored
		// Snapshots are deleted on a local control plane alone, and its only server is never behind.
		deleted := snapshot.Seq > event.after() || snapshot.Seq == 0 && c.local
		switch {
		case event.Seq > 0 && (q.Outline || at.Snapshots >= event.after() || deleted):
			m = event
		case snapshot.Seq > 0 && at.Events >= snapshot.after():
			m = snapshot
		default:
			b.More = false
			return b, nil
		}
		if size += len(m.Body); size > batchBytes && len(b.Messages) > 0 {
			return b, nil
		}
		at = at.behind(m)
		b.More = true
		if m.Subject == subjectFence(rootEvents, q.Run) || m.Subject == subjectFence(rootSnapshots, q.Run) {
			continue
		}
		b.Messages = append(b.Messages, m)
		if m.Subject != subjectEvent(q.Run) {
			continue
		}
		e := c.entry(m).Event
		if e == nil || e.Kind != RunEnded || e.End == nil {
			continue
		}
		ends := pending > 0 && e.End.Submission >= pending
		if pending == 0 {
			last, err := lastOf(ctx, events, m.Subject)
			if err != nil {
				return b, err
			}
			ends = m.Seq >= last.Seq
		}
		if ends {
			b.End, b.More = e.End, false
			return b, nil
		}
	}
	if len(b.Messages) > 0 {
		return b, nil // an error comes again
	}
	return b, err
}

// next returns the first message of a run's stream behind a sequence number; without a number if there is none.
func (c *Conn) next(ctx context.Context, s jetstream.Stream, behind uint64) (stored, error) {
	for behind < s.CachedInfo().State.LastSeq {
		Progress(ctx, storeTimeout)
		m, err := s.GetMsg(ctx, behind+1, jetstream.WithGetMsgSubject(">"))
		if err == nil {
			return stored{Subject: m.Subject, Seq: m.Sequence, Header: m.Header, Body: m.Data}, nil
		}
		if errors.Is(err, jetstream.ErrMsgNotFound) && c.local {
			return stored{}, nil // it was deleted
		}
		// The server that answered may not have it yet.
		if !errors.Is(err, jetstream.ErrMsgNotFound) || wait(ctx, retryWait) != nil {
			return stored{}, fmt.Errorf("read %s: %w", s.CachedInfo().Config.Name, err)
		}
	}
	return stored{}, nil
}

// source reads batches: a Conn from the stream, a Client from the controller that leads.
type source interface {
	read(ctx context.Context, q recordQuery) (batch, error)
	entries(m stored) []Entry
}

// readRecord hands the entries of a run's record to handle, in order, until its last end, which it returns, or, without
// q.Wait, as far as they are there: nil then. With q.Wait it outlives losses of the link and of the leader.
func readRecord(ctx context.Context, from source, q recordQuery, handle func(Entry) error) (*End, error) {
	again := retryWait
	for {
		b, err := from.read(ctx, q)
		if err != nil {
			if !q.Wait || ctx.Err() != nil || lasting(err) {
				return nil, err
			}
			if err := wait(ctx, again); err != nil {
				return nil, err
			}
			again = min(2*again, time.Second)
			continue
		}
		again = retryWait
		for i, m := range b.Messages {
			q.Behind = q.Behind.behind(m)
			entries := from.entries(m)
			for j, e := range entries {
				e.At = q.Behind
				e.Last = !b.More && i == len(b.Messages)-1 && j == len(entries)-1
				if err := handle(e); err != nil {
					return nil, err
				}
			}
		}
		switch {
		case b.End != nil, !q.Wait && !b.More:
			return b.End, nil
		case !b.More:
			if err := wait(ctx, batchPause); err != nil {
				return nil, err
			}
		}
	}
}

// lasting reports whether a reader gets the same error if it reads again.
func lasting(err error) bool {
	if Unaccepted(err) {
		return true
	}
	for _, is := range []error{ErrNoRun, ErrNoRecord, ErrProtocol, ErrTooLarge, ErrPanic,
		nats.ErrPermissionViolation, nats.ErrConnectionClosed} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// Follow hands the record of a run to handle, from its beginning, in order: plan, events, snapshots, outcomes. It
// returns the run's end when that was handled, or the error of handle or of ctx. An error that wraps ErrNoRun or
// ErrNoRecord means that the run is not known, or its record was deleted. One goroutine calls handle.
func (c *Conn) Follow(ctx context.Context, run string, handle func(Entry) error) (End, error) {
	return follow(ctx, c, recordQuery{Run: run, Wait: true}, handle)
}

// Await is Follow without snapshots.
func (c *Conn) Await(ctx context.Context, run string, handle func(Entry) error) (End, error) {
	return follow(ctx, c, recordQuery{Run: run, Outline: true, Wait: true}, handle)
}

func follow(ctx context.Context, from source, q recordQuery, handle func(Entry) error) (End, error) {
	end, err := readRecord(ctx, from, q, handle)
	if err != nil {
		return End{}, fmt.Errorf("follow run %s: %w", q.Run, err)
	}
	return *end, nil
}

// last is the sequence number of a subject's last message, or 0.
func (c *Conn) last(ctx context.Context, stream, subject string) (uint64, error) {
	m, err := c.lastMessage(ctx, stream, subject)
	return m.Seq, err
}

// lastMessage is a subject's last message, without its body; without a sequence number if there is none.
func (c *Conn) lastMessage(ctx context.Context, stream, subject string) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	s, err := c.stream(ctx, stream)
	if err != nil {
		return stored{}, fmt.Errorf("look at %s (is a controller there?): %w", stream, err)
	}
	return lastOf(ctx, s, subject)
}

func lastOf(ctx context.Context, s jetstream.Stream, subject string) (stored, error) {
	m, err := s.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return stored{}, nil
	}
	if err != nil {
		return stored{}, fmt.Errorf("look at %s: %w", s.CachedInfo().Config.Name, err)
	}
	return stored{Seq: m.Sequence, Header: m.Header}, nil
}

// entries reads one message of a run's record: one entry, or one for each snapshot.
func (c *Conn) entries(m stored) []Entry {
	e := c.entry(m)
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

// entry reads one message of a run's record; its snapshots stay together.
func (c *Conn) entry(m stored) (e Entry) {
	words := strings.Split(strings.TrimPrefix(strings.TrimPrefix(m.Subject, rootEvents), rootSnapshots), ".")
	for i, to := range []*string{&e.Ref.Run, nil, &e.Ref.Task, &e.Ref.Try} {
		if to == nil || i >= len(words) {
			continue
		}
		if *to, e.Err = untoken(words[i]); e.Err != nil {
			return e
		}
	}
	if len(words) < 2 {
		e.Err = fmt.Errorf("read subject %q: not one of ours", m.Subject)
		return e
	}
	e.Err = Guard(c.log, m.Subject, func() error { return c.body(&e, words[1], m) })
	return e
}

func (c *Conn) body(e *Entry, kind string, m stored) error {
	const who = "the controller"
	var err error
	switch kind {
	case "plan":
		var v plan.Run
		if err = c.unpack(m.Header, m.Body, who, &v); err == nil {
			err = v.CheckTasks()
		}
		if err == nil {
			e.Plan = &v
		}
	case "epoch": // the fence of a leadership
	case "event":
		if err = decodeInto(c, m, who, &e.Event); err == nil {
			err = checkNames(e.Event.Task, e.Event.Try)
		}
	case "outcome":
		if err = decodeInto(c, m, who, &e.Outcome); err == nil && (e.Outcome.Run != e.Ref.Run || e.Outcome.Task != e.Ref.Task) {
			e.Outcome, err = nil, fmt.Errorf("read message of %s: it is of another task", who)
		}
	case "snapshot":
		err = c.decode(m.Header, m.Body, who, &e.snapshots)
	default:
		err = fmt.Errorf("read subject %q: not one of ours", m.Subject)
	}
	return err
}

// decodeInto sets *to only if the message is whole.
func decodeInto[T any](c *Conn, m stored, who string, to **T) error {
	v := new(T)
	if err := c.decode(m.Header, m.Body, who, v); err != nil {
		return err
	}
	if string(m.Body) == "null" {
		return fmt.Errorf("read message of %s: it is empty", who)
	}
	*to = v
	return nil
}
