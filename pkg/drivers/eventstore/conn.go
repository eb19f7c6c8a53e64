package eventstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
	"example.org/lockstep/lockstep/pkg/drivers/requests"
)

const (
	// handshakeTimeout is the maximum wait for a server's features, in whole seconds.
	handshakeTimeout = 5 * time.Second
	// callsPerConnection is the default maximum of concurrent calls per connection in EventStoreDB, including
	// subscriptions. Further calls wait in the client.
	callsPerConnection = 100
)

// conn is one client of the library, with one connection to one node. A broken conn is never reconnected.
type conn struct {
	*requests.Conn
	session *session
	address string
	local   string // where the client connects to
	number  string // in conns
	client  *kurrentdb.Client
	version kurrentdb.ServerVersion
	used    atomic.Bool   // the client has connected, or tries to
	appends chan struct{} // limits concurrent appends
}

// Connect connects to the first of the node's current endpoints that answers.
func (s *session) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	c, err := s.reach(ctx, spec.Node, s.env.Forward)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// forwarding returns a local address from which connections are forwarded to address.
type forwarding = func(ctx context.Context, address string) (local string, err error)

func (s *session) connect(ctx context.Context, e kit.Endpoint, forward forwarding) (*conn, error) {
	if s.conns.Closed() {
		return nil, fmt.Errorf("connect to EventStoreDB at %s: %w", e.Address, drivers.ErrClosed)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c := &conn{Conn: requests.NewConn(), session: s, address: e.Address,
		number: strconv.FormatUint(number.Add(1), 10), appends: make(chan struct{}, s.options.Concurrency)}
	err := ctx.Err()
	if err == nil {
		c.local, err = forward(ctx, e.Address)
	}
	if err == nil {
		err = c.handshake(ctx, s.security)
	}
	if err != nil {
		s.roles.Clear()
		_ = c.Close()
		return nil, fmt.Errorf("connect to EventStoreDB at %s: %w", e.Address, s.diagnose(ctx, e, err))
	}
	if err := s.conns.Add(c); err != nil {
		return nil, fmt.Errorf("connect to EventStoreDB at %s: %w", e.Address, err)
	}
	return c, nil
}

// diagnose finds out why a connection failed, because the client sees only the local address.
func (s *session) diagnose(ctx context.Context, e kit.Endpoint, seen error) error {
	conn, err := kit.Dial(s.env.Dial, s.security.tls)(ctx, "tcp", e.Address)
	switch {
	case ctx.Err() != nil:
		return seen
	case err != nil:
		return err
	}
	_ = conn.Close()
	return kit.Explain(seen)
}

// handshake starts the client and requests the server's version.
func (c *conn) handshake(ctx context.Context, security security) (err error) {
	conns.Store(c.number, c)
	// gRPC uses no proxy for a path with a loopback address.
	server := c.address
	if security.tls != nil && security.tls.ServerName != "" {
		server = security.tls.ServerName
	}
	target := scheme + "://" + server + "/127.0.0.1#" + c.number
	c.client, err = kurrentdb.NewClient(security.configuration(target))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.client.Close() }) // the library's request has no context
	version, err := c.client.GetServerVersion()
	if !stop() {
		return ctx.Err()
	}
	if err != nil {
		if cause := c.Err(); cause != nil {
			err = cause // the library's error does not have the reason any more
		}
		if security.tls != nil {
			return err // see diagnose
		}
		return fmt.Errorf("%w (is tls=true or tls=false in the url as the server has it?)", err)
	}
	if c.version = *version; version.IsBelow(23, 10, 0) {
		return fmt.Errorf("server version %s is not supported: use 23.10 or later", versionText(c.version))
	}
	return nil
}

// fail breaks the conn. Only the first cause has an effect.
func (c *conn) fail(cause error) {
	select {
	case <-c.Done():
	default:
		c.session.roles.Clear() // another node may be the leader now
	}
	c.Broke(fmt.Errorf("%s: %w", c.address, cause))
}

func (c *conn) Node() string { return c.address }

func (c *conn) Close() error {
	c.End()
	conns.Delete(c.number)
	c.session.conns.Remove(c)
	if c.client == nil {
		return nil
	}
	return c.client.Close()
}

// forwardManagement is a forwarding outside the measured path, for one connection.
func (s *session) forwardManagement(ctx context.Context, address string) (string, error) {
	far, err := s.env.ManagementDialer()(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return "", errors.Join(err, far.Close())
	}
	_ = listener.SetDeadline(time.Now().Add(dialTimeout)) // fails only after Close
	go func() {
		defer far.Close()
		near, err := listener.Accept()
		_ = listener.Close()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(far, near)
			_ = far.Close()
		}()
		_, _ = io.Copy(near, far)
		_ = near.Close()
	}()
	return listener.Addr().String(), nil
}

// reach connects to the first of the node's current endpoints that answers.
func (s *session) reach(ctx context.Context, node drivers.Node, forward forwarding) (*conn, error) {
	at, err := s.place(ctx, node)
	if err != nil {
		return nil, err
	}
	return kit.InTurn(ctx, len(at), func(ctx context.Context, i int) (*conn, error) {
		return s.connect(ctx, at[i], forward)
	})
}

// verdict interprets an error of the library. It returns an error that wraps ErrRejected if the broker rejected the
// request. It breaks the conn if the library would reconnect, or if it is unknown whether an event was written.
func (c *conn) verdict(ctx context.Context, err error) error {
	if cause := c.Err(); cause != nil {
		return cause
	}
	var known *kurrentdb.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%s: %w", c.address, err)
	case errors.Is(err, io.EOF):
		// The server ended the call before it had received all events. The library does not read the reason. The
		// server rejected the events if the connection still works.
		if _, broken := c.client.Gossip(ctx); broken != nil {
			c.fail(err)
			return c.Err()
		}
	case errors.As(err, &known):
		switch known.Code() {
		case kurrentdb.ErrorUnavailable, kurrentdb.ErrorCodeConnectionClosed, kurrentdb.ErrorCodeNotLeader,
			kurrentdb.ErrorCodeDeadlineExceeded, kurrentdb.ErrorAborted:
			c.fail(err)
			return c.Err()
		case kurrentdb.ErrorCodeUnknown:
			// The server failed, or its nodes did not answer it in time: the event may have been written.
			if code := status.Code(known.Err()); code == codes.Unknown || code == codes.Internal {
				c.fail(err)
				return c.Err()
			}
		}
	}
	return fmt.Errorf("%w: %s: %w", drivers.ErrRejected, c.address, err)
}

// is reports whether an error of the library has this code.
func is(err error, code kurrentdb.ErrorCode) bool {
	var known *kurrentdb.Error
	return errors.As(err, &known) && known.Code() == code
}

// explain adds a fix to errors of administrative requests. It breaks the conn as verdict does.
func (c *conn) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	_ = c.verdict(ctx, err)
	cause := c.Err()
	switch {
	case cause != nil && is(err, kurrentdb.ErrorCodeNotLeader):
		return fmt.Errorf("%w (only the leader has persistent subscriptions: give the urls of all nodes, and node: \"any\")", cause)
	case cause != nil:
		return cause
	case is(err, kurrentdb.ErrorCodeAccessDenied), is(err, kurrentdb.ErrorCodeUnauthenticated):
		return fmt.Errorf("%w (give a user of $ops or $admins, who may create persistent subscriptions)", err)
	}
	return err
}
