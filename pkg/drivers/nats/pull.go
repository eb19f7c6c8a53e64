package nats

import (
	"strconv"
	"strings"
	"time"

	client "github.com/nats-io/nats.go"

	"lockstep/pkg/drivers"
)

const (
	// unlimitedWindow is how many messages are under way to a consumer without a prefetch; acknowledgements do not
	// count.
	unlimitedWindow = 8192
	// watchInterval is how often a consumer looks whether its requests still live.
	watchInterval = 250 * time.Millisecond
	pullExpires   = 30 * time.Second
	pullHeartbeat = 5 * time.Second
	// pullDead is how long without a word, heartbeats included, a request is given up.
	pullDead = 2*pullHeartbeat + time.Second
)

// puller asks for messages so that at no time more are unacknowledged and asked for than the prefetch allows. It asks
// when half of that is free, or nothing is asked for. The library's own Consume counts messages that are not handled
// yet, and so would exceed the prefetch. One goroutine uses it.
type puller struct {
	nc        *client.Conn
	subject   string
	inbox     string
	limit     int
	unlimited bool // held counts what is not handled yet instead of what is not acknowledged

	asked int // of the server, and not come
	held  int // come, and not acknowledged
	quiet int // watch intervals without anything
	body  []byte
}

func newPuller(nc *client.Conn, subject, inbox string, prefetch int) *puller {
	p := &puller{nc: nc, subject: subject, inbox: inbox, limit: prefetch}
	if prefetch == 0 {
		p.limit, p.unlimited = unlimitedWindow, true
	}
	return p
}

// room is for how many messages the channel needs place: all that can come, twice in case that a lost request lives on,
// and words of the server.
func (p *puller) room() int { return 2*p.limit + 64 }

func (p *puller) received(n int) {
	p.asked -= n
	p.held += n
	p.quiet = 0
}

func (p *puller) done(n int) { p.held -= n }

// full reports whether nothing more can come before some of the n accepted are acknowledged.
func (p *puller) full(n int) bool { return !p.unlimited && n >= p.limit }

// wanted is for how many messages there is place, if it is worth asking: for half of the limit, or when nothing else
// would come.
func (p *puller) wanted() int {
	asked := max(p.asked, 0)
	free := p.limit - asked - p.held
	if free < 1 || (asked > 0 && free < p.limit/2) {
		return 0
	}
	return free
}

// more asks for what is wanted.
func (p *puller) more() error {
	free := p.wanted()
	if free == 0 {
		return nil
	}
	p.asked = max(p.asked, 0) + free
	p.body = append(p.body[:0], `{"batch":`...)
	p.body = strconv.AppendInt(p.body, int64(free), 10)
	p.body = append(p.body, `,"expires":`...)
	p.body = strconv.AppendInt(p.body, int64(pullExpires), 10)
	p.body = append(p.body, `,"idle_heartbeat":`...)
	p.body = strconv.AppendInt(p.body, int64(pullHeartbeat), 10)
	p.body = append(p.body, '}')
	return p.nc.PublishRequest(p.subject, p.inbox, p.body)
}

// check asks again if requests were lost, as they are with the server that leads the consumer.
func (p *puller) check() error {
	p.quiet++
	if time.Duration(p.quiet)*watchInterval > pullDead {
		p.asked, p.quiet = 0, 0
	}
	return p.more()
}

// status reads a word of the server about a request; false if the message is none.
func (p *puller) status(m *client.Msg) bool {
	code := m.Header.Get("Status")
	if code == "" {
		return false
	}
	p.quiet = 0
	switch code {
	case "100": // heartbeat
	case "503": // nobody leads the consumer at the moment: the next check asks again
		p.asked = 0
	default: // the request has ended
		if n, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages")); err == nil {
			p.asked -= n
		} else {
			p.asked = 0
		}
	}
	return true
}

// redelivered reads the number of deliveries from a reply subject: $JS.ACK.stream.consumer.deliveries.…, where a domain
// and an account may stand before the stream.
func (c *consumer) redelivered(reply string) drivers.Tristate {
	if strings.HasPrefix(reply, c.acks) {
		return drivers.No
	}
	parts := strings.Split(reply, ".")
	at := 4
	if len(parts) >= 11 {
		at = 6
	}
	if len(parts) <= at || parts[0] != "$JS" {
		return drivers.NotSaid
	}
	if parts[at] == "1" {
		return drivers.No
	}
	return drivers.Yes
}
