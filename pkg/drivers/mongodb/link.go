package mongodb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	client "go.mongodb.org/mongo-driver/v2/mongo/options"

	"lockstep/pkg/drivers"
)

const (
	// heartbeat is how often the library asks each member whether it is there, on a connection of its own: that is how
	// an idle link finds out that it broke.
	heartbeat = 2 * time.Second
	// dialTimeout is for contexts without a deadline.
	dialTimeout = 10 * time.Second
)

type dialing = func(ctx context.Context, network, address string) (net.Conn, error)

// contextDialer is Env.Dial as the library wants it.
type contextDialer struct{ dial dialing }

func (d contextDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.dial(ctx, network, address)
}

// member is what uses a link: a publisher or consumer.
type member interface {
	Broke(cause error) // the link is broken
	Abandon()          // the session is closed
}

// link is one client of the library: a connection for each member of the replica set to watch it, and one to the primary for each request
// at a time. The library would mend broken connections without a word; a link is over with the first one that breaks.
type link struct {
	session *session
	address string // hosts, for people
	client  *mongo.Client

	mu      sync.Mutex
	own     bool // closed by us
	cause   error
	members map[member]struct{}
	uses    int // guarded by the session
}

// connect makes a link and waits until a primary answers.
func (s *session) connect(ctx context.Context, dial dialing) (*link, error) {
	o, err := s.options.client()
	if err != nil {
		return nil, err
	}
	l := &link{session: s, address: strings.Join(o.Hosts, ","), members: map[member]struct{}{}}
	if err := l.open(ctx, o, dial); err != nil {
		l.close()
		return nil, fmt.Errorf("connect to MongoDB at %s: %w", l.address, err)
	}
	return l, nil
}

func (l *link) open(ctx context.Context, o *client.ClientOptions, dial dialing) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	start := newStart(o.Hosts, giveUp)
	o.SetRetryWrites(false).SetRetryReads(false).SetDialer(contextDialer{dial}).SetAppName("lockstep").
		SetServerMonitoringMode("poll").SetHeartbeatInterval(heartbeat).SetMaxPoolSize(0).
		SetServerMonitor(start.monitor()).SetPoolMonitor(&event.PoolMonitor{Event: l.onPool})
	var err error
	if l.client, err = mongo.Connect(o); err != nil {
		return err
	}
	if err := l.client.Ping(ctx, nil); err != nil {
		if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
			return cause
		}
		return err
	}
	start.over()
	l.mu.Lock()
	l.cause = nil // what failed before does not count
	l.mu.Unlock()
	return l.session.opened(l)
}

// start has a connection attempt end when no host can be reached, instead of waiting for one to come.
type start struct {
	mu     sync.Mutex
	hosts  int
	failed map[string]error // nil: over
	giveUp context.CancelCauseFunc
}

func newStart(hosts []string, giveUp context.CancelCauseFunc) *start {
	return &start{hosts: len(hosts), failed: map[string]error{}, giveUp: giveUp}
}

func (s *start) monitor() *event.ServerMonitor {
	return &event.ServerMonitor{
		ServerHeartbeatSucceeded: func(*event.ServerHeartbeatSucceededEvent) { s.over() },
		ServerHeartbeatFailed: func(e *event.ServerHeartbeatFailedEvent) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.failed == nil {
				return
			}
			host, _, _ := strings.Cut(e.ConnectionID, "[")
			s.failed[host] = e.Failure
			if len(s.failed) < s.hosts {
				return
			}
			var all []error
			for _, err := range s.failed {
				all = append(all, err)
			}
			s.giveUp(errors.Join(all...))
		},
	}
}

func (s *start) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = nil
}

// onPool hears of a broken connection: the library then gives up all connections to that server.
func (l *link) onPool(e *event.PoolEvent) {
	if e.Type == event.ConnectionPoolCleared {
		cause := e.Error
		if cause == nil {
			cause = errors.New("its connections were given up")
		}
		l.broke(fmt.Errorf("MongoDB at %s: %w", e.Address, cause))
	}
}

// broke tells those who use the link, once.
func (l *link) broke(cause error) {
	l.mu.Lock()
	if l.own || l.cause != nil {
		l.mu.Unlock()
		return
	}
	l.cause = cause
	var all []member
	for m := range l.members {
		all = append(all, m)
	}
	l.mu.Unlock()
	for _, m := range all {
		m.Broke(cause)
	}
}

// broken says why the link is over, or nil.
func (l *link) broken() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own {
		return drivers.ErrClosed
	}
	return l.cause
}

// join has m told of the end of the link, which may have come.
func (l *link) join(m member) {
	l.mu.Lock()
	l.members[m] = struct{}{}
	cause, own := l.cause, l.own
	l.mu.Unlock()
	if own {
		m.Abandon()
	} else if cause != nil {
		m.Broke(cause)
	}
}

func (l *link) part(m member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.members, m)
}

// close ends all connections. Safe to call twice.
func (l *link) close() {
	l.mu.Lock()
	whole, first := l.cause == nil, !l.own
	l.own = true
	var all []member
	for m := range l.members {
		all = append(all, m)
	}
	l.mu.Unlock()
	if !first {
		return
	}
	for _, m := range all {
		m.Abandon()
	}
	l.session.mu.Lock()
	delete(l.session.links, l)
	l.session.mu.Unlock()
	if l.client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace/2)
	defer cancel()
	if !whole || len(all) > 0 {
		cancel() // there is nobody to say goodbye to, or no time for it
	}
	_ = l.client.Disconnect(ctx)
}

// seat is the link of a connection number.
type seat struct {
	mu   sync.Mutex
	link *link
}

// take gives the link of a connection number, which others may use too, or one that nobody else does; leave gives it back.
func (s *session) take(ctx context.Context, number int) (l *link, leave func(), err error) {
	if number == drivers.Exclusive {
		if l, err = s.connect(ctx, s.env.Dial); err != nil {
			return nil, nil, err
		}
		return l, l.close, nil
	}
	s.mu.Lock()
	at := s.seats[number]
	if at == nil {
		at = &seat{}
		s.seats[number] = at
	}
	s.mu.Unlock()
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.link == nil || at.link.broken() != nil {
		if at.link, err = s.connect(ctx, s.env.Dial); err != nil {
			at.link = nil
			return nil, nil, err
		}
	}
	l = at.link
	l.uses++
	var once sync.Once
	return l, func() { once.Do(func() { at.leave(l) }) }, nil
}

// leave closes a link that nobody uses any more.
func (at *seat) leave(l *link) {
	at.mu.Lock()
	l.uses--
	last := l.uses == 0
	if last && at.link == l {
		at.link = nil
	}
	at.mu.Unlock()
	if last {
		l.close()
	}
}

// refused is a command that the server answered with an error; anything else that went wrong is the link's end.
func refused(err error) bool {
	var answered mongo.ServerError
	if !errors.As(err, &answered) || mongo.IsNetworkError(err) {
		return false
	}
	return !movedOn(answered)
}

// movedOn tells whether the server says that it is no primary any more, or going: 91, 189, 10107, 11600, 11602, 13435, 13436.
func movedOn(err mongo.ServerError) bool {
	for _, code := range []int{91, 189, 10107, 11600, 11602, 13435, 13436} {
		if err.HasErrorCode(code) {
			return true
		}
	}
	return false
}
