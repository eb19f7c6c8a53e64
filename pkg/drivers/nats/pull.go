package nats

import (
	"strconv"
	"time"

	client "github.com/nats-io/nats.go"
)

const (
	// unlimitedWindow is the maximum number of requested or unhandled messages of a consumer without a prefetch limit.
	// Unacknowledged messages do not count.
	unlimitedWindow = 8192
	// watchInterval is the interval at which a consumer checks its requests.
	watchInterval = 250 * time.Millisecond
	pullExpires   = 30 * time.Second
	pullHeartbeat = 5 * time.Second
	// pullDead is the time without any message or heartbeat after which a request counts as lost.
	pullDead = 2*pullHeartbeat + time.Second
)

// puller requests messages so that requested and unacknowledged messages together never exceed the prefetch. It sends a
// request when half of the prefetch is free, or when nothing is requested. The library's own Consume is not used: it
// limits unhandled messages, and so would exceed the prefetch. A puller is not safe for concurrent use.
type puller struct {
	nc        *client.Conn
	subject   string
	inbox     string
	limit     int
	unlimited bool // held counts unhandled messages instead of unacknowledged ones

	requested int  // messages requested and not yet received
	held      int  // messages received and not yet acknowledged
	quiet     int  // watch intervals without a message or heartbeat
	paused    bool // the consumer has no leader: request at the next check
	body      []byte
}

func newPuller(nc *client.Conn, subject, inbox string, prefetch int) *puller {
	p := &puller{nc: nc, subject: subject, inbox: inbox, limit: prefetch}
	if prefetch == 0 {
		p.limit, p.unlimited = unlimitedWindow, true
	}
	return p
}

// capacity is that of the inbox. It has space for all requested messages twice, since a request that counts as lost may
// still be answered, and for status messages.
func (p *puller) capacity() int { return 2*p.limit + 64 }

func (p *puller) received(n int) {
	if n == 0 {
		return
	}
	p.requested -= n
	p.held += n
	p.quiet = 0
}

func (p *puller) done(n int) { p.held -= n }

// wanted returns how many messages to request, or 0. It requests half of the limit or more, unless nothing is
// requested.
func (p *puller) wanted() int {
	if p.paused {
		return 0
	}
	requested := max(p.requested, 0)
	free := p.limit - requested - p.held
	if free < 1 || (requested > 0 && free < p.limit/2) {
		return 0
	}
	return free
}

// more requests the number of messages that wanted returns.
func (p *puller) more() error {
	free := p.wanted()
	if free == 0 {
		return nil
	}
	p.requested = max(p.requested, 0) + free
	p.body = append(p.body[:0], `{"batch":`...)
	p.body = strconv.AppendInt(p.body, int64(free), 10)
	p.body = append(p.body, `,"expires":`...)
	p.body = strconv.AppendInt(p.body, int64(pullExpires), 10)
	p.body = append(p.body, `,"idle_heartbeat":`...)
	p.body = strconv.AppendInt(p.body, int64(pullHeartbeat), 10)
	p.body = append(p.body, '}')
	return p.nc.PublishRequest(p.subject, p.inbox, p.body)
}

// check requests again if the requests were lost, for example with the server that leads the consumer.
func (p *puller) check() error {
	p.quiet++
	p.paused = false
	if time.Duration(p.quiet)*watchInterval > pullDead {
		p.requested, p.quiet = 0, 0
	}
	return p.more()
}

// status handles a status message of the server about a request. It returns false if m is not a status message.
func (p *puller) status(m *client.Msg) bool {
	code := m.Header.Get("Status")
	if code == "" {
		return false
	}
	p.quiet = 0
	switch code {
	case "100": // heartbeat
	case "503": // the consumer has no leader at the moment: the next check requests again
		p.requested, p.paused = 0, true
	default: // the request has ended
		if n, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages")); err == nil {
			p.requested -= n
		} else {
			p.requested = 0
		}
	}
	return true
}
