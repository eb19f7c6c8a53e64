package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

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
