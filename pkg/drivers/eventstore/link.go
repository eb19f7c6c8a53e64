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
)

const (
	// handshakeTimeout is how long the library waits for a server to say what it can do, in whole seconds.
	handshakeTimeout = 5 * time.Second
	// callsPerConnection is how many calls, subscriptions included, EventStoreDB takes at a time over one connection
	// when nobody has set anything else. Further ones wait in the client.
	callsPerConnection = 100
)

// link is one client of the library, with one connection to one node. When it breaks it stays so.
type link struct {
	session *session
	address string
	client  *esdb.Client
	wire    *wire
	version esdb.ServerVersion
	room    chan struct{} // for appends
	done    chan struct{} // closed when it is broken

	mu       sync.Mutex
	why      error // it is broken
	own      bool  // closed by us
	watchers map[any]func(error)
	uses     int // guarded by its seat
}

// way gives the address where Forward listens for another.
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

// dialFirst connects to the first of some endpoints that answers.
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
	l.wire = newWire(local, e.address, l.fail)
	if l.client, err = esdb.NewClient(s.configuration(l.wire.target())); err != nil {
		l.wire.release()
		return nil, err
	}
	if err := l.greet(ctx); err != nil {
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

// greet connects and asks what the server is. The library does so without a context: if ctx ends first, a goroutine
// sees it through.
func (l *link) greet(ctx context.Context) error {
	greeted := make(chan error, 1)
	go func() {
		version, err := l.client.GetServerVersion()
		if err == nil {
			l.version = *version
		}
		greeted <- err
	}()
	select {
	case err := <-greeted:
		if cause := l.cause(); cause != nil {
			err = cause // of which the library has made something else
		}
		if err != nil {
			l.close()
		}
		return err
	case <-ctx.Done():
		l.fail(ctx.Err())
		go func() {
			<-greeted
			l.close()
		}()
		return ctx.Err()
	}
}

// diagnose finds out why a connection could not be made: the library sees only its own end of Forward.
func (s *session) diagnose(ctx context.Context, e endpoint, seen error) error {
	if ctx.Err() != nil {
		return seen
	}
	conn, err := s.env.Dial(ctx, "tcp", e.address)
	if err != nil {
		return err
	}
	_ = conn.Close()
	return fmt.Errorf("%w (is tls=true or tls=false in the url as the server has it?)", seen)
}

// cause gives why the link is broken, or nil.
func (l *link) cause() error {
	select {
	case <-l.done:
		return l.why
	default:
		return nil
	}
}

// fail breaks the link. Only the first call does anything; it does not block.
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
	go l.wire.broke(cause) // it may be what called
	for _, tell := range watchers {
		go tell(why)
	}
}

// enter waits for room for one more append, which leave gives back. What the connection does not carry would wait in
// gRPC, where the end of one call wakes up all that wait: with 400 of them that takes two thirds of the throughput.
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

// watch has tell called, in a goroutine of its own, when the link breaks by itself; of one that is broken already, at
// once.
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

// close ends the client. Nobody may be calling it any more: the library does not stand that.
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

// verdict says what an error of the library means: that the broker refused, which wraps ErrRejected, or else that there
// is no answer. It breaks the link where the library would connect again.
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
	case codes.Unknown: // perhaps a call that was cut short, whose reason the library has not waited for
		select {
		case <-l.done:
			return l.cause()
		case <-time.After(50 * time.Millisecond):
		}
		l.fail(fmt.Errorf("no answer but that something went wrong: %w", err))
		return l.cause()
	case codes.Aborted, codes.Internal: // the server has waited for its nodes in vain, or failed: it may have written
		l.fail(fmt.Errorf("the server does not say what became of it: %w", err))
		return l.cause()
	}
	return fmt.Errorf("%w: %s: %w", drivers.ErrRejected, l.address, err)
}

// informs reports whether the server can be asked about persistent subscriptions. The library would ask an older one by
// HTTP, past the wire.
func (l *link) informs() bool {
	return l.version.Major > 22 || (l.version.Major == 22 && l.version.Minor >= 6)
}
