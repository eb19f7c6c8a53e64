package eventstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/kit"
)

const (
	// handshakeTimeout is the maximum wait for a server's features, in whole seconds.
	handshakeTimeout = 5 * time.Second
	// callsPerConnection is the default maximum of concurrent calls per connection in EventStoreDB, including
	// subscriptions. Further calls wait in the client.
	callsPerConnection = 100
)

// link is one client of the library, with one connection to one node. A broken link is never reconnected.
type link struct {
	session *session
	address string
	client  *esdb.Client
	wire    *wire
	version esdb.ServerVersion
	room    chan struct{} // limits concurrent appends
	done    chan struct{} // closed when the link breaks

	mu       sync.Mutex
	why      error // why it broke
	own      bool  // closed by this process
	watchers map[any]func(error)
	uses     int // guarded by the mutex of its sharedLink
}

// way returns the local address where Forward listens for an address.
func (s *session) way(ctx context.Context, address string) (string, error) {
	s.mu.Lock()
	local := s.ways[address]
	s.mu.Unlock()
	if local != "" {
		return local, nil
	}
	if s.env.Forward == nil {
		return "", errors.New("the library has no dialer hook: Env.Forward is missing")
	}
	local, err := s.env.Forward(ctx, address)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ways[address] = local
	return local, nil
}

// dialFirst connects to the first endpoint that answers.
func (s *session) dialFirst(ctx context.Context, from []endpoint) (*link, error) {
	var errs []error
	for _, e := range from {
		l, err := s.dial(ctx, e)
		if err == nil {
			return l, nil
		}
		errs = append(errs, fmt.Errorf("connect to EventStoreDB at %s: %w", e.address, err))
	}
	return nil, errors.Join(errs...)
}

func (s *session) dial(ctx context.Context, e endpoint) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	local, err := s.way(ctx, e.address)
	if err != nil {
		return nil, err
	}
	l := &link{session: s, address: e.address, room: make(chan struct{}, s.options.Concurrency),
		done: make(chan struct{}), watchers: map[any]func(error){}}
	authority := e.address
	if s.security.tls != nil && s.security.tls.ServerName != "" {
		authority = s.security.tls.ServerName
	}
	l.wire = newWire(local, authority, l.fail)
	if l.client, err = esdb.NewClient(s.configuration(l.wire.target())); err != nil {
		l.wire.release()
		return nil, err
	}
	if err := l.checkAlive(ctx); err != nil {
		return nil, s.diagnose(ctx, e, err)
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.links[l] = struct{}{}
	}
	s.mu.Unlock()
	if closed {
		l.close()
		return nil, errSession
	}
	return l, nil
}

var errSession = fmt.Errorf("session: %w", drivers.ErrClosed)

// checkAlive connects and requests the server's version. The library does so without a context. If ctx ends first, a
// goroutine waits for the library and closes the link.
func (l *link) checkAlive(ctx context.Context) error {
	answered := make(chan error, 1)
	go func() {
		version, err := l.client.GetServerVersion()
		if err == nil {
			l.version = *version
		}
		answered <- err
	}()
	select {
	case err := <-answered:
		if cause := l.cause(); cause != nil {
			err = cause // it is more precise than the library's error
		}
		if err != nil {
			l.close()
		}
		return err
	case <-ctx.Done():
		l.fail(ctx.Err())
		go func() {
			<-answered
			l.close()
		}()
		return ctx.Err()
	}
}

// diagnose finds out why a connection failed, because the library sees only the local side of Forward.
func (s *session) diagnose(ctx context.Context, e endpoint, seen error) error {
	if ctx.Err() != nil {
		return seen
	}
	conn, err := kit.Dial(s.env.Dial, s.security.tls)(ctx, "tcp", e.address)
	if err != nil {
		return err
	}
	_ = conn.Close()
	if s.security.tls != nil {
		return kit.Explain(seen)
	}
	return fmt.Errorf("%w (is tls=true or tls=false in the url as the server has it?)", seen)
}

// cause returns why the link is broken, or nil.
func (l *link) cause() error {
	select {
	case <-l.done:
		return l.why
	default:
		return nil
	}
}

// fail breaks the link. Only the first call has an effect. It does not block.
func (l *link) fail(cause error) {
	l.mu.Lock()
	if l.why != nil {
		l.mu.Unlock()
		return
	}
	l.why = fmt.Errorf("%s: %w", l.address, cause)
	why, watchers := l.why, l.watchers
	l.watchers = nil
	close(l.done)
	l.mu.Unlock()
	go l.wire.broke(cause) // in a new goroutine, because the wire may be the caller
	for _, tell := range watchers {
		go tell(why)
	}
}

// enter waits until one more append may be sent. leave must be called after it. Without this limit, appends would wait
// in gRPC, where the end of each call wakes up all waiting calls. With 400 appends, that reduces the throughput by two
// thirds.
func (l *link) enter(ctx context.Context) error {
	select {
	case l.room <- struct{}{}:
		return nil
	case <-l.done:
		return l.cause()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *link) leave() { <-l.room }

// watch registers tell, which is called in a new goroutine when the link breaks by itself. If the link is broken
// already, it is called immediately.
func (l *link) watch(who any, tell func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watchers != nil {
		l.watchers[who] = tell
	} else if !l.own {
		go tell(l.why)
	}
}

func (l *link) unwatch(who any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watchers, who)
}

// close closes the client. No call of the library may be running, because the library does not support that.
func (l *link) close() {
	l.mu.Lock()
	l.own = true
	l.watchers = nil
	l.mu.Unlock()
	l.wire.release()
	_ = l.client.Close() // never fails
	l.session.mu.Lock()
	delete(l.session.links, l)
	l.session.mu.Unlock()
}

// verdict interprets an error of the library. It returns an error that wraps ErrRejected if the broker rejected the
// request. Otherwise there was no answer. It breaks the link if the library would reconnect, or if it is unknown
// whether the event was written.
func (l *link) verdict(err error) error {
	if cause := l.cause(); cause != nil {
		return cause
	}
	var known *esdb.Error
	if !errors.As(err, &known) {
		return fmt.Errorf("%w: %s: %w", drivers.ErrRejected, l.address, err)
	}
	switch known.Code() {
	case esdb.ErrorUnavailable, esdb.ErrorCodeConnectionClosed, esdb.ErrorCodeNotLeader:
		l.fail(err)
		return l.cause()
	case esdb.ErrorCodeDeadlineExceeded:
		l.fail(fmt.Errorf("no answer in time: %w", err))
		return l.cause()
	}
	switch status.Code(known.Err()) {
	case codes.Canceled:
		return fmt.Errorf("%s: %w", l.address, err)
	case codes.Unknown: // possibly an aborted call whose cause the library has not waited for
		select {
		case <-l.done:
			return l.cause()
		case <-time.After(50 * time.Millisecond):
		}
		l.fail(fmt.Errorf("no answer but that something went wrong: %w", err))
		return l.cause()
	// the server failed, or its nodes did not answer it in time: the event may have been written
	case codes.Aborted, codes.Internal:
		l.fail(fmt.Errorf("the server returned no result: %w", err))
		return l.cause()
	}
	return fmt.Errorf("%w: %s: %w", drivers.ErrRejected, l.address, err)
}

// informs reports whether the server supports requests about persistent subscriptions. The library would send them to
// an older server by HTTP, bypassing the wire.
func (l *link) informs() bool {
	return l.version.Major > 22 || (l.version.Major == 22 && l.version.Minor >= 6)
}
