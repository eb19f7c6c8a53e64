package mongodb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	client "go.mongodb.org/mongo-driver/v2/mongo/options"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/kit"
	"lockstep/pkg/drivers/requests"
)

const (
	// heartbeat is the interval at which the library checks each member, on a separate connection. That is how an idle
	// link detects that it broke.
	heartbeat = 2 * time.Second
	// dialTimeout is the maximum time of a connection attempt.
	dialTimeout = 10 * time.Second
)

type dialing = func(ctx context.Context, network, address string) (net.Conn, error)

// contextDialer adapts Env.Dial to the library.
type contextDialer struct{ dial dialing }

func (d contextDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.dial(ctx, network, address)
}

// link is one client of the library. It has a connection to each member of the replica set for monitoring, and one to
// the primary per concurrent request. If the library repeats failed inserts, it also replaces broken connections, and the
// link breaks with the first request that it gives up. Otherwise a link breaks with its first broken connection.
type link struct {
	requests.Link
	session *session
	address string // for messages
	client  *mongo.Client
	up      atomic.Bool // connected: from now on, a broken connection breaks the link
}

// connect creates a link and waits until a primary answers.
func (s *session) connect(ctx context.Context, dial dialing) (*link, error) {
	o, err := s.options.client()
	if err != nil {
		return nil, err
	}
	o.TLSConfig = s.tls
	l := &link{session: s, address: strings.Join(o.Hosts, ",")}
	if err := l.open(ctx, o, dial); err != nil {
		l.Close()
		return nil, fmt.Errorf("connect to MongoDB at %s: %w", l.address, kit.Explain(err))
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
	repeats := l.session.options.repeats()
	o.SetRetryWrites(repeats).SetRetryReads(repeats).SetDialer(contextDialer{dial}).SetAppName("lockstep").
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
	l.up.Store(true)
	return nil
}

// start makes a connection attempt fail when no host can be reached, instead of waiting until one can.
type start struct {
	mu     sync.Mutex
	hosts  int
	failed map[string]error // by host; nil: over
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

// onPool breaks or records the link after a connection broke: the library then gives up all connections to that server.
func (l *link) onPool(e *event.PoolEvent) {
	if e.Type == event.ConnectionPoolCleared && l.up.Load() {
		cause := e.Error
		if cause == nil {
			cause = errors.New("its connections were given up")
		}
		cause = fmt.Errorf("MongoDB at %s: %w", e.Address, cause)
		if l.session.options.repeats() {
			l.session.env.Event(drivers.EventNotice, fmt.Sprintf("connections broke: %v; the library connects again", cause))
			return
		}
		l.Broke(cause)
	}
}

// Close closes all connections. If the link works and is unused, it ends the library's sessions first.
func (l *link) Close() {
	first, idle := l.End()
	if !first || l.client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace/2)
	defer cancel()
	if !idle {
		cancel()
	}
	_ = l.client.Disconnect(ctx)
}

// take returns the link of a connection number, which may be shared, or a new one for legacy.Exclusive. The caller
// must call leave.
func (s *session) take(ctx context.Context, number int) (l *link, leave func(), err error) {
	return s.links.Take(number, func() (*link, error) { return s.connect(ctx, s.env.Dial) })
}

// refused reports whether the server answered a command with an error. Any other error means that the link is broken.
func refused(err error) bool {
	var answered mongo.ServerError
	if !errors.As(err, &answered) || mongo.IsNetworkError(err) {
		return false
	}
	return !movedOn(answered)
}

// movedOn reports whether the server answered that it is not the primary any more, or is shutting down.
func movedOn(err mongo.ServerError) bool {
	for _, code := range []int{91, 189, 10107, 11600, 11602, 13435, 13436} {
		if err.HasErrorCode(code) {
			return true
		}
	}
	return false
}
