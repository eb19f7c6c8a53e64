package wire

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// Headers of messages. Each message has the number of its format. A refusal has the text of an error instead of a body.
const (
	headerProtocol = "Lockstep-Protocol" // of requests and answers: plan.Protocol
	headerFormat   = "Lockstep-Format"   // of messages in the record and the queue: plan.RecordFormat
	headerError    = "Lockstep-Error"
)

// ErrProtocol is wrapped by the error of a message of another format, stored or not.
var ErrProtocol = errors.New("different protocol versions")

// ErrTooLarge is wrapped by the error of a message that the control plane would not accept.
var ErrTooLarge = errors.New("message is too large for the control plane")

// ErrUnreadable is wrapped by the error of stored data that can never be read.
var ErrUnreadable = errors.New("stored data cannot be decoded")

// tooLong is the error code of a message that the server refuses for its size.
const tooLong = 10054

// wrap puts words before an error, unless it is nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// Hopeless reports whether an operation would fail again at every attempt: the message is too large or cannot be
// encoded, its stream is full, or the credentials do not allow it. Other errors of the control plane may be temporary.
func Hopeless(err error) bool {
	var value *json.UnsupportedValueError
	var kind *json.UnsupportedTypeError
	return errors.Is(err, ErrTooLarge) || errors.Is(err, ErrFull) || errors.Is(err, nats.ErrMaxPayload) ||
		errors.Is(err, nats.ErrPermissionViolation) || errors.As(err, &value) || errors.As(err, &kind) ||
		codeOf(err) == tooLong
}

// codec encodes and decodes the messages of one connection, within the limits of its server.
type codec struct {
	protocol   int          // plan.Protocol, except in tests
	maxPayload func() int64 // maximum message size of the server, in bytes
}

// encode returns a message with v: bytes as they are, other values as JSON.
func (c codec) encode(to string, v any) (*nats.Msg, error) {
	body, encoded := v.([]byte)
	if !encoded {
		var err error
		if body, err = json.Marshal(v); err != nil {
			return nil, fmt.Errorf("encode %T: %w", v, err)
		}
	}
	limit := c.limit()
	recorded := strings.HasPrefix(to, subject.Events) || strings.HasPrefix(to, subject.Snapshots)
	if recorded {
		limit = c.entryLimit()
		if !structured(body) {
			limit = limit * 3 / 4 // in an answer it is base64
		}
	}
	if len(body) > limit {
		return nil, fmt.Errorf("send %s: %d bytes exceed the limit of %d (max_payload of its NATS server): %w", to,
			len(body), limit, ErrTooLarge)
	}
	m := nats.NewMsg(to)
	if recorded || strings.HasPrefix(to, subject.Queue) {
		m.Header.Set(headerFormat, strconv.Itoa(plan.RecordFormat))
	} else {
		m.Header.Set(headerProtocol, strconv.Itoa(c.protocol))
	}
	m.Data = body
	return m, nil
}

// limit returns the maximum size of a body. It leaves space for headers.
func (c codec) limit() int { return int(min(c.maxPayload(), MaxMessage)) - 1024 }

// entryLimit returns the maximum size of a body in the record, which readers get as a part of an answer.
func (c codec) entryLimit() int { return c.limit() - 1024 }

// check refuses messages of another format. who names the sender in the error.
func (c codec) check(h nats.Header, who string) error {
	if stored := h.Get(headerFormat); stored != "" {
		format, _ := strconv.Atoi(stored) // not a number: 0, which is no format
		if err := plan.CheckFormat(format); err != nil {
			return fmt.Errorf("read record of %s: %w: %w", who, err, ErrProtocol)
		}
		return nil
	}
	version := cmp.Or(h.Get(headerProtocol), "none")
	if version != strconv.Itoa(c.protocol) {
		return fmt.Errorf("%s uses protocol %.20s, this program uses protocol %d; install the same release of Lockstep on both: %w",
			who, version, c.protocol, ErrProtocol)
	}
	return nil
}

func (c codec) decode(h nats.Header, body []byte, who string, v any) error {
	if err := c.check(h, who); err != nil {
		return err
	}
	return wrap(json.Unmarshal(body, v), "read message of %s", who)
}

func (c codec) unpack(h nats.Header, body []byte, who string, v any) error {
	if err := c.check(h, who); err != nil {
		return err
	}
	return unzip(body, who, v)
}

// refusal returns the reply to a message that was not accepted, with the reason and its identity from codes.
func (c codec) refusal(reply string, why error) *nats.Msg {
	m := nats.NewMsg(reply)
	m.Header.Set(headerProtocol, strconv.Itoa(c.protocol))
	m.Header.Set(headerError, oneLine(why.Error()))
	for code, is := range codes {
		if errors.Is(why, is) {
			m.Header.Set(headerCode, code)
		}
	}
	return m
}

// pack returns v as compressed JSON. It is for data with much repetition, such as plans.
func pack(v any) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	text, err := json.Marshal(v)
	if err == nil && len(text) > plan.MaxDocument {
		err = fmt.Errorf("%d bytes exceed the limit of %d of the control plane; split the matrix: %w", len(text), plan.MaxDocument,
			ErrTooLarge)
	}
	if err == nil {
		_, err = z.Write(text)
	}
	if err == nil {
		err = z.Close()
	}
	return b.Bytes(), wrap(err, "encode %T", v)
}

func unzip(body []byte, who string, v any) error {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err == nil {
		err = plan.Decode(z, plan.MaxDocument, v)
	}
	return wrap(err, "read message of %s", who)
}

// oneLine makes text valid for a header: it truncates it and replaces control characters.
func oneLine(text string) string {
	const maxText = 2000
	if len(text) > maxText {
		text = text[:maxText]
	}
	return string(bytes.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, []byte(text)))
}
