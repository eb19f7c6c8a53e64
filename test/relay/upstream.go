package relay

import (
	"errors"
	"sync"
)

// upstream is one pooled connection to the broker.
type upstream struct {
	*link
	most int // channels

	dirty []*client // written to and not flushed; the reader's

	state  sync.Mutex // after client.mu; never held while writing
	leases map[uint16]*lease
	dead   bool
}

// lease takes a channel for a client's; nil if none is free.
func (u *upstream) lease(c *client, channel uint16) *lease {
	u.state.Lock()
	defer u.state.Unlock()
	if u.dead || len(u.leases) >= u.most {
		return nil
	}
	number := uint16(1)
	for u.leases[number] != nil {
		number++
	}
	l := &lease{client: c, channel: channel, up: u, number: number}
	u.leases[number] = l
	c.open.Add(1)
	return l
}

func (u *upstream) alive() bool {
	u.state.Lock()
	defer u.state.Unlock()
	return !u.dead
}

func (u *upstream) abandon(l *lease) {
	u.state.Lock()
	defer u.state.Unlock()
	l.abandoned = true
}

// free makes a channel number available again, its channel being closed on both sides.
func (u *upstream) free(l *lease) {
	u.state.Lock()
	defer u.state.Unlock()
	if u.leases[l.number] == l {
		delete(u.leases, l.number)
		l.client.open.Done()
	}
}

// find is the lease of a channel, and whether anybody listens to it.
func (u *upstream) find(number uint16) (l *lease, heard bool) {
	u.state.Lock()
	defer u.state.Unlock()
	l = u.leases[number]
	return l, l != nil && !l.abandoned
}

// serve passes on what the broker sends until the connection ends.
func (u *upstream) serve() {
	var why *fault
	for why == nil {
		f, err := u.next(u.pushOn)
		switch {
		case errors.As(err, &why):
		case err != nil:
			why = &fault{code: 320, text: "the relay's connection to the broker ended: " + err.Error()}
		case f.channel == 0:
			why = u.control(f)
		default:
			u.deliver(f)
		}
	}
	_ = u.conn.Close()
	u.die(why)
}

func (u *upstream) pushOn() {
	for _, c := range u.dirty {
		c.flush()
	}
	u.dirty = u.dirty[:0]
	u.flush()
}

// control takes what the broker says of the connection; the end of it, if that is what it says.
func (u *upstream) control(f frame) *fault {
	switch f.method() {
	case connectionClose:
		u.call(start(connectionCloseOk))
		return readFault(f.arguments())
	case connectionCloseOk:
		return &fault{code: 320, text: "the relay closes"}
	case connectionBlocked, connectionUnblocked:
		for _, c := range u.clients() {
			c.write(f.kind, 0, f.payload)
			u.soil(c)
		}
	}
	return nil
}

// clients are those that have a channel here.
func (u *upstream) clients() []*client {
	u.state.Lock()
	defer u.state.Unlock()
	seen := map[*client]bool{}
	var all []*client
	for _, l := range u.leases {
		if !l.abandoned && !seen[l.client] {
			seen[l.client] = true
			all = append(all, l.client)
		}
	}
	return all
}

// deliver passes a frame on to the client that has leased its channel.
func (u *upstream) deliver(f frame) {
	l, heard := u.find(f.channel)
	if l == nil {
		return
	}
	switch f.method() {
	case channelClose:
		if asked := u.agree(l); asked {
			return // the answer to the relay's own close comes next
		}
		u.free(l)
	case channelCloseOk:
		if heard {
			l.client.forget(l.channel) // before the client knows that it may use the number again
		}
		u.free(l)
	}
	if heard {
		l.client.write(f.kind, l.channel, f.payload)
		u.soil(l.client)
	}
}

// agree answers the broker's channel.close and tells whether the relay had asked to close, too. From then on nothing
// is sent on the channel.
func (u *upstream) agree(l *lease) (asked bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	l.gone = true
	_, _ = u.out.Write(appendFrame(nil, kindMethod, l.number, start(channelCloseOk))) // flush sees the error
	return l.closing
}

// soil notes that a client is to be flushed.
func (u *upstream) soil(c *client) {
	for _, known := range u.dirty {
		if known == c {
			return
		}
	}
	u.dirty = append(u.dirty, c)
}

// die tells every client that had a channel here.
func (u *upstream) die(why *fault) {
	clients := u.clients()
	u.state.Lock()
	u.dead = true
	for number, l := range u.leases {
		delete(u.leases, number)
		l.client.open.Done()
	}
	u.state.Unlock()
	for _, c := range clients {
		c.kick(why)
	}
}
