// Package eventstore drives EventStoreDB with its official client. A message is an event, a queue is a stream, and a
// subscription is a persistent subscription group. The answer to an append is the confirm. The library's discovery and
// reconnects are prevented.
package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/growth"
)

const (
	// grace is the maximum time for an orderly end of a consumer or publisher.
	grace = 2 * time.Second
	// dialTimeout is the maximum time of a connection attempt.
	dialTimeout = 10 * time.Second
)

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and makes its first connection, so that an unreachable server is reported immediately.
func (driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	o, err := parseOptions(raw)
	if err != nil {
		return nil, err
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	s := &session{options: o, env: env, over: make(chan struct{}), links: map[*link]struct{}{},
		sharedLinks: map[linkKey]*sharedLink{}, parts: map[part]struct{}{}, ways: map[string]string{},
		asides: map[string]*grpc.ClientConn{}}
	if s.endpoints, err = o.endpoints(); err != nil {
		return nil, err
	}
	if s.security, err = o.security(env.Access, env.Dir); err != nil {
		return nil, fmt.Errorf("read eventstore options: %w", err)
	}
	if err := s.administer(ctx, func(context.Context, *link) error { return nil }); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// part is a publisher or consumer, for its session.
type part interface {
	// abandon closes the part. It waits only for running calls of the library.
	abandon()
}

// session is one agent's use of a server or cluster during one task.
type session struct {
	options   options
	endpoints []endpoint
	security  security
	env       drivers.Env

	adminMu sync.Mutex
	admin   *link // for declarations; replaced if it is broken

	asideMu sync.Mutex
	asides  map[string]*grpc.ClientConn // for requests, by address; nil after the session is closed

	mu          sync.Mutex
	closed      bool
	topology    drivers.Topology // topology that was used last
	parts       map[part]struct{}
	links       map[*link]struct{} // every open connection
	sharedLinks map[linkKey]*sharedLink
	ways        map[string]string // by address: the local address where Forward listens
	grown       growth.Counters

	ending sync.Once
	over   chan struct{} // closed by Close
}

var _ interface {
	drivers.Describer
	drivers.Prober
	drivers.Cleaner
} = (*session)(nil)

// Close closes publishers and consumers, and then all connections.
func (s *session) Close() error {
	s.ending.Do(func() {
		s.mu.Lock()
		s.closed = true
		close(s.over)
		var open []part
		for p := range s.parts {
			open = append(open, p)
		}
		s.mu.Unlock()
		var wg sync.WaitGroup
		for _, p := range open {
			wg.Go(p.abandon)
		}
		wg.Wait()
		s.adminMu.Lock() // running calls of administer end, because over is closed
		defer s.adminMu.Unlock()
		s.mu.Lock()
		var links []*link
		for l := range s.links {
			links = append(links, l)
		}
		s.mu.Unlock()
		for _, l := range links {
			l.close()
		}
		s.closeAsides()
	})
	return nil
}

// enrol adds a part. It fails if the session is closed.
func (s *session) enrol(p part, t drivers.Topology) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errSession
	}
	s.parts[p] = struct{}{}
	s.topology = t
	return nil
}

func (s *session) discharge(p part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.parts, p)
}

// administer calls do with the connection for declarations, one caller at a time. It reconnects if that connection is
// broken.
func (s *session) administer(ctx context.Context, do func(context.Context, *link) error) error {
	s.adminMu.Lock()
	defer s.adminMu.Unlock()
	select {
	case <-s.over:
		return errSession
	default:
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-s.over:
			cancel()
		case <-ended:
		}
	}()
	if s.admin == nil || s.admin.cause() != nil {
		if s.admin != nil {
			s.admin.close()
			s.admin = nil
		}
		at, err := s.place(ctx, drivers.AnyNode)
		if err != nil {
			return err
		}
		if s.admin, err = s.dialFirst(ctx, at); err != nil {
			s.admin = nil
			return err
		}
	}
	return do(ctx, s.admin)
}
