package wire

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// ErrNoRecord is wrapped by the error of reading a run without a record: it has not begun, or its record was deleted.
var ErrNoRecord = errors.New("no record on the control plane")

// ErrNoRun is wrapped by the error of reading a run that the control plane does not have.
var ErrNoRun = errors.New("no such run on the control plane: it was never submitted, or its record was deleted")

// Cursor is a position in the record of a run: the last sequence numbers that were read. The zero value is its start.
type Cursor struct {
	Events    uint64 `json:"events,omitempty"`
	Snapshots uint64 `json:"snapshots,omitempty"`
}

// behind returns the position behind a message. A snapshot that was stored before an event is never read after it.
func (c Cursor) behind(m stored) Cursor {
	if strings.HasPrefix(m.Subject, subject.Snapshots) {
		return Cursor{c.Events, m.Seq}
	}
	return Cursor{m.Seq, max(c.Snapshots, m.after())}
}

// RecordQuery selects a part of a run's record.
type RecordQuery struct {
	Run     string `json:"run"`
	Behind  Cursor `json:"behind,omitzero"`   // the position behind the last entry that was read
	Summary bool   `json:"summary,omitempty"` // without snapshots, which are most of the record
	Wait    bool   `json:"wait,omitempty"`    // until the run ends
	Delete  bool   `json:"delete,omitempty"`  // delete the snapshots up to Behind; only Client sets it, for a local run
}

func (q RecordQuery) check() error { return subject.CheckName(q.Run) }

type batch struct {
	Messages []stored `json:"messages,omitempty"`
	More     bool     `json:"more,omitempty"` // more messages follow
	End      *End     `json:"end,omitempty"`  // of the run, if the last message is its final end
}

type stored struct {
	Subject string      `json:"subject"`
	Seq     uint64      `json:"seq"` // 0: there is no such message
	Header  nats.Header `json:"header"`
	Body    body        `json:"body"`
}

// headerAfter has the sequence number of the last message of the run's other stream that was stored before.
const headerAfter = "Lockstep-After"

func (m stored) after() uint64 {
	n, _ := strconv.ParseUint(m.Header.Get(headerAfter), 10, 64) // 0: none
	return n
}

// body is the body of a message. In JSON, objects and lists are embedded as they are. Anything else is in base64.
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

// Limits of one batch of a record, and of the batches for clients and viewers.
const (
	batchBytes    = 512 << 10 // unless the only message is larger
	batchMessages = 256
	maxBatches    = 3 // in memory for clients and viewers: one message of 8 MiB takes a multiple of its size
)

// batchPause is the pause of a reader that has read all messages.
const batchPause = 250 * time.Millisecond

// recordReader reads the records of runs from their streams.
type recordReader struct {
	store *Store
	slots *semaphore.Weighted // bounds the batches in memory until they are sent; nil: unbounded
}

