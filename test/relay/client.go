package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// client is one connection from a client.
type client struct {
	*link
	relay *Relay
	key   key
	dirty []*upstream // written to and not flushed; the reader's

	open   sync.WaitGroup // leases that upstreams still have
	kicked sync.Once

	mu       sync.Mutex
	channels map[uint16]*lease
}

// serve speaks with the client to its end.
func (c *client) serve() {
	err := c.converse()
	c.abandon()
	var why *fault
	switch {
	case errors.Is(err, errGoodbye):
		c.open.Wait() // close-ok says that the broker has taken everything that was sent before
		c.call(start(connectionCloseOk))
		c.linger()
	case errors.As(err, &why):
		c.kick(why)
		c.linger()
	}
	_ = c.conn.Close()
}

// errGoodbye is the orderly end of a client.
var errGoodbye = errors.New("client closes the connection")

func (c *client) converse() error {
	var beat time.Duration
	var err error
	if c.key, beat, err = c.greet(); err != nil {
		return err
	}
	if err := c.relay.reach(c.key); err != nil {
		return err
	}
	c.call(appendShort(start(connectionOpenOk), ""))
	if err := c.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c.beat = beat
	for {
		f, err := c.next(c.pushOn)
		if err != nil {
			return err
		}
		if f.channel == 0 {
			err = c.control(f)
		} else {
			err = c.forward(f)
		}
		if err != nil {
			return err
		}
	}
}

// pushOn flushes what was passed on.
func (c *client) pushOn() {
	for _, u := range c.dirty {
		u.flush()
	}
	c.dirty = c.dirty[:0]
	c.flush()
}

func (c *client) control(f frame) error {
	switch m := f.method(); {
	case f.kind == kindHeartbeat:
		return nil
	case m == connectionClose:
		return errGoodbye
	case m == connectionCloseOk:
		return io.EOF // to a kick
	}
	return &fault{code: 503, text: "the relay takes no such frame on channel 0"}
}

func (c *client) leased(channel uint16) *lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.channels[channel]
}

func (c *client) forget(channel uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.channels, channel)
}

// forward passes a frame on to the upstream channel that is leased for its channel.
func (c *client) forward(f frame) error {
	l, m := c.leased(f.channel), f.method()
	switch {
	case m == channelOpen && l == nil:
		return c.openChannel(f)
	case l == nil || m == channelOpen:
		return &fault{code: 504, text: fmt.Sprintf("channel %d is not in a state for this", f.channel)}
	case m == channelCloseOk: // to the broker's close, which the relay has answered
		c.forget(f.channel)
		return nil
	case m == channelClose:
		if !l.say(appendFrame(nil, f.kind, l.number, f.payload), true) {
			c.write(kindMethod, f.channel, start(channelCloseOk))
		}
		c.soil(l.up)
		return nil
	}
	whole, err := l.gather(f)
	if whole {
		l.say(l.pending, false) // lost if the broker has closed the channel, as without a relay
		l.pending = l.pending[:0]
		c.soil(l.up)
	}
	return err
}

// soil notes that an upstream is to be flushed.
func (c *client) soil(u *upstream) {
	for _, known := range c.dirty {
		if known == u {
			return
		}
	}
	c.dirty = append(c.dirty, u)
}

func (c *client) openChannel(f frame) error {
	l, err := c.relay.lease(c, f.channel)
	if err != nil {
		return err
	}
	l.say(appendFrame(nil, f.kind, l.number, f.payload), false)
	c.soil(l.up)
	return nil
}

// abandon gives all leased channels back: upstream they are closed, so that nothing of this client stays in them.
func (c *client) abandon() {
	c.mu.Lock()
	channels := c.channels
	c.channels = map[uint16]*lease{}
	c.mu.Unlock()
	goodbye := append(appendShort(start(channelClose, 200), "client is gone"), 0, 0, 0, 0)
	for _, l := range channels {
		l.up.abandon(l)
		l.say(appendFrame(nil, kindMethod, l.number, goodbye), true)
		c.soil(l.up)
	}
	c.pushOn()
}

// kick tells the client why its connection ends. It is for the client to answer and close.
func (c *client) kick(why *fault) {
	c.kicked.Do(func() { c.call(why.method()) })
}

// linger lets the client read the last words: closing with unread input would take them away.
func (c *client) linger() {
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.Copy(io.Discard, c.in)
}

// lease is an upstream channel in the hands of a client's channel.
type lease struct {
	client  *client
	channel uint16 // the client's number for it
	up      *upstream
	number  uint16 // upstream's

	abandoned bool // nobody listens; guarded by up.state

	closing bool // the relay has sent channel.close; guarded by up.mu
	gone    bool // the broker has closed it; guarded by up.mu

	// What the client is in the middle of sending; the client's reader's. Upstream gets whole messages only, because a
	// client that ends in the middle of one would take the shared connection with it.
	pending []byte
	stage   byte   // kind of the frame that has to follow; 0: a method
	left    uint64 // bytes of the body to come
}

// mostBody bounds a message; RabbitMQ takes no more.
const mostBody = 128 << 20

// gather adds a frame to what is pending and tells whether that is whole.
func (l *lease) gather(f frame) (whole bool, err error) {
	if want := l.stage; want == 0 && f.kind != kindMethod || want != 0 && f.kind != want {
		return false, &fault{code: 505, text: fmt.Sprintf("frame of kind %d is not what comes next", f.kind)}
	}
	l.pending = appendFrame(l.pending, f.kind, l.number, f.payload)
	switch f.kind {
	case kindMethod:
		if f.method() == basicPublish {
			l.stage = kindHeader
		}
	case kindHeader:
		if len(f.payload) < 14 {
			return false, &fault{code: 502, text: "content header is too short"}
		}
		if l.left = binary.BigEndian.Uint64(f.payload[4:]); l.left > mostBody {
			return false, &fault{code: 501, text: fmt.Sprintf("message of %d bytes is too long", l.left)}
		}
		l.stage = kindBody
	case kindBody:
		if uint64(len(f.payload)) > l.left {
			return false, &fault{code: 501, text: "body is longer than its header says"}
		}
		l.left -= uint64(len(f.payload))
	}
	if l.stage == kindBody && l.left == 0 {
		l.stage = 0
	}
	return l.stage == 0, nil
}

// say sends frames upstream unless the channel is closed by then, which it tells. last says that they close it.
func (l *lease) say(raw []byte, last bool) bool {
	l.up.mu.Lock()
	defer l.up.mu.Unlock()
	if l.gone || l.closing {
		return false
	}
	l.closing = last
	_, _ = l.up.out.Write(raw) // flush sees the error
	return true
}
