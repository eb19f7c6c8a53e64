package external

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// protocol is the version of the protocol, which docs/reference/driver-protocol.md describes.
const protocol = 5

// inbound is the header of frames from a driver's process. Type determines which fields are used.
type inbound struct {
	Type       string          `json:"type"`
	ID         uint64          `json:"id"`
	Result     json.RawMessage `json:"result"`  // done
	Kind       string          `json:"kind"`    // failed, event; confirm: kind of error
	Message    string          `json:"message"` // failed, closed, confirm
	Conn       uint64          `json:"conn"`    // closed
	Publisher  uint64          `json:"publisher"`
	Consumer   uint64          `json:"consumer"`
	Count      int             `json:"count"`      // taken, retried
	Bytes      int             `json:"bytes"`      // taken
	Numbers    [][2]uint64     `json:"numbers"`    // confirm: inclusive ranges
	Deliveries [][4]uint32     `json:"deliveries"` // size, redelivered (drivers.Tristate), stream, last (0 or 1)
	Address    string          `json:"address"`    // forward
	Detail     string          `json:"detail"`     // event
}

// The types of frames from a driver's process.
const (
	typeDone    = "done"
	typeFailed  = "failed"
	typeTaken   = "taken"
	typeConfirm = "confirm"
	typeReturn  = "return"
	typeDeliver = "deliver"
	typeClosed  = "closed"
	typeEvent   = "event"
	typeRetried = "retried"
	typeForward = "forward"
)

// The types of frames about deliveries, to a driver's process.
const (
	typeHandled = "handled"
	typeAck     = "ack"
	typeNack    = "nack"
)

// outbound is the header of frames to a driver's process: requests, answers and messages without an answer. outbox.go
// writes the frequent ones by hand.
type outbound struct {
	Type      string `json:"type"`
	ID        uint64 `json:"id,omitempty"`
	Conn      uint64 `json:"conn,omitempty"`
	Publisher uint64 `json:"publisher,omitempty"`
	Consumer  uint64 `json:"consumer,omitempty"`

	Protocol int               `json:"protocol,omitempty"` // hello
	Options  json.RawMessage   `json:"options,omitempty"`  // open
	Dir      string            `json:"dir,omitempty"`      // open
	Window   *window           `json:"window,omitempty"`   // open
	Topology *drivers.Topology `json:"topology,omitempty"`

	Spec any `json:"spec,omitempty"` // drivers.ConnSpec, PublisherSpec or ConsumerSpec

	Prefix    string             `json:"prefix,omitempty"`    // leftovers
	Leftovers []drivers.Leftover `json:"leftovers,omitempty"` // cleanup
	Binding   *binding           `json:"binding,omitempty"`   // bind, unbind

	Local   string `json:"local,omitempty"`   // done: answer to a forward
	Message string `json:"message,omitempty"` // failed: answer to a forward
}

// handle returns the number of the part that a request is about.
func (o outbound) handle() uint64 { return cmp.Or(o.Publisher, o.Consumer, o.Conn) }

// window is the maximum of what may be sent and not yet taken, per publisher and per consumer.
type window struct {
	Messages int `json:"messages"`
	Bytes    int `json:"bytes"`
}

type binding struct {
	Subscription int    `json:"subscription"`
	Queue        int    `json:"queue"`
	Key          uint32 `json:"key"`
}

// maxText is the maximum length of a driver's messages and details, in bytes.
const maxText = 4 << 10

func bounded(s string) string {
	if len(s) > maxText {
		return strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}

// kinds maps the kinds of errors that a driver may use to errors. Any other kind is a protocol error.
var kinds = map[string]error{"closed": drivers.ErrClosed, "rejected": drivers.ErrRejected,
	"unsupported": drivers.ErrUnsupported, "other": nil}

// failure converts a driver's error to an error. It returns false if the kind is unknown.
func failure(kind, message string) (error, bool) {
	sort, known := kinds[kind]
	switch {
	case !known:
		return nil, false
	case sort == nil:
		return errors.New(bounded(message)), true
	case message == "":
		return sort, true
	}
	return fmt.Errorf("%w: %s", sort, bounded(message)), true
}
