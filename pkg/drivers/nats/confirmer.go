package nats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// confirmer converts the broker's replies into calls of OnConfirms, one at a time. The calls come from the library's
// goroutine of the subscription. In modes where each message waits for its confirm, they come from Publish.
type confirmer struct {
	conn     *conn
	slots    *slots
	confirms kit.Confirms
	sub      *client.Subscription

	repeats   bool       // options.repeats
	repeating sync.Mutex // locked by a repetition, which fail must not overtake

	prompt  bool             // Publish waits for the confirm
	replies chan *client.Msg // used if prompt
	turn    sync.Mutex       // locked by a prompt Publish

	count    atomic.Uint64 // number of confirms
	seen     uint64        // count at the last call of check
	quiet    int           // successive calls of check with outstanding confirms and the same count
	patience time.Duration
	watchdog *time.Timer

	closing  atomic.Bool
	progress chan struct{} // receives a value after each reply while closing
	over     atomic.Bool   // all confirms are settled, and no more will come
	settled  chan struct{} // closed after over is set
}

func newConfirmer(on *conn, spec drivers.PublisherSpec, patience time.Duration) (*confirmer, error) {
	inbox := client.NewInbox() + "."
	c := &confirmer{
		conn: on, confirms: kit.Confirms{OnConfirms: spec.OnConfirms},
		progress: make(chan struct{}, 1), settled: make(chan struct{}),
		slots:    newSlots(inbox, inFlight(spec)),
		prompt:   spec.Mode == drivers.ConfirmEach || spec.Mode == drivers.ConnectionPerMessageConfirm,
		patience: patience,
	}
	if err := c.subscribe(inbox + "*"); err != nil {
		return nil, err
	}
	c.watchdog = time.AfterFunc(time.Hour, c.check) // check uses the field
	c.watchdog.Reset(patience / checks)
	return c, nil
}

func (c *confirmer) subscribe(subject string) (err error) {
	if c.prompt {
		c.replies = make(chan *client.Msg, 64)
		c.sub, err = c.conn.nc.ChanSubscribe(subject, c.replies)
		return err
	}
	if c.sub, err = c.conn.nc.Subscribe(subject, c.onReply); err != nil {
		return err
	}
	c.sub.SetClosedHandler(func(string) { c.finish() })
	return c.sub.SetPendingLimits(-1, -1)
}

// checks is the number of calls of check within patience.
const checks = 4

// check breaks the connection if confirms are outstanding and none has arrived for patience, up to a quarter late.
func (c *confirmer) check() {
	count := c.count.Load()
	switch {
	case c.closing.Load():
		return
	case !c.slots.busy():
		c.quiet = 0
	case count != c.seen:
		c.quiet = 1
	default:
		c.quiet++
	}
	c.seen = count
	if c.quiet > checks {
		c.conn.abandon(fmt.Errorf("no confirm for %s", c.patience))
		return
	}
	c.watchdog.Reset(c.patience / checks)
}

// inFlight returns the initial number of slots. It is no larger than necessary, because each slot is a reply subject. A
// server caches the routes of only a few hundred subjects.
func inFlight(spec drivers.PublisherSpec) int {
	switch spec.Mode {
	case drivers.ConfirmWindow:
		return max(16, spec.MaxInFlight)
	case drivers.ConfirmBatch:
		return max(16, spec.Batch)
	}
	return 1
}

func (c *confirmer) onReply(m *client.Msg) {
	at := c.slots.find(m.Subject)
	if at == nil {
		return
	}
	err := verdict(m)
	if c.repeats && errors.Is(err, errNoStream) {
		if c.repeat(at) {
			return
		}
		err = errNoLeader
	}
	if token, mine := at.settle(); mine {
		c.count.Add(1)
		c.confirms.Add(token, err)
		c.confirms.Report()
	}
	if c.closing.Load() {
		select {
		case c.progress <- struct{}{}:
		default:
		}
	}
}

// Errors of messages that no stream accepted. With errNoLeader, the engine publishes them again.
var (
	errNoStream = fmt.Errorf("%w: no stream accepts it: it is gone, or has no leader", drivers.ErrRejected)
	errNoLeader = fmt.Errorf("%w: no stream accepts it: it is gone, or has no leader", drivers.ErrClosed)
)

// repeat publishes a message again that no stream accepted, after the time and as often as the library's JetStream does
// by default: the stream may be between two leaders. Later messages may overtake it, as with the library. It returns
// false if it does not.
func (c *confirmer) repeat(at *slot) bool {
	if !at.busy.Load() || at.repeats == jetstream.DefaultPubRetryAttempts {
		return false
	}
	at.repeats++
	c.conn.session.env.Retried(1)
	time.AfterFunc(jetstream.DefaultPubRetryWait, func() {
		c.repeating.Lock()
		defer c.repeating.Unlock()
		if at.busy.Load() && c.conn.nc.PublishRequest(at.to, at.reply, at.body) != nil {
			_ = c.conn.raw.Close()
		}
	})
	return true
}

// verdict returns the error of a reply, or nil if the message was stored. It recognises the usual reply by its first
// bytes.
func verdict(m *client.Msg) error {
	if bytes.HasPrefix(m.Data, []byte(`{"stream":`)) {
		return nil
	}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return errNoStream
	}
	var reply struct {
		Stream string `json:"stream"`
		Error  *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &reply); {
	case err != nil:
		return fmt.Errorf("%w: reply is not JSON: %w", drivers.ErrRejected, err)
	case reply.Error != nil:
		return fmt.Errorf("%w: %s (%d)", drivers.ErrRejected, reply.Error.Description, reply.Error.Code)
	case reply.Stream == "":
		return fmt.Errorf("%w: reply names no stream", drivers.ErrRejected)
	}
	return nil
}

// await handles replies until no confirm is outstanding. When the connection ends, it handles those that have arrived,
// and fails the others. w counts the time of waiting.
func (c *confirmer) await(w *drivers.Waiting) {
	for c.slots.busy() {
		w.Begin()
		select {
		case m := <-c.replies:
			w.End()
			c.onReply(m)
			continue
		case <-c.conn.Done():
			w.End()
		}
		for waiting := true; waiting; {
			select {
			case m := <-c.replies:
				c.onReply(m)
			default:
				waiting = false
			}
		}
		c.fail()
	}
}

// finish fails all outstanding confirms. After that, Publish settles its own messages (see send).
func (c *confirmer) finish() {
	c.over.Store(true)
	c.fail()
	close(c.settled)
}

func (c *confirmer) fail() {
	c.repeating.Lock()
	defer c.repeating.Unlock()
	var cause error
	for _, at := range *c.slots.all.Load() {
		if token, mine := at.settle(); mine {
			if cause == nil {
				cause = fmt.Errorf("confirm from %s: %w", c.conn.address, drivers.ErrClosed)
			}
			c.confirms.Add(token, cause)
		}
	}
	c.confirms.Report()
}

// close waits up to grace for the outstanding confirms. Then it fails the rest. A prompt Publish waits itself.
func (c *confirmer) close() {
	c.closing.Store(true)
	c.watchdog.Stop()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for waiting := !c.prompt; waiting && c.slots.busy(); {
		select {
		case <-c.progress:
		case <-c.conn.Done():
			waiting = false
		case <-timer.C:
			waiting = false
		}
	}
	c.conn.guarded(2*grace, func() { _ = c.sub.Unsubscribe() })
	if !c.prompt {
		<-c.settled
		return
	}
	c.turn.Lock() // after Cut, Publish may be running
	defer c.turn.Unlock()
}