// read reads a batch. The error wraps ErrNoRun if the run is not known, or no longer. It wraps ErrNoRecord if the
// record was deleted since its last message was read, or, without Wait, if there is no record.
//
// It merges the two streams of the run. It reads the last sequence number of events before that of snapshots, so
// that all snapshots before an event are visible.
func (r recordReader) read(ctx context.Context, q RecordQuery) (b batch, err error) {
	ctx, cancel := context.WithTimeout(ctx, slowTimeout-requestTimeout)
	defer cancel()
	// The pending submission is read first: an end that is stored later is of this submission or a later one.
	submitted, err := r.store.lastMessage(ctx, subject.QueueStream, subject.Submit(q.Run))
	if err != nil {
		return b, err
	}
	events, err := r.store.js.Stream(ctx, subject.RunStream(subject.EventsStream, q.Run))
	switch missing := errors.Is(err, jetstream.ErrStreamNotFound); {
	case missing && !q.Wait:
		return b, ErrNoRecord
	case missing && submitted.Seq > 0:
		return b, nil
	case missing && q.Behind != Cursor{}:
		if state, err := r.store.RunState(ctx, q.Run); state.Run == "" && !errors.Is(err, ErrUnreadable) {
			return b, cmp.Or(err, ErrNoRun) // the server came back without its data
		}
		return b, fmt.Errorf("%w: it was deleted for newer runs before its end was read; "+
			"a controller with --dir has a copy, below runs", ErrNoRecord)
	case missing:
		return b, ErrNoRun
	case err != nil:
		return b, fmt.Errorf("read the record of run %s: %w", q.Run, err)
	}
	if !q.Wait && q.Behind == (Cursor{}) {
		if begun, err := lastOf(ctx, events, subject.Plan(q.Run)); err != nil || begun.Seq == 0 {
			return b, cmp.Or(err, ErrNoRecord)
		}
	}
	var snapshots jetstream.Stream
	if !q.Summary {
		if snapshots, err = r.store.js.Stream(ctx, subject.RunStream(subject.SnapshotsStream, q.Run)); err != nil {
			return b, fmt.Errorf("read the snapshots of run %s: %w", q.Run, err)
		}
	}
	at, size := q.Behind, 0
	if r.slots != nil && (at.Events < events.CachedInfo().State.LastSeq ||
		snapshots != nil && at.Snapshots < snapshots.CachedInfo().State.LastSeq) {
		if err := r.slots.Acquire(ctx, 1); err != nil {
			return b, err
		}
		afterAnswer(ctx, func() { r.slots.Release(1) })
	}
	var event, snapshot stored
	for len(b.Messages) < batchMessages {
		if event.Seq <= at.Events {
			if event, err = r.next(ctx, events, at.Events); err != nil {
				break
			}
		}
		if snapshots != nil && snapshot.Seq <= at.Snapshots {
			if snapshot, err = r.next(ctx, snapshots, at.Snapshots); err != nil {
				break
			}
		}
		var m stored
		// A power cut may remove snapshots before an event, and later ones have their numbers. No other one is skipped.
		if snapshot.Seq == 0 && snapshots != nil && event.after() > snapshots.CachedInfo().State.LastSeq || snapshot.Seq > 0 &&
			at.Snapshots < event.after() && snapshot.Seq <= event.after() && at.Events < snapshot.after() {
			event.Header = maps.Clone(event.Header)
			event.Header.Set(headerAfter, strconv.FormatUint(at.Snapshots, 10))
		}
		// Only a local control plane deletes snapshots, and its only server is never behind.
		deleted := snapshot.Seq > event.after() || snapshot.Seq == 0 && r.store.conn.local
		switch {
		case event.Seq > 0 && (q.Summary || at.Snapshots >= event.after() || deleted):
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
		if m.Subject == subject.Fence(subject.Events, q.Run) || m.Subject == subject.Fence(subject.Snapshots, q.Run) {
			continue
		}
		b.Messages = append(b.Messages, m)
		if m.Subject != subject.Event(q.Run) {
			continue
		}
		e := entriesOf(r.store.conn, m)[0].Event
		if e == nil || e.Kind != RunEnded || e.End == nil {
			continue
		}
		ends := submitted.Seq > 0 && e.End.Submission >= submitted.Seq
		if submitted.Seq == 0 {
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
		return b, nil // the error occurs again
	}
	return b, err
}

// next returns the first message of a run's stream after a sequence number. Its sequence number is 0 if there is none.
func (r recordReader) next(ctx context.Context, s jetstream.Stream, behind uint64) (stored, error) {
	for behind < s.CachedInfo().State.LastSeq {
		Progress(ctx, storeTimeout)
		m, err := s.GetMsg(ctx, behind+1, jetstream.WithGetMsgSubject(">"))
		if err == nil {
			return stored{Subject: m.Subject, Seq: m.Sequence, Header: m.Header, Body: m.Data}, nil
		}
		if errors.Is(err, jetstream.ErrMsgNotFound) && r.store.conn.local {
			return stored{}, nil // it was deleted
		}
		// The server that answered may not have it yet.
		if !errors.Is(err, jetstream.ErrMsgNotFound) || Wait(ctx, retryWait) != nil {
			return stored{}, fmt.Errorf("read %s: %w", s.CachedInfo().Config.Name, err)
		}
	}
	return stored{}, nil
}

// readRecord passes the entries of a record to handle: see Store.Read. It survives losses of the link and the leader.
// read returns a batch from the streams or from the leader. The current connection decodes it.
func readRecord(ctx context.Context, conn func() *Conn, read func(context.Context, RecordQuery) (batch, error),
	q RecordQuery, handle func(Entry) error) (*End, error) {
	what := "copy run "
	switch {
	case q.Wait:
		what = "follow run "
	case q.Summary:
		what = "read the state of run "
	}
	failed := func(err error) (*End, error) { return nil, fmt.Errorf("%s%s: %w", what, q.Run, err) }
	again := retryWait
	for {
		b, err := read(ctx, q)
		if err != nil {
			if !q.Wait || ctx.Err() != nil || permanent(err) {
				return failed(err)
			}
			if err := Wait(ctx, again); err != nil {
				return failed(err)
			}
			again = min(2*again, time.Second)
			continue
		}
		again = retryWait
		for i, m := range b.Messages {
			q.Behind = q.Behind.behind(m)
			entries := entriesOf(conn(), m)
			for j, e := range entries {
				e.At = q.Behind
				e.Last = !b.More && i == len(b.Messages)-1 && j == len(entries)-1
				if err := handle(e); err != nil {
					return failed(err)
				}
			}
		}
		switch {
		case b.End != nil, !q.Wait && !b.More:
			return b.End, nil
		case !b.More:
			if err := Wait(ctx, batchPause); err != nil {
				return failed(err)
			}
		}
	}
}

// permanent reports whether a reader would get the same error again.
func permanent(err error) bool {
	return Unaccepted(err) || slices.ContainsFunc([]error{ErrNoRun, ErrNoRecord, ErrProtocol, ErrTooLarge, ErrPanic,
		nats.ErrPermissionViolation, nats.ErrConnectionClosed}, func(is error) bool { return errors.Is(err, is) })
}

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
}

// entriesOf decodes one message of a run's record: to one entry, or one entry per snapshot.
func entriesOf(c *Conn, m stored) []Entry {
	var e Entry
	tokens := strings.Split(strings.TrimPrefix(strings.TrimPrefix(m.Subject, subject.Events), subject.Snapshots), ".")
	for i, to := range []*string{&e.Ref.Run, nil, &e.Ref.Task, &e.Ref.Attempt} {
		if to == nil || i >= len(tokens) {
			continue
		}
		if *to, e.Err = subject.DecodeToken(tokens[i]); e.Err != nil {
			return []Entry{e}
		}
	}
	var all []Entry // snapshots
	err := Guard(c.log, m.Subject, func() (err error) {
		const who = "the controller"
		switch append(tokens, "")[1] {
		case "epoch": // the fence of a leadership
			return nil
		case "plan":
			e.Plan = &plan.Run{}
			if err = c.codec.check(m.Header, who); err == nil {
				err = unzip(m.Body, who, e.Plan)
			}
			if err == nil {
				err = e.Plan.CheckShape()
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
			var texts []json.RawMessage
			err = c.codec.decode(m.Header, m.Body, who, &texts)
			for _, text := range texts { // an invalid snapshot of one agent does not affect those of others
				var s record.Snapshot
				one := Entry{Ref: e.Ref, Snapshot: &s, Err: json.Unmarshal(text, &s)}
				if one.Agent = s.Agent; one.Err == nil && s.Task != e.Ref.Task {
					one.Err = fmt.Errorf("read snapshot of agent %s: it belongs to another task", s.Agent)
				}
				if one.Err != nil {
					one.Snapshot = nil
				}
				all = append(all, one)
			}
		default:
			err = fmt.Errorf("read subject %q: not a subject of Lockstep", m.Subject)
		}
		if err == nil && e.Plan == nil && e.Event == nil && e.Outcome == nil && all == nil {
			err = fmt.Errorf("read message of %s: empty", who)
		}
		return err
	})
	if err != nil {
		return []Entry{{Ref: e.Ref, Err: err}}
	}
	if all == nil {
		all = []Entry{e}
	}
	return all
}
