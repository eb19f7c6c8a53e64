package mongodb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
	"example.org/lockstep/lockstep/pkg/drivers/requests"
)

const (
	// heartbeat is the interval at which the library checks each member, on a separate connection. That is how an idle
	// conn detects that it broke.
	heartbeat = 2 * time.Second
	// dialTimeout is the maximum time of a connection attempt.
	dialTimeout = 10 * time.Second
)

// dialer dials for the library's clients of a conn. Its dials end with the conn: otherwise Disconnect waits for the
// library's connect timeout if the monitoring of a server begins to dial at that moment.
type dialer struct{ conn *conn }

func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.conn.Context(), cancel)()
	return d.conn.dial(ctx, network, address)
}

// conn is one client of the library, and more clients for publishers without confirms. A client has a connection to
// each member of the replica set for monitoring, and one to the primary per concurrent request. If the library repeats
// failed inserts, it also replaces broken connections, and a conn breaks with the first request that it gives up.
// Otherwise a conn breaks with its first broken connection.
type conn struct {
	*requests.Conn
	session *session
	address string // for messages
	dial    kit.DialFunc
	client  *mongo.Client

	mu      sync.Mutex
	clients []*mongo.Client // all, also those that are being connected
	unused  []*mongo.Client // connected clients that no publisher without confirms uses
}

func (s *session) Connect(ctx context.Context, _ drivers.ConnSpec) (drivers.Conn, error) {
	c, err := s.connect(ctx, s.env.Dial)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// connect makes a connection, and waits until a primary answers.
func (s *session) connect(ctx context.Context, dial kit.DialFunc) (*conn, error) {
	o, err := s.options.client()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: requests.NewConn(), session: s, address: strings.Join(o.Hosts, ","), dial: dial}
	if err = s.conns.Add(c); err == nil {
		c.client, err = c.open(ctx)
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("connect to MongoDB at %s: %w", c.address, kit.Explain(err))
	}
	c.unused = append(c.unused, c.client)
	return c, nil
}

func (c *conn) open(ctx context.Context) (*mongo.Client, error) {
	o, err := c.session.options.client()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o.TLSConfig = c.session.tls
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var up atomic.Bool // connected: from now on, a broken connection breaks the conn
	c.session.options.retry(o)
	o.SetDialer(dialer{c}).SetAppName("lockstep").
		SetServerMonitoringMode("poll").SetHeartbeatInterval(heartbeat).SetConnectTimeout(dialTimeout).SetMaxPoolSize(0).
		SetServerMonitor(failEarly(len(o.Hosts), giveUp)).SetPoolMonitor(&event.PoolMonitor{Event: func(e *event.PoolEvent) {
		if up.Load() {
			c.onPool(e)
		}
	}})
	client, err := mongo.Connect(o)
	if err != nil {
		return nil, err
	}
	if !c.add(client) {
		_ = client.Disconnect(ctx)
		return nil, cmp.Or(c.Err(), drivers.ErrClosed)
	}
	if err := client.Ping(ctx, nil); err != nil {
		if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
			return nil, cause
		}
		return nil, err
	}
	up.Store(true)
	return client, nil
}

// add registers a client, which Close disconnects. It returns false if the conn has ended.
func (c *conn) add(client *mongo.Client) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Context().Err() != nil {
		return false
	}
	c.clients = append(c.clients, client)
	return true
}

// own returns a client that no other publisher without confirms uses.
func (c *conn) own(ctx context.Context) (*mongo.Client, error) {
	c.mu.Lock()
	if n := len(c.unused); n > 0 {
		client := c.unused[n-1]
		c.unused = c.unused[:n-1]
		c.mu.Unlock()
		return client, nil
	}
	c.mu.Unlock()
	return c.open(ctx)
}

// giveBack ends the use of a client that own returned.
func (c *conn) giveBack(client *mongo.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unused = append(c.unused, client)
}

// failEarly returns a monitor that calls giveUp when no host can be reached, so that a connection attempt does not wait
// until one can. It has no effect after a host has answered.
func failEarly(hosts int, giveUp context.CancelCauseFunc) *event.ServerMonitor {
	var mu sync.Mutex
	failed := map[string]error{} // by host; nil: a host has answered
	return &event.ServerMonitor{
		ServerHeartbeatSucceeded: func(*event.ServerHeartbeatSucceededEvent) {
			mu.Lock()
			defer mu.Unlock()
			failed = nil
		},
		ServerHeartbeatFailed: func(e *event.ServerHeartbeatFailedEvent) {
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				return
			}
			host, _, _ := strings.Cut(e.ConnectionID, "[")
			failed[host] = e.Failure
			if len(failed) >= hosts {
				giveUp(errors.Join(slices.Collect(maps.Values(failed))...))
			}
		},
	}
}

// onPool breaks the conn, or reports an event, after a connection broke: the library then gives up all connections to
// that server.
func (c *conn) onPool(e *event.PoolEvent) {
	if e.Type != event.ConnectionPoolCleared {
		return
	}
	cause := e.Error
	if cause == nil {
		cause = errors.New("its connections were given up")
	}
	cause = fmt.Errorf("MongoDB at %s: %w", e.Address, cause)
	if c.session.options.repeats() {
		c.session.env.Event(drivers.EventNotice, fmt.Sprintf("connections broke: %v; the library connects again", cause))
		return
	}
	c.Broke(cause)
}

// Node returns "": the library connects to every member.
func (c *conn) Node() string { return "" }

// Close closes all connections. If the conn works, it ends the library's sessions first.
func (c *conn) Close() error {
	worked := c.End()
	c.session.conns.Remove(c)
	ctx, cancel := context.WithTimeout(context.Background(), grace/2)
	defer cancel()
	if !worked {
		cancel()
	}
	c.mu.Lock()
	clients := c.clients
	c.clients = nil
	c.mu.Unlock()
	for _, client := range clients {
		_ = client.Disconnect(ctx)
	}
	return nil
}

// refused reports whether the server answered a command with an error. Any other error means that the conn is broken.
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
